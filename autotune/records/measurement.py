"""The figures of one trial: raw, with the peaks, and what follows from them."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field

from .environment import DeviceConditions
from .matrix import PhaseMemory

# From this share of the time on what others took contends a measurement: a thread that waits for a processor, or the
# GPU that others use. On a quiet machine threads wait for less than one per cent, and a desktop that draws itself takes
# less of a GPU.
CONTENDED_SHARE = 0.05
_WHOLE = 0.01


@dataclass(frozen=True)
class Peaks:
    """Peak memory of a trial in bytes; a figure that this device does not have is None.

    ``device`` is NVML's, sampled by the controller, other processes' baseline subtracted. ``allocated`` and
    ``reserved`` are torch's allocator, ``non_torch`` is what ``device`` has above ``reserved``: what the run holds
    outside the allocator (context, libraries, kernels). Of several devices these are the fullest one's. ``resident``
    is the high-water mark of the resident set, summed over the training processes, reset after start-up.
    """

    device: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    non_torch: int | None = None
    resident: int | None = None

    @property
    def fit_bytes(self) -> int | None:
        """The figure that a memory limit is held against; None if none was measured.

        On a GPU reserved + non-torch memory: what the process takes away from the card, where ``allocated`` leaves
        out what the allocator keeps. On CPU the resident set.
        """
        return self.resident if self.reserved is None else self.reserved + (self.non_torch or 0)


@dataclass(frozen=True)
class MemorySplit:
    """The parts of the memory of a training step, in bytes, each storage counted once.

    ``activations`` are the saved activations, which the forward leaves for the backward, as the engine's graphs save
    them; None where no engine looked.
    """

    parameters: int
    gradients: int
    optimizer_state: int
    buffers: int
    activations: int | None = None

    @property
    def state(self) -> int:
        """The state of the training, which neither plans nor batch sizes change: everything but activations."""
        return self.parameters + self.gradients + self.optimizer_state + self.buffers


@dataclass(frozen=True)
class Measurement:
    """One trial measured.

    ``step_times_s`` are the wall times of the measured optimizer steps, ``samples_per_step`` the samples that each
    took (global: summed over processes). ``calls_per_step`` counts training calls of models per optimizer step, and
    ``backwards_per_step`` the backwards, so gradient accumulation shows. ``allocator_retries`` above zero means that
    the allocator had to free and try again: the trial thrashed and cannot win. ``contended`` means that other
    processes moved memory on the device meanwhile, or used it, or that threads had to wait for a processor;
    ``waited_share`` is then the share of the time in which threads waited for a processor, or others used the device:
    all of these waits added up, 1.0 at most. No more of the time is lost, even if each makes all the others wait.
    ``kernels_searched`` is False where the script has its compiler search for the fastest kernels, in minutes, and the
    trial left that out: the setting may be faster than it was measured.
    ``compile_s`` is the part of ``warmup_s`` that went into steps in which a graph was traced or compiled.
    ``conditions`` is what the GPU was like meanwhile; None on a CPU, where nobody looked, and in older records.
    ``occurrences`` is how many of them each plan recomputed in the first step, as ``Fingerprint`` has it.
    ``memory_matrix`` is of steps after the measured ones, where the run was asked for it; of rank 0.
    """

    step_times_s: tuple[float, ...]
    samples_per_step: tuple[int, ...]
    peaks: Peaks
    warmup_steps: int
    warmup_s: float
    batch_size: int | None
    calls_per_step: float
    backwards_per_step: float = 0.0
    num_processes: int = 1
    samples_are_guessed: bool = False
    nonfinite_loss: bool = False
    allocator_retries: int = 0
    contended: bool = False
    waited_share: float = 0.0
    kernels_searched: bool = True
    split: MemorySplit | None = None
    saved_bytes: int | None = None
    memory_matrix: tuple[PhaseMemory, ...] = ()
    notes: tuple[str, ...] = ()
    compile_s: float = 0.0
    conditions: DeviceConditions | None = None
    occurrences: dict[str, int] = field(default_factory=dict)

    @property
    def step_time_s(self) -> float:
        """The median step time."""
        return statistics.median(self.step_times_s)

    @property
    def micro_batches(self) -> float:
        """Micro-batches that a process took per optimizer step: by their samples, else by its backwards.

        A script that calls its models several times for one batch (a GAN, an actor and a critic) takes one.
        """
        if not self.batch_size or self.samples_are_guessed:
            return nearly_whole(self.backwards_per_step or self.calls_per_step)
        return nearly_whole(statistics.median(self.samples_per_step) / (self.batch_size * self.num_processes))

    @property
    def samples_per_s(self) -> float:
        """Mean samples per step over the median step time; 0.0 when the samples could not be counted."""
        return statistics.fmean(self.samples_per_step) / self.step_time_s

    @property
    def samples_per_s_interval(self) -> tuple[float, float]:
        """A 95 % interval of ``samples_per_s``, from the interval of the median step time."""
        low, high = median_interval(self.step_times_s)
        samples = statistics.fmean(self.samples_per_step)
        return samples / high, samples / low


def nearly_whole(value: float) -> float:
    """A ratio, as a whole number where it is as good as one: samples are counted, and a last batch may be short."""
    return float(round(value)) if value and abs(value - round(value)) <= _WHOLE * value else value


def median_interval(values: tuple[float, ...] | list[float]) -> tuple[float, float]:
    """A distribution-free 95 % interval of the median: order statistics at n/2 ± 0.98 sqrt(n).

    Source: the normal approximation to the binomial distribution of ranks (Conover, Practical Nonparametric
    Statistics). Steps that repeat a pattern are not independent; the interval is then too narrow.
    """
    ordered = sorted(values)
    n = len(ordered)
    half = 0.98 * math.sqrt(n)
    low = max(0, math.floor(n / 2 - half))
    high = min(n - 1, math.ceil(n / 2 + half) - 1)
    return ordered[low], ordered[max(high, low)]
