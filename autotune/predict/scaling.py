"""From simulated peaks to measured ones: an offset and a slope, fitted to trials."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Self

__all__ = ["Scaling"]

# How far from 1 the slope is expected to lie, as a standard deviation: allocators round up, and CPU's figure is the
# resident set.
_SLOPE_SD = 0.15


@dataclass(frozen=True)
class Scaling:
    """What a measured peak is for a simulated one: ``offset_bytes + slope * simulated``."""

    offset_bytes: float = 0.0
    slope: float = 1.0

    @classmethod
    def fitted(cls, groups: Sequence[Collection[tuple[float, float]]], *, noise: float) -> Self:
        """Fit to groups of (simulated, measured) peaks in bytes, which have one slope in common and an offset each.

        A least squares fit that begins at 1 and leaves it as far as the spread of the peaks outweighs their noise. The
        offset is the last group's; without groups nothing is scaled.

        Args:
            groups: none of them empty.
            noise: how far a measured peak scatters, as a share of it.
        """
        if not groups:
            return cls()
        square = product = 0.0
        for group in groups:
            centre, height = (statistics.fmean(values) for values in zip(*group, strict=True))
            square += sum((simulated - centre) ** 2 for simulated, _ in group)
            product += sum((simulated - centre) * (measured - height) for simulated, measured in group)
        trust = (noise * max(measured for group in groups for _, measured in group) / _SLOPE_SD) ** 2
        slope = (product + trust) / (square + trust) if square + trust else 1.0
        return cls(statistics.median([measured - slope * simulated for simulated, measured in groups[-1]]), slope)

    def __call__(self, simulated_bytes: float) -> float:
        """The peak in bytes that should be measured."""
        return self.offset_bytes + self.slope * simulated_bytes
