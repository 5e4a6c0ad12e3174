"""Which occurrences of a cluster a set of plans recomputes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .plan import ALL, NONE, Plan

__all__ = ["Quota"]


class Quota:
    """How many occurrences of each cluster are still to be recomputed, counted over all graphs in execution order."""

    def __init__(self, plans: Iterable[Plan]) -> None:
        self._plans = {plan.cluster_id: plan for plan in plans if plan.strategy != NONE and plan.count != 0}
        self._left = {cluster_id: plan.count for cluster_id, plan in self._plans.items()}
        self._matched: Counter[str] = Counter()

    def take(self, cluster_id: str, strategy: int) -> bool:
        """Whether the next occurrence of a cluster, with the strategy that applies to it, is to be recomputed."""
        left = self._left.get(cluster_id, 0)
        if left == 0 or self._plans[cluster_id].strategy != strategy:
            return False
        self._matched[cluster_id] += 1
        if left != ALL:
            self._left[cluster_id] = left - 1
        return True

    def unmatched(self) -> tuple[Plan, ...]:
        """The plans that no occurrence was found for."""
        return tuple(plan for cluster_id, plan in self._plans.items() if not self._matched[cluster_id])
