"""The measurement of one trial, the figures of one or several, and how people read those figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from .environment import DeviceConditions
from .matrix import PhaseMemory
from .units import format_bytes, format_rate, format_speed

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
class Measurement:
    """One trial measured.

    ``contended``: other processes moved memory on the device meanwhile, or used it, or threads had to wait for a
    processor. ``waited_share`` is the share of the time that all of these waits add up to, 1.0 at most; no more of the
    time is lost, even if each makes all the others wait.
    """

    step_times_s: tuple[float, ...]  # of the measured optimizer steps
    samples_per_step: tuple[int, ...]  # summed over processes
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
    compile_s: float = 0.0  # of `warmup_s`, in steps in which a graph was traced or compiled
    conditions: DeviceConditions | None = None  # of the GPU; None on a CPU and where nobody looked
    occurrences: dict[str, int] = field(default_factory=dict)  # as of `Fingerprint`

    @property
    def step_time_s(self) -> float:
        """Return the median step time."""
        return statistics.median(self.step_times_s)

    @property
    def micro_batches(self) -> float:
        """Return the micro-batches that a process took per optimizer step: by their samples, else by its backwards.

        A script that calls its models several times for one batch (a GAN, an actor and a critic) takes one.
        """
        if not self.batch_size or self.samples_are_guessed:
            return nearly_whole(self.backwards_per_step or self.calls_per_step)
        return nearly_whole(statistics.median(self.samples_per_step) / (self.batch_size * self.num_processes))

    @property
    def samples_per_s(self) -> float:
        """Return mean samples per step over the median step time; 0.0 when the samples could not be counted."""
        return statistics.fmean(self.samples_per_step) / self.step_time_s

    @property
    def samples_per_s_interval(self) -> tuple[float, float]:
        """Return a 95 % interval of ``samples_per_s``, from the interval of the median step time."""
        low, high = median_interval(self.step_times_s)
        samples = statistics.fmean(self.samples_per_step)
        return samples / high, samples / low


@dataclass(frozen=True)
class Figures:
    """The measured figures of a configuration: samples/s with their spread, the step time in seconds, and the peaks.

    The spread is over the rounds; of a single measurement it is the 95 % confidence interval. The peaks are those of
    the round that took the most memory.
    """

    samples_per_s: float
    samples_per_s_low: float
    samples_per_s_high: float
    step_time_s: float
    peaks: Peaks
    rounds: int


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


def summary_of(rounds: Sequence[Measurement]) -> Figures:
    """Summarize the rounds of one setting, one at least."""
    rates = [one.samples_per_s for one in rounds]
    low, high = (min(rates), max(rates)) if len(rounds) > 1 else rounds[0].samples_per_s_interval
    return Figures(
        samples_per_s=statistics.median(rates),
        samples_per_s_low=low,
        samples_per_s_high=high,
        step_time_s=statistics.median(one.step_time_s for one in rounds),
        peaks=max((one.peaks for one in rounds), key=lambda peaks: peaks.fit_bytes or 0),
        rounds=len(rounds),
    )


def figure_cells(figures: Figures | None) -> dict[str, str]:
    """Write the figures of a setting for a table, by the headings of its columns; empty where a figure is not known."""
    return {
        "Samples/s": format_rate(figures.samples_per_s) if figures and figures.samples_per_s else "",
        "Spread": _range(figures) if figures and figures.samples_per_s else "",
        "Peak": "" if figures is None or figures.peaks.fit_bytes is None else format_peak(figures.peaks),
    }


def format_peak(peaks: Peaks) -> str:
    """Write the peak that a memory limit is held against, with its unit: ``22.1 GiB``; ``not known`` without one."""
    peak = peaks.fit_bytes
    return "not known" if peak is None else format_bytes(peak)


def format_measured(measured: Measurement | Figures) -> str:
    """Write samples/s and the peak: ``187.2 samples/s, 22.1 GiB``."""
    return f"{format_speed(measured.samples_per_s)}, {format_peak(measured.peaks)}"


def format_spread(figures: Figures) -> str:
    """Write the spread of samples/s, of rounds or of one median: ``185.4 to 187.7, 3 rounds``."""
    of = f"{figures.rounds} rounds" if figures.rounds > 1 else "95 %"
    return f"{_range(figures)}, {of}"


def format_figures(figures: Figures | None) -> str:
    """Write samples/s with their spread, and the peak where there is one."""
    if figures is None:
        return "not measured"
    memory = "" if figures.peaks.fit_bytes is None else f" at a peak of {format_peak(figures.peaks)}"
    if not figures.samples_per_s:
        return f"samples not counted{memory}"
    return f"{format_speed(figures.samples_per_s)} ({format_spread(figures)}){memory}"


def _range(figures: Figures) -> str:
    return f"{format_rate(figures.samples_per_s_low)} to {format_rate(figures.samples_per_s_high)}"
