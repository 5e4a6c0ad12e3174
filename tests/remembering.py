"""A plugin: what tests came to is kept in a file as each of them ends, and those that passed are not run again.

``python -m pytest -p tests.remembering --remember FILE``. So tests may be ended at any moment and gone on with later,
on another machine too. A line of the file is an object with ``test`` (its id), ``outcome`` (``passed``, ``failed``,
``skipped``), ``seconds``, ``code`` (the package and the test's file, as ``code_of`` tells them) and, of what did not
pass, ``why``. A test that passed with other code is run again.

Where tests are skipped and not one has passed, now or before, nothing was found out: the exit status is 75.

``--longest SECONDS`` fails a test that takes longer, for interpreters without pytest-timeout: one that hangs would be
the first that is run each time, and the last.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fingerprint import code_of
from trials import lines

NOTHING_RAN = 75  # EX_TEMPFAIL of sysexits.h
_PACKAGE = Path(__file__).resolve().parents[1] / "autotune"
_LONGEST = 6000  # characters of a failure, from its end


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption("--remember", type=Path, required=True, metavar="FILE", help="keep what tests came to here")
    parser.addoption("--longest", type=int, metavar="SECONDS", help="fail a test that takes longer")


def pytest_configure(config: pytest.Config) -> None:
    """Remember, and leave out what is remembered as passed."""
    config.pluginmanager.register(Remembering(config.getoption("--remember"), config.getoption("--longest")))


class Remembering:
    """Leaves out the tests that a file says have passed, and adds a line to it for each test that ends."""

    def __init__(self, path: Path, longest_s: int | None) -> None:
        self._path = path
        self._longest_s = longest_s
        self._seconds: dict[str, float] = {}
        self._passed = {(line["test"], line.get("code")) for line in lines.read(path) if line["outcome"] == "passed"}
        self._package = code_of(_PACKAGE)
        # Of the tests that were collected, by their ids.
        self._code: dict[str, str] = {}
        self._outcomes: set[str] = set()

    @pytest.hookimpl(trylast=True)  # after what was not asked for is left out
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what has passed."""
        files = {path: f"{self._package}-{code_of(path)}" for path in {item.path for item in items}}
        self._code = {item.nodeid: files[item.path] for item in items}
        out = [item for item in items if (item.nodeid, self._code[item.nodeid]) in self._passed]
        if out:
            self._outcomes.add("passed")
            config.hook.pytest_deselected(items=out)
            items[:] = [item for item in items if item not in out]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Say by the exit status that there was nothing but skipped tests."""
        if self._outcomes == {"skipped"}:
            session.exitstatus = NOTHING_RAN

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        """End a test that takes too long, unless it hangs where no signal is heeded."""
        if self._longest_s is None:
            return (yield)

        def fail(*_: object) -> None:
            pytest.fail(f"it took more than {self._longest_s} s")

        before = signal.signal(signal.SIGALRM, fail)
        signal.alarm(self._longest_s)
        try:
            return (yield)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the line once the test has ended: after its teardown, or earlier if it has failed."""
        seconds = self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if report.passed and report.when != "teardown":
            return
        if report.when == "teardown" and report.passed and self._ended == report.nodeid:
            return  # it has failed before, or was skipped
        self._outcomes.add(report.outcome)
        line = {"test": report.nodeid, "outcome": report.outcome, "seconds": round(seconds, 2)}
        line["code"] = self._code[report.nodeid]
        if not report.passed:
            line["why"] = report.longreprtext[-_LONGEST:] or str(report.longrepr)
            self._ended = report.nodeid
        lines.append(self._path, line)

    _ended = ""
