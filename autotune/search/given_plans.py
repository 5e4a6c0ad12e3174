"""Plans that somebody brought along, from a training log or a ``mem_opt.json``, held against what a script has."""

from __future__ import annotations

from dataclasses import dataclass

from ..records.facts import ClusterFacts, Facts
from ..records.plan import NONE, Plan, parse_plans
from ..records.study import StudySpec

# Enough to hold every useful choice of the models seen so far, and few enough for a search of some dozens of trials.
MOST_CLUSTERS = 6
MOST_LAYER_CLUSTERS = 2
# What somebody trained with is tried whole up to here; it holds all that ONNX Runtime's levels switch on at once.
_MOST_TOGETHER = 12
# One run of an engine that switches plans; under others each set takes a run of its own.
_MOST_SETS = 6
_MOST_SETS_ALONE = 3


@dataclass(frozen=True)
class Given:
    """The plans that somebody brought along, matched with what a script has.

    Attributes:
        sets: Tried first, in this order, each the plans of one configuration.
        rows: The facts of their clusters.
        unknown: Plans for which the script has no cluster that saves memory with that strategy.
        passed_over: Sets left out for lack of room, or as an earlier set has another strategy for a cluster.
    """

    sets: tuple[tuple[Plan, ...], ...] = ()
    rows: tuple[ClusterFacts, ...] = ()
    unknown: tuple[Plan, ...] = ()
    passed_over: tuple[tuple[Plan, ...], ...] = ()


def match_given(facts: Facts, spec: StudySpec, *, switches: bool) -> Given:
    """Match ``spec.plans_first`` with the script's clusters, by name and strategy.

    The first set is taken with all of its clusters, others as long as the search stays as small as without them.
    """
    known = {(row.cluster_id, row.strategy): row for row in facts.clusters if row.frequency and row.saving_bytes > 0}
    matching: dict[tuple[Plan, ...], None] = {}
    unknown: dict[Plan, None] = {}
    for entry in spec.plans_first:
        asked = [plan for plan in parse_plans([entry]) if plan.strategy != NONE and plan.count != 0]
        unknown |= dict.fromkeys(plan for plan in asked if (plan.cluster_id, plan.strategy) not in known)
        if there := tuple(plan for plan in asked if plan not in unknown):
            matching[there] = None
    sets: list[tuple[Plan, ...]] = []
    chosen: dict[str, ClusterFacts] = {}
    for plans in matching:
        rows = {plan.cluster_id: known[plan.cluster_id, plan.strategy] for plan in plans}
        # One strategy per cluster: that of the set which comes first.
        agrees = all(chosen.get(name, row) == row for name, row in rows.items())
        if agrees and len(sets) < (_MOST_SETS if switches else _MOST_SETS_ALONE) and _has_room(chosen, rows):
            sets.append(plans)
            chosen |= rows
    passed_over = tuple(plans for plans in matching if plans not in sets)
    return Given(tuple(sets), tuple(chosen.values()), tuple(unknown), passed_over)


def _has_room(chosen: dict[str, ClusterFacts], rows: dict[str, ClusterFacts]) -> bool:
    if chosen.keys() >= rows.keys():
        return True
    is_layer = [row.is_layer for row in (chosen | rows).values()]
    most = MOST_CLUSTERS if chosen else _MOST_TOGETHER
    return is_layer.count(True) <= MOST_LAYER_CLUSTERS and is_layer.count(False) <= most
