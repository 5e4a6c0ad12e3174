"""What every Launcher does, with processes or without."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.launch.port import Event, Launcher, RunResult
from autotune.records.configuration import Configuration
from autotune.records.outcome import Measured, Outcome, OutOfMemory
from autotune.records.run import Request
from tests.fakes.launcher import FakeLauncher
from tests.fakes.ray_cluster import RayCluster
from tests.fakes.worker_side import ENVIRONMENT, launcher_for, measured, request_for

# Batch 32 runs out of memory; what comes after a failure is left, as the worker does.
_WORKER = """
for index, configuration in enumerate(run.request.configurations):
    run.progress("forward", index=index, steps=index)
    if configuration.batch_size == 32:
        run.result(index, OutOfMemory("no room", phase="forward"))
        break
    run.result(index)
    if "--hang" in run.request.arguments:
        hang()
run.ended()
"""


def _outcome(configuration: Configuration) -> Outcome:
    return OutOfMemory("no room", phase="forward") if configuration.batch_size == 32 else measured()


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    cluster = RayCluster()
    yield cluster
    cluster.close()


@pytest.fixture(
    params=["fake", pytest.param("process", marks=pytest.mark.process), pytest.param("ray", marks=pytest.mark.ray)]
)
def launcher(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Launcher]:
    if request.param == "fake":
        yield FakeLauncher(_outcome, environment=ENVIRONMENT, root=tmp_path)
    elif request.param == "process":
        yield launcher_for(tmp_path, _WORKER)
    else:
        with contextlib.closing(request.getfixturevalue("cluster").launcher(tmp_path, _WORKER)) as on_ray:
            yield on_ray


def _run(launcher: Launcher, request: Request, *, cancel_after: int | None = None) -> tuple[RunResult, list[Event]]:
    events: list[Event] = []
    cancel = threading.Event()

    def note(event: Event) -> None:
        events.append(event)
        if event.kind == "result" and event.index == cancel_after:
            cancel.set()

    return launcher.run(request, devices=(), on_event=note, cancel=cancel), events


def test_there_is_one_outcome_for_each_configuration(launcher: Launcher) -> None:
    result, _ = _run(launcher, request_for(3))

    assert [type(outcome) for outcome in result.outcomes] == [Measured] * 3
    assert result.environment == ENVIRONMENT
    assert result.failure is None


def test_the_first_failure_ends_the_run(launcher: Launcher) -> None:
    result, _ = _run(launcher, request_for(6))

    assert [type(outcome) for outcome in result.outcomes] == [Measured] * 3 + [OutOfMemory] + [type(None)] * 2


def test_every_trial_is_announced_and_its_result_told(launcher: Launcher) -> None:
    result, events = _run(launcher, request_for(6))

    assert [event.index for event in events if event.kind == "started"] == [0, 1, 2, 3]
    assert [event.outcome for event in events if event.kind == "result"] == list(result.outcomes[:4])
    assert events[-1].kind == "ended"
    assert [event.kind for event in events].count("ended") == 1


def test_a_cancelled_run_leaves_the_rest(launcher: Launcher) -> None:
    result, _ = _run(launcher, request_for(3, arguments=("--hang",)), cancel_after=0)

    assert isinstance(result.outcomes[0], Measured)
    assert result.outcomes[1:] == (None, None)


def test_every_run_has_a_folder_of_its_own(launcher: Launcher) -> None:
    first, _ = _run(launcher, request_for())
    second, _ = _run(launcher, request_for())

    assert first.directory != second.directory


def test_the_caller_may_choose_the_folder(launcher: Launcher, tmp_path: Path) -> None:
    result = launcher.run(
        request_for(),
        devices=(),
        on_event=lambda event: None,
        cancel=threading.Event(),
        directory=tmp_path / "chosen",
    )

    assert result.directory == tmp_path / "chosen"
