"""NVML's readings of a GPU besides its memory: its clock, its power, and the limits that hold them down."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ...records.conditions import ClockLimit, DeviceReading

# Sensors are read by the driver several times a second, and each question takes its lock.
_EVERY_S = 0.2
# Source: nvml.h, nvmlClocksEventReason*. The bits are those of nvmlClocksThrottleReason*, as drivers before 535 say.
_LIMITS: dict[int, ClockLimit] = {
    0x001: "idle",
    0x002: "application_clocks",
    0x004: "power_cap",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "software_thermal",
    0x040: "hardware_thermal",
    0x080: "power_brake",
    0x100: "display_clocks",
}


class NvmlConditions:
    """Looks at a GPU a few times a second; what it does not tell is left open, and nothing is ever raised.

    A MIG device has the clock and the power of its card, of which other slices may take a part.

    Args:
        nvml: a module like ``pynvml``.
        clock: gives the time in seconds.
    """

    def __init__(self, nvml: Any, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = nvml
        self._clock = clock
        self._next_s = 0.0
        self._card: Any = None

    def read(self, handle: Any) -> DeviceReading | None:
        """Return what the device with this handle is like now; None where the last look was just before."""
        now_s = self._clock()
        if now_s < self._next_s:
            return None
        self._next_s = now_s + _EVERY_S
        nvml = self._nvml
        if self._card is None:
            self._card = self._ask(lambda: nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)) or handle
        clock_mhz = self._ask(lambda: nvml.nvmlDeviceGetClockInfo(self._card, nvml.NVML_CLOCK_SM))
        milliwatts = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(self._card))
        bits = self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(self._card))
        if bits is None:
            bits = self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._card))
        reading = DeviceReading(
            sm_clock_mhz=None if clock_mhz is None else int(clock_mhz),
            power_w=None if milliwatts is None else milliwatts / 1e3,
            limits=None if bits is None else tuple(name for bit, name in _LIMITS.items() if bits & bit),
        )
        return None if reading == DeviceReading() else reading

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except (self._nvml.NVMLError, self._nvml.NVMLLibraryMismatchError):
            return None
