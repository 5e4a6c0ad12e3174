"""A plugin: what tests came to is kept in a file as each of them ends, and those that passed are not run again.

``python -m pytest -p tests.remembering --remember FILE``. So tests may be ended at any moment and gone on with later,
on another machine too, and in several processes (``-n``). A line of the file is an object with ``test`` (its id),
``outcome`` (``begun``, ``passed``, ``failed``, ``skipped``), ``seconds``, ``code`` (the package and the test's file, as
``code_of`` tells them) and, of what did not pass, ``why``. A test that passed with other code is run again.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fingerprint import code_of
from trials import lines

_PACKAGE = Path(__file__).resolve().parents[1] / "autotune"
_LONGEST = 6000  # characters of a failure, from its end
_BEGUN = "begun"
_KNOWN = "remembered"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--remember", type=Path, required=True, metavar="FILE", help="keep what tests came to here")


def pytest_configure(config: pytest.Config) -> None:
    """Remember, and leave out what is remembered as passed."""
    code = _Code(config.rootpath)
    known = getattr(config, "workerinput", {}).get(_KNOWN)
    if known is None:
        # This process collects the reports of all; to those of xdist it hands on what it knows, so that one which takes
        # the place of another that crashed collects the same tests.
        path = config.getoption("--remember")
        known = {line["test"]: [line["outcome"], line.get("code", "")] for line in lines.read(path)}
        config.pluginmanager.register(_Remembering(path, code, known))
    config.pluginmanager.register(_LeavingOut(known, code))


class _Code:
    """The code that a test runs, by the test's id."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._package = code_of(_PACKAGE)
        self._of_file = functools.cache(code_of)

    def of(self, test: str) -> str:
        return f"{self._package}-{self._of_file(self._root / test.partition('::')[0])}"


class _LeavingOut:
    """Leaves out the tests that have passed; those that were begun and did not end come last."""

    def __init__(self, known: Mapping[str, Sequence[str]], code: _Code) -> None:
        self._known = known
        self._code = code

    @pytest.hookimpl(trylast=True)  # after what was not asked for is left out
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        out = [item for item in items if [*self._last(item)] == ["passed", self._code.of(item.nodeid)]]
        if out:
            config.hook.pytest_deselected(items=out)
        items[:] = sorted((item for item in items if item not in out), key=lambda item: self._last(item)[0] == _BEGUN)

    def _last(self, item: pytest.Item) -> Sequence[str]:
        return self._known.get(item.nodeid, ("", ""))


class _Remembering:
    """Adds a line to a file for each test that begins, and for each that ends."""

    def __init__(self, path: Path, code: _Code, known: Mapping[str, Sequence[str]]) -> None:
        self._path = path
        self._code = code
        self._known = known
        self._seconds: dict[str, float] = {}
        self._ended: set[str] = set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hand on to a process of xdist's what is known."""
        node.workerinput[_KNOWN] = dict(self._known)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write that a test has begun: one that takes its process along leaves no other trace."""
        lines.append(self._path, {"test": nodeid, "outcome": _BEGUN, "code": self._code.of(nodeid)})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the line once the test has ended: after its teardown, or earlier if it has failed."""
        seconds = self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if report.passed and report.when != "teardown":
            return
        if report.when == "teardown" and report.passed and report.nodeid in self._ended:
            return  # it has failed before, or was skipped
        line = {"test": report.nodeid, "outcome": report.outcome, "seconds": round(seconds, 2)}
        line["code"] = self._code.of(report.nodeid)
        if not report.passed:
            line["why"] = report.longreprtext[-_LONGEST:] or str(report.longrepr)
            self._ended.add(report.nodeid)
        lines.append(self._path, line)
