"""The whole space as numbers, made once for a study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..records.configuration import Configuration
from .space import BATCH_SIZE, LEVEL, Point, Space

Origin = Literal["baseline", "given", "sampler", "recovered"]


@dataclass(frozen=True)
class Observation:
    """A trial as the search sees it.

    Attributes:
        state: ``scored`` once speed and memory are known, out of memory included (no samples, not feasible).
        feasible: It may be the answer, as far as memory and its repetitions go.
        fails: A repetition of it failed by other than memory.
        steps_seen: Optimizer steps after which the script ended, too few to be measured.
        timed_out: A deadline passed.
        no_effect: Another batch size than the script's own was not what batches had, whatever the plans and choices.
        needed_bytes: What was asked for at the least where memory ran out; None where that is unknown.
    """

    number: int
    configuration: Configuration
    origin: Origin
    state: Literal["running", "scored", "failed"]
    samples_per_s: float = 0.0
    peak_bytes: float | None = None
    feasible: bool = False
    out_of_memory: bool = False
    fails: bool = False
    steps_seen: int = 0
    timed_out: bool = False
    no_effect: bool = False
    needed_bytes: float | None = None


Indices = npt.NDArray[np.intp]


class Candidates:
    """Every configuration of a space, by its place in it.

    Attributes:
        values: (n, parameters), in the order of the space's parameters.
        batch_sizes: (n,); all 0 where they are not searched.
        between: (n,), whether that size is looked at around the best only.
        planned: (n,), whether anything is recomputed.
        at_level: (n,), whether a level chooses what is recomputed.
        chosen: (n, choices), whether each choice of the space is made otherwise than by default.
        compiled: (n,), whether a choice has another engine run it, which takes a run of its own for each.
        kinds: (n,), equal for what one run can measure: one batch size, one engine, the same choices.
        spread: Places all over the space: at the smallest, the largest and a middle batch size nothing recomputed,
            everything, and each cluster by itself.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        points = list(space.points())
        names = list(space.parameters)
        self.values: npt.NDArray[np.int64] = np.array(points, dtype=np.int64).reshape(len(points), len(names))
        recomputes = [name not in (BATCH_SIZE, *space.choices) for name in names]
        self.planned = (self.values > 0)[:, recomputes].any(axis=1)
        self.batch_sizes: npt.NDArray[np.int64] = np.zeros(len(points), dtype=np.int64)
        if BATCH_SIZE in names:
            self.batch_sizes = self.values[:, names.index(BATCH_SIZE)]
        self.between = np.isin(self.batch_sizes, space.between)
        self.at_level: npt.NDArray[np.bool_] = np.zeros(len(points), dtype=bool)
        if LEVEL in names:
            self.at_level = self.values[:, names.index(LEVEL)] > 0
        defaults = [space.plain_point[name] for name in space.choices]
        self.chosen = self.values[:, [names.index(name) for name in space.choices]] != defaults
        others = [names.index(name) for name in space.other_engines]
        self.compiled = (self.values[:, others] > 0).any(axis=1)
        self.kinds = 2 * self.batch_sizes + self.planned
        for name, values in space.choices.items():
            self.kinds = (max(values) + 1) * self.kinds + self.values[:, names.index(name)]
        self._index = {point: number for number, point in enumerate(points)}
        self.spread = [self._index[point] for point in dict.fromkeys(self._spread()) if point in self._index]

    def __len__(self) -> int:
        return len(self.values)

    def configuration(self, index: int) -> Configuration:
        """Return the configuration at a place."""
        return self._space.configuration(self.point(index))

    def point(self, index: int) -> Point:
        """Return the point at a place."""
        return dict(zip(self._space.parameters, self.values[index].tolist(), strict=True))

    def index(self, configuration: Configuration) -> int | None:
        """Return the place of a configuration; None if it may not be tried."""
        point = self._space.point(configuration)
        # Of two engines that share a point, one is the space's.
        if point is None or self._space.configuration(point).key != configuration.key:
            return None
        return self._index.get(tuple(point.values()))

    def needing_no_less(self, configuration: Configuration) -> npt.NDArray[np.bool_]:
        """Return which candidates have no smaller batch, recompute nothing more and make the same choices, (n,)."""
        point = self._space.point(configuration)
        assert point is not None, f"{configuration} is not in the space"
        grows = np.array([name == BATCH_SIZE for name in point], dtype=bool)
        values = np.array(list(point.values()), dtype=np.int64)
        needs = np.where(grows, self.values >= values, self.values <= values)
        chosen = [name in self._space.choices for name in point]
        needs[:, chosen] = (self.values == values)[:, chosen]
        return np.asarray(needs.all(axis=1))

    def nearest(self, drawn: Mapping[str, float], allowed: npt.NDArray[np.bool_]) -> int:
        """Return the place of the allowed candidate the fewest single steps of parameters away from what was drawn."""
        steps = np.zeros(len(self))
        for (name, known), column in zip(self._space.parameters.items(), self.values.T, strict=True):
            value, values = drawn.get(name, known[0]), np.array(known)
            distances = np.abs(np.log(values / value) if name == BATCH_SIZE else values - value)
            steps += np.abs(np.searchsorted(values, column) - np.argmin(distances))
        return int(np.argmin(np.where(allowed, steps, np.inf)))

    def _spread(self) -> Iterator[tuple[int, ...]]:
        parameters = self._space.parameters
        sizes = parameters.get(BATCH_SIZE, ())
        for size in dict.fromkeys((sizes[0], sizes[len(sizes) // 2], sizes[-1]) if sizes else (0,)):
            nothing = dict.fromkeys(parameters, 0) | self._space.plain_with_heap | ({BATCH_SIZE: size} if sizes else {})
            yield tuple(nothing.values())
            kept = (BATCH_SIZE, *self._space.choices)
            everything = {name: values[-1] for name, values in parameters.items() if name not in kept}
            yield tuple((nothing | everything).values())
            for name, count in everything.items():
                yield tuple((nothing | {name: count}).values())
