"""From what a script allocates on a device to the device's peak memory."""

from __future__ import annotations

from dataclasses import dataclass

from ..records.allocations import AllocationTrace
from ..records.cards import Card
from .caching_allocator import Block, CachingAllocator
from .kernels import KERNELS, Kernel, cublas_workspace_bytes

_NO_KERNEL = Kernel()


@dataclass(frozen=True)
class DevicePeak:
    """The most that a trace allocates and reserves of a device, in bytes."""

    allocated: int
    reserved: int


def peak_of(trace: AllocationTrace, card: Card) -> DevicePeak:
    """Simulate what a script allocates and frees on a card that has room for all of it."""
    run = _Run(trace, card, CachingAllocator())
    run.run()
    return DevicePeak(run.memory.peak_allocated, run.memory.peak_reserved)


class _Run:
    def __init__(self, trace: AllocationTrace, card: Card, memory: CachingAllocator) -> None:
        self.memory = memory
        self._trace, self._card = trace, card
        self._alive: dict[int, Block | None] = {}
        self._phase = 0
        self._multiplied: set[bool] = set()
        self._tried: set[str] = set()

    def run(self) -> None:
        """Go through all events."""
        place = 0
        while place < len(self._trace.kinds):
            kind, number = self._trace.kinds[place], self._trace.numbers[place]
            place += 1
            if kind == "a":
                self._allocate(number)
            elif kind == "f":
                self.memory.free(self._alive.pop(number, None))
            elif kind == "p":
                self._phase = number
            elif kind == "e":
                self.memory.empty_cache()
            else:
                results = self._trace.operators[number].num_results
                self._operator(number, self._trace.numbers[place : place + results])
                place += results

    def _operator(self, number: int, results: tuple[int, ...]) -> None:
        call = self._trace.operators[number]
        kernel = KERNELS.get(call.name, _NO_KERNEL)
        before = self.memory.allocate(kernel.before(call, self._card))
        for storage in results:
            self._allocate(storage)
        if kernel.multiplies:
            self._multiply()
        if kernel.tries_algorithms and any(call.options.get("benchmark", ())) and str(call) not in self._tried:
            self._tried.add(str(call))
            self.memory.empty_cache()
        self.memory.free(self.memory.allocate(kernel.after(call, self._card)))
        self.memory.free(before)

    def _multiply(self) -> None:
        # Autograd has a thread for each device, which has a handle of its own.
        is_backward = self._trace.PHASES[self._phase] == "backward"
        if is_backward not in self._multiplied:
            self._multiplied.add(is_backward)
            self.memory.allocate(cublas_workspace_bytes(self._card))

    def _allocate(self, number: int) -> None:
        self._alive[number] = self.memory.allocate(self._trace.storage_bytes[number])
