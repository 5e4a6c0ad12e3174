"""Say what the tests may find on a machine: an empty home, and the services that some of them need.

Whatever a user's home, caches and variables hold, no test sees it: a test must not pass because of what was left on
a machine. Tests that need a service carry its marker. Where the service is missing, or with ``--no-services``, they
are skipped, and the last lines of the run say so.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# `make setup-ortmodule` makes the environment of engine ortmodule in this cache folder.
ORTMODULE_CACHE = ROOT / "build" / "cache"
POSTGRESQL_URL = "AUTOTUNE_TEST_POSTGRESQL_URL"  # set by with_postgresql.sh


@dataclass(frozen=True)
class Need:
    """Describe a service that tests with the marker of the same name need."""

    name: str
    is_there: Callable[[], bool]

    @property
    def target(self) -> str:
        """Give the Makefile's target that brings the service and runs its tests."""
        return f"make test-{self.name}"

    @property
    def reason(self) -> str:
        """Say why a test is skipped."""
        return f"needs {self.name}: {self.target}"


NEEDS = (
    Need("browser", lambda: bool(shutil.which("chromium") and shutil.which("chromedriver"))),
    Need("ortmodule", lambda: any(ORTMODULE_CACHE.glob("engines/ortmodule-*/autotune.json"))),
    Need("postgresql", lambda: POSTGRESQL_URL in os.environ),
    Need("ray", lambda: importlib.util.find_spec("ray") is not None),
)
# The variables of users that say where programs keep things.
_PLACES = (
    "CUDA_CACHE_PATH",
    "HF_DATASETS_CACHE",
    "HF_HOME",
    "HF_HUB_CACHE",
    "IPYTHONDIR",
    "MPLCONFIGDIR",
    "NUMBA_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "TORCH_HOME",
    "TRITON_CACHE_DIR",
)
# Of the variables that begin so, users tell these programs what to do.
_SETTINGS = ("AUTOTUNE_", "MLFLOW_", "WANDB_")


def empty_home(variables: MutableMapping[str, str]) -> Path:
    """Set ``variables`` to a new and empty home with folders for caches and temporary files; gives its path.

    The path is short, since sockets lie below it, whose paths end at 107 bytes.
    """
    home = Path(tempfile.mkdtemp(prefix="home-"))
    for name in _PLACES:
        variables.pop(name, None)
    for name in [name for name in variables if name.startswith(_SETTINGS) and not name.startswith("AUTOTUNE_TEST_")]:
        del variables[name]
    # pytest keeps the folders of the last three runs, to look at: those stay where they were.
    variables.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    variables["HOME"] = str(home)
    for name, folder in (
        ("TMPDIR", "tmp"),
        ("XDG_CACHE_HOME", "cache"),
        ("XDG_CONFIG_HOME", "config"),
        ("XDG_DATA_HOME", "data"),
        ("XDG_STATE_HOME", "state"),
    ):
        (home / folder).mkdir()
        variables[name] = str(home / folder)
    tempfile.tempdir = None  # asked again
    return home


def skip_services(items: list[pytest.Item], *, all_of_them: bool) -> None:
    """Skip the tests whose service is missing; with ``all_of_them``, skip every test that needs a service."""
    missing = [need for need in NEEDS if all_of_them or not need.is_there()]
    for item in items:
        for need in missing:
            if item.get_closest_marker(need.name):
                item.add_marker(pytest.mark.skip(reason=need.reason))


def require(names: list[str]) -> None:
    """Check that services are there: without one, all of its tests would be skipped and none would fail.

    Raises:
        pytest.UsageError: one is missing, or there is no service of that name.
    """
    for name in names:
        need = next((need for need in NEEDS if need.name == name), None)
        if need is None:
            raise pytest.UsageError(f"--require: {name!r} is none of {', '.join(need.name for need in NEEDS)}")
        if not need.is_there():
            raise pytest.UsageError(f"{name} is not on this machine, and its tests would all be skipped: {need.target}")


@dataclass(frozen=True)
class Slice:
    """A part of the tests, such as ``3/10``: the third of ten.

    Tests are drawn by a hash of their names, so that each slice has tests of every kind and stays the same when others
    come in. Of a test with parameters the hash is that of its file and its parameters: tests of one file with the same
    parameters often share what is made for the first of them.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Slice:
        """Read ``3/10``.

        Raises:
            pytest.UsageError: it is no slice.
        """
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise pytest.UsageError(f"--slice: {text!r} is no slice; 3/10 is the third of ten")
        return cls(int(found[1]), int(found[2]))

    def __contains__(self, name: str) -> bool:
        """Tell whether the test of that name is in the slice."""
        together = re.sub(r"::[^\[]*(?=\[)", "::", name, count=1)
        return zlib.crc32(together.encode()) % self.count == self.number - 1


def not_tested(skipped: list[pytest.TestReport]) -> list[str]:
    """Give a line for each service whose tests were skipped, and for each other reason to skip tests."""
    counts = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    needed = [(need, counts.pop(need.reason, 0)) for need in NEEDS]
    lines = [f"NOT TESTED: {need.name} ({_tests(count)}). Run: {need.target}" for need, count in needed if count]
    return lines + [f"SKIPPED: {reason} ({_tests(count)})" for reason, count in sorted(counts.items())]


def _tests(count: int) -> str:
    return "1 test" if count == 1 else f"{count} tests"
