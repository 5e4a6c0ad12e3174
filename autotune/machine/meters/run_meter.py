"""Meter of a run's memory from outside, which reads the meter of the place where the run's processes train."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import psutil

from ...records.environment import DeviceReading
from ...records.progress import Progress
from ..devices import Device
from .port import MemoryMeter, Neighbours


class ResidentMeter(MemoryMeter):
    """Sums the resident sets of the processes it is given, which hold nobody else's memory.

    Pages that processes share count once for each of them, so forked data loaders do not belong into ``pids``.
    """

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}

    def start(self) -> None:
        """Note nothing."""

    def sample(self, pids: Sequence[int]) -> int | None:
        """Return the sum over the processes that are still there, None if none is."""
        sizes = [size for pid in pids if (size := self._resident(pid)) is not None]
        return sum(sizes) if sizes else None

    def close(self) -> None:
        """Forget the processes."""
        self._processes.clear()

    def _resident(self, pid: int) -> int | None:
        try:
            if pid not in self._processes:
                self._processes[pid] = psutil.Process(pid)
            return int(self._processes[pid].memory_info().rss)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return None


_NOBODY = Neighbours()


@dataclass(frozen=True)
class Sample:
    """The memory that a run holds at one moment: of a device, or as the resident sets of its processes.

    ``used_bytes`` is None where no device had a figure. ``unread`` says why a device had none, ``doubt`` why a figure
    is not to be relied on; both are empty if all is well. ``reading`` holds the conditions of the device, None where
    none was looked at. Of several devices it is the one with the slowest clock, for which the others wait.
    ``neighbours`` is how long other programs have used the device; of several devices, the longest time. ``by_device``
    has the bytes of each device that had a figure, by its UUID, and ``used_bytes`` are the most of them.
    """

    kind: Literal["device", "resident"]
    used_bytes: int | None
    contended: bool = False
    unread: str = ""
    doubt: str = ""
    reading: DeviceReading | None = None
    neighbours: Neighbours = _NOBODY
    by_device: Mapping[str, int] = field(default_factory=dict)


class RunMeter:
    """Measures a run where its training processes say that they train.

    A process on a GPU names it by UUID in its progress, and that GPU is read, whatever the number by which the script
    chose it. Where they train on several, a sample is that of the fullest, as a limit is one for each device; it is
    contended if any of them is. Where all train on the CPU, a sample is the sum of their resident sets. Without any GPU
    (not ``must_be_told``), the run's main process stands for them before they train. ``free_bytes`` is what each device
    had free before the run, and ``usable_bytes`` what it has for processes, by the UUIDs that torch may give it.

    Args:
        devices: those that the run may choose from, each with its meter.
        resident: reads resident sets.
        problem: why devices may be missing, where that is known.
    """

    def __init__(
        self,
        devices: Iterable[tuple[Device, MemoryMeter]] = (),
        *,
        resident: MemoryMeter | None = None,
        problem: str = "",
    ) -> None:
        self._problem = problem or "it is not among the GPUs that were found"
        self._resident: MemoryMeter = ResidentMeter() if resident is None else resident
        self._meters: list[MemoryMeter] = [self._resident]
        self._by_uuid: dict[str, MemoryMeter] = {}
        self.free_bytes: dict[str, int] = {}
        self.usable_bytes: dict[str, int] = {}
        self.must_be_told = False
        for device, meter in devices:
            self._meters.append(meter)
            self.must_be_told = True
            for uuid in device.torch_uuids:
                # Slices of a card share its UUID, and a process has the first of those that it sees.
                self._by_uuid.setdefault(uuid, meter)
                if device.free_bytes is not None:
                    self.free_bytes.setdefault(uuid, device.free_bytes)
                if device.usable_bytes is not None:
                    self.usable_bytes.setdefault(uuid, device.usable_bytes)

    def start(self) -> None:
        """Note what others hold everywhere. RunError if a device cannot be read at all."""
        for meter in self._meters:
            meter.start()

    def sample(self, training: Sequence[Progress], members: Callable[[], Sequence[int]], *, main: int) -> Sample | None:
        """Return what the run holds now; None where it trains on the CPU and its processes are gone.

        Args:
            training: where the training processes are.
            members: the ids of all processes of the run; asked on GPUs only.
            main: the id of the run's first process.
        """
        pids = [progress.process for progress in training]
        named = sorted({progress.device for progress in training if progress.device})
        if not named:
            used = self._resident.sample(pids or [main])
            return None if used is None else Sample("resident", used, self._resident.contended)
        own = [*{*pids, *members()}]
        figures: dict[str, int] = {}
        contended, neighbours, unread, doubts = False, _NOBODY, [], []
        readings: list[DeviceReading] = []
        for uuid in named:
            meter = self._by_uuid.get(uuid)
            figure = None if meter is None else meter.sample(own)
            problem = self._problem if meter is None else meter.problem
            if meter is not None:
                contended = contended or meter.contended
                neighbours = max(neighbours, meter.neighbours, key=lambda one: one.seconds)
                if meter.reading is not None:
                    readings.append(meter.reading)
            if figure is None:
                unread.append(problem)
            else:
                figures[uuid] = figure
                doubts.append(problem)
        used, slowest = max(figures.values(), default=None), min(readings, key=_clock_mhz, default=None)
        return Sample("device", used, contended, _joined(unread), _joined(doubts), slowest, neighbours, figures)

    def close(self) -> None:
        """Give back what ``start`` took."""
        for meter in self._meters:
            meter.close()


def _clock_mhz(reading: DeviceReading) -> float:
    return math.inf if reading.sm_clock_mhz is None else reading.sm_clock_mhz


def _joined(problems: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, problems)))
