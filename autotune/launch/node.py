"""The side of a run that is on a node of a cluster: a ``ProcessLauncher``, and a mailbox that the controller polls.

Nothing here imports Ray; ``ray.py`` makes an actor of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import shutil
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ..errors import AutotuneError, RunError
from ..files.backup_directory import BackupDirectory
from ..files.changes import Changes
from ..machine.interpreter import check_worker_python
from ..records.run import Request
from .archive import unpack
from .port import Event, RunResult
from .process import ProcessLauncher

_LOOK_S = 0.5
_UNHEARD_S = 30.0
_END_S = 10.0
_STALE_S = 300.0
_OWN = "own"
_NVIDIA = Path("/dev/nvidiactl")
_MOST_LOG_BYTES = 2**20
_MOST_FILE_BYTES = 16 * 2**20
# Values of a proof stay where the runs are that they are compared with; progress is of no use once a run is over.
_STAY = ("values-*.pt", "progress-*")


@dataclass(frozen=True)
class Terms:
    """The settings of a study that a node needs for its runs.

    ``python`` is the interpreter of runs, empty for the node's own. ``working_directory`` is the folder where the
    script runs, as the node sees it; where there is an ``archive``, it is the folder that was packed, as the
    controller saw it. ``gpus`` is the number of GPUs that a run has. ``options`` go to ``ProcessLauncher`` as they are.
    """

    python: str
    working_directory: str
    archive: bytes | None
    gpus: int
    start_timeout_s: float
    trial_timeout_s: float
    leaves_files: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Left:
    """The last message of a run: what it left behind, or why nothing was learned; ``files`` by their names."""

    result: RunResult | None
    error: AutotuneError | None
    files: Mapping[str, bytes]
    changes: Changes


class Post:
    """Runs what the controller asks for, one run at a time, and ends it when the controller or Ray are gone.

    Ends itself with the process that started it, the raylet: a worker of Ray outlives a raylet that is killed. Ends
    itself too if nobody polls while a run is at work. The guard of ``ProcessLauncher`` ends a run whose post is killed.
    """

    def __init__(self) -> None:
        self._raylet = os.getppid()
        self._mail: queue.Queue[Event | Left] = queue.Queue()
        self._cancel = threading.Event()
        self._thread: threading.Thread | None = None
        self._heard_s = time.monotonic()
        self._is_lost = False
        self._folder = Path(tempfile.gettempdir()) / f"autotune-{os.getuid()}-{os.getpid()}"
        self._directories: dict[str, Path] = {}

    def open(self, terms: Terms) -> AutotuneError | None:
        """Make ready for runs; return why this node will not do, None if it will."""
        try:
            self._open(terms)
        except AutotuneError as error:
            return error
        except OSError as error:
            return RunError(
                f"node {socket.gethostname()} cannot prepare {str(self._folder)!r}: {error.strerror or error}",
                hint="make room in the temporary folder of that node, or set TMPDIR where its Ray is started",
            )
        threading.Thread(target=self._follow, daemon=True).start()
        return None

    def _open(self, terms: Terms) -> None:
        if terms.python:
            check_worker_python(terms.python)
        _clear_stale()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700)
        self._terms = terms
        self._at = Path(terms.working_directory)
        if terms.archive is not None:
            self._at = self._folder / "files"
            self._at.mkdir()
            unpack(terms.archive, self._at)
        # What is beside a backup directory counts as autotune's own, so the copy of the user's files is one folder up.
        self._launcher = ProcessLauncher(
            python=terms.python or sys.executable,
            root=self._folder / _OWN / "runs",
            working_directory=self._at,
            start_timeout_s=terms.start_timeout_s,
            trial_timeout_s=terms.trial_timeout_s,
            variables=_clean_variables(self._raylet, terms.gpus),
            backups=None if terms.leaves_files else BackupDirectory(self._folder / _OWN / "kept"),
            **terms.options,
        )

    def begin(self, request: Request, directory: str, ends_in_s: float | None) -> None:
        """Start a run whose folder is called ``directory`` by the controller.

        ``ends_in_s`` stands in for ``ends_at``: the clocks of two machines have nothing to do with each other.
        """
        assert self._thread is None or not self._thread.is_alive(), "one run at a time"
        if request.mode != "verify":
            self._forget_directories()
        self._heard_s = time.monotonic()
        self._cancel, self._mail = threading.Event(), queue.Queue()
        request = dataclasses.replace(
            request,
            script=self._here(request.script),
            ends_at=None if ends_in_s is None else time.monotonic() + ends_in_s,
            verifying=dataclasses.replace(
                request.verifying,
                references=tuple(str(self._directories.get(one, one)) for one in request.verifying.references),
            ),
        )
        self._thread = threading.Thread(target=self._run, args=(request, directory), daemon=True)
        self._thread.start()

    def poll(self, wait_s: float) -> list[Event | Left]:
        """Return what has happened since the last time; waits so long for something to happen."""
        self._heard_s = time.monotonic()
        messages: list[Event | Left] = []
        with contextlib.suppress(queue.Empty):
            messages.append(self._mail.get(timeout=wait_s))
            while True:
                messages.append(self._mail.get_nowait())
        return messages

    def cancel(self) -> None:
        """Have the run end; its last message tells when no process of it is left."""
        self._cancel.set()

    def close(self) -> None:
        """End the run, wait until no process of it is left, and leave nothing on the node."""
        self._cancel.set()
        if self._thread is not None:
            self._thread.join(_END_S)
        del self._launcher  # with the fork servers that it keeps
        if self._thread is None or not self._thread.is_alive():
            shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, request: Request, name: str) -> None:
        directory = self._folder / _OWN / "runs" / f"run-{time.monotonic_ns()}"
        self._directories[name] = directory
        result, error = None, None
        try:
            result = self._launcher.run(
                request,
                devices=tuple(range(self._terms.gpus)),  # Ray has left the process these cards to see
                on_event=self._say,
                cancel=self._cancel,
                directory=directory,
            )
        except AutotuneError as raised:
            error = raised
        except Exception as raised:
            error = RunError(f"node {socket.gethostname()}: {type(raised).__name__}: {raised}", hint="see its Ray logs")
        files = _files_of(directory)
        if request.mode != "verify":
            self._forget_directories()
        # In a copy that was sent nothing is the user's.
        changes = Changes() if self._terms.archive is not None else self._launcher.changes
        self._say(Left(result, error, files, changes))

    def _say(self, message: Event | Left) -> None:
        # A run that ends because its node is lost would look as if the controller had cancelled it.
        if not self._is_lost:
            self._mail.put(message)

    def _here(self, path: str) -> str:
        """Return a path of the controller's as it is on this node."""
        if self._terms.archive is None:
            return path
        return str(self._at / Path(path).relative_to(self._terms.working_directory))

    def _forget_directories(self) -> None:
        for directory in self._directories.values():
            shutil.rmtree(directory, ignore_errors=True)
        self._directories.clear()

    def _follow(self) -> None:
        """End everything when the raylet is gone, or when nobody asks any more how the run goes."""
        while os.getppid() == self._raylet:
            is_running = self._thread is not None and self._thread.is_alive()
            if is_running and time.monotonic() - self._heard_s > _UNHEARD_S:
                break
            time.sleep(_LOOK_S)
        self._is_lost = True
        with contextlib.suppress(Exception):  # whatever it is, the guard ends the run once this process is gone
            self.close()
        os._exit(1)


def _clean_variables(raylet: int, gpus: int) -> dict[str, str]:
    """Return the environment of the process that started Ray on this node, as a run would have it without Ray.

    Ray's workers have more: ``OMP_NUM_THREADS``, ``PYTHONPATH``, tokens. The raylet itself has Ray's allocator in
    ``LD_PRELOAD``. Only the choice of GPUs is taken from the worker.
    """
    pairs = (entry.partition("=") for entry in _environ_of(raylet))
    variables = {name: value for name, _, value in pairs if name and not name.startswith("RAY_")}
    variables.pop("LD_PRELOAD", None)
    if preloaded := os.environ.get("LD_PRELOAD"):
        variables["LD_PRELOAD"] = preloaded
    if gpus:
        variables["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"]
    elif _NVIDIA.exists():
        variables["CUDA_VISIBLE_DEVICES"] = ""  # a run that asked for no GPU must not take somebody's
    return variables


def _environ_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="surrogateescape").split("\0")
    except OSError as error:
        raise RunError(
            f"node {socket.gethostname()}: cannot read the environment of Ray's process {pid}: {error.strerror}",
            hint="is its Ray still running? `ray status` says so",
        ) from None


def _files_of(directory: Path) -> dict[str, bytes]:
    """Return what the controller keeps of a run: logs with their ends, other files up to a size."""
    found = {}
    for path in sorted(directory.glob("*")):
        if any(path.match(pattern) for pattern in _STAY) or not path.is_file() or path.is_symlink():
            continue
        most = _MOST_LOG_BYTES if path.suffix == ".log" else _MOST_FILE_BYTES
        with contextlib.suppress(OSError), path.open("rb") as file:
            left_out = max(0, path.stat().st_size - most)
            file.seek(left_out)
            notice = f"[{left_out} bytes before this were left on the node]\n".encode() if left_out else b""
            found[path.name] = notice + file.read(most)
    return found


def _clear_stale() -> None:
    """Remove what posts of this user left that were killed, once what their runs changed is put back."""
    for folder in Path(tempfile.gettempdir()).glob(f"autotune-{os.getuid()}-*"):
        pid = folder.name.rpartition("-")[2]
        with contextlib.suppress(OSError, AutotuneError):
            status = folder.lstat()
            # Anybody may make a folder of that name here, and what is put back is whatever the change log in it says.
            if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
                continue
            if not pid.isdigit() or psutil.pid_exists(int(pid)) or time.time() - status.st_mtime < _STALE_S:
                continue
            kept = folder / _OWN / "kept"
            BackupDirectory(kept).recover()
            if not (kept / "journal.jsonl").exists():  # else something could not be put back: it stays to be looked at
                shutil.rmtree(folder, ignore_errors=True)
