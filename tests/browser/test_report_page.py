"""The report in a real browser: nothing goes wrong there, nothing leaves the machine, and a keyboard is enough."""

from __future__ import annotations

import pytest

from autotune.records.configuration import Configuration
from autotune.records.plan import Plan
from autotune.report.build import build_report
from autotune.report.page import render_html
from tests.fakes.browsing import DESK, PHONE, forget, press, requests, set_width, tab_to, wait_for
from tests.fakes.deep_model import deep_graph, deep_study
from tests.fakes.study_record import study_record
from tests.unit.test_report_page import hostile_study

pytestmark = pytest.mark.browser

# A4 less its margins, at 96 pixels an inch.
PAPER = 688
FOUR = Configuration("aot", (Plan("Block+", 1, 4),), 0, 16)


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
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


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
    assert wait_for(lambda: button.text in ("Copied", "Selected"))


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


def test_a_part_of_the_model_is_taken_apart_by_keyboard(driver, show):
    show(deep_study(deep_graph(12), winner=FOUR))
    block, inner = (driver.find_element("css selector", f".tree details details {what}") for what in ("summary", "div"))
    assert block.text.split()[:4] == ["Block", "1", "to", "4"]
    assert not inner.is_displayed()
    tab_to(driver, block)
    press(driver, "\ue007")
    assert inner.is_displayed()


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_tree_of_a_model_fits_its_window(driver, show, width):
    show(deep_study(deep_graph(30, grows=True), winner=FOUR), width=width)
    driver.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    over = (
        "return [...document.querySelectorAll('.tree *')].filter(one => one.scrollWidth > one.clientWidth + 1).length"
    )
    assert driver.execute_script(over) == 0


def on_paper(driver):
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": features})


@pytest.mark.parametrize("make", [study_record, lambda: deep_study(deep_graph(30, grows=True), winner=FOUR)])
def test_nothing_is_cut_on_paper(driver, show, make):
    show(make(), width=PAPER)
    on_paper(driver)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= PAPER
    cut = """
      return [...document.querySelectorAll("main *")].filter(one => !one.closest("svg, .track, .keeps, .split")
        && one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML.slice(0, 80))
    """
    assert driver.execute_script(cut) == []


def test_what_is_folded_is_open_on_paper(driver, show):
    folded = (
        "return [...document.querySelectorAll('details:not([open]) > :not(summary)')].map(one => one.checkVisibility())"
    )
    show(study_record())
    assert not any(driver.execute_script(folded))
    on_paper(driver)
    shown = driver.execute_script(folded)
    assert shown
    assert all(shown)


def test_paper_has_no_buttons_and_light_colours_whatever_the_screen_has(driver, show):
    show(study_record(), bundle="my bundle")
    assert driver.find_element("css selector", "button").is_displayed()
    on_paper(driver)
    assert [one.text for one in driver.find_elements("css selector", "button, .on-screen") if one.is_displayed()] == []
    ink = driver.execute_script("return getComputedStyle(document.body).color")
    assert ink == "rgb(29, 31, 33)"
