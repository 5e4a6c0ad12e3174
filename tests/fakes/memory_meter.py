"""A memory meter that reads from a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal


class FakeMeter:
    """``used(pids)`` gives the bytes that the run holds; ``contended`` can be set at any time."""

    def __init__(
        self,
        used: Callable[[Sequence[int]], int | None] = lambda pids: None,
        *,
        kind: Literal["device", "resident"] = "resident",
    ) -> None:
        self.kind = kind
        self.contended = False
        self.state = "new"
        self._used = used
        self._peak: int | None = None

    def start(self) -> None:
        self.state = "started"

    def sample(self, pids: Sequence[int]) -> int | None:
        assert self.state == "started"
        used = self._used(pids)
        if used is not None:
            self._peak = max(used, self._peak or 0)
        return used

    def peak(self) -> int | None:
        return self._peak

    def close(self) -> None:
        self.state = "closed"
