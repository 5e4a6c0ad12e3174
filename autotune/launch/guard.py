"""No death of the controller leaves a process behind, SIGKILL included.

The guard is a shell in a session of its own whose standard input is a pipe that only the controller can write to. When
the controller dies the kernel closes the pipe, the guard reads the end of file and ends the run: its process group,
and whatever carries the run's mark in its environment (``torchrun`` puts its workers into sessions of their own). Then
it runs a command, which puts back the files that the run has changed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

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
        """The run is over: end without killing anything."""
        self._tell("done\n")
        self._close()
        self._shell.wait()

    def fire(self) -> None:
        """Kill the run now, as if the controller had died."""
        self._close()
        self._shell.wait()

    def _close(self) -> None:
        assert self._shell.stdin is not None
        try:
            self._shell.stdin.close()
        except BrokenPipeError:
            pass  # somebody killed the guard

    def _tell(self, line: str) -> None:
        assert self._shell.stdin is not None
        try:
            self._shell.stdin.write(line.encode())
            self._shell.stdin.flush()
        except BrokenPipeError:
            pass  # somebody killed the guard; the run goes on without one
