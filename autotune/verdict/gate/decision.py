"""The answer of a gate, in sentences: what became of speed and memory, what differs, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...records.environment import Environment
from ...records.gate import Gate, GateAnswer, Gauge, GaugeFound, Reference
from ...records.measurement import Measurement
from ...records.outcome import Measured, Outcome
from ...records.printable import first_line
from ...records.study_results import reading_of
from ...records.units import format_bytes, format_share, format_speed
from ...records.words import counted, joined, sentence
from ..sequential import FIRST_LOOK
from .comparison import GateRepetition

# A loss of so many times what is allowed has to be ruled out at least.
_FAR_OFF = 3.0

_BESIDE = {
    "stored": "against the stored figures",
    "script": "against the unmodified script",
    "other": "against the other version of the script",
}


def decide_gate(
    repetitions: Sequence[GateRepetition],
    gauges: tuple[Gauge, ...],
    reference: Reference,
    environment: Environment | None,
    differs: tuple[str, ...],
    *,
    is_same: bool,
) -> Gate:
    """Decide a gate by the repetitions of its sitting; at least one was begun.

    It fails where the setting could not be measured, and is a regression where it ran out of memory, in which it fitted
    before. Otherwise a gauge that is worse makes it one. Where noise leaves more open than is allowed, and the middle
    of that is more than is allowed as well, nothing can be said.
    """
    setting = [one.setting for one in repetitions]
    others = [one.reference for one in repetitions if one.reference is not None]

    def gate(answer: GateAnswer, *sentences: str) -> Gate:
        return Gate(
            answer=answer,
            sentences=tuple(filter(None, sentences)),
            reference=reference,
            repetitions=len(repetitions),
            gauges=gauges,
            differs=differs,
            environment=environment,
            reading=reading_of(_measured(setting)),
            script_reading=reading_of(_measured(others)) if reference == "script" else None,
        )

    changed = f"Since the baseline was taken, {joined(differs)} changed." if differs else ""
    if failure := _failure(setting):
        fitted = bool(others) if reference == "other" else is_same
        if failure.for_memory and fitted and not _failure(others):
            return gate("regression", f"Regression: the setting does not fit any more: {cause_of(failure)}.", changed)
        return gate("failed", f"The setting could not be measured: {cause_of(failure)}.", advice_of(failure))
    if failure := _failure(others):
        what = "The unmodified script" if reference == "script" else "The other version of the script"
        return gate("failed", f"{what} could not be measured: {cause_of(failure)}.", advice_of(failure))
    names = {one.name for one in gauges}
    if "speed" not in names:
        return gate("failed", "The samples of the script could not be counted, so speeds can't be compared.")
    if "memory" not in names:
        return gate("failed", "The peak could not be measured, so memory can't be compared.")
    told = [_told(one, reference) for one in gauges]
    number = f"Measured in {counted(len(repetitions), 'repetition')}."
    if len(repetitions) < FIRST_LOOK:
        return gate("not_comparable", f"No answer: {FIRST_LOOK} repetitions are needed at least.", *told, number)
    if reference == "stored" and _named(gauges, "worse") and _was_busy(setting):
        # Others that hold memory of a GPU are seen there, and not in a process's own resident set.
        on_gpu = environment is not None and environment.device_kind != "cpu"
        gauges = tuple(
            replace(one, found="open") if one.found == "worse" and (one.name == "speed" or on_gpu) else one
            for one in gauges
        )
        busy = "other programs used the machine, which the stored figures do not account for"
        if not _named(gauges, "worse"):
            return gate("not_comparable", f"No answer: {busy}.", *told, number, changed)
        told.append(f"Speeds were not compared: {busy}.")
    if worse := _named(gauges, "worse"):
        losses = [(format_share(_loss(one)), "slower" if one.name == "speed" else "more memory") for one in worse]
        lost = joined([" ".join(one) for one in losses])
        return gate("regression", f"Regression: {lost}, {_BESIDE[reference]}.", *told, number, changed)
    still_open = _named(gauges, "open")
    if noisy := [one for one in still_open if _loss(one) > one.allowed or _may_be_far_off(one)]:
        vary = joined([f"{one.name} varies too much" for one in noisy])
        return gate("not_comparable", f"No answer: {vary}.", *told, number, changed)
    better = _named(gauges, "better")
    if reference == "stored":
        told += [
            f"{_won(one)} than before: either the script or the machine has become faster."
            for one in better
            if one.name == "speed"
        ]
        better = [one for one in better if one.name != "speed"]
    first = f"No regression {_BESIDE[reference]}."
    if unshown := joined([one.name for one in still_open]):
        # The first sentence is all that some readers of the answer show.
        first = f"No regression of {unshown} was found, but none is ruled out."
        told.append(f"For {unshown}, the mean is within the allowance, but the confidence interval is not.")
    if better:
        first = f"Improvement: {joined([_won(one) for one in better])}, {_BESIDE[reference]}."
    return gate("improvement" if better else "pass", first, *told, number)


def not_comparable(
    reason: str, reference: Reference, differs: tuple[str, ...], environment: Environment | None
) -> Gate:
    """Return the answer where nothing could be held against anything."""
    return Gate("not_comparable", (reason,), reference, repetitions=0, differs=differs, environment=environment)


def _failure(outcomes: Sequence[Outcome]) -> Outcome | None:
    return next((one for one in outcomes if not isinstance(one, Measured)), None)


def _was_busy(outcomes: Sequence[Outcome]) -> bool:
    # In most repetitions: a single one does not move the mean of all so far.
    busy = [one.contended for one in _measured(outcomes)]
    return 2 * sum(busy) > len(busy)


def _measured(outcomes: Sequence[Outcome]) -> list[Measurement]:
    return [one.measurement for one in outcomes if one.measurement]


def cause_of(failure: Outcome) -> str:
    """Return why a run failed, in one line without a full stop."""
    assert not isinstance(failure, Measured)
    return first_line(failure.cause).rstrip(".")


def advice_of(failure: Outcome) -> str:
    """Return what to do about a failed run, in a sentence; empty where nothing is known."""
    assert not isinstance(failure, Measured)
    return f"{sentence(failure.advice.rstrip('.'))}." if failure.advice else ""


def _named(gauges: Sequence[Gauge], found: GaugeFound) -> list[Gauge]:
    return [one for one in gauges if one.found == found]


def _loss(gauge: Gauge) -> float:
    return 1 / gauge.change - 1 if gauge.name == "speed" else gauge.change - 1


def _may_be_far_off(gauge: Gauge) -> bool:
    """Return whether what is left open goes so far beyond what is allowed that a pass would say nothing."""
    worst = gauge.low if gauge.name == "speed" else gauge.high
    return worst is not None and _loss(replace(gauge, change=worst)) > _FAR_OFF * gauge.allowed


def _won(gauge: Gauge) -> str:
    share = format_share(abs(1 - gauge.change))
    return f"{share} more samples per second" if gauge.name == "speed" else f"{share} less memory"


def figure(gauge: Gauge, value: float, reference: Reference) -> str:
    """Write a figure before or now with its unit; beside the script it is a ratio."""
    if reference == "script":
        return f"{value:.3f} of the script's"
    return format_bytes(value) if gauge.name == "memory" else format_speed(value)


def left_open(gauge: Gauge) -> str:
    """Return what the repetitions leave open: ``0.981x to 1.002x``; empty where too few tell."""
    return "" if gauge.low is None or gauge.high is None else f"{gauge.low:.3f}x to {gauge.high:.3f}x"


def _told(gauge: Gauge, reference: Reference) -> str:
    what, more = ("Speed", "slower is") if gauge.name == "speed" else ("Peak", "more is")
    now, before = (figure(gauge, value, reference) for value in (gauge.now, gauge.before))
    between = f" {gauge.change:.3f}x, {left_open(gauge)};" if left_open(gauge) else ""
    return f"{what} {now}, {before} before;{between} {format_share(gauge.allowed)} {more} allowed."
