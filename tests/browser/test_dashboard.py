"""The dashboard in a real browser, from its own server: it follows a study that runs, and a keyboard is enough."""

from __future__ import annotations

import socket
import threading
import zipfile
from contextlib import contextmanager
from dataclasses import replace

import pytest

from autotune.dashboard.app import make_app
from autotune.dashboard.serving import Server
from autotune.records.study import Remark
from autotune.store.database import open_store
from tests.fakes.browsing import DEADLINE_S, PHONE, forget, press, requests, set_width, tab_to, wait_for
from tests.fakes.store_samples import ENVIRONMENT
from tests.fakes.stored_study import store_study
from tests.fakes.study_record import BASELINE, baseline_best, measured, study_record
from tests.unit.test_report_page import hostile_study

pytestmark = pytest.mark.browser


@contextmanager
def served(database, *, token="", port=0):
    """A dashboard of a database, from a thread of its own."""
    with open_store(database) as store:
        server = Server(make_app(store, token=token), host="127.0.0.1", port=port)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.close()
            thread.join(DEADLINE_S)


@pytest.fixture
def database(tmp_path):
    return str(tmp_path / "studies.db")


@pytest.fixture
def store(database):
    with open_store(database) as store:
        yield store


@pytest.fixture
def address(database, store):
    with served(database) as server:
        yield server.address


@pytest.fixture(autouse=True)
def _desk(driver):
    set_width(driver, 1280)
    driver.get("about:blank")
    forget(driver)


def texts(driver, selector):
    """What is shown of each, at one moment: elements of a page that is brought up to date are soon others."""
    shown = "[...document.querySelectorAll(arguments[0])].filter((one) => one.checkVisibility())"
    return driver.execute_script(f"return {shown}.map((one) => one.innerText)", selector)


def text(driver, selector):
    return " ".join(texts(driver, selector))


def assert_all_is_well(driver, address):
    """Nothing was asked of anybody else, and the browser had nothing to say."""
    assert [url for url in requests(driver) if not url.startswith((address, "data:"))] == []
    assert driver.get_log("browser") == []


def test_a_study_is_followed_while_it_runs(driver, address, store):
    study = store_study(store, study_record(name="at work", verdict=None))
    driver.get(f"{address}study?name=at%20work")
    assert text(driver, "#state") == "running"
    assert len(texts(driver, ".trials tbody tr")) == 17
    driver.find_element("css selector", "details summary").click()
    before = len(driver.find_elements("css selector", "details[open]"))

    trial = study.optuna.ask()
    study.begin(trial.number, replace(BASELINE, batch_size=20), "")
    study.finish(trial.number, measured(160.0, 20, 17.0), ENVIRONMENT)

    assert wait_for(lambda: len(texts(driver, ".trials tbody tr")) == 18)
    assert len(driver.find_elements("css selector", "details[open]")) == before == 1
    study.set_verdict(study_record().verdict)
    assert wait_for(lambda: "Recompute 4 of 12 Blocks" in text(driver, "h1"))
    assert_all_is_well(driver, address)


def test_what_was_chosen_stays_when_a_page_is_brought_up_to_date(driver, address, store):
    study = store_study(store, study_record(name="at work", verdict=None))
    store_study(store, study_record(name="two"))
    driver.get(f"{address}study?name=at%20work")
    driver.find_element("id", "other").send_keys("two")
    failed = next(one for one in driver.find_elements("css selector", "button[data-show]") if "failed" in one.text)
    failed.click()
    failed.send_keys("")
    shown = texts(driver, ".trials tbody tr")
    study.set_verdict(study_record().verdict)
    assert wait_for(lambda: "Recompute 4 of 12 Blocks" in text(driver, "h1"))
    assert texts(driver, ".trials tbody tr") == shown
    assert 0 < len(shown) < 17
    assert driver.find_element("id", "other").get_property("value") == "two"
    assert texts(driver, ":focus") == [one for one in texts(driver, "button[data-show]") if "failed" in one]


def test_a_new_study_appears_in_the_list_and_the_filter_stays(driver, address, store):
    store_study(store, study_record(name="charlm"))
    store_study(store, baseline_best())
    driver.get(address)
    field = driver.find_element("id", "filter")
    tab_to(driver, field)
    press(driver, "charlm")
    assert len(texts(driver, "tbody tr")) == 1
    store_study(store, study_record(name="charlm again"))
    assert wait_for(lambda: len(texts(driver, "tbody tr")) == 2)
    assert driver.find_element("id", "filter").get_attribute("value") == "charlm"
    assert driver.switch_to.active_element == driver.find_element("id", "filter")
    press(driver, "zzz")
    assert text(driver, "#none") == "No study holds that."
    assert_all_is_well(driver, address)


def test_two_studies_are_compared_by_keyboard_alone(driver, address, store):
    store_study(store, study_record(name="one"))
    store_study(store, study_record(name="two"))
    driver.get(f"{address}study?name=one")
    tab_to(driver, driver.find_element("id", "other"))
    press(driver, "two")
    assert "/compare" not in driver.current_url, "who moves through the list with the keys has not chosen yet"
    tab_to(driver, driver.find_element("css selector", ".tools form button"))
    press(driver, "\ue007")
    assert wait_for(lambda: "/compare" in driver.current_url)
    assert "“two” found 1.00x" in text(driver, "h1")
    assert_all_is_well(driver, address)


def test_a_bundle_is_downloaded_under_its_studys_name(driver, address, store, tmp_path):
    store_study(store, study_record(name="one/two"))
    behaviour = {"behavior": "allow", "downloadPath": str(tmp_path)}
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
    driver.get(f"{address}study?name=one%2Ftwo")
    link = next(one for one in driver.find_elements("css selector", ".tools a") if one.text == "Bundle")
    tab_to(driver, link)
    press(driver, "\ue007")
    bundle = tmp_path / "autotune-one-two.zip"
    assert wait_for(bundle.exists)
    assert "mem_opt.json" in zipfile.ZipFile(bundle).namelist()
    assert_all_is_well(driver, address)


def test_a_server_that_went_away_is_said_and_so_is_its_return(driver, database, store):
    store_study(store, study_record(name="one"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with served(database, port=port) as server:
        driver.get(server.address)
    assert wait_for(lambda: "does not answer" in text(driver, "#told"))
    with served(database, port=port):
        assert wait_for(lambda: not texts(driver, "#told"))


def test_with_a_token_the_printed_address_opens_and_the_plain_one_does_not(driver, database, store):
    store_study(store, study_record(name="one"))
    with served(database, token="secret") as server:
        driver.get(server.address)
        assert "contains a token" in text(driver, "body")
        driver.get(f"{server.address}?token=secret")
        assert driver.current_url == server.address
        assert text(driver, "h1") == "Studies"
        driver.get(f"{server.address}study?name=one")
        assert "Recompute 4 of 12 Blocks" in text(driver, "h1")


def test_another_page_gets_nothing_from_it(driver, database, store):
    store_study(store, study_record(name="one"))
    asks = """
        const [address, done] = arguments;
        const code = new Promise((ended) => {
          const one = document.createElement("script");
          one.onload = () => ended("loaded");
          one.onerror = () => ended("refused");
          one.src = address + "assets/report.js";
          document.head.append(one);
        });
        const read = fetch(address).then((answer) => answer.text(), () => "refused");
        Promise.all([code, read]).then(done);
    """
    with served(database) as server, served(database) as other:
        driver.get(other.address)
        driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
        driver.get(other.address)
        try:
            assert driver.execute_async_script(asks, server.address) == ["refused", "refused"]
            code, read = driver.execute_async_script(asks, other.address)
            assert code == "loaded"
            assert "one" in read
        finally:
            driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": False})


def long_study():
    """Names and sentences without a place to break a line, as long as anybody's path."""
    record, long = study_record(), "y" * 10_000
    facts = replace(
        record.facts,
        environment=replace(record.facts.environment, device_name=long, variables={long: long}),
        clusters=(replace(record.facts.clusters[0], note=long, saving_formula=long), *record.facts.clusters[1:]),
        roots=(replace(record.facts.roots[0], name=long),),
        optimizers=(replace(record.facts.optimizers[0], name=long, settings={long: long}),),
        notes=(long,),
    )
    trials = tuple(
        one if one.measured else replace(one, outcome=replace(one.outcome, cause=long, advice=long, log_tail=(long,)))
        for one in record.trials
    )
    verdict = replace(record.verdict, reason=Remark("winner", long), stop_reason=long)
    spec = replace(record.spec, script=f"/x/{long}.py", arguments=(long,))
    return replace(record, name="y" * 200, spec=spec, facts=facts, trials=trials, verdict=verdict)


@pytest.mark.parametrize("page", ["", "study?name={}", "study/trial?name={}&number=3", "compare?a={}&b={}"])
@pytest.mark.parametrize("width", [1280, PHONE])
def test_names_of_ten_thousand_characters_stay_on_the_page(driver, address, store, page, width):
    record = long_study()
    store_study(store, record)
    set_width(driver, width)
    driver.get(address + page.format(record.name, record.name))
    assert text(driver, "h1")
    assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert_all_is_well(driver, address)


@pytest.mark.parametrize("page", ["", "study?name=%3Cscript%3E", "gates", "study/trial?name=%3Cscript%3E&number=3"])
@pytest.mark.parametrize("width", [1280, PHONE])
def test_hostile_names_do_nothing_and_nothing_overflows(driver, address, store, page, width):
    store_study(store, replace(hostile_study(), name="<script>"))
    set_width(driver, width)
    driver.get(f"{address}{page}")
    assert text(driver, "h1")
    assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert_all_is_well(driver, address)
