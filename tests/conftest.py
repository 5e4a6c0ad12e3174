"""Give tests an empty home, hold quick tests to be quick, choose slices of tests, and compare gold files.

Tests in ``unit``, ``contract`` and ``docs`` are quick, unless they are marked ``process`` or ``slow`` or need a
service: a quick test that imports torch or starts a process fails. Tests that need torch in their own process are in
``torch``, those that run real scripts in ``e2e``.

A gold file is what a test wrote once, was looked at, and must stay so. ``make update-gold`` writes them anew.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import autotune
from tests import needs

_TESTS = Path(__file__).parent
_GOLD = _TESTS / "gold"
_TORCH = _TESTS / "torch"
_QUICK = (_TESTS / "unit", _TESTS / "contract", _TESTS / "docs")
_NOT_QUICK = frozenset({"process", "slow", "gpu", *(need.name for need in needs.NEEDS)})
_STARTS = frozenset({"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})

# What may change without anybody having to look: our own version; and in pages the styles, the scripts and their
# hashes, which have tests of their own.
_SCRUBBED = (
    (re.compile(rf"(?<![\w.]){re.escape(autotune.__version__)}(?![\w.])"), "<version>"),
    (re.compile(r"(?<=<style>).*?(?=</style>)", re.DOTALL), "<styles>"),
    (re.compile(r"(<script[^>]*>).*?(?=</script>)", re.DOTALL), r"\1<script>"),
    (re.compile(r"'sha256-[A-Za-z0-9+/=]+'"), "'sha256-<hash>'"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options of our own."""
    parser.addoption("--update-gold", action="store_true", help="write the gold files anew instead of comparing")
    parser.addoption(
        "--slice", metavar="K/N", help="run the tests of slice K of N (1 to N) alone, drawn by their names"
    )
    parser.addoption("--no-services", action="store_true", help="skip what needs a service, even if it is there")
    parser.addoption(
        "--require", action="append", default=[], metavar="NAME", help="fail where this service is missing"
    )
    parser.addoption("--last-words", type=Path, metavar="FILE", help="append there what else is printed last")


def pytest_configure(config: pytest.Config) -> None:
    """Give the tests an empty home, and let Ctrl-C end them.

    Where tests run in the background a shell has Ctrl-C ignored, and every process that they start would ignore it too.
    """
    if not hasattr(config, "workerinput"):  # xdist's workers have this process's home
        home = needs.empty_home(os.environ)
        config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    needs.require(config.getoption("--require"))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # How long an example takes is a question of how busy the machine is.
    settings.register_profile("anywhere", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("anywhere")
    if capability := os.environ.get("ATEN_CPU_CAPABILITY"):
        # Torch's cache of compiled graphs (2.13) takes no notice of it, and kernels for other instructions end in
        # SIGSEGV.
        caches = Path(tempfile.gettempdir(), f"torchinductor-{os.getuid()}-{capability}")
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(caches))
    sys.addaudithook(_audit)
    sys.meta_path.insert(0, _NoTorch)


_quick_now: list[str] = []


def _audit(event: str, _: Any, starts: frozenset[str] = _STARTS, quick_now: list[str] = _quick_now) -> None:
    # It is called until the process is gone, longer than this module's names are there.
    if quick_now and event in starts:
        pytest.fail(f"{quick_now[0]} starts a process: mark it `process`")


class _NoTorch:
    """The first finder of modules."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "torch" and _quick_now:
            pytest.fail(f"{_quick_now[0]} imports torch: its place is tests/torch")


@contextlib.contextmanager
def _held_to_be_quick(node: pytest.Item | pytest.Collector) -> Iterator[None]:
    _quick_now.append(node.nodeid)
    try:
        yield
    finally:
        _quick_now.clear()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the quick tests, skip those that lack a service, and leave out other slices than the one asked for."""
    for item in items:
        if item.path.parent in _QUICK and not _NOT_QUICK & {mark.name for mark in item.iter_markers()}:
            item.add_marker("quick")
    needs.skip_services(items, all_of_them=config.getoption("--no-services"))
    if asked := config.getoption("--slice"):
        slice_ = needs.Slice.parse(asked)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in slice_])
        items[:] = [item for item in items if item.nodeid in slice_]


def pytest_collection_finish() -> None:
    """Put aside what was imported: autotune looks for garbage before each trial, and torch has 400,000 objects."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Take back what was put aside: pytest looks for what nobody closed at its very end."""
    gc.unfreeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print last what failed and what was not tested, or append it to ``--last-words``, which more may be added to."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    broken = [report for kind in ("failed", "error") for report in reporter.stats.get(kind, ())]
    lines = [f"FAILED: {name}" for name in dict.fromkeys(report.nodeid for report in broken)]
    lines += needs.not_tested(reporter.stats.get("skipped", []))
    if path := config.getoption("--last-words"):
        with path.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
    else:
        for line in lines:
            reporter.write_line(line, bold=True)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Import a module of tests."""
    with _held_to_be_quick(collector) if collector.path.parent in _QUICK else contextlib.nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Run a test with the fixtures that are made for it, and put aside what the test has imported."""
    if item.get_closest_marker("quick"):
        with _held_to_be_quick(item):
            return (yield)
    done = yield
    if item.path.parent == _TORCH and (nextitem is None or nextitem.path != item.path):
        gc.unfreeze()  # models that the module's fixtures held are garbage now
    gc.collect()
    gc.freeze()
    return done


@pytest.fixture
def gold(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``gold(name, text)`` compares the scrubbed text with ``tests/gold/<name>``."""

    def check(name: str, text: str) -> None:
        for pattern, replacement in _SCRUBBED:
            text = pattern.sub(replacement, text)
        path = _GOLD / name
        if request.config.getoption("--update-gold"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is not there; `make update-gold` writes it"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; if that is meant: `make update-gold`"

    return check
