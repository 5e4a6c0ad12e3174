"""A memory meter that reads from a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class FakeMeter:
    """``used(pids)`` gives the bytes that the run holds; ``contended`` can be set at any time."""

    def __init__(self, used: Callable[[Sequence[int]], int | None] = lambda pids: None) -> None:
        self.contended = False
        self.state = "new"
        self._used = used

    def start(self) -> None:
        self.state = "started"

    def sample(self, pids: Sequence[int]) -> int | None:
        assert self.state == "started"
        return self._used(pids)

    def close(self) -> None:
        self.state = "closed"
