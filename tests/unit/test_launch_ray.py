"""Runs on a Ray cluster whose nodes are processes of this machine: at once, cancelled, and with nodes that vanish."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from autotune.errors import RunError, UsageError
from autotune.launch import ray as launch_ray
from autotune.launch.archive import pack
from autotune.launch.port import Event, RunResult
from autotune.launch.ray import RayLauncher, connect
from autotune.machine.devices import Device, Gpus
from autotune.machine.meters.run_meter import RunMeter
from autotune.records.outcome import Died, Measured
from autotune.records.run import Verifying
from tests.fakes.ray_cluster import RayCluster
from tests.fakes.waiting import DEADLINE_S, becomes_true, is_alive
from tests.fakes.worker_side import ENVIRONMENT, request_for, write_worker

pytestmark = pytest.mark.ray

# Says who it is, and then does nothing.
_HANGS = """
run.progress("forward")
open("pids", "a").write(f"{os.getpid()}\\n")
hang()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)  # who starts a node's Ray has not set it
        cluster = RayCluster(num_nodes=2)
    yield cluster
    cluster.close()


def _run(
    launcher: RayLauncher,
    *,
    number: int = 1,
    devices: tuple[int, ...] = (),
    on_event: Callable[[Event], None] = lambda event: None,
    cancel: threading.Event | None = None,
) -> RunResult:
    return launcher.run(
        request_for(number), devices=devices, on_event=on_event, cancel=cancel or threading.Event(), directory=None
    )


def _pids(folder: Path, number: int = 1) -> list[int]:
    """The processes of runs that have said who they are, once there are so many."""
    path = folder / "pids"
    assert becomes_true(lambda: path.exists() and len(path.read_text().splitlines()) >= number)
    return [int(line) for line in path.read_text().splitlines()]


@contextlib.contextmanager
def _killed_raylets(folder: Path, number: int) -> Iterator[list[int]]:
    """Kill the raylet of each of so many runs, one after the other; gives the runs' processes."""
    lost: list[int] = []

    def kill() -> None:
        for count in range(1, number + 1):
            lost.append(_pids(folder, count)[-1])
            post = psutil.Process(lost[-1]).parent()
            assert post is not None
            psutil.Process(post.ppid()).kill()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield lost
    finally:
        killer.join()


def test_two_runs_at_once_are_on_two_nodes(cluster: RayCluster, tmp_path: Path) -> None:
    script = """
    open(f"here-{os.getpid()}", "w").close()
    while len([name for name in os.listdir() if name.startswith("here-")]) < 2:
        time.sleep(0.05)
    run.result(0)
    run.ended()
    """
    with contextlib.closing(cluster.launcher(tmp_path, script, num_posts=2)) as launcher, ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda device: _run(launcher, devices=(device,)), (0, 1)))

    assert [type(result.outcomes[0]) for result in results] == [Measured] * 2


def test_more_runs_at_once_than_there_are_nodes_are_refused(cluster: RayCluster, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="room for 2 runs at once with 1 CPUs, not for 3"):
        cluster.launcher(tmp_path, "", num_posts=3)


def test_what_a_run_left_comes_back(cluster: RayCluster, tmp_path: Path) -> None:
    script = """
    print("a word", flush=True)
    sys.stderr.write("x" * 3 * 2**20 + "the end")
    run.result(0)
    run.ended()
    """
    with contextlib.closing(cluster.launcher(tmp_path, script)) as launcher:
        result = _run(launcher)

    assert (result.directory / "stdout.log").read_text() == "a word\n"
    errors = (result.directory / "stderr.log").read_text()
    assert errors.startswith("[2097159 bytes before this were left on the node]\n")
    assert errors.endswith("the end")
    assert len((result.directory / "results.jsonl").read_text().splitlines()) == 2


def test_a_run_has_the_environment_of_who_started_the_node(cluster: RayCluster, tmp_path: Path) -> None:
    script = """
    open("environment", "w").write("\\n".join(sorted(os.environ)))
    run.result(0)
    run.ended()
    """
    with contextlib.closing(cluster.launcher(tmp_path, script)) as launcher:
        _run(launcher)

    names = set((tmp_path / "environment").read_text().splitlines())
    assert "PATH" in names
    assert not [name for name in names if name.startswith("RAY_")]
    assert not names & {"OMP_NUM_THREADS", "LD_PRELOAD", "PYTHONBREAKPOINT", "SPT_NOENV"} - set(os.environ)
    assert ("PYTHONPATH" in names) == ("PYTHONPATH" in os.environ)


def test_a_folder_that_is_sent_is_copied_for_each_run_at_once(cluster: RayCluster, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "train.py").write_text("as it was")
    script = f"""
    assert os.getcwd() != {str(mine)!r} and open(run.request.script).read() == "as it was"
    assert os.path.dirname(run.request.script) == os.getcwd()
    open("train.py", "w").write("changed")
    run.result(0)
    run.ended()
    """
    archive = pack(mine)
    request = dataclasses.replace(request_for(), script=str(mine / "train.py"))
    launcher = cluster.launcher(tmp_path, script, working_directory=str(mine), archive=archive)
    with contextlib.closing(launcher):
        result = launcher.run(request, devices=(), on_event=lambda event: None, cancel=threading.Event())

    assert isinstance(result.outcomes[0], Measured)
    assert (mine / "train.py").read_text() == "as it was"


def test_a_cancelled_run_leaves_no_process(cluster: RayCluster, tmp_path: Path) -> None:
    cancel = threading.Event()
    with contextlib.closing(cluster.launcher(tmp_path, _HANGS)) as launcher, ThreadPoolExecutor(1) as pool:
        running = pool.submit(_run, launcher, cancel=cancel)
        (pid,) = _pids(tmp_path)
        cancel.set()
        result = running.result(timeout=DEADLINE_S)

        assert not is_alive(pid)
    assert result.outcomes == (None,)


def test_waiting_for_a_node_can_be_cancelled(cluster: RayCluster, tmp_path: Path) -> None:
    cancel = threading.Event()
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    ends = "run.result(0)\nrun.ended()"
    with contextlib.ExitStack() as opened, ThreadPoolExecutor(1) as pool:
        holder, other = (
            opened.enter_context(contextlib.closing(cluster.launcher(one, ends, num_posts=2))) for one in folders
        )
        for device in (0, 1):
            _run(holder, devices=(device,))
        running = pool.submit(_run, other, cancel=cancel)
        time.sleep(1)
        cancel.set()

        assert running.result(timeout=DEADLINE_S).outcomes == (None,)


def _fake_gpus() -> Gpus:
    """The cards that Ray has left the calling process to see."""
    cards = (
        Device(
            index=index,
            uuid=f"GPU-{name}",
            name="Fake H100",
            variables={"CUDA_VISIBLE_DEVICES": f"GPU-{name}"},
            torch_uuids=(f"GPU-{name}",),
            memory_bytes=80 * 2**30,
            reserved_bytes=0,
            used_bytes=0,
        )
        for index, name in enumerate(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
    )
    return Gpus(tuple(cards))


@pytest.mark.parametrize("gpus", [1, 2])
def test_two_runs_at_once_on_one_node_have_gpus_of_their_own(gpus: int, cluster: RayCluster, tmp_path: Path) -> None:
    node = cluster.add(num_cpus=2, num_gpus=2 * gpus, cards=1)
    script = """
    open("cards", "a").write(os.environ["CUDA_VISIBLE_DEVICES"] + "\\n")
    while len(open("cards").readlines()) < 2:
        time.sleep(0.05)
    run.result(0)
    run.ended()
    """
    options = {
        "worker": write_worker(tmp_path, script),
        "gpus": _fake_gpus,
        "meter_factory": lambda devices: RunMeter(),
    }
    launcher = cluster.launcher(tmp_path, script, num_posts=2, resource="cards", gpus=gpus, options=options)
    with contextlib.closing(launcher), ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda device: _run(launcher, devices=(device,)), (0, 1)))
    cluster.kill(node)  # the other tests count on nodes of one processor

    assert [type(result.outcomes[0]) for result in results] == [Measured] * 2
    each = [line.split(",") for line in (tmp_path / "cards").read_text().split()]
    assert [len(cards) for cards in each] == [gpus, gpus]
    assert sorted(itertools.chain(*each)) == [f"GPU-{number}" for number in range(2 * gpus)]


def test_a_study_that_waits_for_a_node_gets_it_between_two_trials_of_another(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between repetitions of a confirmation it does not: these compare only on one node."""
    monkeypatch.setattr(launch_ray, "_LEASE_S", 0.0)
    cluster.add(lonely=1)
    ran: list[str] = []

    def run(name: str, launcher: RayLauncher, *, is_trial: bool) -> None:
        server = "" if is_trial else "repetition 2 of confirmation 1"
        request = dataclasses.replace(request_for(), may_fork=True, server=server)
        launcher.run(request, devices=(), on_event=lambda event: None, cancel=threading.Event())
        ran.append(name)

    script = "run.result(0)\nrun.ended()"
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    with contextlib.ExitStack() as opened, ThreadPoolExecutor(1) as pool:
        one, other = (
            opened.enter_context(contextlib.closing(cluster.launcher(folder, script, resource="lonely")))
            for folder in folders
        )
        run("a trial", one, is_trial=True)
        waiting = pool.submit(run, "the other's", other, is_trial=True)
        time.sleep(2)
        run("a repetition", one, is_trial=False)
        # The other gives the node back when it ends; until then this one waits.
        waiting.add_done_callback(lambda _: other.close())
        run("a later trial", one, is_trial=True)

    assert ran == ["a trial", "a repetition", "the other's", "a later trial"]


def test_a_node_that_has_just_gone_is_left_out(cluster: RayCluster, tmp_path: Path) -> None:
    """Ray lists it for another while."""
    cluster.kill(cluster.add(brief=1))

    with contextlib.closing(cluster.launcher(tmp_path, "run.result(0)\nrun.ended()", num_posts=2)) as launcher:
        assert isinstance(_run(launcher).outcomes[0], Measured)


def test_an_error_of_the_code_itself_on_a_node_is_told_and_not_tried_elsewhere(
    cluster: RayCluster, tmp_path: Path
) -> None:
    with (
        contextlib.closing(cluster.launcher(tmp_path, "", options={"no_such_option": 1})) as launcher,
        pytest.raises(RunError, match=r"failed in autotune itself: TypeError: .*no_such_option"),
    ):
        _run(launcher)


def test_a_lost_connection_is_told_and_no_cluster_of_this_machine_takes_its_place(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(cluster.launcher(tmp_path, "")) as launcher, monkeypatch.context() as patched:
        patched.setattr(cluster.ray, "is_initialized", lambda: False)
        with pytest.raises(RunError, match="the connection to the Ray cluster is lost"):
            _run(launcher)
    assert os.environ["RAY_ENABLE_AUTO_CONNECT"] == "0"


def test_a_failing_watcher_ends_the_run_before_it_is_told(cluster: RayCluster, tmp_path: Path) -> None:
    def fail(event: Event) -> None:
        _pids(tmp_path)
        raise KeyError(event.kind)

    with contextlib.closing(cluster.launcher(tmp_path, _HANGS)) as launcher:
        with pytest.raises(KeyError):
            _run(launcher, on_event=fail)
        assert not is_alive(_pids(tmp_path)[0])


def test_a_run_on_another_kind_of_device_is_refused(cluster: RayCluster, tmp_path: Path) -> None:
    with contextlib.closing(cluster.launcher(tmp_path, "run.result(0)\nhang()")) as launcher:
        launcher.keep_to(dataclasses.replace(ENVIRONMENT, device_name="another CPU"))

        with pytest.raises(RunError, match=r"another device 'a fake CPU', not 'another CPU'"):
            _run(launcher)


def test_an_interpreter_that_the_node_lacks_is_named(cluster: RayCluster, tmp_path: Path) -> None:
    with (
        contextlib.closing(cluster.launcher(tmp_path, "", python="/nowhere/python")) as launcher,
        pytest.raises(UsageError, match="cannot start the interpreter '/nowhere/python'"),
    ):
        _run(launcher)


def test_another_autotune_on_a_node_is_refused_at_once(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_ray, "__version__", "99.0")

    with pytest.raises(UsageError, match=r"has autotune .*, this is 99\.0"):
        cluster.launcher(tmp_path, "")


def test_another_python_on_a_node_is_refused_at_once(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_ray.sys, "version_info", (3, 99, 0))

    with pytest.raises(UsageError, match=r"has Python 3\.\d+, this is 3\.99"):
        cluster.launcher(tmp_path, "")


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(UsageError, match="needs Ray") as caught:
        connect("host:6379")
    assert caught.value.hint == 'pip install "autotune-memory[ray]"'


@pytest.mark.slow
def test_a_run_whose_node_is_lost_goes_on_elsewhere_without_what_it_had_told(
    cluster: RayCluster, tmp_path: Path
) -> None:
    script = """
    is_first = not os.path.exists("ran")
    for index, configuration in enumerate(run.request.configurations):
        run.progress("forward", index=index, steps=index)
        open("ran", "a").write(f"{configuration.batch_size}\\n")
        if is_first and index == 1:
            open("pids", "a").write(f"{os.getpid()}\\n")
            hang()
        run.result(index)
    run.ended()
    """
    for _ in range(2):
        cluster.add(mortal=1)
    events: list[Event] = []
    with (
        _killed_raylets(tmp_path, 1) as lost,
        contextlib.closing(cluster.launcher(tmp_path, script, resource="mortal")) as launcher,
    ):
        result = _run(launcher, number=3, on_event=events.append)

    assert [type(outcome) for outcome in result.outcomes] == [Measured] * 3
    assert [event.index for event in events if event.kind == "result"] == [0, 1, 2]
    assert [event.index for event in events if event.kind == "started"] == [0, 1, 2]
    assert (tmp_path / "ran").read_text().split() == ["8", "16", "16", "24"]
    assert becomes_true(lambda: not is_alive(lost[0]))


@pytest.mark.slow
def test_a_run_that_had_told_all_before_its_node_was_lost_is_not_run_again(cluster: RayCluster, tmp_path: Path) -> None:
    script = """
    open("pids", "a").write(f"{os.getpid()}\\n")
    run.result(0)
    hang()
    """
    for _ in range(2):
        cluster.add(told=1)
    events: list[Event] = []

    def note(event: Event) -> None:
        events.append(event)
        if event.kind == "result":
            post = psutil.Process(_pids(tmp_path)[0]).parent()
            assert post is not None
            psutil.Process(post.ppid()).kill()

    with contextlib.closing(cluster.launcher(tmp_path, script, resource="told")) as launcher:
        result = _run(launcher, on_event=note)

    assert isinstance(result.outcomes[0], Measured)
    assert result.failure is None
    assert [event.kind for event in events][-2:] == ["result", "ended"]
    assert len(_pids(tmp_path)) == 1


def test_a_proof_whose_other_runs_went_with_their_node_is_told_and_compares_nothing(
    cluster: RayCluster, tmp_path: Path
) -> None:
    with contextlib.closing(cluster.launcher(tmp_path, "run.result(0)\nrun.ended()")) as launcher:
        request = request_for(1, mode="verify", verifying=Verifying(references=(str(tmp_path / "gone"),)))
        result = launcher.run(request, devices=(), on_event=lambda event: None, cancel=threading.Event())

    assert isinstance(result.failure, Died)
    assert "the runs to compare this one with" in result.failure.cause
    assert result.outcomes == (None,)


@pytest.mark.slow
def test_a_run_that_loses_two_nodes_says_so(cluster: RayCluster, tmp_path: Path) -> None:
    for _ in range(3):
        cluster.add(doomed=1)
    script = """
    open("pids", "a").write(f"{os.getpid()}\\n")
    if len(open("pids").readlines()) <= 2:
        hang()
    run.result(0)
    run.ended()
    """
    message = "the node of a run was lost, and then the one that it was run on again"
    with (
        _killed_raylets(tmp_path, 2),
        contextlib.closing(cluster.launcher(tmp_path, script, resource="doomed")) as launcher,
        pytest.raises(RunError, match=message),
    ):
        _run(launcher)
    assert becomes_true(lambda: not any(map(is_alive, _pids(tmp_path))))


@pytest.mark.slow
def test_a_node_that_falls_silent_is_lost(cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
    if os.path.exists("pids"):
        run.result(0)
        run.ended()
    else:
        run.progress("forward")
        open("pids", "w").write(f"{os.getppid()}\\n")
        hang()
    """
    stopped: list[int] = []

    def stop_post() -> None:
        stopped.extend(_pids(tmp_path))
        os.kill(stopped[0], signal.SIGSTOP)

    launcher = cluster.launcher(tmp_path, script)
    monkeypatch.setattr(launch_ray, "_SILENT_S", 5.0)
    monkeypatch.setattr(launch_ray, "_CANCEL_S", 2.0)
    stopper = threading.Thread(target=stop_post)
    stopper.start()
    try:
        with contextlib.closing(launcher):
            result = _run(launcher)
    finally:
        stopper.join()
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped[0], signal.SIGCONT)

    assert isinstance(result.outcomes[0], Measured)


@pytest.mark.slow
def test_a_killed_controller_leaves_no_process(cluster: RayCluster, tmp_path: Path) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text(
        textwrap.dedent(f"""
        import sys, threading
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from pathlib import Path
        from autotune.launch.node import Terms
        from autotune.launch.ray import RayLauncher, connect
        from tests.fakes.worker_side import request_for, write_worker

        folder = Path({str(tmp_path)!r})
        options = {{"worker": write_worker(folder, {_HANGS!r})}}
        terms = Terms("", str(folder), None, 0, 60.0, 60.0, options=options)
        launcher = RayLauncher(connect({cluster.address!r}), terms, root=folder / "runs")
        launcher.run(request_for(), devices=(), on_event=lambda event: None, cancel=threading.Event())
        """)
    )
    with subprocess.Popen([sys.executable, str(driver)], start_new_session=True) as controller:
        (pid,) = _pids(tmp_path)
        controller.kill()

    assert becomes_true(lambda: not is_alive(pid))
