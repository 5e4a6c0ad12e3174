"""Runs that are forked from a process that has imported torch are what fresh ones are, and fall back to those."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest

from autotune.launch.port import Event, RunResult
from autotune.launch.process import ProcessLauncher
from autotune.machine.devices import Gpus
from autotune.machine.meters.run_meter import RunMeter
from autotune.records.configuration import Configuration
from autotune.records.facts import Preload
from autotune.records.measuring import Measuring
from autotune.records.outcome import Died, HostOutOfMemory, Measured, NoTrainingStep
from autotune.records.run import Request
from autotune.worker import fork_server
from tests.fakes.memory_meter import fake_gpu
from tests.fakes.waiting import DEADLINE_S, becomes_true, is_alive
from tests.fakes.worker_side import launcher_for, request_for

pytestmark = pytest.mark.process

QUICK = Measuring(max_warmup_steps=4, min_steps=2, max_steps=2, min_measure_s=0.0)
PLAIN = Configuration()

TRAINS = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(200):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item().hex(), flush=True)
"""


@dataclass
class Bench:
    """A launcher with the real worker, and what was run by it."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        gpus = Gpus(tuple(fake_gpu(f"GPU-{n}", index=n, total=2**36, reserved=0, used=2**30) for n in range(2)))
        self.launcher = ProcessLauncher(
            python=sys.executable,
            root=self.folder / "runs",
            working_directory=self.folder,
            start_timeout_s=DEADLINE_S,
            trial_timeout_s=DEADLINE_S,
            grace_s=1.0,
            meter_factory=lambda devices: RunMeter(),
            variables={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **self.variables},
            gpus=lambda: gpus,
        )

    def run(
        self,
        source: str,
        *,
        may_fork: bool = True,
        devices: tuple[int, ...] = (),
        configurations: tuple[Configuration, ...] = (PLAIN,),
        on_event: Callable[[Event], None] = lambda event: None,
        cancel: threading.Event | None = None,
        mode: Literal["measure", "discover"] = "measure",
        preload: Preload = Preload(),  # noqa: B008
        server: str = "",
    ) -> RunResult:
        script = self.folder / "train.py"
        script.write_text(textwrap.dedent(source))
        request = Request(
            mode,
            str(script),
            ("--flag",),
            configurations,
            QUICK,
            may_fork=may_fork,
            preload=preload,
            server=server,
        )
        return self.launcher.run(request, devices=devices, on_event=on_event, cancel=cancel or threading.Event())

    @property
    def servers(self) -> list[int]:
        """The fork servers that wait for a run."""
        return [server.pid for server in self.launcher._servers._idle.values()]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, {"PYTHONUNBUFFERED": ""})  # as users have it: output is in a buffer until a run ends
    yield made
    if hasattr(made, "launcher"):
        made.launcher._servers.close()


def output(result: RunResult) -> str:
    return (result.directory / "stdout.log").read_text()


def notes(result: RunResult) -> tuple[str, ...]:
    (outcome,) = result.outcomes
    assert isinstance(outcome, Measured), (outcome, (result.directory / "stderr.log").read_text())
    return outcome.measurement.notes


SEES = """
import gc, json, os, resource, signal, sys, threading
seen = {
    "arguments": [sys.argv, sys.orig_argv],
    "path": sys.path,
    "flags": repr(sys.flags),
    "torch is imported": any(name.partition(".")[0] == "torch" for name in sys.modules),
    "main": [__name__, __file__, sys.modules["_autotune_main"].__file__],
    "input": sys.stdin.read(),
    "streams": [repr(sys.stdout), repr(sys.stderr), sys.stdout.line_buffering, type(sys.stdout.buffer).__name__],
    "open files": {name: os.readlink(f"/proc/self/fd/{name}") for name in "012"},
    "other files": sorted(set(os.listdir("/proc/self/fd")) - {"0", "1", "2"}),
    "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "directory": os.getcwd(),
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "signals": {number: repr(signal.getsignal(number)) for number in range(1, 32)},
    "variables": {name: value for name, value in os.environ.items() if name != "AUTOTUNE_PROCESS_MARK"},
    "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
    "thread": [threading.current_thread() is threading.main_thread(), threading.active_count()],
    "collects": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
    "builtins": repr(__builtins__),
}
import torch
seen |= {
    "loader": [repr(type(torch.__spec__.loader)), sorted(vars(torch.__spec__.loader)), torch.__spec__._initializing],
    "finders": [repr(type(finder)) for finder in sys.meta_path],
    "hooked": torch.nn.Module.__call__.__code__.co_filename,
    "threads": [torch.get_num_threads(), torch.get_num_interop_threads(), len(os.listdir("/proc/self/task"))],
    "torch's modules": sorted(name for name in sys.modules if name.startswith(("torch.", "numpy", "_autotune."))),
    "CUDA": [torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork()],
}
print("SEEN", json.dumps(seen))
print("parent", os.getppid())
"""


def test_a_forked_script_sees_what_a_fresh_one_sees(bench: Bench) -> None:
    def seen(result: RunResult) -> dict[str, Any]:
        assert isinstance(result.outcomes[0], NoTrainingStep), (result.directory / "stderr.log").read_text()
        line = output(result).splitlines()[0].replace(str(result.directory), "DIRECTORY")
        found: dict[str, Any] = json.loads(line.removeprefix("SEEN "))
        found["variables"]["AUTOTUNE_REQUEST"] = ""  # says how the run was to be started
        ours = {f"_autotune.worker.{name}" for name in ("fork_server", "hidden_modules", "preloading")}
        found["torch's modules"] = [name for name in found["torch's modules"] if name not in ours]
        return found

    def is_forked(result: RunResult) -> bool:
        return f"parent {os.getpid()}\n" not in output(result)

    forked, again = bench.run(SEES), bench.run(SEES)
    servers = bench.servers
    fresh = bench.run(SEES, may_fork=False)

    assert (is_forked(forked), is_forked(again), is_forked(fresh)) == (True, True, False)
    assert seen(forked) == seen(again) == seen(fresh)
    assert seen(fresh)["torch is imported"] is False
    assert len(servers) == 1
    assert not is_alive(servers[0]), "what runs in a fresh process has the machine to itself"


@pytest.mark.slow
def test_a_server_gets_ready_while_a_discovery_runs(bench: Bench) -> None:
    bench.run(TRAINS, mode="discover", may_fork=False)
    prepared = bench.servers
    bench.run(TRAINS)

    assert len(prepared) == 1
    assert bench.servers == prepared, "the next run came out of it"


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Bench]:
    """As ``bench``, with a library that says when it is imported, and trains with torch's functions."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "quiet_library.py").write_text("import torch\nprint('imported')\nLinear = torch.nn.Linear\n")
    (folder / "loud_library.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    made = Bench(tmp_path, {"PYTHONUNBUFFERED": "", "PYTHONPATH": str(folder)})
    yield made
    made.launcher._servers.close()


def told(result: RunResult) -> list[str]:
    """The notes of how the run was started."""
    return [note for note in notes(result) if "ahead" in note or "fresh process" in note]


USES = "import sys\nbefore = 'quiet_library' in sys.modules\n" + TRAINS.replace(
    "import torch\n",
    "import torch\nimport quiet_library\nprint('before', before, quiet_library.Linear is torch.nn.Linear)\n",
)
QUIET, LOUD = Preload(("quiet_library",)), Preload(("loud_library",))


def test_what_discovery_saw_imported_is_imported_ahead_and_trains_alike(installed: Bench) -> None:
    discovered = installed.run(USES, mode="discover", may_fork=False)
    assert discovered.facts is not None
    forked = installed.run(USES, preload=discovered.facts.preload)
    servers = installed.servers
    again = installed.run(USES, preload=discovered.facts.preload)

    assert discovered.facts.fork_refusal == ""
    assert discovered.facts.preload.modules[:2] == ("quiet_library", "torch._dynamo"), "an optimizer brings Dynamo"
    assert (discovered.is_forked, forked.is_forked, again.is_forked) == (False, True, True)
    assert told(forked) == told(again) == []
    assert installed.servers == servers
    lines = output(discovered).splitlines()
    assert lines[:2] == ["imported", "before False True"]
    for run in (forked, again):
        own = output(run).splitlines()
        assert own[0] == "before False True", "it was imported by the server, and nobody saw"
        assert len(own) > 4
        assert own[1:] == lines[2 : 1 + len(own)], "the same losses"


@pytest.mark.slow
def test_where_more_than_modules_comes_of_it_only_torch_is_imported_ahead(installed: Bench) -> None:
    source = TRAINS.replace("import torch\n", "import torch\nimport loud_library\n")
    runs = [installed.run(source, preload=LOUD) for _ in range(2)]

    assert all(run.is_forked for run in runs)
    for run in runs:
        assert told(run) == [
            "only torch was imported ahead: importing loud_library has started 1 threads, which a fork leaves behind"
        ]


@pytest.mark.slow
def test_what_comes_before_a_module_of_which_more_comes_is_imported_ahead_all_the_same(installed: Bench) -> None:
    source = USES.replace("import quiet_library\n", "import quiet_library\nimport loud_library\n")
    runs = [installed.run(source, preload=Preload(("quiet_library", "loud_library"))) for _ in range(2)]

    assert all(run.is_forked for run in runs)
    for run in runs:
        (note,) = told(run)
        assert note.startswith("only torch and quiet_library were imported ahead: importing loud_library has started")
        assert output(run).splitlines()[0] == "before False True", "quiet_library was imported by the server"
    assert len(installed.servers) == 1


COMPILER = """
import sys
import torch
imported = []
sys.addaudithook(lambda event, arguments: imported.append(arguments[0]) if event == "import" else None)
def look():
    is_own = torch.manual_seed is torch.random.manual_seed
    print("torch._dynamo" in sys.modules, "_dynamo" in vars(torch), is_own, flush=True)
look()
torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
look()
from torch._dynamo import trace_rules, utils
rules = trace_rules.get_torch_obj_rule_map()
print(utils.unpatched_nn_module_call is torch.nn.Module.__call__, len(rules), flush=True)
print(rules[torch.compile].__name__, rules[torch.autograd.backward].__name__, flush=True)
print("imported", sum(name.startswith("torch._dynamo.") for name in imported), flush=True)
"""


@pytest.mark.slow
def test_torchs_compiler_is_imported_ahead_and_a_script_finds_it_with_its_first_optimizer(bench: Bench) -> None:
    forked = bench.run(COMPILER, preload=Preload(("torch._dynamo",)))
    fresh = bench.run(COMPILER, may_fork=False)

    assert (forked.is_forked, fresh.is_forked) == (True, False)
    *seen, of_fork = output(forked).splitlines()
    *expected, of_fresh = output(fresh).splitlines()
    assert seen == expected
    assert seen[:2] == ["False False True", "True True False"]
    assert seen[2].startswith("True ")
    assert of_fork == "imported 0"
    assert of_fresh != "imported 0"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            USES.replace("import quiet_library", "import os; os.environ['A_VARIABLE'] = '1'; import quiet_library"),
            "the script sets A_VARIABLE before it imports quiet_library",
        ),
        (
            USES.replace("import quiet_library", "torch.nn.functional.relu = abs; import quiet_library"),
            "the script changes functions of torch.nn.functional before it imports quiet_library",
        ),
        (
            USES.replace("import torch\n", "import quiet_library, torch\n", 1),
            "the script imports quiet_library before torch, as it did not in discovery",
        ),
    ],
)
def test_a_script_that_changes_something_before_such_an_import_runs_afresh(
    installed: Bench, source: str, reason: str
) -> None:
    run = installed.run(source, preload=QUIET)

    assert not run.is_forked
    assert told(run) == [f"run in a fresh process, as those after it: {reason}"]
    assert output(run).splitlines()[0] == "imported"


@pytest.mark.slow
def test_a_server_of_another_name_is_another_server_and_ends_the_one_before(bench: Bench) -> None:
    runs = [bench.run("import os, torch\nprint(os.getppid())", server=name) for name in ("first", "first", "second")]
    parents = [int(output(run)) for run in runs]

    assert parents[0] == parents[1] != parents[2]
    assert bench.servers == parents[2:]
    assert not is_alive(parents[0])


@pytest.mark.slow
def test_a_server_that_is_not_needed_ends_in_silence(bench: Bench) -> None:
    bench.run(TRAINS, mode="discover", may_fork=False)
    (server,) = bench.launcher._servers._idle.values()
    assert select.select([server._control], [], [], DEADLINE_S)[0], "it says that it is ready, which nobody reads"
    server._control.close()

    assert server._process.wait(DEADLINE_S) == 0
    assert (bench.folder / "runs/fork-server/stderr.log").read_text() == ""


@pytest.mark.slow
def test_a_discovery_does_without_a_server_that_cannot_be_started(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(12, "no memory for it")

    monkeypatch.setattr(bench.launcher._servers, "_start", refuse)
    assert isinstance(bench.run(TRAINS, mode="discover", may_fork=False).outcomes[0], Measured)
    said = [note for note in notes(bench.run(TRAINS)) if "fork server" in note]
    assert len(said) == 1
    assert said[0].endswith("it could not be started: no memory for it")


@pytest.mark.slow
@pytest.mark.parametrize(
    "plans",
    [
        (PLAIN,),
        (PLAIN, Configuration("aot"), Configuration("aot", level=1)),
    ],
)
@pytest.mark.parametrize("may_fork", [True, False])
def test_a_script_comes_to_its_end_before_its_process_does(
    bench: Bench, may_fork: bool, plans: tuple[Configuration, ...]
) -> None:
    source = """
    import atexit, tempfile, threading, time
    temporary = tempfile.NamedTemporaryFile(dir=".", prefix="temporary")
    file = open("left open.txt", "w")
    file.write("in the buffer")
    atexit.register(print, "at exit")
    def late():
        time.sleep(0.3)
        print("late")
    try:
        train()
    finally:
        print("finally")
        threading.Thread(target=late).start()
    """
    train = "def train():\n" + textwrap.indent(textwrap.dedent(TRAINS), "    ")
    result = bench.run(train + textwrap.dedent(source), may_fork=may_fork, configurations=plans)

    assert [type(outcome) for outcome in result.outcomes] == [Measured] * len(plans)
    assert output(result).split("\n")[-4:] == ["finally", "late", "at exit", ""]
    assert (bench.folder / "left open.txt").read_text() == "in the buffer"
    assert not list(bench.folder.glob("temporary*"))


@pytest.mark.slow
def test_a_forked_run_computes_the_same_bits(bench: Bench) -> None:
    runs = [bench.run(TRAINS, configurations=(PLAIN, Configuration("aot"))) for _ in range(2)]
    runs.append(bench.run(TRAINS, configurations=(PLAIN, Configuration("aot")), may_fork=False))

    assert all(isinstance(outcome, Measured) for run in runs for outcome in run.outcomes), runs
    steps = min(len(output(run).splitlines()) for run in runs)
    assert steps >= 8
    assert len({tuple(output(run).splitlines()[:steps]) for run in runs}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [(), ("numpy.random",)])
def test_runs_of_a_server_draw_random_numbers_of_their_own(bench: Bench, ahead: tuple[str, ...]) -> None:
    source = "import random, torch, numpy\nprint(random.random(), numpy.random.random(), torch.rand(1).item())"
    first, second = (output(bench.run(source, preload=Preload(ahead))).split() for _ in range(2))

    assert len({*first, *second}) == 6


@pytest.mark.parametrize(
    ("end", "signal_name", "status"),
    [
        pytest.param("os.abort()", "SIGABRT", None, marks=pytest.mark.slow),
        ("os._exit(3)", "", 3),
        pytest.param("os.kill(os.getpid(), 9)", "SIGKILL", None, marks=pytest.mark.slow),
    ],
)
def test_how_a_forked_run_ended_is_known(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, end: str, signal_name: str, status: int | None
) -> None:
    monkeypatch.setattr("autotune.launch.supervise.oom_kills", lambda: 0)

    (outcome,) = bench.run(f"import os, torch\n{end}").outcomes

    assert isinstance(outcome, Died)
    assert (outcome.signal or "", outcome.exit_status) == (signal_name, status)
    assert len(bench.servers) == 1, "the server goes on"


@pytest.mark.slow
def test_a_forked_run_that_the_kernel_killed_for_memory_is_told_from_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = iter([4, 5])
    monkeypatch.setattr("autotune.launch.supervise.oom_kills", lambda: next(kills))

    assert isinstance(bench.run("import os, torch\nos.kill(os.getpid(), 9)").outcomes[0], HostOutOfMemory)


@pytest.mark.slow
def test_each_device_has_a_server_of_its_own(bench: Bench) -> None:
    source = "import os, torch\nprint(os.environ['CUDA_VISIBLE_DEVICES'], os.getppid())"

    seen = [output(bench.run(source, devices=(device,))).split() for device in (0, 1, 0, 1)]

    assert [device for device, _ in seen] == ["GPU-0", "GPU-1", "GPU-0", "GPU-1"]
    assert [int(parent) for _, parent in seen] == bench.servers * 2
    assert len(set(bench.servers)) == 2


CHILDREN = """
import os, subprocess, sys, time, torch
SLEEP = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", SLEEP, "executed"], start_new_session=True)
if not os.fork():
    os.setsid()
    if not os.fork():
        with open("forked", "w") as file:
            file.write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
with open("main", "w") as file:
    file.write(str(os.getpid()))
while not all(os.path.exists(name) and open(name).read() for name in ("executed", "forked")):
    time.sleep(0.01)
print("ready", flush=True)
"""
KINDS = ("main", "executed", "forked")


def pids(folder: Path) -> dict[str, int]:
    return {kind: int((folder / kind).read_text()) for kind in KINDS}


def test_nothing_that_came_out_of_a_forked_run_is_left(bench: Bench) -> None:
    bench.run(CHILDREN)

    # What was killed shows no mark any more a moment before it is gone.
    assert becomes_true(lambda: not any(map(is_alive, pids(bench.folder).values())))
    assert len(bench.servers) == 1
    assert is_alive(bench.servers[0])


def test_a_cancelled_run_is_gone_and_the_server_stays(bench: Bench) -> None:
    cancel = threading.Event()
    threading.Thread(
        target=lambda: (
            becomes_true(
                lambda: all((bench.folder / kind).exists() and (bench.folder / kind).read_text() for kind in KINDS)
            ),
            cancel.set(),
        )
    ).start()

    result = bench.run(f"{CHILDREN}time.sleep(600)", cancel=cancel)

    assert (result.outcomes, result.failure) == ((None,), None)
    # What was killed shows no mark any more a moment before it is gone.
    assert becomes_true(lambda: not any(map(is_alive, pids(bench.folder).values())))
    assert len(bench.servers) == 1


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["in a run", "between runs", "while torch is imported"])
def test_a_controller_killed_by_sigkill_leaves_nothing(tmp_path: Path, moment: str) -> None:
    source = {"in a run": f"{CHILDREN}time.sleep(600)", "between runs": "import torch; print('ready')"}.get(moment, "")
    (tmp_path / "controller.py").write_text(
        f"import sys, time; sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})\n"
        "from pathlib import Path\n"
        "from tests.unit.test_fork_server import Bench\n"
        f"Bench(Path({str(tmp_path)!r})).run({source!r})\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, tmp_path / "controller.py"]) as controller:
        if moment == "while torch is imported":
            assert becomes_true((tmp_path / "runs/fork-server/stderr.log").exists)
        else:
            logs = (path for path in iter(lambda: list(tmp_path.glob("runs/*-*/stdout.log")), None))
            assert becomes_true(lambda: any("ready" in path.read_text() for path in next(logs)))
        family = psutil.Process(controller.pid).children(recursive=True)
        controller.kill()

    assert len(family) >= 2, "the server and its guard at least"
    assert becomes_true(lambda: not any(process.is_running() for process in family))
    if moment == "in a run":
        assert becomes_true(lambda: not [kind for kind, pid in pids(tmp_path).items() if is_alive(pid)])


def test_servers_end_with_their_launcher(bench: Bench) -> None:
    bench.run("import torch")
    (server,) = bench.servers

    del bench.launcher
    gc.collect()

    assert not is_alive(server)


@pytest.mark.slow
def test_a_server_that_is_gone_is_done_without(bench: Bench) -> None:
    bench.run("import torch")
    (server,) = bench.servers
    os.kill(server, signal.SIGKILL)

    first, second = bench.run(TRAINS), bench.run(TRAINS)

    (note,) = (one for one in notes(first) if "fresh process" in one)
    assert "the fork server" in note
    assert not [one for one in notes(second) if "fresh process" in one], "said once"
    assert bench.servers == []


@pytest.mark.slow
def test_a_run_whose_server_is_killed_before_it_has_an_outcome_is_started_again(bench: Bench) -> None:
    source = f"""
import os, signal
if not os.path.exists("killed"):
    open("killed", "w").close()
    os.kill(os.getppid(), signal.SIGKILL)
{TRAINS}
"""
    assert any("ended during a run" in note for note in notes(bench.run(source)))


@pytest.mark.slow
def test_what_a_run_whose_server_is_killed_has_measured_stands_and_the_rest_is_not_reached(bench: Bench) -> None:
    bench.run("import torch")
    (server,) = bench.servers

    def kill(event: Event) -> None:
        if event.kind == "result":
            os.kill(server, signal.SIGKILL)

    source = TRAINS.replace("    print(", "    import time; time.sleep(0.05)\n    print(")
    result = bench.run(source, configurations=(PLAIN, Configuration("aot"), PLAIN), on_event=kill)

    first, *_, last = result.outcomes
    assert isinstance(first, Measured)
    assert last is None
    assert result.failure is None
    assert isinstance(bench.run(TRAINS).outcomes[0], Measured)


@pytest.mark.slow
def test_a_script_that_changes_what_torchs_import_depends_on_is_run_afresh(bench: Bench) -> None:
    source = f"import os; os.environ['OMP_NUM_THREADS'] = '2'\n{TRAINS}\nprint(torch.get_num_threads())"

    result = bench.run(source)

    (note,) = (one for one in notes(result) if "fresh process" in one)
    assert "OMP_NUM_THREADS" in note
    assert bench.servers == []


@pytest.mark.slow
def test_a_thread_that_is_there_before_the_fork_rules_it_out(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    bench = Bench(tmp_path, {"PYTHONPATH": str(tmp_path)})

    result = bench.run(TRAINS)

    assert any("started 1 threads, which a fork leaves behind" in note for note in notes(result))
    assert bench.servers == []


def test_an_open_device_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fork_server._open_device() == ""
    monkeypatch.setattr(fork_server, "_DEVICES", (str(tmp_path),))

    with (tmp_path / "nvidiactl").open("w"):
        assert fork_server._open_device() == str(tmp_path / "nvidiactl")


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        pytest.param("time.sleep(600)", "was not ready within", marks=pytest.mark.slow),
        ("sys.exit('no room')", "is gone"),
        ('os.write(int(sys.argv[2]), b\'{"refused": "too many threads"}\')', "too many threads"),
    ],
)
def test_a_server_that_cannot_start_is_done_without(tmp_path: Path, server: str, reason: str) -> None:
    launcher = launcher_for(tmp_path, "run.result(0)", start_timeout_s=6.0)
    worker = tmp_path / "worker.py"
    worker.write_text(
        f"import os, sys, time\nif sys.argv[1] == '--fork-server':\n    {server}\n    sys.exit(0)\n{worker.read_text()}"
    )
    before = {child.pid for child in psutil.Process().children()}

    result = launcher.run(request_for(may_fork=True), devices=(), on_event=lambda event: None, cancel=threading.Event())

    assert any(reason in note for note in notes(result))
    assert {child.pid for child in psutil.Process().children()} == before


@pytest.mark.slow
def test_a_run_that_is_cancelled_while_its_server_starts_is_over_at_once(tmp_path: Path) -> None:
    launcher = launcher_for(tmp_path, "run.result(0)")
    worker = tmp_path / "worker.py"
    worker.write_text(
        f"import os, sys, time\nif sys.argv[1] == '--fork-server':\n    open('up', 'w').close()\n    time.sleep(600)\n"
        f"{worker.read_text()}"
    )
    cancel = threading.Event()
    threading.Thread(target=lambda: (becomes_true((tmp_path / "up").exists), cancel.set())).start()

    result = launcher.run(request_for(may_fork=True), devices=(), on_event=lambda event: None, cancel=cancel)

    assert result.outcomes == (None,)
    assert becomes_true(lambda: not psutil.Process().children())
