"""How long a browser takes to open a report: 20 trials and 1,000, with the tree of a deep model.

Each page is written to a file and opened several times in Debian's Chromium, a fresh profile for each kind of page and
an empty tab before each time. Printed are medians: ``first contentful paint``, when something is to be seen, and
``load``, when all of it is there (``navigationStart`` to ``loadEventEnd``). 1,000 trials should open within 1.5 s.
``python tests/benchmarks/report_page.py --json``
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from autotune.records.configuration import Configuration  # noqa: E402
from autotune.records.plan import Plan  # noqa: E402
from autotune.records.study import StudyRecord  # noqa: E402
from autotune.report.build import build_report  # noqa: E402
from autotune.report.page import render_html  # noqa: E402
from tests.fakes.deep_model import deep_graph, deep_study  # noqa: E402
from tests.fakes.study_record import study_record  # noqa: E402

_BLOCKS = 48
_TIMES = """
const [page] = performance.getEntriesByType("navigation");
const paint = performance.getEntriesByName("first-contentful-paint")[0];
const elements = document.querySelectorAll("*").length;
return {paint: paint ? paint.startTime : null, load: page.loadEventEnd, elements};
"""


def study(number: int) -> StudyRecord:
    """A study of so many trials, with a deep model's graphs."""
    record, winner = study_record(), Configuration("aot", (Plan("Block+", 1, _BLOCKS // 2),), 0, 16)
    deep = deep_study(deep_graph(_BLOCKS), winner=winner)
    trials = tuple(
        dataclasses.replace(
            own, number=place, configuration=dataclasses.replace(own.configuration, batch_size=place + 17)
        )
        for place in range(len(deep.trials), number)
        for own in [record.trials[place % len(record.trials)]]
    )
    return dataclasses.replace(deep, trials=(*deep.trials, *trials))


def opened(driver: Any, path: Path, scheme: str) -> dict[str, float]:
    """The times of opening a page once, in milliseconds, and its number of elements."""
    driver.get("about:blank")
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    driver.get(path.as_uri())
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        found: dict[str, float] = driver.execute_script(_TIMES)
        if found["load"] and found["paint"] is not None:
            return found
        time.sleep(0.02)
    raise SystemExit(f"{path.name} was not painted within 30 s: is another program using all of this machine?")


def measured(number: int, folder: Path, times: int) -> dict[str, float]:
    """The figures of the page of so many trials."""
    from selenium import webdriver

    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        raise SystemExit("there is no Chromium here: `make setup-browser` installs Debian's")
    record = study(number)
    begun = time.perf_counter()
    made = build_report(record)
    built = time.perf_counter()
    html = render_html(made)
    rendered = time.perf_counter()
    path = folder / f"report-{number}.html"
    path.write_text(html, encoding="utf-8")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    profile = folder / f"profile-{number}"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={profile}")
    options.add_argument("--window-size=1280,900")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    driver.set_page_load_timeout(60)
    try:
        opened(driver, path, "light")  # the first time Chromium starts processes of its own
        seen = [opened(driver, path, "light" if place % 2 else "dark") for place in range(times)]
    finally:
        driver.quit()
    return {
        "trials": number,
        "kilobytes": len(html.encode()) / 1000,
        "elements": seen[0]["elements"],
        "build_ms": 1000 * (built - begun),
        "render_ms": 1000 * (rendered - built),
        "first_contentful_paint_ms": statistics.median(one["paint"] for one in seen),
        "load_ms": statistics.median(one["load"] for one in seen),
        "slowest_load_ms": max(one["load"] for one in seen),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=9, help="how often each page is opened")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        rows = [measured(number, Path(folder), given.times) for number in (20, 1000)]
    if given.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print("  ".join(f"{name} {value:.0f}" for name, value in row.items()))


if __name__ == "__main__":
    main()
