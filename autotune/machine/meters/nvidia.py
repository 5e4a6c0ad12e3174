"""NVIDIA's GPUs: the memory that a run takes, and other programs' use of it meanwhile, by NVML."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...errors import RunError
from ...records.environment import ClockLimit, DeviceReading
from ..devices import Device, Gpus, find_device
from .deadline import MeterWithDeadline, NoAnswerError, Questions
from .neighbours import Owners, ProcessUse, Whose, seconds_of_others
from .nvidia_listing import Memory, NoFigureError, list_gpus, memory_of, module_of, open_nvml
from .port import MemoryMeter, Neighbours
from .run_meter import RunMeter

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


_MOVED_BYTES = 8 * 2**20  # others must move by more than this to count as contention
_BLIND = "NVML does not list the run among the GPU's processes: what others have taken meanwhile would be in the peak"


class NvmlMeter(MemoryMeter):
    """The device's used memory, less what other processes hold.

    What others hold is read before the run begins; when they move later, the figure is corrected by as much and
    ``contended`` is set. How well others can be told from the run depends on what NVML shows:

    - its process list holds the run's pids: everything else is others;
    - a container, where the list holds the host's pids: those that were there at the start are others, new ones are
      taken for the run's own, unless there are more of them than the run has processes;
    - a list without memory figures (some drivers and containers): others count as moved when one of them has gone, or
      when more have come than the run has processes; the figure cannot be corrected then;
    - a list in which the run is missing, or none: nothing can be told of others, and ``problem`` says so.

    Where NVML has no figure of the device, or one that cannot be true, what it lists for the run's processes is added
    up: GPUs that share the host's memory (GB10) have nothing but that. ``problem`` says so, too.

    ``uuid`` is the device's, or the MIG device's. The process list and what processes use are dearer than the memory
    figure: they are read at every so many samples (``list_every``), the list also whenever the figure has moved, so
    that no sample holds what others have only just taken.
    """

    def __init__(
        self, uuid: str, *, nvml: Any = None, list_every: int = 10, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._nvml = module_of(nvml)
        self._uuid = uuid
        self._list_every = list_every
        self._handle: Any = None
        self._before: Memory | None = None
        self._why_unknown = ""
        self._others: dict[int, int | None] | None = None
        self._moved_bytes = 0
        self._owners = Owners(())
        self._whose: Whose | None = None
        self._use: ProcessUse | None = None
        self._is_blind = False
        self._samples = 0
        self._looked_at_bytes = 0
        self._clock = clock
        self._conditions = NvmlConditions(self._nvml, clock=clock)

    def start(self) -> None:
        """Note what the device's memory holds before the run. RunError if NVML does not know the device."""
        try:
            open_nvml(self._nvml)
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(self._uuid)
        except self._nvml.NVMLError as error:
            raise RunError(
                f"NVML cannot read the memory of device {self._uuid!r}: {error}",
                hint="`autotune doctor` shows what NVML finds",
            ) from None
        try:
            self._before = memory_of(self._nvml, self._handle)
        except NoFigureError as error:
            self._why_unknown = str(error)
        self._others = self._processes()
        self._use = ProcessUse(self._nvml, self._handle, clock=self._clock)
        self._owners = Owners({*(self._others or ()), *self._use.read()})

    def sample(self, pids: Sequence[int]) -> int | None:
        """Return the device's used bytes that are the run's own; None where NVML has no figure."""
        self.reading = self._conditions.read(self._handle)
        own = set(pids)
        is_due = self._samples % self._list_every == 0
        self._samples += 1
        self.problem = ""
        held = self._held(own, is_due=is_due)
        self.neighbours = self._neighbours(own) if is_due else Neighbours()
        return held

    def close(self) -> None:
        """Let go of the device; NVML itself stays open."""
        self._handle = self._use = None

    def _held(self, own: set[int], *, is_due: bool) -> int | None:
        try:
            used = self._used()
            if is_due or abs(used - self._looked_at_bytes) > _MOVED_BYTES:
                self._look_at_others(own)
                # What came or went between the two looks would be counted, or taken out, by one of them only.
                used = min(used, self._used())
                self._looked_at_bytes = used
        except NoFigureError as error:
            return self._listed_bytes(own, why=str(error))
        assert self._before is not None
        held = max(0, used - self._before.used - self._moved_bytes)
        if self._is_blind and held > _MOVED_BYTES:
            self.problem = _BLIND
        return held

    def _neighbours(self, own: set[int]) -> Neighbours:
        """Return how long others have used the device since the last time that this was asked for."""
        assert self._use is not None
        use = self._use.read()
        whose = self._whose or self._owners.of(use.keys(), own)
        return Neighbours(seconds_of_others(use, whose, num_own=len(own)), self._use.since_s)

    def _used(self) -> int:
        """Return the device's used bytes; NoFigureError if they, or those before the run, are not known."""
        if self._before is None:
            raise NoFigureError(self._why_unknown)
        return memory_of(self._nvml, self._handle).used

    def _listed_bytes(self, own: set[int], *, why: str) -> int | None:
        """Return the bytes that NVML lists for the run's processes, as the device itself has no figure.

        None where NVML lists none of the processes, or one of them without its bytes, or had no list before the run.
        """
        now = self._processes()
        whose = self._sort(now, own)
        figures = None if whose is None or now is None else [now[pid] for pid in whose.run]
        if not figures or None in figures:
            self.problem = f"NVML: {why}"
            return None
        self.problem = f"the peak is what NVML lists for the run's processes: of the whole GPU it has no figure ({why})"
        return sum(figure or 0 for figure in figures)

    def _sort(self, now: Mapping[int, int | None] | None, own: set[int]) -> Whose | None:
        """Tell whose the listed processes are; None if there is no list, or was none before the run."""
        self._whose = None if now is None or self._others is None else self._owners.of(now.keys(), own)
        return self._whose

    def _look_at_others(self, own: set[int]) -> None:
        now = self._processes()
        whose = self._sort(now, own)
        self._is_blind = whose is None or not (whose.run or whose.unsure or self._owners.sees_own_pids)
        if whose is None or now is None or self._others is None:
            return  # NVML keeps the list to itself: what the device held at the start is all there is to go by
        gone = self._others.keys() - now.keys()
        newcomers = whose.unsure or whose.others - self._others.keys()
        figures = [now[pid] for pid in whose.others] + list(self._others.values())
        if any(figure is None for figure in figures):
            self._moved_bytes = 0
            self.contended = bool(gone or newcomers)
            return
        held_before = sum(held or 0 for held in self._others.values())
        self._moved_bytes = sum(now[pid] or 0 for pid in whose.others) - held_before
        self.contended = abs(self._moved_bytes) > _MOVED_BYTES or bool(whose.unsure)

    def _processes(self) -> dict[int, int | None] | None:
        """Return bytes by pid of all processes on the device, computing or drawing; None if NVML does not list them."""
        computing = self._listed(self._nvml.nvmlDeviceGetComputeRunningProcesses)
        if computing is None:
            return None
        found: dict[int, int | None] = {}
        # A card for computing only has no list of those that draw.
        for process in (*computing, *(self._listed(self._nvml.nvmlDeviceGetGraphicsRunningProcesses) or ())):
            known, size = found.get(process.pid), process.usedGpuMemory
            if size is not None and self._before is not None and size > self._before.total:
                size = None  # a driver whose records are of another length than pynvml takes them to be
            # A process that computes and draws is in both lists, with the same figure.
            found[process.pid] = size if known is None else max(known, size or 0)
        return found

    def _listed(self, read: Callable[[Any], list[Any]]) -> list[Any] | None:
        try:
            return read(self._handle)
        except (self._nvml.NVMLError, self._nvml.NVMLLibraryMismatchError):
            return None  # the latter is no NVMLError: a driver without the version of the call that pynvml makes


class Nvidia:
    """Lists the GPUs and makes their meters, with NVML.

    NVML has ``list_within_s`` to list the GPUs, and to start a meter: without its persistence daemon the driver starts
    each card anew, which takes seconds. It has ``sample_within_s`` for a sample.
    """

    def __init__(self, nvml: Any = None, *, list_within_s: float = 30.0, sample_within_s: float = 5.0) -> None:
        self._nvml = nvml
        self._list_within_s = list_within_s
        self._sample_within_s = sample_within_s
        self._questions = Questions()

    def list_gpus(self, variables: Mapping[str, str]) -> Gpus:
        """List the GPUs that a process with these environment variables sees. Never raises nor hangs.

        They are all GPUs and slices (MIG) of them, or the entries of ``CUDA_VISIBLE_DEVICES`` where that is set.
        """
        try:
            question = partial(list_gpus, module_of(self._nvml), variables)
            return self._questions.ask(question, within_s=self._list_within_s)
        except NoAnswerError as error:
            return Gpus((), problem=str(error))

    def make_meter(self, device: Device) -> MeterWithDeadline:
        """Make the meter of one of them, which never hangs either."""
        meter = NvmlMeter(device.uuid, nvml=self._nvml)
        return MeterWithDeadline(meter, start_within_s=self._list_within_s, sample_within_s=self._sample_within_s)


NVIDIA = Nvidia()


def read_gpus(variables: Mapping[str, str] = os.environ, *, vendor: Nvidia = NVIDIA) -> Gpus:
    """List the GPUs that a process with these environment variables sees; never raises."""
    return vendor.list_gpus(variables)


def meter_for(devices: tuple[int, ...], *, vendor: Nvidia = NVIDIA) -> RunMeter:
    """Make the meter of a run on those GPUs, or on any that it sees; UsageError for a device that isn't there."""
    gpus = read_gpus(vendor=vendor)
    named = [find_device(index, gpus) for index in devices] if devices else gpus.devices
    return RunMeter(((found, vendor.make_meter(found)) for found in named), problem=gpus.problem)
