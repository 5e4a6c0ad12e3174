"""The space of a search: batch sizes, and for each worthwhile cluster how many of its occurrences to recompute.

A *point* is a configuration as the samplers see it: one whole number for each parameter. Parameters are ``batch_size``,
one per cluster id, the level where that varies, and the choices. Points and configurations correspond one to one.
A point of zeros is the script itself at some batch size; at its own, the baseline. Under engines that compile without
any plan, it is the script compiled, and the baseline is no configuration of the space. A choice of another engine is a
parameter, but no choice of the configuration: that is one of the other engine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from ..records.choices import PreloadedHeap, choices_of, engine_choices
from ..records.configuration import Configuration
from ..records.engines import COMPILING_ENGINES, ENGINES, PLAIN_ENGINES, SWITCHING_ENGINES, Engine, plain_engine_of
from ..records.facts import ClusterFacts, Facts
from ..records.plan import ALL, RECOMPUTE, Plan
from ..records.study import Objective, StudySpec
from .given_plans import MOST_CLUSTERS, MOST_LAYER_CLUSTERS, Given, match_given

# How many times the script's own size is looked at by default, up or down: where little is to be had, and elsewhere.
_NEAR, _FAR = 2, 16
# Up to here every size is worth a try; above, multiples of this suit the hardware.
_MULTIPLE = 8
_ANY_SIZE_UP_TO = 16


def _batch_sizes(facts: Facts, spec: StudySpec, own: int, global_batch: int, *, baseline_fits: bool) -> tuple[int, ...]:
    """List in ascending order the divisors of the global batch to keep, if there is one, within the limits.

    Else list the script's own size, its doublings and halvings, and the steps of 1.5 between them. Left out are sizes
    at which the script should end before it can be measured, unless they were asked for.
    """
    # Smaller ones where less memory than the script takes is asked for.
    down = own if not baseline_fits else _NEAR if spec.objective == Objective() else _FAR
    up = _NEAR if spec.objective.goal == "memory" else _FAR
    low, high = spec.batch_sizes or (max(1, own // down), own * up)
    if global_batch:
        return tuple(size for size in range(low, min(high, global_batch) + 1) if global_batch % size == 0)
    sizes = {own, *(spec.batch_sizes or ())}
    octaves = range(-own.bit_length(), high.bit_length() + 1)
    for octave, factor in itertools.product(octaves, (Fraction(1), Fraction(3, 2))):
        if octave != 0 or factor != 1:  # the script's own size is in as it is, and needs no rounded neighbour
            sizes.add(_suiting(own * factor * Fraction(2) ** octave))
    # A batch is never more than all of the data, and a trial needs its least steps.
    most = facts.steps.largest_batch(own)
    if facts.steps.in_all is not None:
        least_steps = spec.least_steps if spec.batch_sizes is None else 1
        most = min(most, own * facts.steps.in_all / least_steps)
    return tuple(sorted(size for size in sizes if low <= size <= high and (size <= most or size == own)))


def between(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """List one size between each two neighbours of ascending sizes, where there is one that suits the hardware."""
    middles = (_suiting(Fraction(low + high, 2)) for low, high in itertools.pairwise(sizes))
    return tuple(middle for middle in middles if middle not in sizes)


def _suiting(size: Fraction) -> int:
    if size <= _ANY_SIZE_UP_TO:
        return math.floor(size)
    return _MULTIPLE * math.floor(size / _MULTIPLE + Fraction(1, 2))


BATCH_SIZE = "batch_size"
LEVEL = "level"
Point = dict[str, int]

# A cluster that saves less than this share of the largest row changes neither peak nor batch size visibly.
_NEGLIGIBLE = 0.01
# So many choices are made at once. What one brings hardly depends on more than a few others, and all of them together
# are more settings than a model of them can go through between two trials.
_MOST_CHOICES = 3
# Half of the occurrences is a setting of its own only where there are some to leave out.
_MIN_FREQUENCY_FOR_HALF = 4


@dataclass(frozen=True)
class Space:
    """The configurations a study may try.

    Attributes:
        batch_sizes: Ascending; none where the script's own is unknown or can't be set.
        counts: For each cluster id the ascending numbers of occurrences to recompute, from 0 to its frequency.
        clusters: The facts behind ``counts``, in the same order.
        given: The plans that somebody brought along; all of its sets are in the space.
        choices: Names of the engine's choices with the ascending values that may be tried.
        switches: Whether one run can measure several sets of plans under the engine.
        levels: Ascending from 0.
        members: Where not every combination may be tried, the values of those that may, as ``parameters`` has them.
        global_batch: What a process takes per optimizer step in every configuration, 0 where the accumulation is left
            alone.
        between: Batch sizes that are looked at around the best only, once the others tell nothing more.
        heap: Choices of another heap that nobody asked for, which all but the baseline make: they change no result,
            and peaks of plans without them do not tell what those free.
    """

    baseline: Configuration
    batch_sizes: tuple[int, ...]
    counts: dict[str, tuple[int, ...]]
    clusters: tuple[ClusterFacts, ...]
    engine: Engine
    given: Given = field(default_factory=Given)
    choices: dict[str, tuple[int, ...]] = field(default_factory=dict)
    switches: bool = True
    levels: tuple[int, ...] = (0,)
    members: frozenset[tuple[int, ...]] | None = None
    global_batch: int = 0
    between: tuple[int, ...] = ()
    heap: tuple[str, ...] = ()

    @cached_property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Return every parameter with its values in ascending order."""
        sizes = {BATCH_SIZE: self.batch_sizes} if self.batch_sizes else {}
        levels = {LEVEL: self.levels} if any(self.levels) else {}
        return sizes | self.counts | self.choices | levels

    @property
    def own_batch_size(self) -> int | None:
        """Return the script's own batch size; None where nobody knows it."""
        return self.baseline.batch_size

    @cached_property
    def plain_point(self) -> Point:
        """Return the point without plans and with every choice at its default; without a batch size."""
        known = choices_of(self.engine)
        return dict.fromkeys(self.counts, 0) | {name: known[name].default for name in self.choices}

    @property
    def plain_with_heap(self) -> Point:
        """Return the same, but with the choices that all but the baseline make."""
        return self.plain_point | dict.fromkeys(self.heap, 1)

    def tells_memory(self, configuration: Configuration) -> bool:
        """Return whether the peak of a configuration tells what those of the space need: see ``heap``."""
        return configuration.key == self.baseline.key or all(map(configuration.makes, self.heap))

    @cached_property
    def rows(self) -> dict[str, ClusterFacts]:
        """Return the facts of each cluster id."""
        return {row.cluster_id: row for row in self.clusters}

    @property
    def plain_engine(self) -> Engine:
        """Return what runs the configurations without plans."""
        return self.engine if self.engine in COMPILING_ENGINES else plain_engine_of(self.engine)

    @cached_property
    def other_engines(self) -> dict[str, Engine]:
        """Return the choices that have another engine run the model, with that engine."""
        return {name: one.engine for name, one in engine_choices(self.engine).items() if name in self.choices}

    @cached_property
    def engines(self) -> frozenset[Engine]:
        """Return the engines of the space's configurations."""
        return frozenset({self.engine, self.plain_engine, *self.other_engines.values()})

    def makes(self, configuration: Configuration, choice: str) -> bool:
        """Return whether a configuration makes a choice otherwise than by default."""
        return configuration.makes(choice) or configuration.engine == self.other_engines.get(choice)

    def shares_runs(self, engine: Engine) -> bool:
        """Return whether one run can measure several sets of plans under an engine of the space."""
        return self.switches and engine not in self.other_engines.values()

    @property
    def num_configurations(self) -> int:
        """Return how many points the space has."""
        return math.prod(map(len, self.parameters.values())) if self.members is None else len(self.members)

    def configuration(self, point: Mapping[str, int]) -> Configuration:
        """Return the configuration of a point; the script untouched at its own batch size is the baseline."""
        plans = tuple(
            Plan(row.cluster_id, row.strategy, ALL if point[row.cluster_id] >= row.frequency else point[row.cluster_id])
            for row in self.clusters
            if point[row.cluster_id] > 0
        )
        batch_size = point[BATCH_SIZE] if BATCH_SIZE in self.parameters else self.own_batch_size
        level = point.get(LEVEL, 0)
        own_engine = self.engine if plans or level else self.plain_engine
        engine = next((other for name, other in self.other_engines.items() if point[name]), own_engine)
        own_choices = [name for name in self.choices if name not in self.other_engines]
        made = sorted(f"{name}={point[name]}" for name in own_choices if point[name] != self.plain_point[name])
        if engine in PLAIN_ENGINES and not made and batch_size == self.own_batch_size:
            return self.baseline
        accumulation = self.global_batch // batch_size if batch_size and batch_size != self.own_batch_size else 0
        return Configuration(engine, tuple(sorted(plans)), level, batch_size, tuple(made), accumulation)

    def point(self, configuration: Configuration) -> Point | None:
        """Return the point of a configuration, of any batch size and counts; None if it varies anything else."""
        point = dict(self.plain_point)
        for name, engine in self.other_engines.items():
            point[name] = int(configuration.engine == engine)
        for choice in configuration.choices:
            name, _, value = choice.partition("=")
            if name not in self.choices:
                return None
            point[name] = int(value)
        for plan in configuration.plans:
            row = self.rows.get(plan.cluster_id)
            if row is None or row.strategy != plan.strategy:
                return None
            point[plan.cluster_id] = plan.applies_to(row.frequency)
        if BATCH_SIZE in self.parameters:
            if configuration.batch_size is None:
                return None
            point = {BATCH_SIZE: configuration.batch_size} | point
        if LEVEL in self.parameters:
            point[LEVEL] = configuration.level
        known = {self.baseline.key, self.configuration(point).key}
        return point if configuration.key in known else None

    def scale(self, configuration: Configuration) -> float:
        """Return the batch size in units of the script's own."""
        size, own = configuration.batch_size, self.own_batch_size
        return size / own if size and own else 1.0

    def plain(self, batch_size: int) -> Configuration:
        """Return the script without plans at a batch size."""
        return self.configuration(self.plain_point | {BATCH_SIZE: batch_size})

    def points(self) -> Iterator[tuple[int, ...]]:
        """Go through the points' values, from the smallest batch size and the least recompute."""
        return iter(sorted(self.members)) if self.members is not None else itertools.product(*self.parameters.values())

    def configurations(self) -> Iterator[Configuration]:
        """Go through the configurations in the order of ``points``."""
        for values in self.points():
            yield self.configuration(dict(zip(self.parameters, values, strict=True)))


def build_space(
    facts: Facts,
    spec: StudySpec,
    *,
    baseline_fits: bool = True,
    with_plans: bool = True,
    unasked: Sequence[str] = (),
) -> Space:
    """Choose what is worth varying: from the plan table the rows that save most, around the script's own batch size.

    Args:
        facts: What discovery found.
        spec: ``batch_sizes`` is the inclusive range to search, None for half to sixteen times the script's own; from a
            sixteenth on for a target, and to twice in search of memory. ``keep_global_batch`` leaves the divisors of
            the script's global batch. ``plans_first`` are in the space, whatever they save.
        baseline_fits: Whether the script as it stands has the memory to be the answer; if not, sizes go down to 1.
        with_plans: Whether plans may be of use.
        unasked: Choices that trials speak for, though the study was not allowed them.
    """
    given = match_given(facts, spec, switches=spec.engine in SWITCHING_ENGINES)
    has_plans = with_plans and spec.engine not in PLAIN_ENGINES
    clusters = _worthwhile(facts.clusters, given.rows) if has_plans else ()
    own = facts.baseline.batch_size
    # What is set has to be seen in the batches that arrive, or trials could not be trusted to have had it.
    can_vary = facts.batch_control.can_set and facts.batch_size is not None
    global_batch = own * (facts.accumulation_control.steps or 0) if own and spec.keep_global_batch and can_vary else 0
    sizes = _batch_sizes(facts, spec, own, global_batch, baseline_fits=baseline_fits) if own and can_vary else ()
    finer = () if global_batch else between(sizes)
    crowded = sum(not row.is_layer for row in clusters) > MOST_CLUSTERS
    choices, known = _choices(facts, spec, unasked), choices_of(spec.engine)
    space = Space(
        baseline=facts.baseline,
        batch_sizes=tuple(sorted((*sizes, *finer))),
        between=finer,
        global_batch=global_batch,
        counts={row.cluster_id: _counts(row, given, crowded=crowded) for row in clusters},
        clusters=clusters,
        engine=spec.engine,
        given=given,
        switches=spec.engine in SWITCHING_ENGINES,
        choices=choices,
        heap=tuple(name for name in choices if name in unasked and isinstance(known[name], PreloadedHeap)),
        levels=ENGINES[spec.engine].levels if clusters else (0,),
    )
    return replace(space, members=_members(space, unasked))


def _choices(facts: Facts, spec: StudySpec, unasked: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the values of choices that are allowed, tried unasked, or free, and that change something here."""
    known = choices_of(spec.engine)
    free = [name for name, one in known.items() if one.is_free and not one.refusal_for(facts)]
    values = {name: known[name].values_for(facts) for name in dict.fromkeys([*spec.choices, *unasked, *free])}
    several = {name: one for name, one in values.items() if len(one) > 1}

    def is_there(name: str) -> bool:
        return not name or name in several or known[name].default > 0

    return {name: one for name, one in several.items() if is_there(known[name].needs)}


def _members(space: Space, unasked: Sequence[str]) -> frozenset[tuple[int, ...]] | None:
    """Return the points that may be tried; None where all may.

    Left out are two parameters above 0 that exclude each other, a choice without the one that it needs, points of more
    than ``_MOST_CHOICES`` choices, not counting those that are tried unasked, and what ``Space.heap`` rules out.
    """
    known, choices, names = choices_of(space.engine), space.choices, list(space.parameters)
    # What a level recomputes an engine chooses by itself.
    pairs = [(name, LEVEL) for name in space.counts] if any(space.levels) else []
    pairs += [(one, other) for one in choices for other in choices if other in known[one].excludes]
    # A choice may rename the clusters of operators; blocks keep their names.
    renaming = [name for name in choices if known[name].renames_clusters]
    pairs += [(row.cluster_id, name) for row in space.clusters if not row.is_layer for name in renaming]
    apart = [(names.index(one), names.index(other)) for one, other in pairs]
    chosen = {name: (names.index(name), known[name].default) for name in choices}
    needing = [(*chosen[name], chosen[known[name].needs][0]) for name in choices if known[name].needs in choices]
    counted = [chosen[name] for name in choices if name not in unasked]
    if not apart and not needing and not space.heap and len(counted) <= _MOST_CHOICES:
        return None
    heap = [names.index(name) for name in space.heap]
    baseline = tuple((space.point(space.baseline) or {}).values())
    return frozenset(
        point
        for point in space.points()
        if not any(point[one] and point[other] for one, other in apart)
        and not any(point[one] != default and not point[needed] for one, default, needed in needing)
        and sum(point[place] != default for place, default in counted) <= _MOST_CHOICES
        and (point == baseline or all(point[place] for place in heap))
    )


def _worthwhile(rows: tuple[ClusterFacts, ...], given: tuple[ClusterFacts, ...]) -> tuple[ClusterFacts, ...]:
    """Return the layer clusters that save most, and the others that are best by ranks of saving and of cost."""
    first: dict[str, ClusterFacts] = {}
    for row in rows:
        # One strategy per cluster: plain recompute where the table offers several.
        if row.cluster_id not in first or (row.strategy == RECOMPUTE != first[row.cluster_id].strategy):
            first[row.cluster_id] = row
    first |= {row.cluster_id: row for row in given}
    useful = [row for row in first.values() if row.saving_bytes > 0 and row.frequency > 0]
    if not useful:
        return ()
    floor = _NEGLIGIBLE * max(row.saving_bytes for row in useful)
    useful = _compatible([row for row in useful if row.saving_bytes >= floor], given)
    layers = sorted((row for row in useful if row.is_layer), key=lambda row: (-row.saving_bytes, row.cluster_id))
    others = [row for row in useful if not row.is_layer]
    by_size = sorted(others, key=lambda row: (-row.saving_bytes, row.cluster_id))
    by_rate = sorted(by_size, key=lambda row: row.recompute_time_s / row.saving_bytes)
    others.sort(key=lambda row: (by_size.index(row) + by_rate.index(row), row.cluster_id))
    given_layers = [row for row in given if row.is_layer]
    given_others = [row for row in given if not row.is_layer]
    return (*_filled(given_layers, layers, MOST_LAYER_CLUSTERS), *_filled(given_others, others, MOST_CLUSTERS))


def _compatible(rows: list[ClusterFacts], given: tuple[ClusterFacts, ...]) -> list[ClusterFacts]:
    """Leave out the rows that exclude one that is given or saves more: a set with both fails."""
    kept: list[ClusterFacts] = []
    for row in sorted(rows, key=lambda row: (row not in given, -row.saving_bytes, row.cluster_id)):
        if not any(row.cluster_id in other.excludes for other in kept):
            kept.append(row)
    return kept


def _filled(given: list[ClusterFacts], best: list[ClusterFacts], most: int) -> list[ClusterFacts]:
    return [*given, *(row for row in best if row not in given)][: max(most, len(given))]


def _counts(row: ClusterFacts, given: Given, *, crowded: bool) -> tuple[int, ...]:
    """List none, all, the given counts, the quarters of a layer, and the half of others unless it is crowded."""
    if row.is_indivisible:
        return (0, row.frequency)
    asked = {
        plan.applies_to(row.frequency) for plans in given.sets for plan in plans if plan.cluster_id == row.cluster_id
    }
    if row.is_layer:
        quarters = (Fraction(row.frequency * quarter, 4) for quarter in range(5))
        asked |= {math.floor(value + Fraction(1, 2)) for value in quarters}
    elif row.frequency >= _MIN_FREQUENCY_FOR_HALF and not crowded:
        asked.add(row.frequency // 2)
    return tuple(sorted({0, row.frequency} | asked))
