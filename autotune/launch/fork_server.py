"""Fork servers: a run's main process comes from one that has imported torch, which saves the run that import.

``worker/fork_server.py`` is the other side, and states the protocol. A server forks one run at a time, for one set of
environment variables, and for the runs that ask for it by one name. What goes wrong with it is a reason to start runs
afresh, never a failure of a run.
"""

from __future__ import annotations

import contextlib
import json
import select
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from ..records.codec import to_json
from ..records.facts import Preload
from .process_tree import MARK_VARIABLE, Guard

_LOOK_S = 0.025
_ANSWER_S = 10.0
_END_S = 2.0


class ForkServerError(Exception):
    """The server cannot be used, and why."""


class PreloadError(ForkServerError):
    """It cannot be used with the ``module`` that it was to import ahead, and why."""

    def __init__(self, module: str, why: str) -> None:
        super().__init__(why)
        self.module = module


class ForkServer:
    """One server. OSError if it cannot be started.

    ``command`` is its command line, but for the number of its socket, and for ``logs``, the folder of its
    ``stdout.log`` and ``stderr.log``. ``variables`` are the environment of its runs, but for their mark.
    """

    def __init__(
        self, command: tuple[str, ...], *, logs: Path, working_directory: Path, variables: Mapping[str, str]
    ) -> None:
        token = uuid.uuid4().hex
        self.mark = f"{MARK_VARIABLE}={token}"
        self._is_ready = False
        self.preloaded: tuple[Preload, Mapping[str, str]] | None = None
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._guard = Guard(self.mark)
        try:
            logs.mkdir(parents=True, exist_ok=True)
            with theirs, (logs / "stdout.log").open("ab") as stdout, (logs / "stderr.log").open("ab") as stderr:
                self._process = subprocess.Popen(
                    (*command, str(theirs.fileno()), str(logs)),
                    cwd=working_directory,
                    env={**variables, MARK_VARIABLE: token},
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            self.pid = self._process.pid
            self._guard.watch(self.pid)
        except OSError:
            self._guard.release()
            self._control.close()
            raise
        except BaseException:
            self._guard.fire()  # as in ``ProcessTree``
            raise

    def await_ready(self, cancel: threading.Event, *, timeout_s: float) -> bool:
        """Wait until torch is imported; False if ``cancel`` was set meanwhile, ForkServerError if it can't be used."""
        if self._is_ready:
            return True
        answer = self._await(cancel, timeout_s)
        if answer is None:
            return False
        if answer["refused"]:
            raise ForkServerError(answer["refused"])
        self._is_ready = True
        return True

    def preload(self, wanted: Preload, caches: Mapping[str, str], cancel: threading.Event, *, timeout_s: float) -> bool:
        """Have it import modules, with these variables beside its own, which all of its runs must have.

        False if ``cancel`` was set meanwhile, PreloadError if nothing may come of that.
        """
        try:
            self.say(preload=to_json(wanted), variables=dict(caches))
            answer = self._await(cancel, timeout_s)
        except ForkServerError as error:
            raise PreloadError(wanted.modules[0], str(error)) from None  # nobody knows which it was
        if answer is None:
            return False
        if answer["preloaded"]:
            raise PreloadError(answer["module"], answer["preloaded"])
        self.preloaded = wanted, dict(caches)
        return True

    def _await(self, cancel: threading.Event, timeout_s: float) -> dict[str, Any] | None:
        """Wait for the next message; None if ``cancel`` was set meanwhile."""
        end_s = time.monotonic() + timeout_s
        while (answer := self.hear()) is None:
            if cancel.wait(_LOOK_S):
                return None
            if time.monotonic() > end_s:
                raise ForkServerError(f"it was not ready within {timeout_s:g} s")
        return answer

    def fork(self, directory: Path, token: str) -> Forked:
        """Start a run with this folder and this value of its mark; ForkServerError if there is no server any more."""
        self.say(directory=str(directory), mark=[MARK_VARIABLE, token])
        answer = self.hear(_ANSWER_S)
        if answer is None:
            raise ForkServerError(f"it did not answer within {_ANSWER_S:g} s")
        return Forked(self, answer["pid"])

    def say(self, **message: Any) -> None:
        """Send a message."""
        try:
            self._control.send(json.dumps(message).encode())
        except OSError as error:
            raise ForkServerError(f"it is gone: {error.strerror}") from None

    def hear(self, timeout_s: float = 0.0) -> dict[str, Any] | None:
        """Return the next message, None if there is none yet."""
        if not select.select([self._control], [], [], timeout_s)[0]:
            return None
        try:
            data = self._control.recv(2**16)
        except OSError:
            data = b""
        if not data:
            raise ForkServerError("it is gone; its stderr.log may say why")
        message: dict[str, Any] = json.loads(data)
        return message

    def close(self) -> None:
        """End it, and whatever came out of it."""
        self._control.close()
        # One that still imports torch does not listen, and has no run.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S if self._is_ready else 0)
        if self._process.returncode == 0:
            self._guard.release()
        else:
            self._guard.fire()  # it may have left a run that it did not tell of
            self._process.wait()


class Forked:
    """A run's main process that came out of a server, which has to say how it ended; see ``process_tree.Main``.

    ``is_lost``: the server is gone, so nobody knows.
    """

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self.is_lost = False
        self._server = server
        self._status: int | None = None
        self._gone_s: float | None = None

    def exited(self) -> bool:
        """Return whether it has ended, or nobody can tell any more."""
        if self._status is None and not self.is_lost:
            try:
                self._status = (self._server.hear() or {}).get("status")
                if self._status is None and self._is_gone():
                    raise ForkServerError("it does not say how a run ended")
            except ForkServerError:
                self.is_lost = True
        return self.is_lost or self._status is not None

    def reap(self) -> int:
        """Return its return code as ``subprocess`` has it; called once it has ended."""
        if self._status is None:
            return -signal.SIGKILL
        with contextlib.suppress(ForkServerError):
            self._server.say(reap=True)
        return self._status

    def _is_gone(self) -> bool:
        """Return whether it ended so long ago that the server should have said so."""
        try:
            ended = psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            ended = True
        now_s = time.monotonic()
        self._gone_s = (self._gone_s or now_s) if ended else None
        return self._gone_s is not None and now_s - self._gone_s > _END_S


class ForkServers:
    """The servers of a launcher that have no run at present; threads may take some at once.

    ``start`` starts a server for these ``variables``; OSError if it can't. It has ``timeout_s`` to import torch.
    """

    def __init__(self, start: Callable[..., ForkServer], *, timeout_s: float) -> None:
        self._start = start
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, frozenset[tuple[str, str]]], ForkServer] = {}

    def prepare(self, variables: Mapping[str, str]) -> None:
        """Have a server for these variables import torch while something else goes on; it is not waited for."""
        with contextlib.suppress(OSError):  # who takes one then meets the same failure, and tells
            self.give_back("", variables, self._start(variables=variables))

    def take(
        self,
        name: str,
        variables: Mapping[str, str],
        preload: Preload,
        caches: Mapping[str, str],
        cancel: threading.Event,
    ) -> ForkServer | None:
        """Give a server of a name whose runs have these variables, with the modules to ``preload``; None if cancelled.

        A new one is started if none is there, and one of another name does not outlive that: it would be there while
        others are measured. ForkServerError if there can be none, PreloadError if there can be none with these modules.
        """
        with self._lock:
            server = self._idle.pop((name, frozenset(variables.items())), None)
            others = [self._idle.pop(key) for key in list(self._idle) if key[0] != name]
        for other in others:
            other.close()
        wanted = (preload, dict(caches)) if preload.modules else None
        if server is not None and server.preloaded not in (None, wanted):
            server.close()
            server = None
        try:
            server = server or self._start(variables=variables)
        except OSError as error:
            raise ForkServerError(f"it could not be started: {error.strerror or error}") from error
        is_ready = False
        try:
            is_ready = server.await_ready(cancel, timeout_s=self._timeout_s) and (
                server.preloaded == wanted or server.preload(preload, caches, cancel, timeout_s=self._timeout_s)
            )
        finally:
            if not is_ready:
                server.close()
        return server if is_ready else None

    def give_back(self, name: str, variables: Mapping[str, str], server: ForkServer) -> None:
        """Keep a server for the next run."""
        key = name, frozenset(variables.items())
        with self._lock:
            if key not in self._idle:
                self._idle[key] = server
                return
        server.close()

    def close(self) -> None:
        """End them all."""
        with self._lock:
            servers = list(self._idle.values())
            self._idle.clear()
        for server in servers:
            server.close()
