"""The report in a real browser: nothing goes wrong there, nothing leaves the machine, and a keyboard is enough."""

from __future__ import annotations

import pytest

from autotune.report import build_report, render_html
from tests.fakes.browsing import DESK, PHONE, forget, press, requests, set_width, tab_to
from tests.fakes.study_record import study_record
from tests.unit.test_report_page import hostile_study

pytestmark = pytest.mark.process


@pytest.fixture
def show(driver, tmp_path):
    """``show(record)`` opens its report from a file; ``width`` is that of the window."""

    def show(record, *, width=DESK, **report):
        path = tmp_path / "report.html"
        path.write_text(render_html(build_report(record, **report)), encoding="utf-8")
        set_width(driver, width)
        forget(driver)
        driver.get(path.as_uri())
        return path.as_uri()

    yield show
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def shown_rows(driver):
    return [row for row in driver.find_elements("css selector", ".trials tbody tr") if row.is_displayed()]


@pytest.mark.parametrize("make", [study_record, hostile_study])
def test_nothing_goes_wrong_and_nothing_is_asked_of_anybody_else(driver, show, make):
    url = show(make())
    assert requests(driver) == [url]
    assert driver.get_log("browser") == []
    assert driver.find_element("css selector", "h1").text


def test_a_filter_shows_the_trials_of_one_kind_by_keyboard_alone(driver, show):
    show(study_record())
    whole = len(shown_rows(driver))
    failed = driver.find_element("css selector", 'button[data-show="failed"]')
    tab_to(driver, failed)
    press(driver, " ")
    rows = shown_rows(driver)
    assert {row.get_attribute("class") for row in rows} == {"failed"}
    assert f"failed {len(rows)}" == failed.text
    assert failed.get_attribute("aria-pressed") == "true"
    tab_to(driver, driver.find_element("css selector", 'button[data-show=""]'))
    press(driver, "\ue007")
    assert len(shown_rows(driver)) == whole


def test_the_command_is_copied_by_keyboard_alone(driver, show):
    show(study_record(), bundle="my bundle")
    button = driver.find_element("css selector", "button[data-copy]")
    tab_to(driver, button)
    press(driver, " ")
    assert button.text in ("Copied", "Selected")


def test_a_formula_is_unfolded_by_keyboard(driver, show):
    show(study_record())
    summary = driver.find_element("css selector", ".plans summary")
    formula = driver.find_element("css selector", ".plans code")
    assert not formula.is_displayed()
    tab_to(driver, summary)
    press(driver, "\ue007")
    assert formula.is_displayed()


@pytest.mark.parametrize(("width", "drawn"), [(PHONE, "narrow"), (DESK, "wide")])
def test_the_page_fits_its_window_and_draws_for_it(driver, show, width, drawn):
    show(study_record(), width=width)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    charts = driver.find_elements("css selector", "svg.wide, svg.narrow")
    assert {chart.get_attribute("class") for chart in charts if chart.is_displayed()} == {drawn}


def test_dark_and_light_have_their_own_colours(driver, show):
    show(study_record())

    def colours(scheme):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        return driver.execute_script(
            "const style = getComputedStyle(document.body); return [style.backgroundColor, style.color]"
        )

    light, dark = colours("light"), colours("dark")
    assert light[0] != dark[0]
    assert light[1] != dark[1]
