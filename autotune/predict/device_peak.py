"""From what a script allocates on a device to the device's peak memory."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

from ..records.allocations import AllocationTrace, OperatorCall
from ..records.cards import Card
from .caching_allocator import Block, CachingAllocator, DeviceFullError, ExpandableAllocator
from .kernels import CUBLASLT_WORKSPACE_BYTES, KERNELS, Kernel, cublas_workspace_bytes, in_cublaslt, in_cudnn

_NO_KERNEL = Kernel()
# CUDA's context, and libraries with their kernels, as nvidia-smi counts. Fitted to peaks on an A100-40GB (GPUMemNet,
# arXiv 2602.17817), with cuDNN and without.
_OUTSIDE_BYTES, _OUTSIDE_WITHOUT_CUDNN_BYTES = 1720 << 20, 1430 << 20


@dataclass(frozen=True)
class DevicePeak:
    """The most that a trace allocates and reserves of a device, in bytes."""

    allocated: int
    reserved: int


def peak_of(trace: AllocationTrace, card: Card, limit_bytes: float = math.inf) -> DevicePeak:
    """Simulate what a script allocates and frees on a card that has so many bytes for torch's allocator.

    On a full card the allocator gives back what it has cached. The default has room for everything.

    Raises:
        DeviceFullError: that does not suffice.
    """
    run = Replay(trace, card, limit_bytes)
    run.run()
    return DevicePeak(run.memory.peak_allocated, run.memory.peak_reserved)


def process_bytes(trace: AllocationTrace, card: Card, memory_bytes: float = math.inf) -> int | None:
    """Return the peak of the script's whole process on a card with so much memory; None where that is too little."""
    outside = outside_bytes(trace)
    try:
        return peak_of(trace, card, memory_bytes - outside).reserved + outside
    except DeviceFullError:
        return None


def outside_bytes(trace: AllocationTrace) -> int:
    """Return what the script's process has on the device outside of torch's allocator."""
    has_cudnn = any(call.name.startswith("convolution") and in_cudnn(call) for call in trace.operators)
    return _OUTSIDE_BYTES if has_cudnn else _OUTSIDE_WITHOUT_CUDNN_BYTES


def step_peaks(trace: AllocationTrace, card: Card, memory_bytes: float = math.inf) -> tuple[DevicePeak, ...]:
    """Simulate what a script allocates in each of its steps, and reserves until then, on a card with so much memory.

    Where memory runs out, the step in which it does is the last one.
    """
    run = _StepByStep(trace, card, memory_bytes - outside_bytes(trace))
    with contextlib.suppress(DeviceFullError):
        run.run()
    return (*run.peaks, run.peak())


class Replay:
    """Goes through a trace on a card with a simulated allocator; ``event`` is the one under way."""

    def __init__(self, trace: AllocationTrace, card: Card, limit_bytes: float = math.inf) -> None:
        allocator = ExpandableAllocator if trace.expands else CachingAllocator
        self.memory = allocator(limit_bytes)
        self._trace, self._card = trace, card
        self.alive: dict[int, Block | None] = {}
        self.event = self._phase = self._stream = 0
        self._multiplied: set[tuple[bool, int, int]] = set()
        self._tried: set[str] = set()

    def run(self) -> None:
        """Go through all events."""
        following = 0
        while following < len(self._trace.kinds):
            self.event = following
            kind, number = self._trace.kinds[following], self._trace.numbers[following]
            following += 1
            if kind == "a":
                self._allocate(number)
            elif kind == "f":
                self.memory.free(self.alive.pop(number, None))
            elif kind == "p":
                self._begin(number)
            elif kind == "s":
                self._stream = number
            elif kind == "e":
                self.memory.empty_cache()
            elif kind == "o":
                results = self._trace.operators[number].num_results
                self._operator(number, self._trace.numbers[following : following + results])
                following += results

    def _begin(self, phase: int) -> None:
        self._phase = phase

    def _operator(self, number: int, results: tuple[int, ...]) -> None:
        call = self._trace.operators[number]
        kernel = KERNELS.get(call.name, _NO_KERNEL)
        before = self._take(kernel.before(call, self._card))
        for storage in reversed(results) if kernel.last_first else results:
            self._allocate(storage)
        if kernel.multiplies:
            self._multiply(call)
        if (
            kernel.tries_algorithms
            and any(call.options.get("benchmark", ()))
            and in_cudnn(call)
            and str(call) not in self._tried
        ):
            self._tried.add(str(call))
            self.memory.empty_cache()
        for workspace in kernel.after:
            self.memory.free(self._take(workspace(call, self._card)))
        for held in [self._take(workspace(call, self._card)) for workspace in kernel.together]:
            self.memory.free(held)
        self.memory.free(before)

    def _multiply(self, call: OperatorCall) -> None:
        usual, apart = cublas_workspace_bytes(self._card), CUBLASLT_WORKSPACE_BYTES
        if self._trace.workspaces == "freed":
            self.memory.free(self._take(apart if in_cublaslt(call) else usual))
            return
        # cuBLASLt has a handle of cuBLAS, too.
        sizes = (usual, apart) if self._trace.workspaces == "kept apart" and in_cublaslt(call) else (usual,)
        for size in sizes:
            # Autograd has a thread for each device, which has a handle of its own.
            user = self._trace.PHASES[self._phase] == "backward", self._stream, size
            if user not in self._multiplied:
                self._multiplied.add(user)
                self._take(size)

    def _allocate(self, number: int) -> None:
        self.alive[number] = self._take(self._trace.storage_bytes[number])

    def _take(self, size: int) -> Block | None:
        return self.memory.allocate(size, self._stream)


class _StepByStep(Replay):
    """Notes the peak of each step as the next one begins."""

    def __init__(self, trace: AllocationTrace, card: Card, limit_bytes: float) -> None:
        super().__init__(trace, card, limit_bytes)
        self.peaks: list[DevicePeak] = []

    def peak(self) -> DevicePeak:
        """Return the peak since the last step began."""
        return DevicePeak(self.memory.peak_allocated, self.memory.peak_reserved)

    def _begin(self, phase: int) -> None:
        super()._begin(phase)
        if self._trace.PHASES[phase] == "start":
            self.peaks.append(self.peak())
            self.memory.peak_allocated = self.memory.allocated
