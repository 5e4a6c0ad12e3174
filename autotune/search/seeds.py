"""The first runs of a study, chosen by reason rather than by a sampler.

In this order, each stage looking at what the ones before it found; before all of them, at the script's own batch size,
the plans that somebody brought along:

1. larger batches without plans, doubling until one does not fit or more samples per batch bring no more speed;
2. the sizes between the largest that fits and the smallest that does not;
3. at the script's own batch size all layers, and greedy sets of plans at several depths (the deepest alone where each
   set takes a run of its own);
4. where memory, not speed, ended the doubling: batch sizes beyond it with as few plans as should make them fit;
5. the fastest so far with each choice of the engine made otherwise, where the user allows any.

Where the baseline itself does not fit, the plans that should make it fit come first if simulation can tell them, then
stage 3, then smaller batches and the least memory there is until something fits, then stages 4 and 5. Where the
script's own batch size may not be searched, the nearest one stands for it.

Nothing is kept between calls: the stages follow from the outcomes, so a resumed study goes on where it stood.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Literal

from ..records import Configuration
from .knowledge import Knowledge, Observation
from .space import BATCH_SIZE, Point

__all__ = ["next_seeds"]

_End = Literal["memory", "speed", "range", "open"]

_RUN_SIZE = 6
# Less than this share of speed is noise, and a larger batch that brings no more is not followed further.
_RISE = 1.02
# A seed beyond the batch sizes that fit without plans may miss the limit by this much and still be tried: the
# expectation is rough, and the run ends with it.
_NEAR_MISS = 1.1
# Of the limit: what to fit plans into.
_SHARES = (1.0, 0.95, 0.9)
# Below this a recompute costs as good as nothing, and the largest saving goes first.
_LEAST_RECOMPUTE_S = 1e-5
# How often plans are tried at a batch size before the next larger, where each takes a run of its own.
_ATTEMPTS = 3


def next_seeds(knowledge: Knowledge) -> tuple[Configuration, ...]:
    """Choose the next seeds: one run, from least to most memory expected; empty once the seeds are done."""
    baseline = knowledge.of(knowledge.space.baseline)
    stages: tuple[Callable[[Knowledge], list[Configuration]], ...]
    if baseline is not None and not baseline.feasible:
        stages = (_given, _simulated, _own_batch_size, _smaller_batch_sizes, _least_memory, _beyond, _choices)
    else:
        stages = (_given, _larger_batch_sizes, _between, _own_batch_size, _beyond, _choices)
    for stage in stages:
        chosen = [configuration for configuration in stage(knowledge) if knowledge.is_open(configuration)]
        if chosen:
            return knowledge.in_order(chosen)
    return ()


def _given(knowledge: Knowledge) -> list[Configuration]:
    rows = knowledge.space.rows
    points = (
        {plan.cluster_id: plan.applies_to(rows[plan.cluster_id].frequency) for plan in plans}
        for plans in knowledge.space.given.sets
    )
    return [_at(knowledge, _home(knowledge), point) for point in points]


def _larger_batch_sizes(knowledge: Knowledge) -> list[Configuration]:
    following = _climb(knowledge)[2]
    return [] if following is None else [following]


def _between(knowledge: Knowledge) -> list[Configuration]:
    top, ended, _ = _climb(knowledge)
    if ended != "memory" or top is None:
        return []
    sizes = _sizes(knowledge)
    too_large = [size for size in _doublings(knowledge) if size > top]
    for size in reversed([size for size in sizes if top < size < min(too_large, default=math.inf)]):
        if knowledge.is_open(knowledge.space.plain(size)):
            return [knowledge.space.plain(size)]
    return []


def _own_batch_size(knowledge: Knowledge) -> list[Configuration]:
    space = knowledge.space
    if not space.counts:
        return []
    points = _greedy_points(knowledge)
    wanted = {1, 2, math.ceil(len(points) / 2), len(points)} if space.switches else {len(points)}
    depths = sorted(wanted & set(range(1, len(points) + 1)))
    chosen = [points[depth - 1] for depth in depths]
    layers = {row.cluster_id: row.frequency for row in space.clusters if row.is_layer}
    if layers:
        chosen += [layers] if not points else [layers, layers | points[-1]]
    return [_at(knowledge, _home(knowledge), point) for point in chosen][:_RUN_SIZE]


def _simulated(knowledge: Knowledge) -> list[Configuration]:
    """What should fit at the script's own batch size with less recompute than what is known to."""
    if not knowledge.simulates or not knowledge.space.counts:
        return []
    home, space = _home(knowledge), knowledge.space
    size = space.batch_size_of(_at(knowledge, home, {}))
    here = [one for one in knowledge.feasible if space.batch_size_of(one.configuration) == size]
    least_s = min((knowledge.recompute_time_s(one.configuration) for one in here), default=math.inf)
    less = [one for one in _fitting(knowledge, home) if knowledge.recompute_time_s(one) < least_s]
    # What should just miss the limit may come along, but is not worth a run of its own.
    return less if any(knowledge.peak_bytes(one) <= knowledge.limit_bytes for one in less) else []


def _smaller_batch_sizes(knowledge: Knowledge) -> list[Configuration]:
    home = _home(knowledge)
    if knowledge.feasible or home is None:
        return []
    smaller = (knowledge.space.plain(size) for size in reversed(_sizes(knowledge)) if size < home)
    return list(itertools.islice(filter(knowledge.is_open, smaller), 1))


def _least_memory(knowledge: Knowledge) -> list[Configuration]:
    if knowledge.feasible or not knowledge.space.counts:
        return []
    size = min(_sizes(knowledge), default=None)
    return [_at(knowledge, size, {row.cluster_id: row.frequency for row in knowledge.space.clusters})]


def _beyond(knowledge: Knowledge) -> list[Configuration]:
    if _climb(knowledge)[1] != "memory" or not knowledge.space.counts:
        return []
    space, sizes = knowledge.space, _sizes(knowledge)
    fitting = [space.batch_size_of(one.configuration) or 0 for one in knowledge.feasible]
    # Without a batch size that fits as it is, begin at the smallest one that fits with plans.
    reached = max((size for size in sizes if _fits_plain(knowledge, size)), default=min(fitting, default=0) - 1)
    for size in (size for size in sizes if size > reached):
        here = [
            one
            for one in knowledge.observations
            if one.configuration.plans and space.batch_size_of(one.configuration) == size
        ]
        if not here:
            return _fitting(knowledge, size)
        if not space.switches and len(here) < _ATTEMPTS and not any(one.feasible for one in here):
            # What did not fit has corrected the expectation meanwhile.
            return _fitting(knowledge, size)
        smaller = [one for one in knowledge.feasible if (space.batch_size_of(one.configuration) or 0) < size]
        before = max((one.samples_per_s for one in smaller), default=0.0)
        # Not a gain but a loss ends the climb: the next size may pay again for layers that this one had to recompute.
        is_known = all(one.state != "running" for one in here)
        if is_known and not any(one.feasible and one.samples_per_s * _RISE >= before for one in here):
            return []
    return []


def _choices(knowledge: Knowledge) -> list[Configuration]:
    """The fastest of the engine's with one choice made otherwise."""
    space = knowledge.space
    seen = [one for one in knowledge.feasible if one.configuration.engine == space.engine]
    best = max((one for one in seen if not one.configuration.choices), key=lambda one: one.samples_per_s, default=None)
    point = None if best is None else space.point(best.configuration)
    if point is None:
        return []
    otherwise = [space.configuration(point | {name: 1 - point[name]}) for name in space.choices]
    return [one for one in otherwise if knowledge.is_open(one)][:1]


def _fitting(knowledge: Knowledge, size: int | None) -> list[Configuration]:
    """Choose plans for a batch size: the least recompute expected to fit, also with room to spare; a near miss; all."""
    expected, limit = knowledge.peak_bytes, knowledge.limit_bytes
    candidates = {
        configuration.key: configuration
        for point in (*_combinations(knowledge), *_frugal_points(knowledge, size))
        if knowledge.is_open(configuration := _at(knowledge, size, point)) and configuration.plans
    }
    by_cost = sorted(candidates.values(), key=lambda c: (knowledge.recompute_time_s(c), c.key))
    # What fits with something to spare is there for figures that scatter: who just passes the limit once is out.
    fitting = [next((c for c in by_cost if expected(c) <= share * limit), None) for share in _SHARES]
    near = [c for c in by_cost if limit < expected(c) <= _NEAR_MISS * limit]
    chosen = (
        [c for c in fitting if c is not None]
        + near[-1:]
        + [c for c in by_cost if len(c.plans) == len(knowledge.space.counts)][-1:]
    )
    distinct = list({configuration.key: configuration for configuration in chosen}.values())
    # One alone is the one most likely to be the best: the others are there since a run has room for them.
    return distinct if knowledge.space.switches else distinct[:1]


def _climb(knowledge: Knowledge) -> tuple[int | None, _End, Configuration | None]:
    """Walk the doublings without plans as far as they are known.

    Returns:
        The largest doubling that fits; what ended the walk (``range``: no larger size is allowed, or the script does
        not run with one; ``open``: nothing yet); the configuration to try next.
    """
    space = knowledge.space
    before: Observation | None = None
    top: int | None = None
    for size in _doublings(knowledge):
        configuration = space.plain(size)
        here = knowledge.of(configuration)
        if here is None:
            if not knowledge.is_open(configuration):
                return top, "memory", None
            return top, "open", configuration
        if here.state == "running":
            return top, "open", None
        if here.state == "failed":
            return top, "range", None
        if not here.feasible:
            return top, "memory", None
        if before is not None and here.samples_per_s < _RISE * before.samples_per_s:
            return size, "speed", None
        before, top = here, size
    return top, "range", None


def _home(knowledge: Knowledge) -> int | None:
    """The script's own batch size, or the nearest one allowed; None where it is not searched."""
    sizes, own = _sizes(knowledge), knowledge.space.own_batch_size
    return None if own is None else min(sizes, key=lambda size: abs(math.log(size / own)), default=None)


def _doublings(knowledge: Knowledge) -> list[int]:
    """The sizes nearest to the doublings of where the search begins; none where sizes aren't searched."""
    sizes, home = _sizes(knowledge), _home(knowledge)
    if home is None:
        return []
    doublings = [home]
    while 2 * doublings[-1] <= 1.25 * sizes[-1]:
        wanted = 2 * doublings[-1]
        larger = (size for size in sizes if size > doublings[-1])
        doublings.append(min(larger, key=lambda size: abs(math.log(size / wanted))))
    return doublings


def _fits_plain(knowledge: Knowledge, size: int) -> bool:
    here = knowledge.of(knowledge.space.plain(size))
    return here is not None and here.feasible


def _greedy_points(knowledge: Knowledge) -> list[Point]:
    """Sets of whole clusters, each adding the next best by bytes saved per second of recompute; layers left out."""
    rows = sorted(
        (row for row in knowledge.space.clusters if not row.is_layer),
        key=lambda row: (row.recompute_time_s / row.saving_bytes, row.cluster_id),
    )
    return [{row.cluster_id: row.frequency for row in rows[:depth]} for depth in range(1, len(rows) + 1)]


def _combinations(knowledge: Knowledge) -> list[Point]:
    """Every number of layers with every depth of the greedy sets."""
    space = knowledge.space
    layers = [row.cluster_id for row in space.clusters if row.is_layer][:1]
    layer_points = [{name: count} for name in layers for count in space.counts[name]] or [{}]
    return [one | other for one, other in itertools.product(layer_points, [{}, *_greedy_points(knowledge)])]


def _frugal_points(knowledge: Knowledge, size: int | None) -> list[Point]:
    """Where simulation tells, for the limit and a little below it: the plans that fit it with the least recompute.

    Found greedily: the next best count of a plan by bytes saved per second until it fits, then without what turns out
    not to be needed.
    """
    if not knowledge.simulates:
        return []
    return [_frugal_point(knowledge, size, share * knowledge.limit_bytes) for share in _SHARES]


def _frugal_point(knowledge: Knowledge, size: int | None, limit_bytes: float) -> Point:
    def figures(point: Point) -> tuple[float, float]:
        configuration = _at(knowledge, size, point)
        return knowledge.peak_bytes(configuration), knowledge.recompute_time_s(configuration)

    point: Point = {}
    peak, time_s = figures(point)
    while peak > limit_bytes:
        best, best_value = None, 0.0
        for name, counts in knowledge.space.counts.items():
            for count in (count for count in counts if count > point.get(name, 0)):
                less, longer_s = figures(point | {name: count})
                value = (peak - less) / max(longer_s - time_s, _LEAST_RECOMPUTE_S)
                if value > best_value:
                    best, best_value = point | {name: count}, value
        if best is None:
            break
        point, (peak, time_s) = best, figures(best)
    for name in list(point):
        for count in knowledge.space.counts[name]:
            if count < point[name] and figures(point | {name: count})[0] <= limit_bytes:
                point |= {name: count}
                break
    return point


def _at(knowledge: Knowledge, batch_size: int | None, point: Point) -> Configuration:
    full = knowledge.space.plain_point | point
    return knowledge.space.configuration(full if batch_size is None else full | {BATCH_SIZE: batch_size})


def _sizes(knowledge: Knowledge) -> tuple[int, ...]:
    return knowledge.space.parameters.get(BATCH_SIZE, ())
