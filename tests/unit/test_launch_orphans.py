"""However a run or its controller ends, no process of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from autotune.launch.port import Event
from autotune.records.outcome import Died, Measured
from tests.fakes.waiting import becomes_true, is_alive
from tests.fakes.worker_side import launcher_for, request_for, run_script

pytestmark = pytest.mark.process

# A child of each kind writes its pid into the working directory under its kind's name, then sleeps.
_CHILDREN = '''
SLEEP = """
import os, sys, time
with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1], sys.argv[1] + ".pid")
time.sleep(600)
"""
def child(kind, **options):
    subprocess.Popen([sys.executable, "-c", SLEEP, kind], **options)

child("same_group")
child("own_session", start_new_session=True)
child("no_environment", start_new_session=True, env={})
if not os.fork():
    os.setsid()
    child("adopted_by_init")
    os._exit(0)
os.wait()
while len([name for name in os.listdir() if name.endswith(".pid")]) < 4:
    time.sleep(0.01)
'''
_KINDS = ("same_group", "own_session", "no_environment", "adopted_by_init")


def _pid(folder: Path, kind: str) -> int:
    return int((folder / f"{kind}.pid").read_text())


def test_children_of_every_kind_are_gone_when_the_launcher_returns(tmp_path: Path) -> None:
    result = run_script(tmp_path, _CHILDREN + "run.result(0); run.ended(); hang()", grace_s=0.1)

    assert isinstance(result.outcomes[0], Measured)
    assert not [kind for kind in _KINDS if is_alive(_pid(tmp_path, kind))]


def test_children_that_outlive_the_main_process_are_gone_too(tmp_path: Path) -> None:
    result = run_script(tmp_path, _CHILDREN + "os.kill(os.getpid(), signal.SIGABRT)")

    assert isinstance(result.outcomes[0], Died)
    # Without its parent and its environment nothing tells a process in a session of its own from a stranger's.
    left = [kind for kind in _KINDS if is_alive(_pid(tmp_path, kind))]
    assert left in ([], ["no_environment"])
    for kind in left:
        os.kill(_pid(tmp_path, kind), signal.SIGKILL)


def test_an_error_in_the_controller_ends_the_run(tmp_path: Path) -> None:
    def fail(event: Event) -> None:
        if event.kind == "result":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_script(tmp_path, _CHILDREN + "run.result(0); hang()", on_event=fail)

    assert not [kind for kind in _KINDS if is_alive(_pid(tmp_path, kind))]


def test_two_runs_at_once_do_not_touch_each_other(tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    (tmp_path / "quick").mkdir()
    slow = launcher_for(
        tmp_path / "slow", "run.progress('forward')\nwhile not os.path.exists('go'): time.sleep(0.02)\nrun.result(0)"
    )
    results = []
    thread = threading.Thread(
        target=lambda: results.append(
            slow.run(request_for(), devices=(), on_event=lambda event: None, cancel=threading.Event())
        )
    )
    thread.start()
    try:
        for number in range(3):
            (tmp_path / "quick" / str(number)).mkdir()
            run_script(tmp_path / "quick" / str(number), "run.result(0)")
    finally:
        (tmp_path / "slow" / "go").touch()
        thread.join()

    assert isinstance(results[0].outcomes[0], Measured)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["in a trial", "while the worker starts"])
def test_a_controller_killed_by_sigkill_leaves_nothing(tmp_path: Path, moment: str) -> None:
    controller_script = tmp_path / "controller.py"
    script = _CHILDREN + "hang()" if moment == "in a trial" else "hang()"
    controller_script.write_text(
        f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})\n"
        "from pathlib import Path\n"
        "from tests.fakes.worker_side import run_script\n"
        f"run_script(Path({str(tmp_path)!r}), {script!r})\n"
    )

    with subprocess.Popen([sys.executable, controller_script]) as controller:
        if moment == "in a trial":
            assert becomes_true(lambda: all((tmp_path / f"{kind}.pid").exists() for kind in _KINDS))
        else:
            assert becomes_true(lambda: any((tmp_path / "runs").glob("*/stdout.log")))
        family = psutil.Process(controller.pid).children(recursive=True)
        controller.kill()

    if moment == "in a trial":
        # In a session of its own and without an environment, nothing tells it from a stranger's.
        os.kill(_pid(tmp_path, "no_environment"), signal.SIGKILL)
    assert family, "at least the guard is there"
    assert becomes_true(lambda: not any(process.is_running() for process in family))
    assert becomes_true(lambda: not _workers(tmp_path))
    assert not [kind for kind in _KINDS if (tmp_path / f"{kind}.pid").exists() and is_alive(_pid(tmp_path, kind))]


def _workers(folder: Path) -> list[psutil.Process]:
    """Processes that name the run's folder in their command line."""
    return [process for process in psutil.process_iter() if str(folder) in " ".join(_command(process))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []


def test_the_guard_does_not_outlive_the_run(tmp_path: Path) -> None:
    me = psutil.Process()
    before = {child.pid for child in me.children()}

    run_script(tmp_path, "run.result(0)")

    assert {child.pid for child in me.children()} == before
