"""Proof that a configuration trains as the script does: what was compared, and how much it differs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from .configuration import Configuration

ValueGroup = Literal["losses", "gradients", "buffers", "counters", "random", "outputs"]
"""The values of a step that a proof compares; of a model that is not trained only ``outputs``.

``gradients`` are those that the optimizer used, ``buffers`` those after the step. ``counters`` are buffers of whole
numbers, where rounding excuses no difference. ``random`` is the state of the random generators.
"""

GROUPS: tuple[ValueGroup, ...] = get_args(ValueGroup)

# What a step computes. The state of the random generators is told beside it: the next step's masks follow from it.
_COMPUTED: tuple[ValueGroup, ...] = ("losses", "gradients", "buffers", "counters", "outputs")


@dataclass(frozen=True)
class GroupDifference:
    """The difference of one group of values between two runs, over all steps and processes.

    ``differing`` values differ in at least one bit. ``name`` is the value that differs most, in ``step``, counted from
    1. ``absolute`` is its largest difference. ``relative`` is the same over the largest value of the group in the other
    run; of a model over that of the output; of a buffer over that of the buffer, at least 0.001. Both are None where
    the difference has no size: the value is missing in one run, not finite, or the state of a generator. ``relative``
    is None as well where that largest value is zero. ``rank`` is that of the process which differs most, None where one
    process alone was compared.
    """

    group: ValueGroup
    compared: int = 0
    differing: int = 0
    name: str = ""
    step: int = 0
    absolute: float | None = None
    relative: float | None = None
    rank: int | None = None

    @property
    def place(self) -> str:
        """Say which value differs most, and where: "head.weight, step 1, rank 0"."""
        return f"{self.name}, step {self.step}" + ("" if self.rank is None else f", rank {self.rank}")


Differences = tuple[GroupDifference, ...]


def difference_of(differences: Differences, group: ValueGroup) -> GroupDifference:
    """Return the difference in a group."""
    return next((one for one in differences if one.group == group), GroupDifference(group))


def widest(many: Iterable[Differences]) -> Differences:
    """Merge the differences of several steps or processes: add the counts, keep the widest difference."""
    total = {group: GroupDifference(group) for group in GROUPS}
    for one in (each for differences in many for each in differences):
        before = total[one.group]
        compared, differing = before.compared + one.compared, before.differing + one.differing
        wider = one if _width(one) > _width(before) else before
        total[one.group] = replace(wider, compared=compared, differing=differing)
    # Only a model has outputs; of a script each group is told, also where there was nothing of it.
    return tuple(one for one in total.values() if one.compared or one.group != "outputs")


def differing(differences: Differences) -> Differences:
    """Return the differences in what a step computes, without those of random generators."""
    return tuple(one for one in differences if one.differing and one.group in _COMPUTED)


def largest_share(differences: Differences) -> float:
    """Return the largest difference in what is computed, as a share of its group's largest value; 0.0 without one."""
    return max((one.relative or 0.0 for one in differing(differences)), default=0.0)


def are_within(differences: Differences, bound: float) -> bool:
    """Return whether all that is computed differs by such a share at most, and nothing that counts differs at all."""
    return all(
        one.group != "counters" and one.relative is not None and one.relative <= bound for one in differing(differences)
    )


def _width(one: GroupDifference) -> float:
    if not one.differing:
        return -1.0
    return float("inf") if one.relative is None else one.relative


ProofAnswer = Literal["exact", "close", "inexact", "unknown"]


@dataclass(frozen=True)
class Proof:
    """The result of runs with equal seeds: the script, the configuration, the engine without plans, the script again.

    The last two are made where the configuration does not repeat the script to the bit; of a model only the last.
    ``exact``: losses, gradients and buffers have the same bits as the script, or as the same engine without plans.
    ``close``: they differ by rounding, and the engine generates code, which rounds as it is fused. ``inexact``: they
    differ otherwise. ``unknown``: nothing could be told, and ``statement`` says why. Of a model the outputs are
    compared with those under ONNX Runtime's defaults: ``close`` is within the bound of rounding, or of the conversion.

    Without the engine's run ``to_engine`` is empty and ``equal_to_engine`` None. ``engine_to_script`` is what the
    engine without plans changes. ``is_compiled``: the engine generated code, or ran a model. In these runs generated
    code keeps the script's casts where it can; ``exported`` compares, as exported without casts, with the engine
    without plans. ``sampled_one_in``: sizes of differences are those of every n-th value.
    ``num_processes`` have trained, and each was compared with the process of its rank.
    """

    configuration: Configuration
    answer: ProofAnswer
    statement: str
    steps: int = 0
    equal_to_engine: bool | None = None
    equal_to_script: bool = False
    random_equal: bool = False
    to_engine: Differences = ()
    to_script: Differences = ()
    engine_to_script: Differences = ()
    sampled_one_in: int = 1
    num_processes: int = 1
    is_compiled: bool = False
    exported: Differences = ()

    @property
    def holds(self) -> bool:
        """Return whether nothing but rounding tells the configuration from its engine without plans."""
        return self.answer in ("exact", "close")
