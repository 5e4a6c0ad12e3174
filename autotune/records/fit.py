"""Predictions of the speed, the peak and the chance of fitting of a configuration, made without running it."""

from __future__ import annotations

from dataclasses import dataclass

from .configuration import Configuration

LIKELY = 0.8
"""The least chance of fitting at which something is called likely to: a judgement."""


@dataclass(frozen=True)
class Fit:
    """A configuration that may fit, with what is expected of it.

    ``rate_sd`` and ``peak_sd`` are standard deviations of what is expected, as shares. ``chance`` is that of fitting.
    ``is_measured``: it is the script as it is, and the figures are those of discovery.
    """

    configuration: Configuration
    samples_per_s: float
    rate_sd: float
    peak_bytes: int
    peak_sd: float
    is_measured: bool = False
    chance: float = 1.0

    @property
    def peak_interval(self) -> tuple[int, int]:
        """Return what the peak should lie between, in bytes, in 95 of 100 cases."""
        reach = 1.96 * self.peak_sd * self.peak_bytes
        return max(0, int(self.peak_bytes - reach)), int(self.peak_bytes + reach)


def format_chance(chance: float) -> str:
    """Write a chance as a percentage; what was not measured is never certain."""
    return f"{min(max(chance, 0.01), 0.99):.0%}"
