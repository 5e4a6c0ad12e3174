"""What happens in a process that the script started is told as if it had happened in the script itself."""

from __future__ import annotations

import shutil
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from autotune.launch.process import ProcessLauncher
from autotune.machine.devices import Gpus
from autotune.machine.meters.run_meter import RunMeter
from autotune.records.configuration import Configuration
from autotune.records.outcome import Died, Measured, Outcome, OutOfMemory, ScriptError, TimedOut
from autotune.records.run import Request
from tests.fakes.memory_meter import fake_gpu

from .processes import DEADLINE_S, QUICK, SCRIPTS, Finished, measure, run_autotune, variables

pytestmark = pytest.mark.slow  # test_end_to_end.py has ranks that train
LAUNCHER = ("torchrun", "--nproc-per-node", "2")


def outcome_of(how: str, folder: Path, **options: float) -> Outcome | None:
    script = SCRIPTS / "bad" / "fails_in_rank.py"
    run = measure(script, how, configurations=(Configuration(),), folder=folder, **options)
    (outcome,) = run.result.outcomes
    return outcome


def test_an_exception_in_a_rank_is_the_scripts(tmp_path: Path) -> None:
    outcome = outcome_of("raises", tmp_path)

    assert isinstance(outcome, ScriptError)
    assert outcome.cause == "rank 1 of 2: LookupError: no batch for rank 1"
    assert "in fail" in outcome.traceback


@pytest.mark.parametrize("how", ["out_of_memory", "wrapped"])
def test_a_rank_that_runs_out_of_memory_is_out_of_memory_in_its_phase(how: str, tmp_path: Path) -> None:
    outcome = outcome_of(how, tmp_path)

    assert isinstance(outcome, OutOfMemory)
    assert outcome.phase == "forward"
    assert outcome.cause.startswith("rank 1 of 2: out of memory in forward: CUDA out of memory.")


def test_a_rank_that_crashes_is_named_and_not_the_process_that_started_it(tmp_path: Path) -> None:
    outcome = outcome_of("crashes", tmp_path)

    assert isinstance(outcome, Died)
    assert outcome.cause.startswith("rank 1 of 2: killed by SIGSEGV in forward")


def test_a_rank_that_hangs_has_timed_out_and_shows_where(tmp_path: Path) -> None:
    outcome = outcome_of("hangs", tmp_path, trial_timeout_s=8.0)

    assert isinstance(outcome, TimedOut), outcome
    assert outcome.phase == "forward"
    (stderr,) = tmp_path.glob("runs/*/stderr.log")
    assert 'fails_in_rank.py", line' in stderr.read_text()
    assert outcome.cause.startswith("the trial was not measured within 8 s")


def discovered(folder: Path, *launcher: str, fault: str, rank: int) -> Finished:
    shutil.copy(SCRIPTS / "rank_faults.py", folder)
    limits = ("--start-timeout", "120s", "--trial-timeout", "20s")
    done = run_autotune("discover", *limits, "--", *launcher, "rank_faults.py", fault, str(rank), folder=folder)
    left = [one.pid for one in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(one.info["cmdline"] or [])]
    assert not left
    return done


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("kill", "killed by SIGKILL in forward, after step 5"),
        ("quit", "ended with status 7 and without a result in forward, after step 5"),
        ("memory", "out of memory in forward: Tried to allocate 2.00 GiB"),
    ],
)
def test_a_rank_that_fails_is_named_with_its_own_cause(fault: str, cause: str, rank: int, tmp_path: Path) -> None:
    done = discovered(tmp_path, *LAUNCHER, "--standalone", fault=fault, rank=rank)
    assert done.status == 1
    assert f"rank {rank} of 2: {cause}" in done.errors


def test_a_rank_that_hangs_is_named(tmp_path: Path) -> None:
    done = discovered(tmp_path, *LAUNCHER, "--standalone", fault="hang", rank=1)
    assert done.status == 1
    assert "within 20 s: killed in forward, after step 5; rank 1 of 2 came less far than the others" in done.errors


def test_a_port_that_is_taken_is_the_cause(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = discovered(tmp_path, *LAUNCHER, "--master-port", port, fault="none", rank=0)
    assert done.status == 1
    assert f"port: {port}" in done.errors
    assert "address already in use" in done.errors


def test_runs_of_several_processes_are_side_by_side(tmp_path: Path) -> None:
    gpus = Gpus(tuple(fake_gpu(f"GPU-{index}", index=index) for index in range(4)), "580")
    launcher = ProcessLauncher(
        python=sys.executable,
        root=tmp_path / "runs",
        working_directory=tmp_path,
        start_timeout_s=DEADLINE_S,
        trial_timeout_s=DEADLINE_S,
        variables=variables(None),
        meter_factory=lambda devices: RunMeter(),
        gpus=lambda: gpus,
    )
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    request = Request("measure", torchrun, (*LAUNCHER[1:], str(SCRIPTS / "sees_gpus.py")), (Configuration(),), QUICK)
    meet = threading.Barrier(2)

    def run(devices: tuple[int, ...]) -> tuple[Outcome | None, str]:
        meet.wait(DEADLINE_S)
        result = launcher.run(request, devices=devices, on_event=lambda event: None, cancel=threading.Event())
        return result.outcomes[0], (result.directory / "stdout.log").read_text()

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(run, [(0, 1), (2, 3)]))

    for (outcome, output), seen in zip(both, ("GPU-0,GPU-1", "GPU-2,GPU-3"), strict=True):
        assert isinstance(outcome, Measured), outcome
        assert outcome.measurement.num_processes == 2
        assert output.splitlines() == [f"SEES {seen}"] * 2
