"""What a configuration should do, told without running it."""

from __future__ import annotations

from dataclasses import dataclass

from .configuration import Configuration

__all__ = ["Fit"]


@dataclass(frozen=True)
class Fit:
    """A configuration that should fit, with what is expected of it.

    ``batch_size`` is the micro-batch per process, the script's own included; None where it is not known or fixed.
    ``rate_sd`` and ``peak_sd`` are standard deviations of what is expected, as shares. ``is_measured``: it is the
    script as it is, and the figures are those of discovery.
    """

    configuration: Configuration
    batch_size: int | None
    samples_per_s: float
    rate_sd: float
    peak_bytes: int
    peak_sd: float
    is_measured: bool = False
