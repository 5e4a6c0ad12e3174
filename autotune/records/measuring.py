"""Rules that tell when a trial is warm and when it has been measured enough."""

from __future__ import annotations

from dataclasses import dataclass, replace

LARGEST_HANDED, LONGEST_CYCLE = 2, 4
"""Where an epoch was read: how often its largest batch comes first, and the most batches of a cycle after that."""
MOST_SIZED = 3
"""The most plans for smaller batches of a trial. Each takes a step; before, such a trial takes a cycle without them."""
FEWEST_ROUNDS = 3
"""Fewer measured steps, or cycles of them, give no figure."""

# For how many measurements at full length a study's time has to be enough. A judgement.
_TRIALS_IN_A_STUDY = 30


@dataclass(frozen=True)
class GpuMeasuring:
    """Further rules for a GPU, whose clocks are high after it has idled, and fall as it takes power and becomes warm.

    Steps count once they have run for ``warmup_s`` since the last one that compiled, or once
    ``Measuring.max_warmup_steps`` of them have compiled after step times had settled. Then a trial is measured for
    ``measure_s`` at least, and for ``steps`` within ``Measuring.max_measure_s``. A trial that cannot be the answer may
    end before, but not before it is warm.
    """

    warmup_s: float = 1.0
    measure_s: float = 3.0
    steps: int = 20


@dataclass(frozen=True)
class Measuring:
    """The rules that tell when a trial is warm and when it has been measured enough.

    Warm-up ends once no graph was compiled in a step and the last two steps differ by less than 20 %. Measuring ends
    when the 95 % confidence interval of the median step is narrow enough. A trial that cannot be the answer ends once
    that interval, of three steps at least, says that it stays below ``rate_to_beat``.
    """

    min_warmup_steps: int = 2
    max_warmup_steps: int = 12
    min_steps: int = 5
    max_steps: int = 60
    interval_ratio: float = 0.01  # the width that is narrow enough, as a share of the median step
    rough_interval_ratio: float = 0.03  # the same from `fine_steps` steps on
    fine_steps: int = 24
    min_measure_s: float = 0.5
    max_measure_s: float = 10.0  # once `min_steps` are in
    rate_to_beat: float | None = None  # in samples/s
    on_gpu: GpuMeasuring = GpuMeasuring()

    @property
    def least_steps(self) -> int:
        """Return the least optimizer steps that a trial usually takes: two of them show that the warm-up is over."""
        return self.min_warmup_steps + 2 + self.min_steps

    @property
    def least_steps_in_cycles(self) -> int:
        """Return the same where steps come in cycles: the first step comes before the epoch is read."""
        to_size = LARGEST_HANDED + LONGEST_CYCLE + MOST_SIZED
        return 1 + to_size + LARGEST_HANDED + LONGEST_CYCLE * (self.min_warmup_steps + FEWEST_ROUNDS)

    def paced(self, time_budget_s: float) -> Measuring:
        """Return the rules of a study with so much time: no trial is measured for longer than a thirtieth of it.

        A confirmation has half a dozen measurements and more, so with longer ones a short study would confirm nothing.
        """
        return replace(self, max_measure_s=min(self.max_measure_s, time_budget_s / _TRIALS_IN_A_STUDY))
