"""How long the processes of a run may take to be gone."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator

import pytest

from autotune.errors import RunError
from autotune.launch import process_tree
from autotune.launch.process_tree import ProcessTree

pytestmark = pytest.mark.process


class Stuck:
    """A main process that is dead at the look of this number only, as one in a driver's call would be."""

    is_lost = False

    def __init__(self, process: subprocess.Popen[bytes], *, looks: int) -> None:
        self.pid = process.pid
        self._process = process
        self._looks = itertools.count()
        self._dead_at = looks

    def exited(self) -> bool:
        return next(self._looks) >= self._dead_at

    def reap(self) -> int:
        return self._process.wait()


@pytest.fixture
def sleeper(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    monkeypatch.setattr(process_tree, "_TERMINATE_S", 0.01)
    monkeypatch.setattr(process_tree, "_KILL_S", 0.0)
    monkeypatch.setattr(process_tree, "_RARE_LOOK_S", 0.005)
    command = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # before that it holds no memory yet
        yield process
        process.kill()


def test_a_process_that_stays_is_named_with_the_time_that_it_had(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_tree, "_KILL_S_PER_GIB", 0.0)
    stuck = ProcessTree(lambda token: Stuck(sleeper, looks=10**6))

    with pytest.raises(RunError, match=rf"\[{sleeper.pid}\] of the run are still there 0 s after SIGKILL"):
        stuck.kill()
    stuck.main.exited = lambda: True  # type: ignore[method-assign]
    stuck.kill()


def test_a_process_that_holds_much_memory_has_longer_to_be_gone(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_tree, "_KILL_S_PER_GIB", 10.0 * 2**10)

    assert ProcessTree(lambda token: Stuck(sleeper, looks=50)).kill() < 0
