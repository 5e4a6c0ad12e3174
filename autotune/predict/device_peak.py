"""From what a script allocates on a device to the device's peak memory."""

from __future__ import annotations

from dataclasses import dataclass

from ..records.allocations import AllocationTrace
from ..records.cards import Card
from .caching_allocator import Block, CachingAllocator, DeviceFullError
from .kernels import KERNELS, Kernel, cublas_workspace_bytes

_NO_KERNEL = Kernel()


@dataclass(frozen=True)
class DevicePeak:
    """The most that a trace allocates and reserves of a device, in bytes; ``retries`` as the allocator counts them."""

    allocated: int
    reserved: int
    retries: int = 0


def peak_of(
    trace: AllocationTrace, card: Card, *, capacity: int | None = None, workspaces: bool = True
) -> DevicePeak | None:
    """Simulate a trace on a device; None where it runs out of memory.

    Args:
        trace: what the script allocates and frees.
        card: the device.
        capacity: the most that torch may reserve there, in bytes; None for no limit.
        workspaces: whether kernels take what they need besides their results.
    """
    run = _Run(trace, card, CachingAllocator(capacity), workspaces=workspaces)
    try:
        run.run()
    except DeviceFullError:
        return None
    memory = run.memory
    return DevicePeak(memory.peak_allocated, memory.peak_reserved, memory.retries)


class _Run:
    def __init__(self, trace: AllocationTrace, card: Card, memory: CachingAllocator, *, workspaces: bool) -> None:
        self.memory = memory
        self._trace, self._card, self._workspaces = trace, card, workspaces
        self._alive: dict[int, Block | None] = {}
        self._phase = 0
        self._multiplied: set[bool] = set()

    def run(self) -> None:
        """Go through all events."""
        place, end = 0, len(self._trace.kinds)
        while place < end:
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
                place = self._operator(number, place)

    def _operator(self, number: int, place: int) -> int:
        """Run an operator, with the allocations of its results; return the place behind them."""
        call = self._trace.operators[number]
        kernel = KERNELS.get(call.name, _NO_KERNEL) if self._workspaces else _NO_KERNEL
        before = self.memory.allocate(kernel.before(call, self._card))
        while place < len(self._trace.kinds) and self._trace.kinds[place] == "a":
            self._allocate(self._trace.numbers[place])
            place += 1
        if kernel.multiplies:
            self._multiply()
        self.memory.free(self.memory.allocate(kernel.after(call, self._card)))
        self.memory.free(before)
        return place

    def _multiply(self) -> None:
        # Autograd has a thread for each device, which has a handle of its own.
        is_backward = self._trace.PHASES[self._phase] == "backward"
        if is_backward not in self._multiplied:
            self._multiplied.add(is_backward)
            self.memory.allocate(cublas_workspace_bytes(self._card))

    def _allocate(self, number: int) -> None:
        self._alive[number] = self.memory.allocate(self._trace.storage_bytes[number])
