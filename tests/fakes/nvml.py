"""A stand-in for the module ``pynvml``: cards and processes that a test sets up and moves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

NOT_AVAILABLE = 2**64 - 1
"""NVML's figure for none, where a field of 64 bits has no other."""


class NVMLError(Exception):
    def __init__(self, text: str, value: int | None = None) -> None:
        super().__init__(text)
        self.value = value


class NVMLLibraryMismatchError(Exception):
    """Not an NVMLError, as in pynvml."""


@dataclass
class Card:
    uuid: str
    name: str = "Fake H100"
    total: int = 80 * 2**30
    reserved: int = 2**29
    overhead: int = 0
    processes: dict[int, int | None] = field(default_factory=dict)
    drawing: dict[int, int | None] = field(default_factory=dict)
    slices: list[Card | None] = field(default_factory=list)
    answers: bool = True
    has_memory: bool = True
    used: int | None = None
    bus: int | None = None
    samples: list[tuple[float, dict[int, int]]] = field(default_factory=list)
    clock_mhz: int | None = 1755
    power_mw: int | None = 350_000
    clock_limits: int | None = 0

    def work(self, shares: dict[int, int], *, until_s: float) -> None:
        """The driver takes a sample at this time: for how many per cent of the time each process had work."""
        self.samples.append((until_s, shares))

    @property
    def used_bytes(self) -> int:
        if self.used is not None:
            return self.used
        held = self.processes | self.drawing
        return self.overhead + sum(size or 0 for size in held.values())


class FakeNvml:
    """Only what the launcher calls; ``problem`` makes every initialization fail.

    ``samples_use`` names the calls that tell what processes use. ``before_read`` is called before a card's memory or
    processes are read. While ``answers`` is not set, calls hang that need the driver.
    """

    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError
    nvmlMemory_v2 = 0x02000028
    NVML_SUCCESS = 0
    NVML_ERROR_NOT_FOUND = 6
    NVML_CLOCK_SM = 1

    def __init__(self, *cards: Card, problem: str = "", lists_processes: bool = True) -> None:
        self.cards = list(cards)
        self.problem = problem
        self.lists_processes = lists_processes
        self.lists_drawing = True
        self.samples_use = {"nvmlDeviceGetProcessUtilization", "nvmlDeviceGetProcessesUtilizationInfo"}
        self.names_event_reasons = True
        self.initialized = 0
        self.before_read: Callable[[], None] = lambda: None
        self.answers = threading.Event()
        self.answers.set()

    def nvmlInit(self) -> None:
        self.answers.wait()
        if self.problem:
            raise NVMLError(self.problem)
        self.initialized += 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.65.06"

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        card = self.cards[index]
        if not card.answers:
            raise NVMLError("GPU is lost")
        return card

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Card:
        for card in self.cards:
            for device in (card, *card.slices):
                if device is not None and device.uuid == uuid:
                    return device
        raise NVMLError("Not Found")

    def nvmlDeviceGetUUID(self, card: Card) -> str:
        return card.uuid

    def nvmlDeviceGetName(self, card: Card) -> str:
        return card.name

    def nvmlDeviceGetPciInfo(self, card: Card) -> SimpleNamespace:
        # A slice is where its card is.
        index, whole = next((i, c) for i, c in enumerate(self.cards) if any(card is one for one in (c, *c.slices)))
        return SimpleNamespace(domain=0, bus=index if whole.bus is None else whole.bus, device=0)

    def nvmlDeviceGetMigMode(self, card: Card) -> list[int]:
        if not card.slices:
            raise NVMLError("Not Supported")
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, card: Card) -> int:
        return len(card.slices)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: Card, place: int) -> Card:
        device = card.slices[place]
        if device is None:
            raise NVMLError("Not Found")
        return device

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, device: Card) -> Card:
        for card in self.cards:
            if device in card.slices:
                return card
        raise NVMLError("Invalid Argument")

    def nvmlDeviceGetClockInfo(self, card: Card, kind: int) -> int:
        assert kind == self.NVML_CLOCK_SM
        return self._told(card, card.clock_mhz)

    def nvmlDeviceGetPowerUsage(self, card: Card) -> int:
        return self._told(card, card.power_mw)

    def nvmlDeviceGetCurrentClocksEventReasons(self, card: Card) -> int:
        if not self.names_event_reasons:
            raise NVMLError("Function Not Found")
        return self._told(card, card.clock_limits)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, card: Card) -> int:
        return self._told(card, card.clock_limits)

    def _told(self, card: Card, figure: int | None) -> int:
        if not card.answers:
            raise NVMLError("GPU is lost")
        if figure is None:
            raise NVMLError("Not Supported")
        return figure

    def nvmlDeviceGetMemoryInfo(self, card: Card, version: int) -> SimpleNamespace:
        assert self.initialized
        self.before_read()
        self.answers.wait()
        if not card.answers:
            raise NVMLError("GPU is lost")
        assert version == self.nvmlMemory_v2
        if not card.has_memory:
            raise NVMLError("Not Supported")
        return SimpleNamespace(total=card.total, reserved=card.reserved, used=card.used_bytes)

    def nvmlDeviceGetComputeRunningProcesses(self, card: Card) -> list[SimpleNamespace]:
        self.before_read()
        return self._list(card, card.processes)

    def nvmlDeviceGetGraphicsRunningProcesses(self, card: Card) -> list[SimpleNamespace]:
        if not self.lists_drawing:
            raise NVMLLibraryMismatchError("Unversioned function called")
        return self._list(card, card.drawing)

    def nvmlDeviceGetProcessUtilization(self, card: Card, since_us: int) -> list[SimpleNamespace]:
        return self._use("nvmlDeviceGetProcessUtilization", card, since_us)

    def nvmlDeviceGetProcessesUtilizationInfo(self, card: Card, since_us: int) -> list[SimpleNamespace]:
        return self._use("nvmlDeviceGetProcessesUtilizationInfo", card, since_us)

    def _use(self, call: str, card: Card, since_us: int) -> list[SimpleNamespace]:
        if call not in self.samples_use or not any(card is one for one in self.cards):
            raise NVMLError("Not Supported", 3)
        if not card.answers:
            raise NVMLError("GPU is lost", 15)
        # One entry for each process that had any work, with the mean of the samples since then.
        new = [(until_s, shares) for until_s, shares in card.samples if until_s * 1e6 > since_us]
        pids = {pid for _, shares in new for pid in shares}
        if not pids:
            raise NVMLError("Not Found", self.NVML_ERROR_NOT_FOUND)
        last_us = {pid: max(until_s * 1e6 for until_s, shares in new if pid in shares) for pid in pids}
        means = {pid: sum(shares.get(pid, 0) for _, shares in new) // len(new) for pid in pids}
        return [SimpleNamespace(pid=pid, timeStamp=int(last_us[pid]), smUtil=means[pid]) for pid in sorted(pids)]

    def _list(self, card: Card, processes: dict[int, int | None]) -> list[SimpleNamespace]:
        if not card.answers:
            raise NVMLError("GPU is lost")
        if not self.lists_processes:
            raise NVMLError("Insufficient Permissions")
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in processes.items()]
