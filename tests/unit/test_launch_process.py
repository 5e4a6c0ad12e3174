"""The launcher with real processes: how they are started, signalled and ended.

How a run is said to have ended: test_launch_supervision.py.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from pathlib import Path

import pytest

from autotune.errors import RunError, UsageError
from autotune.machine.devices import Gpus
from autotune.machine.meters.run_meter import RunMeter
from autotune.records.codec import loads
from autotune.records.outcome import Died, Measured, OutOfMemory, TimedOut
from autotune.records.run import Request
from tests.fakes.memory_meter import FakeMeter, fake_gpu
from tests.fakes.worker_side import launcher_for, request_for, run_script

pytestmark = pytest.mark.process


def test_the_run_folder_keeps_the_request_and_the_logs(tmp_path: Path) -> None:
    request = request_for(2)

    result = run_script(
        tmp_path, "print('seen'); print('said', file=sys.stderr); run.result(0); run.result(1)", request=request
    )

    assert result.directory.parent == tmp_path / "runs"
    kept = loads(Request, (result.directory / "request.json").read_text())
    assert all(str(tmp_path) in folder for folder in kept.caches.values()), "the launcher adds the run's own caches"
    assert dataclasses.replace(kept, caches={}, kept_in="") == request
    assert (result.directory / "stdout.log").read_text() == "seen\n"
    assert (result.directory / "stderr.log").read_text() == "said\n"


def test_the_worker_reads_nothing_from_the_terminal_and_runs_in_the_working_directory(tmp_path: Path) -> None:
    run_script(tmp_path, "print(repr(sys.stdin.read()), os.getcwd()); run.result(0)")

    (log,) = (tmp_path / "runs").glob("*/stdout.log")
    assert log.read_text() == f"'' {tmp_path}\n"


def test_a_crash_is_named_by_its_signal_and_keeps_what_was_said_before(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        run.progress("backward", steps=12)
        print("the last words", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
        """,
    )

    (outcome,) = result.outcomes
    assert isinstance(outcome, Died)
    assert outcome.signal == "SIGSEGV"
    assert outcome.log_tail == ("the last words",)


def test_a_hang_leaves_its_stacks_in_the_log(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        import faulthandler
        faulthandler.register(signal.SIGUSR1)
        run.progress("forward")
        hang()
        """,
        start_timeout_s=4.0,
    )

    assert any("in hang" in line for line in result.outcomes[0].log_tail)


def test_a_run_that_is_ended_has_a_moment_to_say_goodbye_and_what_it_says_then_is_no_outcome(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        def leave(number, frame):
            run.result(0, ScriptError("terminated"))
            with open("goodbye", "w") as file:
                file.write("said")
            sys.exit(1)
        signal.signal(signal.SIGTERM, leave)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # which asks for its stacks
        run.progress("forward")
        hang()
        """,
        start_timeout_s=4.0,
    )

    assert (tmp_path / "goodbye").read_text() == "said"
    assert isinstance(result.outcomes[0], TimedOut)


def test_a_run_that_does_not_go_when_it_is_told_to_is_killed(tmp_path: Path) -> None:
    script = "signal.signal(signal.SIGTERM, signal.SIG_IGN); run.result(0); run.ended(); hang()"

    assert isinstance(run_script(tmp_path, script, grace_s=0.1).outcomes[0], Measured)


def test_what_a_run_compiles_stays_for_the_next_unless_it_had_to_be_ended(tmp_path: Path) -> None:
    compiles = """
        with open(os.path.join(run.request.caches["TORCHINDUCTOR_CACHE_DIR"], "NAME.so"), "w") as file:
            file.write("compiled")
        run.result(0); run.ended()
    """
    for name, ending in (("well", ""), ("ended", "; hang()"), ("failed", "; sys.exit(3)")):
        run_script(tmp_path, compiles.replace("NAME", name).rstrip() + ending, grace_s=0.1)

    assert [path.name for path in tmp_path.rglob("*.so")] == ["well.so"]


def test_a_resident_set_above_the_limit_ends_the_run_as_out_of_memory(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        run.result(0)
        run.progress("forward", index=1, steps=3)
        held = bytearray(b"x") * (300 * 2**20)
        hang()
        """,
        request=request_for(2, memory_limit_bytes=200 * 2**20),
    )

    first, second = result.outcomes
    assert isinstance(first, Measured)
    assert isinstance(second, OutOfMemory)
    assert (second.phase, second.limit_bytes) == ("forward", 200 * 2**20)
    assert second.needed_bytes is not None
    assert second.needed_bytes > 200 * 2**20
    assert "--memory-limit" in second.advice


GPU = fake_gpu("GPU-aa", total=2**36, reserved=0, used=2**30)


def test_a_run_on_a_gpu_gets_that_gpu_and_what_is_free_there_and_its_meter_is_closed(tmp_path: Path) -> None:
    made: list[tuple[int, ...]] = []
    meter = FakeMeter()

    def make(devices: tuple[int, ...]) -> RunMeter:
        made.append(devices)
        return RunMeter([(GPU, meter)])

    result = run_script(
        tmp_path,
        'print(os.environ["CUDA_VISIBLE_DEVICES"], run.request.free_bytes); run.result(0)',
        devices=(0,),
        meter_factory=make,
        gpus=lambda: Gpus((GPU,), "580"),
    )

    assert (result.directory / "stdout.log").read_text() == f"GPU-aa {{'aa': {2**36 - 2**30}}}\n"
    assert made == [(0,)]
    assert meter.state == "closed"


def test_a_run_on_several_gpus_gets_them_all_in_their_order(tmp_path: Path) -> None:
    gpus = Gpus((GPU, fake_gpu("GPU-bb", index=1), fake_gpu("GPU-cc", index=2)), "580")
    script = 'print(os.environ["CUDA_VISIBLE_DEVICES"]); run.result(0)'
    result = run_script(tmp_path, script, devices=(2, 0), gpus=lambda: gpus)
    assert (result.directory / "stdout.log").read_text() == "GPU-cc,GPU-aa\n"


def test_a_device_that_is_not_there_is_a_usage_error_that_names_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no device 3: found 0 \(Fake\)"):
        run_script(tmp_path, "", devices=(3,), gpus=lambda: Gpus((GPU,), "580"))


def test_an_interpreter_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot start the interpreter '/no/python'") as caught:
        run_script(tmp_path, "", python="/no/python")

    assert "--python" in caught.value.hint


def test_a_place_that_cannot_be_written_is_a_run_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")

    with pytest.raises(RunError, match="cannot start a run") as caught:
        run_script(tmp_path, "run.result(0)")

    assert "run from another one" in caught.value.hint


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="no /dev/full here")
def test_a_full_disk_is_a_run_error_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text = Path.write_text

    def write_to_a_full_disk(path: Path, data: str, **options: object) -> int:
        return write_text(Path("/dev/full") if path.name == "request.json" else path, data, **options)

    monkeypatch.setattr(Path, "write_text", write_to_a_full_disk)

    with pytest.raises(RunError, match="No space left on device"):
        run_script(tmp_path, "run.result(0)")


def test_a_folder_that_was_used_before_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "results.jsonl").touch()
    meter = FakeMeter()
    launcher = launcher_for(tmp_path, "run.result(0)", meter_factory=lambda devices: RunMeter([(GPU, meter)]))

    with pytest.raises(RunError, match="not empty"):
        launcher.run(
            request_for(),
            devices=(),
            on_event=lambda event: None,
            cancel=threading.Event(),
            directory=tmp_path / "old",
        )
    assert meter.state == "closed"
