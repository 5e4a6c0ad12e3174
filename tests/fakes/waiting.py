"""What tests of processes wait for."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

__all__ = ["becomes_true", "is_alive"]


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def becomes_true(condition: Callable[[], bool], *, within_s: float = 20.0) -> bool:
    """Whether a condition comes true in time."""
    end_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.02)
    return True
