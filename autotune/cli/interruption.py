"""Ctrl-C and SIGTERM while runs are at work."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from ..tuning.budget import Interruption


@contextlib.contextmanager
def interruption() -> Iterator[Interruption]:
    """Ctrl-C once: start nothing new, tell what is known. Twice: stop now. SIGTERM counts as twice."""
    state = Interruption()

    def handle(number: int, _: object) -> None:
        is_final = number == signal.SIGTERM or state.finish.is_set()
        state.finish.set()
        if is_final:
            state.cancel.set()
            message = "stopping"
        else:
            message = "finishing what runs, then telling what is known; Ctrl-C again stops now"
        if state.say is not None:
            state.say(f"autotune: {message}")
            return
        # Not through sys.stderr, which may be in the middle of a write that this handler interrupted.
        with contextlib.suppress(OSError):  # whoever read it is gone: `tee` meets the same Ctrl-C
            os.write(2, f"\nautotune: {message}\n".encode())

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield state
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
