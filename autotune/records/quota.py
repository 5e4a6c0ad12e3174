"""Quotas of plans: the occurrences of each cluster that a set of plans recomputes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .plan import ALL, NONE, Plan


class Quota:
    """Counts each cluster's occurrences, over all graphs in execution order, and tells which are to be recomputed."""

    def __init__(self, plans: Iterable[Plan]) -> None:
        self._plans: dict[tuple[str, int], dict[str, Plan]] = {}
        for plan in plans:
            if plan.strategy != NONE and plan.count != 0:
                self._plans.setdefault((plan.cluster, plan.strategy), {})[plan.cluster_id] = plan
        self._seen: Counter[tuple[str, int]] = Counter()

    def take(self, cluster_id: str, strategy: int) -> bool:
        """Count the next occurrence of a cluster with this strategy, and return whether it is to be recomputed."""
        key = cluster_id, strategy
        self._seen[key] += 1
        return any(_includes(plan, self._seen[key]) for plan in self._plans.get(key, {}).values())

    def unmatched(self) -> tuple[Plan, ...]:
        """The plans that no occurrence was found for."""
        return tuple(
            plan
            for key, plans in self._plans.items()
            for plan in plans.values()
            if not any(_includes(plan, number) for number in range(1, self._seen[key] + 1))
        )


def _includes(plan: Plan, number: int) -> bool:
    """Return whether a plan recomputes the occurrence of this number, the first being 1."""
    taken, rest = divmod(number, plan.every)
    return rest == 0 and (plan.count == ALL or taken <= plan.count)
