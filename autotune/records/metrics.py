"""What a launched run writes its metrics into, and what they are held against."""

from __future__ import annotations

from dataclasses import dataclass

from .stack import Figures


@dataclass(frozen=True)
class RunMetrics:
    """``file`` is an absolute path. ``info`` says which run it is, by the names of labels.

    ``expected`` is what was measured of the bundle's setting, None where nothing was; ``memory_limit_bytes`` what its
    peak was held against.
    """

    file: str
    info: dict[str, str]
    expected: Figures | None
    memory_limit_bytes: int
