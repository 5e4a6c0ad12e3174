"""Plans, and ``mem_opt.json``: ONNX Runtime's words and file format.

A plan is ``"<cluster_id>:<strategy>:<count>"``; the file is a JSON list of such strings, where an entry may also be a
comma-joined combination. Source: ONNX Runtime's Memory Optimizer documentation, release 1.19.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import PlanError


class Quota:
    """Counts each cluster's occurrences, over all graphs in execution order, and tells which are to be recomputed."""

    def __init__(self, plans: Iterable[Plan]) -> None:
        self._plans: dict[tuple[str, int], dict[str, Plan]] = {}
        for plan in plans:
            if plan.strategy != NONE and plan.count != 0:
                self._plans.setdefault((plan.cluster, plan.strategy), {})[plan.cluster_id] = plan
        self._seen: Counter[tuple[str, int]] = Counter()

    def copy(self) -> Quota:
        """Return one that goes on counting from here by itself."""
        copied = Quota(())
        copied._plans, copied._seen = self._plans, self._seen.copy()
        return copied

    def take(self, cluster_id: str, strategy: int, *, continues: bool = False) -> bool:
        """Count the next occurrence of a cluster with this strategy, and return whether it is to be recomputed.

        What ``continues`` is another part of the occurrence before.
        """
        key = cluster_id, strategy
        self._seen[key] += not continues
        return any(_includes(plan, self._seen[key]) for plan in self._plans.get(key, {}).values())

    def unmatched(self) -> tuple[Plan, ...]:
        """Return the plans that no occurrence was found for."""
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


NONE, RECOMPUTE, COMPROMISED = 0, 1, 2
ALL = -1
_FORM = "a plan is '<cluster_id>:<strategy>:<count>', as in 'gelu+:1:-1'"


@dataclass(frozen=True, order=True)
class Plan:
    """The plan to recompute the first ``count`` occurrences of a cluster, in execution order; -1 means all.

    ``strategy`` is 0 (none), 1 (recompute) or 2 (stash a smaller tensor, recompute the rest). A cluster id that ends
    in ``/k`` stands for every k-th occurrence of the cluster before it: ``Block+/3`` for the third, the sixth, ....
    """

    cluster_id: str
    strategy: int
    count: int

    def __post_init__(self) -> None:
        if not self.cluster_id or any(c in self.cluster_id for c in ":,"):
            problem = f"bad cluster id {self.cluster_id!r}: it must be non-empty, without ':' and ','"
            raise PlanError(problem, hint=_FORM)
        if self.strategy not in (NONE, RECOMPUTE, COMPROMISED):
            raise PlanError(f"bad strategy {self.strategy!r} in a plan for {self.cluster_id!r}: 0, 1 or 2", hint=_FORM)
        if self.count < ALL:
            raise PlanError(f"bad count {self.count!r} in a plan for {self.cluster_id!r}: -1 or >= 0", hint=_FORM)

    def __str__(self) -> str:
        return f"{self.cluster_id}:{self.strategy}:{self.count}"

    @property
    def cluster(self) -> str:
        """Return the cluster itself, without the ``/k``."""
        return self.cluster_id if self.every == 1 else self.cluster_id.rpartition("/")[0]

    @property
    def every(self) -> int:
        """Return of how many occurrences of the cluster each time one is meant, the last."""
        before, _, number = self.cluster_id.rpartition("/")
        return int(number) if before and number.isascii() and number.isdigit() and int(number) else 1

    def applies_to(self, occurrences: int) -> int:
        """Return how many of ``occurrences`` of the cluster this plan recomputes."""
        if self.strategy == NONE:
            return 0
        occurrences //= self.every
        return occurrences if self.count == ALL else min(self.count, occurrences)


def parse_plan(text: str) -> Plan:
    """Read one plan; PlanError says what is wrong with it."""
    fields = text.strip().split(":")
    if len(fields) != 3:
        raise PlanError(f"malformed plan {text!r}: {len(fields)} field(s) between colons instead of 3", hint=_FORM)
    cluster_id, strategy, count = fields
    try:
        return Plan(cluster_id.strip(), int(strategy), int(count))
    except PlanError:
        raise
    except ValueError:
        raise PlanError(f"malformed plan {text!r}: strategy and count must be integers", hint=_FORM) from None


def parse_plans(entries: Iterable[str]) -> tuple[Plan, ...]:
    """Read plans and comma-joined combinations; of two plans for one cluster the last one wins, as in ONNX Runtime."""
    chosen: dict[str, Plan] = {}
    for entry in entries:
        for text in entry.split(","):
            plan = parse_plan(text)
            chosen[plan.cluster_id] = plan
    return tuple(chosen[cluster_id] for cluster_id in sorted(chosen))


def level_plans(level: int, layers: Iterable[str], compromised: Iterable[str]) -> tuple[Plan, ...]:
    """Return the plans of ONNX Runtime's levels: none at 0, every layer at 1, at 2 compromised recomputes as well."""
    plans = [Plan(cluster_id, RECOMPUTE, ALL) for cluster_id in sorted(set(layers)) if level >= 1]
    plans += [Plan(cluster_id, COMPROMISED, ALL) for cluster_id in sorted(set(compromised)) if level >= 2]
    return tuple(plans)


def load_mem_opt(text: str, *, where: str = "mem_opt.json") -> tuple[Plan, ...]:
    """Read the contents of a ``mem_opt.json``."""
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise PlanError(f"{where}: not JSON: {error}") from None
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise PlanError(f"{where}: expected a list of plan strings, got {str(entries)[:80]!r}", hint=_FORM)
    for number, entry in enumerate(entries, start=1):
        try:
            parse_plans([entry])
        except PlanError as error:
            raise PlanError(f"{where}, entry {number}: {error}", hint=error.hint) from None
    return parse_plans(entries)


def dump_mem_opt(plans: Iterable[Plan]) -> str:
    """Write the contents of a ``mem_opt.json``: one plan a line, so that a diff reads well."""
    return json.dumps([str(plan) for plan in plans], indent=2) + "\n"


def join_plans(plans: Iterable[Plan]) -> str:
    """Write plans as a combination; ``parse_plans`` of this one entry reads them, merged."""
    return ",".join(map(str, plans))
