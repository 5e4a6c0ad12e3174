"""Debian's Chromium, for tests of pages."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """Start Debian's Chromium."""
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    made.set_page_load_timeout(60)
    made.get("about:blank")  # a new tab has a page of Chromium's own, which loads things
    yield made
    made.quit()
