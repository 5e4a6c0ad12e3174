"""Refusal of a launch, which is told once, however many of its processes see it.

Processes that the script starts share a file in memory with the first one. Of several launches that a launcher has
started on a machine, the first speaks; the others wait for the launcher to end them.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path

_VARIABLE = "AUTOTUNE_REFUSAL"
# How long another launch has to speak first. It sees the same; torchrun looks for processes that ended each 0.1 s.
_PATIENCE_S = 5.0


def share_refusal() -> None:
    """Let processes that are started from here on share what this launch has told."""
    try:
        descriptor = os.memfd_create("autotune-refusal")
    except OSError:
        os.environ.pop(_VARIABLE, None)  # each tells for itself
    else:
        os.environ[_VARIABLE] = f"/proc/{os.getpid()}/fd/{descriptor}"


def tell_refusal(text: str) -> None:
    """Write why the launch is refused to standard error, unless another of its processes has."""
    if not _claim():
        return
    if not _is_first_launch():
        time.sleep(_PATIENCE_S)
    sys.stderr.write(text)
    sys.stderr.flush()


def note_once(text: str) -> None:
    """Write a note to standard error, in the first of several launches on a machine."""
    if _is_first_launch():
        sys.stderr.write(text)
        sys.stderr.flush()


def was_refused() -> bool:
    """Return whether a process of this launch has told that it is refused."""
    path = os.environ.get(_VARIABLE, "")
    try:
        return bool(path) and Path(path).stat().st_size > 0
    except OSError:
        return False


def _claim() -> bool:
    """Return whether this process is the first of the launch to tell, or cannot know."""
    path = os.environ.get(_VARIABLE)
    if path is None:
        return True
    try:
        with Path(path).open("r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_size:
                return False
            file.write(b"refused")
    except OSError:
        return True
    return True


def _is_first_launch() -> bool:
    """Return whether no launcher around this launch has started others before it on this machine."""
    if f"/proc/{os.getpid()}/" not in os.environ.get(_VARIABLE, f"/proc/{os.getpid()}/"):
        return True  # a launcher inside of it gave this process its number
    return os.environ.get("LOCAL_RANK", "0") == "0"
