"""What somebody does with a browser, and what the browser has done."""

from __future__ import annotations

import json
import time

PHONE, DESK = 390, 1280
DEADLINE_S = 30.0


def set_width(driver, width):
    """As wide as a window, or as a phone."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE},
    )


def forget(driver):
    """Drop what an earlier page has logged."""
    for name in ("browser", "performance"):
        driver.get_log(name)


def requests(driver):
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]


def press(driver, *keys):
    driver.switch_to.active_element.send_keys(*keys)


def tab_to(driver, element):
    """Go there as somebody without a mouse does."""
    for _ in range(200):
        if driver.switch_to.active_element == element:
            return
        press(driver, "\ue004")
    raise AssertionError("the keyboard does not come there")


def wait_for(what):
    """As a person does: until it is there."""
    until_s = time.monotonic() + DEADLINE_S
    while True:
        found = what()
        if found or time.monotonic() > until_s:
            return found
        time.sleep(0.1)
