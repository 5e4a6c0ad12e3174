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
    """The difference of one group of values between two runs, over all steps and processes.

    Of ``compared`` values ``differing`` differ in at least one bit. ``name`` is the value that differs most, ``step``
    the step where it does, from 1. ``absolute`` is the largest difference of that value. ``relative`` is the same over
    the largest value of the group in the other run, or of a model over that of the output alone. It is None where that
    value is zero or not finite. Both are None where the difference has no size: the value is missing in one run, not
    finite, or the state of a generator.
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
    """The result of runs with equal seeds: the script, the configuration, the engine without plans, the script again.

    The last two are made where the configuration does not repeat the script to the bit; of a model only the last.
    Without the engine's run ``to_engine`` is empty and ``equal_to_engine`` None. ``exact``: losses, gradients and
    buffers have the same bits as the script, or as the same engine without plans. ``close``: they differ by rounding,
    and the engine generates code, which rounds as it is fused. ``inexact``: they differ otherwise, or whole numbers are
    not the script's. ``unknown``: nothing could be told, and ``statement`` says why. Of a model only the outputs are
    compared, with those under ONNX Runtime's defaults. They are ``close`` within the bound of rounding, or of the
    model's conversion.

    ``equal_to_script`` is about the script untouched. Where it is False, ``engine_to_script`` holds what the engine
    itself makes of the script. ``random_equal``: the states of the random generators after each step are the script's.
    ``is_compiled``: the engine generated code, or ran a model. Generated code kept the script's casts in all these
    runs, where it can. ``exported`` compares the configuration with the same engine without plans where both are as
    exported, which keeps no casts. It is empty where that was not compared. ``sampled_one_in``: sizes of differences
    are those of every n-th value.
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
