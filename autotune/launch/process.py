"""The launcher that users get: a run is a fresh process group."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from ..errors import RunError, UsageError
from ..records import ENGINES, Request, dumps
from .devices import Gpus, find_device, read_gpus
from .family import MARK_VARIABLE, Family, Spawned
from .fork_server import ForkServer, ForkServerError, ForkServers
from .meters import MeterFactory, meter_for
from .outcome import Ending
from .port import Event, RunResult
from .supervise import Patience, Supervision

__all__ = ["WORKER", "ProcessLauncher", "device_variables", "worker_command"]

WORKER = Path(__file__).resolve().parent.parent / "worker" / "__main__.py"
"""The bootstrap of the training process."""

# So that runs which are compared can be equal: sets of strings in one order, cuBLAS with a workspace of its own.
_REPEATABLE = {"PYTHONHASHSEED": "0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def worker_command(python: str, directory: Path, *, worker: Path = WORKER) -> tuple[str, ...]:
    """The command line of a run's first process.

    The bootstrap is started by its path and with ``-P``, so that neither its own folder nor the working directory is
    on ``sys.path`` before the script's is.
    """
    return (python, "-P", str(worker), str(directory))


def device_variables(device: int | None, *, read: Callable[[], Gpus] = read_gpus) -> dict[str, str]:
    """The environment variables that give a process this device only, named by its UUID.

    On CPU there are none. UsageError if there is no such device.
    """
    return {} if device is None else {"CUDA_VISIBLE_DEVICES": find_device(device, read()).uuid}


_AFRESH = "run in a fresh process, as those after it"


@dataclasses.dataclass(frozen=True)
class _Watched:
    """A run that is over, and no process of it left."""

    supervision: Supervision
    ending: Ending
    status: int

    def conclude(self) -> RunResult:
        return self.supervision.conclude(self.ending, self.status)


class ProcessLauncher:
    """Starts a worker process per run, watches it and kills all of it in the end.

    Args:
        python: the interpreter of the worker.
        root: the folder below which each run makes its own.
        working_directory: where the script runs.
        start_timeout_s: the time a run has until its first training step ends.
        trial_timeout_s: the time each trial has from then on.
        meter_factory: makes the memory meter of a run.
        grace_s: the time that a run has to end by itself once everything is written, and its other ranks to follow
            one that failed.
        variables: the environment that the worker gets, but for the device.
        gpus: lists the devices.
        worker: the bootstrap.
    """

    def __init__(
        self,
        *,
        python: str,
        root: Path,
        working_directory: Path,
        start_timeout_s: float,
        trial_timeout_s: float,
        meter_factory: MeterFactory = meter_for,
        grace_s: float = 10.0,
        variables: Mapping[str, str] = os.environ,
        gpus: Callable[[], Gpus] = read_gpus,
        worker: Path = WORKER,
    ) -> None:
        self._python = python
        self._root = root
        self._working_directory = working_directory
        self._patience = Patience(start_timeout_s, trial_timeout_s, grace_s)
        self._meter_factory = meter_factory
        self._variables = variables
        self._gpus = gpus
        self._worker = worker
        self._fork_refusal = ""
        start = partial(
            ForkServer,
            (python, "-P", str(worker), "--fork-server"),
            logs=root / "fork-server",
            working_directory=working_directory,
        )
        self._servers = ForkServers(start, timeout_s=start_timeout_s)
        weakref.finalize(self, self._servers.close)

    def run(
        self,
        request: Request,
        *,
        device: int | None,
        on_event: Callable[[Event], None],
        cancel: threading.Event,
        directory: Path | None = None,
    ) -> RunResult:
        """Measure the configurations of ``request``: see ``Launcher``."""
        assert request.configurations
        assert request.mode != "launch", "a script that runs to its own end has no trial to watch"
        if not self._working_directory.is_dir():
            raise UsageError(f"the working directory {str(self._working_directory)!r} isn't there")
        variables = {**self._variables, **device_variables(device, read=self._gpus)}
        if request.mode == "verify":
            variables = _REPEATABLE | variables
        meter = self._meter_factory(device)
        request = dataclasses.replace(request, free_bytes=meter.free_bytes)
        directory = self._prepare(request, directory)

        def watch(family: Family, *notes: str) -> _Watched:
            supervision = Supervision(
                family,
                request,
                directory=directory,
                meter=meter,
                patience=self._patience,
                on_event=on_event,
                notes=notes,
            )
            ending = supervision.watch(cancel)
            return _Watched(supervision, ending, family.kill())

        try:
            meter.start()
            notes: tuple[str, ...] = ()
            if request.may_fork and not self._fork_refusal:
                watched = self._run_forked(directory, variables, watch, cancel)
                if watched is not None:
                    return watched.conclude()
                notes = tuple(filter(None, [self._fork_refusal]))
            else:
                self._servers.close()  # what runs in a fresh process has the machine to itself
            with self._start(directory, variables) as family:
                if request.mode == "discover" and ENGINES[request.describe_engine].forks:
                    self._servers.prepare(variables)  # for the runs after it; both import torch now, before any step
                watched = watch(family, *notes)
            return watched.conclude()
        finally:
            meter.close()

    def _run_forked(
        self,
        directory: Path,
        variables: Mapping[str, str],
        watch: Callable[[Family], _Watched],
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
            server = self._servers.take(variables, cancel)
            if server is None:
                return None
            with Family(partial(server.fork, directory), server_mark=server.mark, server_pid=server.pid) as family:
                watched = watch(family)
            if refusal.exists():
                self._fork_refusal = f"{_AFRESH}: {refusal.read_text(encoding='utf-8')}"
            elif family.main.is_lost:
                self._fork_refusal = f"{_AFRESH}: the fork server ended during a run"
            else:
                is_good = True
        except ForkServerError as error:
            self._fork_refusal = f"{_AFRESH}: the fork server: {error}"
        finally:
            if server is not None and is_good:
                self._servers.give_back(variables, server)
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

    def _prepare(self, request: Request, directory: Path | None) -> Path:
        """Make the run's folder, with the request in it."""
        if directory is None:
            directory = self._root / f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"
        directory = directory.absolute()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise RunError(
                    f"the folder {str(directory)!r} is not empty", hint="every run needs a folder of its own"
                )
            (directory / "request.json").write_text(dumps(request, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise _unwritable(directory, error) from error
        return directory

    def _start(self, directory: Path, variables: Mapping[str, str]) -> Family:
        command = worker_command(self._python, directory, worker=self._worker)

        def start(token: str) -> Spawned:
            marked = {**variables, MARK_VARIABLE: token}
            return Spawned(command, directory=directory, working_directory=self._working_directory, variables=marked)

        try:
            return Family(start)
        except OSError as error:
            raise _unwritable(directory, error) from error


def _unwritable(directory: Path, error: OSError) -> RunError:
    return RunError(
        f"cannot start a run in {str(directory)!r}: {error.strerror or error}",
        hint="logs go to .autotune in the folder you are in: make room there, or run from another one",
    )
