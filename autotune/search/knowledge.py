"""What a study knows at some moment: the outcomes so far, and which configurations are still worth a trial."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..records import Configuration, Facts
from .estimate import Estimate
from .forecast import Forecast, Predictions
from .space import BATCH_SIZE, Point, Space

__all__ = ["Knowledge", "Observation", "Origin"]

Origin = Literal["baseline", "seed", "sampler", "recovered"]

# A configuration that is expected this far over the limit is not worth the time that it takes to fail.
_HOPELESS = 1.3
# Recompute never speeds a batch size up, but engines differ a little, and so do two measurements of one thing.
_SLACK = 1.1
# After this many failures and no success, the engine is taken not to work with a script at all.
_FAILURES = 3


@dataclass(frozen=True)
class Observation:
    """A trial as the search sees it.

    ``state`` is ``scored`` once speed and memory are known, out of memory included (no samples, not feasible); a
    ``failed`` trial says nothing about either.
    """

    number: int
    configuration: Configuration
    origin: Origin
    state: Literal["running", "scored", "failed"]
    samples_per_s: float = 0.0
    peak_bytes: float | None = None
    feasible: bool = False
    out_of_memory: bool = False


class Knowledge:
    """The study so far.

    Args:
        space: What may be tried.
        facts: What discovery found.
        limit_bytes: The memory limit.
        observations: The trials so far, running ones included, in the order of their numbers.
        tried: Keys of configurations tried outside ``observations``.
        predictions: The script's simulations; made anew if None.

    Attributes:
        feasible: The trials that may win, in the order of their numbers.
        best: The fastest of them.
        engine_fails: Whether the engine seems not to get this script to run: it failed, and never anything but.
    """

    def __init__(
        self,
        space: Space,
        facts: Facts,
        limit_bytes: int,
        observations: Iterable[Observation],
        tried: Iterable[str] = (),
        predictions: Predictions | None = None,
    ) -> None:
        self.space = space
        self.limit_bytes = limit_bytes
        self.observations = tuple(observations)
        self.feasible = [one for one in self.observations if one.feasible]
        self.best = max(self.feasible, key=lambda one: one.samples_per_s, default=None)
        under_engine = [one.state for one in self.observations if one.configuration.engine != "eager"]
        self.engine_fails = under_engine.count("failed") >= _FAILURES and "scored" not in under_engine
        peaks = [
            (one.configuration, one.peak_bytes)
            for one in self.observations
            if one.peak_bytes is not None and not one.out_of_memory
        ]
        self.estimate = Estimate(space, facts, peaks)
        self._forecast = Forecast(predictions or Predictions(facts, space), space, peaks)
        self._by_key = {one.configuration.key: one for one in self.observations}
        self._tried = {*tried, *self._by_key}
        # Trials much slower than the best, with their points: they bound what may still win. Not the script untouched
        # where the others are compiled.
        engines = {space.plain_engine, space.engine}
        self._best_size = 0 if self.best is None else self._size(self.best.configuration)
        self._slow = [
            (self._size(one.configuration), point)
            for one in self.feasible
            if one.configuration.engine in engines
            if self.best is not None and one.samples_per_s * _SLACK < self.best.samples_per_s
            if (point := space.point(one.configuration)) is not None
        ]
        # What did not fit, with its point: whatever recomputes no more at no smaller a batch size won't fit either.
        self._too_large = [
            (one.configuration.engine, point)
            for one in self.observations
            if one.out_of_memory or (one.peak_bytes is not None and one.peak_bytes > limit_bytes)
            if (point := space.point(one.configuration)) is not None
        ]

    def of(self, configuration: Configuration) -> Observation | None:
        """Give what is known of a configuration."""
        return self._by_key.get(configuration.key)

    def is_open(self, configuration: Configuration) -> bool:
        """Tell whether a configuration is untried and not without hope."""
        return configuration.key not in self._tried and not self._is_hopeless(configuration)

    def may_win(self, configuration: Configuration) -> bool:
        """Tell whether a configuration could still be the fastest, going by what was measured.

        More recompute at the same batch size is slower, and so is a smaller batch size as long as larger ones were
        found to be faster. So a trial that recomputes no more, at this batch size or at a larger one up to the best
        trial's, bounds it; one with the engine's choices made alike.
        """
        point = self.space.point(configuration)
        if point is None:
            return True
        size = self._size(configuration)
        return not any(
            (size == other_size or size < other_size <= self._best_size)
            and all(point[name] >= other[name] for name in self.space.counts)
            and all(point[name] == other[name] for name in self.space.choices)
            for other_size, other in self._slow
        )

    @property
    def simulates(self) -> bool:
        """Whether expectations come from simulation, near enough to choose by, rather than from the plan table."""
        return self._forecast.peak_bytes(self.space.baseline) is not None

    def peak_bytes(self, configuration: Configuration) -> float:
        """Expect this peak: simulated where that can be, which takes milliseconds, else estimated."""
        simulated = self._forecast.peak_bytes(configuration)
        return self.estimate.peak_bytes(configuration) if simulated is None else simulated

    def recompute_time_s(self, configuration: Configuration) -> float:
        """Expect this much recompute in a step, likewise."""
        simulated = self._forecast.recompute_time_s(configuration)
        return self.estimate.recompute_time_s(configuration) if simulated is None else simulated

    def in_order(self, configurations: Iterable[Configuration]) -> tuple[Configuration, ...]:
        """Order from least to most memory expected, so that running out of it ends a run late."""
        return tuple(sorted(configurations, key=lambda c: (self.peak_bytes(c), -self.recompute_time_s(c), c.key)))

    def _is_hopeless(self, configuration: Configuration) -> bool:
        if self.engine_fails and configuration.engine != "eager":
            return True
        own = self.space.own_batch_size
        if self._by_key and not self.feasible and own is not None and self._size(configuration) > own:
            return True
        point = self.space.point(configuration)
        if point is not None and any(
            engine == configuration.engine and self._needs_no_less(point, other) for engine, other in self._too_large
        ):
            return True
        return self.estimate.is_calibrated and self.estimate.peak_bytes(configuration) > _HOPELESS * self.limit_bytes

    def _size(self, configuration: Configuration) -> int:
        return self.space.batch_size_of(configuration) or 0

    def _needs_no_less(self, point: Point, other: Point) -> bool:
        if any(point[name] != other[name] for name in self.space.choices):
            return False
        is_larger = BATCH_SIZE not in point or point[BATCH_SIZE] >= other[BATCH_SIZE]
        return is_larger and all(point[name] <= other[name] for name in self.space.counts)
