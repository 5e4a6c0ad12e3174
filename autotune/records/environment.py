"""Environments of measurements: machine, software, clocks and power. Measurements compare where devices agree."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from .units import format_share

ClockLimit = Literal[
    "idle",
    "application_clocks",
    "power_cap",
    "hardware_slowdown",
    "sync_boost",
    "software_thermal",
    "hardware_thermal",
    "power_brake",
    "display_clocks",
]
"""What may hold a clock down; NVML's clocks event reasons, which older drivers call throttle reasons."""

THROTTLING: frozenset[ClockLimit] = frozenset(
    {"hardware_slowdown", "software_thermal", "hardware_thermal", "power_brake"}
)
"""The limits by heat and by the power supply, which differ from one repetition to the next. A power cap does not."""


@dataclass(frozen=True)
class DeviceReading:
    """One look at a GPU; what it does not tell is None."""

    sm_clock_mhz: int | None = None
    power_w: float | None = None
    limits: tuple[ClockLimit, ...] | None = None

    @property
    def is_throttled(self) -> bool:
        """Return whether it is too hot, or short of power."""
        return not THROTTLING.isdisjoint(self.limits or ())


@dataclass(frozen=True)
class DeviceConditions:
    """The readings of a GPU in the window of steps by which a trial is measured; of several GPUs the slowest's."""

    readings: int
    sm_clock_mhz: float | None = None  # the median; None where the GPU does not tell it
    lowest_sm_clock_mhz: int | None = None
    highest_sm_clock_mhz: int | None = None
    power_w: float | None = None  # the median; None where the GPU does not tell it
    highest_power_w: float | None = None
    limits: dict[str, float] = field(default_factory=dict)  # the shares of readings at which each held the clock down
    throttled_share: float = 0.0  # of readings with any of `THROTTLING`


def conditions_of(readings: Sequence[DeviceReading]) -> DeviceConditions | None:
    """Summarize readings; None if there was none."""
    if not readings:
        return None
    clocks = [one.sm_clock_mhz for one in readings if one.sm_clock_mhz is not None]
    powers = [one.power_w for one in readings if one.power_w is not None]
    held = [limit for one in readings for limit in one.limits or ()]
    return DeviceConditions(
        readings=len(readings),
        sm_clock_mhz=float(statistics.median(clocks)) if clocks else None,
        lowest_sm_clock_mhz=min(clocks, default=None),
        highest_sm_clock_mhz=max(clocks, default=None),
        power_w=statistics.median(powers) if powers else None,
        highest_power_w=max(powers, default=None),
        limits={limit: held.count(limit) / len(readings) for limit in sorted(set(held))},
        throttled_share=sum(one.is_throttled for one in readings) / len(readings),
    )


def conditions_words(conditions: DeviceConditions | None) -> str:
    """Write clock, power and limits in a line for people; empty where nothing is known."""
    if conditions is None:
        return ""
    words = []
    if conditions.sm_clock_mhz is not None:
        between = f"{conditions.lowest_sm_clock_mhz:,} to {conditions.highest_sm_clock_mhz:,}"
        words.append(f"{conditions.sm_clock_mhz:,.0f} MHz ({between})")
    if conditions.power_w is not None:
        words.append(f"{conditions.power_w:.0f} W (at most {conditions.highest_power_w:.0f})")
    for limit, share in conditions.limits.items():
        words.append(f"{limit.replace('_', ' ')} {format_share(share)} of the time")
    return ", ".join(words)


DeviceKind = Literal["cpu", "cuda"]

# How much of its memory two machines of a kind may differ by, as drivers and firmware keep some of it.
_SAME_MEMORY = 0.02


@dataclass(frozen=True)
class Environment:
    """The machine and the software of one run, as the training process saw them."""

    device_kind: DeviceKind
    device_name: str
    device_memory_bytes: int  # of the card, or on CPU of the host or its container
    num_devices: int
    num_threads: int
    hostname: str
    platform: str
    python: str
    torch: str  # empty where a model ran in ONNX Runtime
    cuda: str | None = None
    driver: str | None = None
    variables: dict[str, str] | None = None  # those that change speed or memory
    onnxruntime: str = ""
    heap_libraries: tuple[str, ...] | None = None  # that choices may preload, found here; None where nobody looked

    @property
    def library(self) -> str:
        """Return what ran it, with its version."""
        return f"onnxruntime {self.onnxruntime}" if self.onnxruntime else f"torch {self.torch}"


def device_differences(before: Environment, now: Environment) -> tuple[tuple[str, str | int, str | int], ...]:
    """Return where two devices differ so that figures of one say nothing about the other: what, before, and now."""
    found: list[tuple[str, str | int, str | int]] = [
        ("device", before.device_name, now.device_name),
        ("number of devices", before.num_devices, now.num_devices),
    ]
    memory = before.device_memory_bytes, now.device_memory_bytes
    if now.device_kind != "cuda":  # else threads only feed the GPU
        found.append(("number of threads", before.num_threads, now.num_threads))
    if abs(memory[0] - memory[1]) > _SAME_MEMORY * max(memory):
        found.append(("device memory in bytes", *memory))
    return tuple((what, there, here) for what, there, here in found if there != here)
