"""The launcher that users get: a run is a fresh process group."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from ..errors import RunError, UsageError
from ..files.backup_directory import BackupDirectory
from ..files.changes import Changes
from ..machine.devices import Gpus, find_device, variables_of
from ..machine.interpreter import WORKER
from ..machine.meters.nvidia import meter_for, read_gpus
from ..machine.meters.run_meter import RunMeter
from ..records.choices import start_variables
from ..records.codec import dumps
from ..records.engines import ENGINES
from ..records.outcome import Measured
from ..records.run import Request
from .caches import CompileCaches
from .ending import Ending, Patience
from .fork_server import ForkServer, ForkServerError, ForkServers, PreloadError
from .port import Event, RunResult
from .process_tree import MARK_VARIABLE, ProcessTree, Spawned
from .supervise import Supervision

# So that runs which are compared can be equal: sets of strings in one order, cuBLAS with a workspace of its own.
_REPEATABLE = {"PYTHONHASHSEED": "0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def worker_command(python: str, directory: Path, *, worker: Path = WORKER) -> tuple[str, ...]:
    """Return the command line of a run's first process."""
    # By its path and with -P, so that neither its own folder nor the working directory comes first on sys.path.
    return (python, "-P", str(worker), str(directory))


def device_variables(devices: Sequence[int], *, read: Callable[[], Gpus] = read_gpus) -> dict[str, str]:
    """Return the environment variables that give a process these devices only; UsageError if one is not there."""
    gpus = read() if devices else Gpus(())
    return variables_of([find_device(index, gpus) for index in devices])


def new_folder(root: Path, directory: Path | None) -> Path:
    """Make the folder of a run, one below ``root`` unless given; RunError if it can't be made or is not empty."""
    if directory is None:
        directory = root / f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"
    directory = directory.absolute()
    with writing_to(directory):
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise RunError(f"the folder {str(directory)!r} is not empty", hint="each run needs a folder of its own")
    return directory


@contextlib.contextmanager
def writing_to(directory: Path, *, what: str = "start a run in") -> Iterator[None]:
    """Raise RunError, that one cannot do ``what`` with the folder of a run, for OSError in the block."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot {what} {str(directory)!r}: {error.strerror or error}",
            hint="logs go to .autotune in the folder you are in: make room there, or run from another one",
        ) from error


_PACKAGES = Path(__file__).resolve().parents[2]
# Isolated, since the folder that a controller was started in may have modules of anybody's.
_PUT_BACK = (
    "import sys; sys.path.insert(0, sys.argv[1]); from autotune.files.put_back import put_back; put_back(sys.argv[2])"
)
_AFRESH = "run in a fresh process, as those after it"


@dataclasses.dataclass(frozen=True)
class _Watched:
    """A run that is over, and no process of it left."""

    supervision: Supervision
    ending: Ending
    status: int
    is_forked: bool = False

    def conclude(self) -> tuple[RunResult, bool]:
        """Return what the run left behind, and whether nothing had to be killed and nothing failed."""
        result = dataclasses.replace(self.supervision.conclude(self.ending, self.status), is_forked=self.is_forked)
        failed = result.failure or [one for one in result.outcomes if one and not isinstance(one, Measured)]
        return result, self.ending.how == "exited" and self.status == 0 and not failed


class ProcessLauncher:
    """Starts a worker process per run, watches it and kills all of it in the end.

    Args:
        python: the interpreter of the worker.
        root: the folder below which each run makes its own.
        working_directory: where the script runs.
        start_timeout_s: see ``Patience``, as for ``trial_timeout_s`` and ``grace_s``.
        meter_factory: makes the memory meter of a run on devices, which are none where the run chooses by itself.
        variables: the environment that the worker gets, but for the devices.
        gpus: lists the devices.
        worker: the bootstrap.
        backups: keeps aside what runs change on disk, and puts it back; None leaves it as runs have changed it.
        caches: where the compile caches of runs are; below ``root`` unless given.
    """

    def __init__(
        self,
        *,
        python: str,
        root: Path,
        working_directory: Path,
        start_timeout_s: float,
        trial_timeout_s: float,
        meter_factory: Callable[[tuple[int, ...]], RunMeter] = meter_for,
        grace_s: float = 10.0,
        variables: Mapping[str, str] = os.environ,
        gpus: Callable[[], Gpus] = read_gpus,
        worker: Path = WORKER,
        backups: BackupDirectory | None = None,
        caches: Path | None = None,
    ) -> None:
        self._python = python
        self._root = root
        self._working_directory = working_directory
        self._patience = Patience(start_timeout_s, trial_timeout_s, grace_s)
        self._meter_factory = meter_factory
        self._variables = variables
        self._gpus = gpus
        self._worker = worker
        self._backups = backups
        self._caches = CompileCaches(caches or root / "caches", variables)
        self._fork_refusal = ""
        # Modules that are not imported ahead, and a note of why.
        self._refused_modules: set[str] = set()
        self._preload_refusal = ""
        start = partial(
            ForkServer,
            (python, "-P", str(worker), "--fork-server"),
            logs=root / "fork-server",
            working_directory=working_directory,
        )
        self._servers = ForkServers(start, timeout_s=start_timeout_s)
        weakref.finalize(self, self._servers.close)

    @property
    def changes(self) -> Changes:
        """See ``Launcher``."""
        return Changes() if self._backups is None else self._backups.changes

    def run(
        self,
        request: Request,
        *,
        devices: tuple[int, ...],
        on_event: Callable[[Event], None],
        cancel: threading.Event,
        directory: Path | None = None,
    ) -> RunResult:
        """Measure the configurations of ``request``: see ``Launcher``."""
        assert request.configurations
        assert request.mode != "launch", "a script that runs to its own end has no trial to watch"
        if not self._working_directory.is_dir():
            raise UsageError(f"the working directory {str(self._working_directory)!r} isn't there")
        variables = {**self._variables, **device_variables(devices, read=self._gpus)}
        variables |= start_variables(request.configurations[0], variables)
        if request.mode == "verify":
            variables = _REPEATABLE | variables
        meter = self._meter_factory(devices)
        request = dataclasses.replace(
            request,
            free_bytes=meter.free_bytes,
            usable_bytes=meter.usable_bytes,
            kept_in="" if self._backups is None else str(self._backups.folder),
        )
        with contextlib.ExitStack() as around:
            around.callback(meter.close)
            directory = new_folder(self._root, directory)
            supervise = partial(
                Supervision, directory=directory, meter=meter, patience=self._patience, on_event=on_event
            )
            with writing_to(directory):
                if self._backups is not None:
                    around.enter_context(self._backups.run())
                loan = self._caches.lend(devices)
            ended_well = False
            try:
                request = dataclasses.replace(request, caches=loan.variables)
                with writing_to(directory):
                    (directory / "request.json").write_text(dumps(request, indent=2) + "\n", encoding="utf-8")
                meter.start()
                result, ended_well = self._watch(request, directory, variables, supervise, cancel).conclude()
                return result
            finally:
                loan.take_back(ended_well=ended_well)

    def _watch(
        self,
        request: Request,
        directory: Path,
        variables: Mapping[str, str],
        supervise: Callable[..., Supervision],
        cancel: threading.Event,
    ) -> _Watched:
        """Start a run, forked where that may be, and watch it until no process of it is left."""

        def watch(process_tree: ProcessTree, *notes: str) -> _Watched:
            supervision = supervise(process_tree, request, notes=notes)
            ending = supervision.watch(cancel)
            return _Watched(supervision, ending, process_tree.kill())

        notes: tuple[str, ...] = ()
        if request.may_fork and not self._fork_refusal:
            watched = self._run_forked(request, directory, variables, watch, cancel)
            if watched is not None:
                return watched
            notes = tuple(filter(None, [self._fork_refusal]))
        else:
            self._servers.close()  # what runs in a fresh process has the machine to itself
        with self._start(directory, variables) as process_tree:
            if request.mode == "discover" and ENGINES[request.describe_engine].forks:
                self._servers.prepare(variables)  # for the runs after it; both import torch now, before any step
            return watch(process_tree, *notes)

    def _run_forked(
        self,
        request: Request,
        directory: Path,
        variables: Mapping[str, str],
        watch: Callable[..., _Watched],
        cancel: threading.Event,
    ) -> _Watched | None:
        """Run in a process that is forked from one that has imported torch; None if it has to be run afresh.

        That is so where the server fails before the run has an outcome (after one, the rest of the run is not reached),
        and where the script changes something before it imports torch that it left alone in discovery.
        """
        server, watched = None, None
        is_good = False
        refusal = directory / "fork-refused"
        try:
            server = self._take_server(request, variables, cancel)
            if server is None:
                return None
            start = partial(server.fork, directory)
            after_death = self._after_death()
            with ProcessTree(
                start, server_mark=server.mark, server_pid=server.pid, after_death=after_death
            ) as process_tree:
                notes = tuple(filter(None, [self._preload_refusal]))
                watched = dataclasses.replace(watch(process_tree, *notes), is_forked=True)
            if refusal.exists():
                self._fork_refusal = f"{_AFRESH}: {refusal.read_text(encoding='utf-8')}"
            elif process_tree.main.is_lost:
                self._fork_refusal = f"{_AFRESH}: the fork server ended during a run"
            else:
                is_good = True
        except ForkServerError as error:
            self._fork_refusal = f"{_AFRESH}: the fork server: {error}"
        finally:
            if server is not None and is_good:
                self._servers.give_back(request.server, variables, server)
            elif server is not None:
                server.close()
        if watched is not None:
            if is_good or watched.ending.how == "cancelled" or not (watched.ending.how == "exited" or refusal.exists()):
                return watched
            if watched.supervision.has_outcome:
                return dataclasses.replace(watched, ending=Ending("cancelled", watched.ending.index))
        for path in (directory / "results.jsonl", *directory.glob("progress-*")):
            path.unlink(missing_ok=True)
        return None

    def _take_server(
        self, request: Request, variables: Mapping[str, str], cancel: threading.Event
    ) -> ForkServer | None:
        """Take a fork server for a run, with the modules to import ahead, up to the first one that cannot be."""
        while True:
            preload = request.preload.up_to(self._refused_modules)
            try:
                return self._servers.take(request.server, variables, preload, request.caches, cancel)
            except PreloadError as error:
                self._refused_modules.add(error.module)
                kept = request.preload.up_to(self._refused_modules).modules
                self._preload_refusal = f"{_imported_ahead(kept)}: {error}"

    def _after_death(self) -> tuple[str, ...]:
        """Return the command that puts back what a run has changed whose controller was killed."""
        if self._backups is None:
            return ()
        return (sys.executable, "-I", "-c", _PUT_BACK, str(_PACKAGES), str(self._backups.folder))

    def _start(self, directory: Path, variables: Mapping[str, str]) -> ProcessTree:
        command = worker_command(self._python, directory, worker=self._worker)

        def start(token: str) -> Spawned:
            marked = {**variables, MARK_VARIABLE: token}
            return Spawned(command, directory=directory, working_directory=self._working_directory, variables=marked)

        with writing_to(directory):
            return ProcessTree(start, after_death=self._after_death())


def _imported_ahead(modules: Sequence[str]) -> str:
    if not modules:
        return "only torch was imported ahead"
    return f"only {', '.join(['torch', *modules[:-1]])} and {modules[-1]} were imported ahead"
