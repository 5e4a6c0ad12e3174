"""Proof that a configuration trains as the script does: what was compared, and how much it differs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from .configuration import Configuration

ValueGroup = Literal["losses", "gradients", "buffers", "counters", "random", "outputs"]
"""What is compared of a step.

``losses`` of its backwards; ``gradients`` as the optimizer has used them; ``buffers`` after the step, running
statistics for instance; of these ``counters`` hold whole numbers, as a BatchNorm's ``num_batches_tracked``, and
rounding cannot excuse a difference; ``random`` is the state of the random generators. Of a model that is not trained
there are ``outputs`` only.
"""

GROUPS: tuple[ValueGroup, ...] = get_args(ValueGroup)


@dataclass(frozen=True)
class GroupDifference:
    """How one group of values differs between two runs, over all steps and processes.

    Of ``compared`` values ``differing`` differ in at least one bit. ``name`` is the one that differs most, ``step``
    where it does (from 1), ``absolute`` its largest difference and ``relative`` the same over the largest value of the
    group in the other run. Both are None where it has no size: it is missing in one run, not finite, or the state of a
    generator.
    """

    group: ValueGroup
    compared: int = 0
    differing: int = 0
    name: str = ""
    step: int = 0
    absolute: float | None = None
    relative: float | None = None


Differences = tuple[GroupDifference, ...]


def difference_of(differences: Differences, group: ValueGroup) -> GroupDifference:
    """The difference in a group."""
    return next((one for one in differences if one.group == group), GroupDifference(group))


def widest(many: Iterable[Differences]) -> Differences:
    """The differences of several steps or processes as one: counts are added, the widest difference stands for all."""
    total = {group: GroupDifference(group) for group in GROUPS}
    for one in (each for differences in many for each in differences):
        before = total[one.group]
        wider = one if _width(one) > _width(before) else before
        total[one.group] = GroupDifference(
            one.group,
            before.compared + one.compared,
            before.differing + one.differing,
            wider.name,
            wider.step,
            wider.absolute,
            wider.relative,
        )
    # Only a model has outputs; of a script each group is told, also where there was nothing of it.
    return tuple(one for one in total.values() if one.compared or one.group != "outputs")


def _width(one: GroupDifference) -> float:
    """For ordering: what has no size is the widest, what does not differ the narrowest."""
    if not one.differing:
        return -1.0
    return float("inf") if one.relative is None else one.relative


ProofAnswer = Literal["exact", "close", "inexact", "unknown"]


@dataclass(frozen=True)
class Proof:
    """What runs with the same seeds showed: the script, the configuration, the engine without plans, the script again.

    The last two are made where the configuration does not repeat the script to the bit; without them ``to_engine`` is
    empty and ``equal_to_engine`` None. ``exact``: losses, gradients and buffers have the same bits as the script, or as
    the same engine without plans. ``close``: they differ by rounding, and the engine generates code, which rounds as it
    is fused. ``inexact``: they differ otherwise, or whole numbers are not the script's. ``unknown``: nothing could be
    told, ``statement`` says why.
    ``equal_to_script`` is about the script untouched; where it is False, ``engine_to_script`` holds what the engine
    itself makes of the script. ``random_equal``: the states of the random generators after each step are the script's.
    ``is_compiled``: the engine generated code. It kept the script's casts in all these runs, where it can; ``exported``
    is how far the same engine without plans is from the configuration where both are as exported, which keeps none; it
    is empty where nobody looked. ``sampled_one_in``: sizes of differences are those of every n-th value.
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
    is_compiled: bool = False
    exported: Differences = ()

    @property
    def holds(self) -> bool:
        """Return whether nothing but rounding tells the configuration from its engine without plans."""
        return self.answer in ("exact", "close")
