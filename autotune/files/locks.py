"""Locks on files, which the kernel takes back from whoever dies (flock(2))."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def open_lock(path: Path) -> int:
    """A descriptor of a lock file, made if it is not there; no program that is started inherits it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def try_lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file, shared or alone; False if others hold it and ``wait`` is not set.

    A file system that has no locks is taken to have one user at a time.
    """
    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock alone."""
    descriptor = open_lock(path)
    try:
        try_lock(descriptor, wait=True)
        yield
    finally:
        # A process that was forked meanwhile has the descriptor too: closing ours would not be enough.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
