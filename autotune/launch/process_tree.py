"""All processes of a run: start them, find them, end them.

No death of the controller leaves a process behind, SIGKILL included.

The guard is a shell in a session of its own whose standard input is a pipe that only the controller can write to. When
the controller dies the kernel closes the pipe, the guard reads the end of file and ends the run: its process group,
and whatever carries the run's mark in its environment (``torchrun`` puts its workers into sessions of their own). Then
it runs a command, which puts back the files that the run has changed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

import psutil

from ..errors import RunError, UsageError

# The second sweep catches a process that was between fork and exec, hence not marked yet, during the first.
_SCRIPT = """
group=
while read -r line; do
    case $line in
        done) exit 0 ;;
        *) group=$line ;;
    esac
done
sweep() {
    for file in $(grep -lFzxs -- "$mark" /proc/[0-9]*/environ); do
        pid=${file#/proc/}
        kill -s "$1" "${pid%/environ}"
    done
}
mark=$1
shift
sweep TERM
sleep 1
[ -n "$group" ] && kill -s KILL -- "-$group"
sweep KILL
sleep 1
sweep KILL
[ $# -gt 0 ] && exec "$@"
"""
# In /proc/PID/stat behind the name in parentheses (proc(5)).
_STATE, _WAIT_STATUS = 0, 49


class Guard:
    """Ends what carries ``mark`` (``NAME=value`` in its environment) if this process dies before ``release``.

    After that it runs ``command``. It is started before the run, so that there is no moment at which a run is
    unguarded.
    """

    def __init__(self, mark: str, command: Sequence[str] = ()) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "autotune-guard", mark, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": os.defpath},  # without the mark: a guard must not kill itself half way
            start_new_session=True,  # Ctrl-C in the terminal must not reach it
        )

    def watch(self, group: int) -> None:
        """Kill this process group too."""
        self._tell(f"{group}\n")

    def release(self) -> None:
        """End without killing anything, as the run is over."""
        self._tell("done\n")
        self._end()

    def fire(self) -> None:
        """Kill the run now, as if the controller had died."""
        self._end()

    def _end(self) -> None:
        assert self._shell.stdin is not None
        try:
            self._shell.stdin.close()
        except BrokenPipeError:
            pass  # somebody killed the guard
        self._shell.wait()

    def _tell(self, line: str) -> None:
        assert self._shell.stdin is not None
        try:
            self._shell.stdin.write(line.encode())
            self._shell.stdin.flush()
        except BrokenPipeError:
            pass  # somebody killed the guard; the run goes on without one


MARK_VARIABLE = "AUTOTUNE_PROCESS_MARK"
"""The environment variable that marks every process of a run, whatever session it moved to."""

_REFRESH_S = 1.0
_DUMP_S = 0.5
_TERMINATE_S = 2.0
# After SIGKILL, whatever a run held: the driver also takes its time to give back a GPU.
_KILL_S = 60.0
# And for what it held: the kernel gives back each page before a process is gone, pinned ones through the driver.
_KILL_S_PER_GIB = 1.0
_LOOK_S, _RARE_LOOK_S = 0.005, 0.1


class Main(Protocol):
    """The first process of a run, the leader of a session; until ``reap`` its number is nobody else's.

    ``is_lost``: whoever would know how it ended is gone, and it is reaped.
    """

    pid: int
    is_lost: bool

    def exited(self) -> bool:
        """Return whether it has ended, or nobody can tell any more."""

    def reap(self) -> int:
        """Return its return code once it has ended, a signal as a negative number."""


class Spawned:
    """A fresh process, which writes its ``stdout.log`` and ``stderr.log`` into ``directory``.

    UsageError if the interpreter cannot be started. ``variables`` are the whole environment of the worker.
    """

    is_lost = False

    def __init__(
        self, command: Sequence[str], *, directory: Path, working_directory: Path, variables: Mapping[str, str]
    ) -> None:
        try:
            with (directory / "stdout.log").open("ab") as stdout, (directory / "stderr.log").open("ab") as stderr:
                self._process = subprocess.Popen(
                    command,
                    cwd=working_directory,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
        except OSError as error:
            if error.filename == command[0]:
                raise UsageError(
                    f"cannot start the interpreter {command[0]!r}: {error.strerror}",
                    hint="--python takes the path of a Python that has torch",
                ) from None
            raise
        self.pid = self._process.pid

    def exited(self) -> bool:
        """Return whether it has ended."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def reap(self) -> int:
        """Return its return code."""
        return self._process.wait()


class ProcessTree:
    """The worker's main process and everything that came out of it; leaving the context kills them all.

    The main process is not reaped before that, so neither its pid nor its process group can be given to a stranger.

    Args:
        start: starts the main process with this value of ``MARK_VARIABLE`` in its environment.
        server_mark: the mark of the fork server that it comes from, whose environment the kernel shows for it.
        server_pid: that server, which is none of the run's processes.
        after_death: the command that is run when this process has died and its run with it.
    """

    def __init__(
        self,
        start: Callable[[str], Main],
        *,
        server_mark: str = "",
        server_pid: int | None = None,
        after_death: Sequence[str] = (),
    ) -> None:
        token = uuid.uuid4().hex
        mark = f"{MARK_VARIABLE}={token}"
        self._marks = tuple(filter(None, (mark, server_mark)))
        self._server_pid = server_pid
        self._members: tuple[int, ...] = ()
        self._refreshed_s = -_REFRESH_S
        self._status: int | None = None
        self._guard = Guard(mark, after_death)
        try:
            self.main = start(token)
            self.pid = self.main.pid  # also the id of the process group
            self._guard.watch(self.pid)
        except Exception:
            self._guard.release()
            raise
        except BaseException:
            self._guard.fire()  # Ctrl-C between fork and here: the process exists, and only its mark is known
            raise

    def exited(self) -> bool:
        """Return whether the main process has ended."""
        return self.main.exited()

    def members(self) -> tuple[int, ...]:
        """Return the main process and its descendants, as of at most a second ago: looking at all is not cheap."""
        now = time.monotonic()
        if now - self._refreshed_s >= _REFRESH_S:
            self._refreshed_s = now
            self._members = (self.pid, *(process.pid for process in self._descendants()))
        return self._members

    def end_of(self, pid: int) -> tuple[bool, int | None]:
        """Return whether a process has ended, and its return code as long as its parent has not asked for it."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return True, None
        is_gone = fields[_STATE] in "ZX"
        return is_gone, os.waitstatus_to_exitcode(int(fields[_WAIT_STATUS])) if is_gone else None

    def dump_stacks(self, pids: Collection[int]) -> None:
        """Send SIGUSR1, for which the worker lets faulthandler write all stacks to ``stderr.log``.

        For processes that are killed next: one that has not registered a handler yet dies of it.
        """
        own = [psutil.Process(self.pid), *self._descendants()]
        for process in own:
            if process.pid in pids:  # not by its number alone, which may be a stranger's by now
                _signal(process, signal.SIGUSR1)
                # One after the other: they write into the same file, a word at a time.
                time.sleep(_DUMP_S)

    def kill(self) -> int:
        """End every process of the run and wait until they are gone; give the main process's return code.

        They get SIGTERM, and a moment in which a script says goodbye and a compiler removes half of a file, before
        SIGKILL. Negative is a signal, as in ``subprocess``. Can be called again.

        Raises:
            RunError: a process survives SIGKILL, so the next trial would not be alone.
        """
        if self._status is not None:
            return self._status
        descendants = self._descendants()  # once the main process is dead, they are nobody's children
        # Now, as the kernel shows no memory of a process that is about to end.
        may_take_s = _KILL_S + _KILL_S_PER_GIB * self._held_bytes(descendants) / 2**30
        began_s = time.monotonic()
        told: set[int] = set()
        while True:
            marked = [process for process in _marked(self._marks) if process.pid != self._server_pid]
            left = [process for process in (*descendants, *marked) if _alive(process)]
            if not left and self.exited():
                self._status = self.main.reap()
                self._guard.release()
                return self._status
            elapsed_s = time.monotonic() - began_s
            if elapsed_s < _TERMINATE_S:
                self._tell(signal.SIGTERM, [process for process in left if process.pid not in told], group=not told)
                told |= {self.pid, *(process.pid for process in left)}
            else:
                self._tell(signal.SIGKILL, left, group=True)
            if elapsed_s > _TERMINATE_S + may_take_s:
                raise RunError(
                    f"processes {sorted({self.pid, *(process.pid for process in left)})} of the run are still there "
                    f"{may_take_s:.0f} s after SIGKILL",
                    hint="a driver call that hangs does that; the machine may need a restart",
                )
            time.sleep(_LOOK_S if elapsed_s < 2 * _TERMINATE_S else _RARE_LOOK_S)

    def _tell(self, number: signal.Signals, processes: Collection[psutil.Process], *, group: bool) -> None:
        """Send a signal to the process group, which may have members that nobody sees yet, and to processes."""
        if group and not self.main.is_lost:
            with contextlib.suppress(ProcessLookupError):  # all of it ended by itself
                os.killpg(self.pid, number)
        for process in processes:
            if not group or self.main.is_lost or not _is_in_group(process, self.pid):
                _signal(process, number)

    def _held_bytes(self, descendants: Collection[psutil.Process]) -> int:
        """Sum the resident sets of all processes of the run; what several share is in there several times."""
        held = 0
        for pid in (self.pid, *(process.pid for process in descendants)):
            with contextlib.suppress(psutil.Error):
                held += psutil.Process(pid).memory_info().rss
        return held

    def _descendants(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.kill()


def _marked(marks: Collection[str]) -> list[psutil.Process]:
    """Find every process that carries one of the marks; zombies have no environment any more and are left out."""
    wanted = {mark.encode() for mark in marks}
    found = []
    for pid in psutil.pids():
        try:
            if not wanted.isdisjoint(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")):
                found.append(psutil.Process(pid))
        except (OSError, psutil.NoSuchProcess):
            continue  # gone meanwhile, or somebody else's
    return found


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is_in_group(process: psutil.Process, group: int) -> bool:
    try:
        return os.getpgid(process.pid) == group
    except ProcessLookupError:
        return True  # it is gone


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    # It may have ended by itself, or become somebody else's; the caller sees that it stays.
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        process.send_signal(number)
