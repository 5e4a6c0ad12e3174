"""The command line in a process of its own: nothing of torch's or the GPU's state in the caller's is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import AutotuneError, InterruptionError, RunError, UsageError

# The command line, which the kernel ends with this process: a notebook's kernel that is started again leaves nothing.
_PROGRAM = (
    "from autotune.metering.host import die_with_parent; die_with_parent(); from autotune.cli import main; main()"
)
# A notebook's kernel asks for colours and a live screen, which a pipe cannot show; pytest names the test under way.
_LEFT_OUT = ("FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "PYTEST_CURRENT_TEST")
# From SIGTERM on; a run gets 2 seconds, and putting back files takes as long as these are large.
_MAY_END_S = 60.0
_KINDS: dict[int, type[AutotuneError]] = {2: UsageError, 130: InterruptionError}
"""The error for each exit code of the command line; a RunError for others."""
_MOST_LINES = 20


def call_command(
    name: str,
    words: Sequence[str],
    *,
    show: Callable[[str], None] = lambda _: None,
    if_silent: str,
    variables: Mapping[str, str] | None = None,
    ends_at_once: bool = False,
) -> Any:
    """Run a command of autotune, and return what it prints with ``--json``.

    Args:
        name: the command, as in ``run``.
        words: its options and arguments.
        show: takes each line that the command tells meanwhile.
        if_silent: the next step where the command ends without a word.
        variables: what is added to its environment.
        ends_at_once: an interruption of this process ends the command, and is raised. Else the first one is passed on
            to the command, and the second one does so.

    Raises:
        AutotuneError: the error that the command ends with.
    """
    last: deque[str] = deque(maxlen=_MOST_LINES)

    def keep(line: str) -> None:
        last.append(line)
        show(line)

    status, printed = _run(
        [sys.executable, "-P", "-c", _PROGRAM, name, "--json", *words], keep, variables or {}, ends_at_once=ends_at_once
    )
    document = json.loads(printed) if printed else {}
    if "error" in document:
        raise _KINDS.get(status, RunError)(**document["error"])
    if not document:
        end = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise _KINDS.get(status, RunError)(
            f"`autotune {name}` {end} and said nothing of it", hint=if_silent, detail="\n".join(last)
        )
    return document


def _run(
    command: Sequence[str], show: Callable[[str], None], variables: Mapping[str, str], *, ends_at_once: bool
) -> tuple[int, str]:
    """Run the command line; return status and output."""
    process = subprocess.Popen(
        command,
        env={name: value for name, value in os.environ.items() if name not in _LEFT_OUT} | dict(variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="backslashreplace",
        start_new_session=True,  # this process alone passes a Ctrl-C on
    )
    assert process.stdout is not None
    assert process.stderr is not None
    printed: list[str] = []
    reader = threading.Thread(target=lambda: printed.append(process.stdout.read()), daemon=True)  # type: ignore[union-attr]
    reader.start()
    is_interrupted = False
    try:
        while True:
            try:
                for line in process.stderr:
                    show(line.rstrip("\n"))
                reader.join()
                return process.wait(), printed[0]
            except KeyboardInterrupt:
                if ends_at_once:
                    raise
                process.send_signal(signal.SIGINT)
                if is_interrupted:
                    raise
                is_interrupted = True
    finally:
        if process.poll() is None:
            process.terminate()
            # Files that its runs have changed are put back meanwhile.
            killing = threading.Timer(_MAY_END_S, process.kill)
            killing.start()
            process.stderr.read()
            process.wait()
            killing.cancel()
        process.stderr.close()
        process.stdout.close()
