"""What tests of processes wait for."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

__all__ = ["DEADLINE_S", "becomes_true", "is_alive"]

# A guard against waiting for ever, never a measure of speed: a busy machine may take its time.
DEADLINE_S = 240.0


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def becomes_true(condition: Callable[[], bool], *, within_s: float = DEADLINE_S) -> bool:
    """Whether a condition comes true in time."""
    end_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.02)
    return True
