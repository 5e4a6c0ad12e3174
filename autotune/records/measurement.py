"""The measurement of one trial, the figures of one or several, and how people read those figures."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field

from .configuration import SizedPlans
from .environment import DeviceConditions
from .look_ahead import SeenBatch
from .matrix import PhaseMemory

# From this share of the time on what others took contends a measurement. On a quiet machine threads wait for a
# processor for less than one per cent, and a desktop that draws itself takes less of a GPU.
CONTENDED_SHARE = 0.05
_WHOLE = 0.01


@dataclass(frozen=True)
class Peaks:
    """Peak memory of a trial in bytes, None for what this device does not tell; of several GPUs the fullest's."""

    device: int | None = None  # NVML's, without other processes' baseline
    allocated: int | None = None  # torch's allocator's, as is `reserved`
    reserved: int | None = None
    non_torch: int | None = None  # what `device` has above `reserved`: context, libraries, kernels
    resident: int | None = None  # the high-water mark since start-up, summed over the training processes

    @property
    def fit_bytes(self) -> int | None:
        """Return the figure that a memory limit is held against; None if none was measured.

        On a GPU reserved + non-torch memory: what the process takes away from the card, where ``allocated`` leaves out
        what the allocator keeps. On CPU the resident set.
        """
        return self.resident if self.reserved is None else self.reserved + (self.non_torch or 0)


@dataclass(frozen=True)
class MemorySplit:
    """The parts of the memory of a training step, in bytes, each storage counted once."""

    parameters: int
    gradients: int
    optimizer_state: int
    buffers: int
    activations: int | None = None  # saved ones, as the engine's graphs save them; None where no engine looked

    @property
    def state(self) -> int:
        """Return the state of the training, which neither plans nor batch sizes change: everything but activations."""
        return self.parameters + self.gradients + self.optimizer_state + self.buffers


@dataclass(frozen=True)
class Schedule:
    """A learning rate scheduler, and the optimizer steps that it was made for."""

    name: str  # its class
    steps: int
    raises_beyond: bool = False  # a step beyond them is an error


@dataclass(frozen=True)
class Measurement:
    """One trial measured.

    ``contended``: other processes moved memory on the device meanwhile, or used it, or threads had to wait for a
    processor. ``waited_share`` is the share of the time that all of these waits add up to, 1.0 at most; no more of the
    time is lost, even if each makes all the others wait.

    Where the batches that stand for an epoch come in a ``cycle`` of so many steps, each of ``step_times_s`` and of
    ``samples_per_step`` is the sum over a cycle, each step with its weight.
    """

    step_times_s: tuple[float, ...]  # of the measured optimizer steps, or of cycles
    samples_per_step: tuple[float, ...]  # summed over processes
    peaks: Peaks
    warmup_steps: int
    warmup_s: float
    batch_size: int | None
    calls_per_step: float  # training calls of models per optimizer step
    backwards_per_step: float = 0.0
    num_processes: int = 1
    samples_are_guessed: bool = False
    nonfinite_loss: bool = False
    allocator_retries: int = 0  # above zero the trial thrashed, and cannot win
    contended: bool = False
    waited_share: float = 0.0
    kernels_searched: bool = True  # False where the trial left out a search that the script asks for
    split: MemorySplit | None = None
    saved_bytes: int | None = None
    memory_matrix: tuple[PhaseMemory, ...] = ()  # of rank 0, after the measured steps, if asked for
    notes: tuple[str, ...] = ()
    cycle: int = 1
    largest: SeenBatch | None = None  # of the batches that were read ahead, the one with this peak; None where none was
    sized: tuple[SizedPlans, ...] = ()  # that smaller batches were measured with, as of `Configuration`
    compile_s: float = 0.0  # of `warmup_s`, in steps in which a graph was traced or compiled
    conditions: DeviceConditions | None = None  # of the GPU; None on a CPU and where nobody looked
    occurrences: dict[str, int] = field(default_factory=dict)  # as of `Fingerprint`
    schedules: tuple[Schedule, ...] = ()  # those that follow optimizer steps
    # How much longer an epoch waits for its first batch than for others; None where no second epoch was seen to begin.
    epoch_wait_s: float | None = None
    rank_peaks: tuple[Peaks, ...] = ()  # of each of several processes, by rank; `device` is that of a GPU it has alone

    @property
    def step_time_s(self) -> float:
        """Return the median step time."""
        return statistics.median(self.step_times_s) / self.cycle

    @property
    def step_time_interval_s(self) -> tuple[float, float]:
        """Return a 95 % interval of ``step_time_s``."""
        low, high = median_interval(self.step_times_s)
        return low / self.cycle, high / self.cycle

    @property
    def num_steps(self) -> int:
        """Return the number of measured optimizer steps."""
        return len(self.step_times_s) * self.cycle

    @property
    def mean_samples(self) -> float:
        """Return the mean of the samples of a step."""
        return statistics.fmean(self.samples_per_step) / self.cycle

    @property
    def micro_batches(self) -> float:
        """Return the micro-batches that a process took per optimizer step: by their samples, else by its backwards.

        A script that calls its models several times for one batch (a GAN, an actor and a critic) takes one.
        """
        if not self.batch_size or self.samples_are_guessed:
            return nearly_whole(self.backwards_per_step or self.calls_per_step)
        samples = statistics.median(self.samples_per_step) / self.cycle
        return nearly_whole(samples / (self.batch_size * self.num_processes))

    @property
    def samples_per_s(self) -> float:
        """Return mean samples per step over the median step time; 0.0 when the samples could not be counted."""
        return self.mean_samples / self.step_time_s

    @property
    def samples_per_s_interval(self) -> tuple[float, float]:
        """Return a 95 % interval of ``samples_per_s``, from the interval of the median step time."""
        low_s, high_s = self.step_time_interval_s
        return self.mean_samples / high_s, self.mean_samples / low_s


def nearly_whole(value: float) -> float:
    """Round a ratio that is as good as a whole number: samples are counted, and a last batch may be short."""
    return float(round(value)) if value and abs(value - round(value)) <= _WHOLE * value else value


def median_interval(values: tuple[float, ...] | list[float]) -> tuple[float, float]:
    """Return a distribution-free 95 % interval of the median: order statistics at n/2 ± 0.98 sqrt(n).

    Source: the normal approximation to the binomial distribution of ranks (Conover, Practical Nonparametric
    Statistics). Steps that repeat a pattern are not independent; the interval is then too narrow.
    """
    ordered, n = sorted(values), len(values)
    half = 0.98 * math.sqrt(n)
    low = max(0, math.floor(n / 2 - half))
    high = min(n - 1, math.ceil(n / 2 + half) - 1)
    return ordered[low], ordered[max(high, low)]
