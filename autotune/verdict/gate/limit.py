"""The answer of a gate that holds a script against a memory limit: by one run, or by what is predicted for cards."""

from __future__ import annotations

from collections.abc import Sequence

from ...records.cards import CardFit
from ...records.environment import Environment
from ...records.gate import LimitAnswer, LimitCheck, LimitGate
from ...records.outcome import Measured, Outcome, OutOfMemory
from ...records.units import format_bytes
from ...records.words import counted, joined, sentence
from .decision import advice_of, cause_of


def decide_by_run(
    outcome: Outcome, environment: Environment | None, limit_bytes: int, *, setting: str = ""
) -> LimitGate:
    """Decide by one run, which was kept below the limit, of a setting, or of the script as it is."""
    what = _what(setting)
    device = "this device" if environment is None else environment.device_name
    if isinstance(outcome, OutOfMemory):
        limit = format_bytes(limit_bytes)
        if environment is not None and environment.device_memory_bytes < limit_bytes:
            has = format_bytes(environment.device_memory_bytes)
            return _failed(
                f"No answer up to {limit}: {what} needs more than the {has} that {device} has.",
                "Hold it against a card that has as much, which need not be here: --for.",
            )
        first = f"Over the limit: {what} needs more than {limit}."
        cause = f"{sentence(cause_of(outcome))}."
        return LimitGate("over_limit", (first, cause), (LimitCheck(device, limit_bytes, holds=False),))
    if not isinstance(outcome, Measured):
        return _failed(f"{sentence(what)} could not be measured: {cause_of(outcome)}.", advice_of(outcome))
    measured = outcome.measurement
    peak_bytes, size, retries = measured.peaks.fit_bytes, measured.batch_size, measured.allocator_retries
    if peak_bytes is None:
        return _failed("The peak could not be measured, so nothing can be held against the limit.")
    holds = peak_bytes <= limit_bytes
    steps = counted(measured.warmup_steps + len(measured.step_times_s), "optimizer step")
    sentences = [
        f"{_begin(holds)}: {what} peaks at {format_bytes(peak_bytes)}, and may take {format_bytes(limit_bytes)}.",
        f"Measured on {device} in {steps}{f' at batch {size}' if size else ''}.",
    ]
    if retries:
        sentences.append(f"torch freed what it had cached {counted(retries, 'time')} to stay below the limit.")
    sentences += _named(setting)
    check = LimitCheck(device, limit_bytes, holds, peak_bytes)
    return LimitGate("pass" if holds else "over_limit", tuple(sentences), (check,), size)


def decide_by_cards(
    fits: Sequence[CardFit], batch_size: int | None, notes: Sequence[str], *, setting: str = ""
) -> LimitGate:
    """Decide by what is predicted for cards that are not there; ``notes`` are what else is to be said of that."""
    checks = [_check(one) for one in fits]
    failing = [one.device for one in checks if not one.holds]
    holding = [one.device for one in checks if one.holds]
    if unknown := [one for one in fits if one.plain is None]:
        first = f"No answer for {joined([one.card.name for one in unknown])}: {unknown[0].problem}."
        return LimitGate("failed", (first, *notes), tuple(checks), batch_size)
    told = [f"{_told(one, _what(setting))}." for one in checks]
    if len(checks) == 1:
        sentences = [f"{_begin(not failing)}: {told[0]}"]
    elif failing:
        others = f", within the limit on {joined(holding)}" if holding else ""
        sentences = [f"{_begin(holds=False)} on {joined(failing)}{others}.", *map(sentence, told)]
    else:
        sentences = [f"{_begin(holds=True)} on all {len(checks)} cards.", *map(sentence, told)]
    answer: LimitAnswer = "over_limit" if failing else "pass"
    return LimitGate(answer, (*sentences, *_named(setting), *notes), tuple(checks), batch_size)


def _check(fit: CardFit) -> LimitCheck:
    if fit.plain is None:
        return LimitCheck(fit.card.name, fit.card.memory_bytes, holds=False)
    own = fit.plain.own
    return LimitCheck(fit.card.name, fit.card.memory_bytes, own.fits, own.peak_bytes, fit.interval(own))


def _failed(*sentences: str) -> LimitGate:
    return LimitGate("failed", tuple(filter(None, sentences)))


def _begin(holds: bool) -> str:
    return "Within the limit" if holds else "Over the limit"


def _what(setting: str) -> str:
    return "the setting" if setting else "the script"


def _named(setting: str) -> list[str]:
    return [f"The setting is {setting}."] if setting else []


def _told(check: LimitCheck, what: str) -> str:
    assert check.peak_bytes is not None, "it was predicted"
    assert check.interval is not None, "it was predicted"
    low, high = map(format_bytes, check.interval)
    near = "" if check.holds or check.peak_bytes > check.limit_bytes else ", which is too near to be sure"
    needs = f"{format_bytes(check.peak_bytes)} ({low} to {high}) of {format_bytes(check.limit_bytes)}"
    return f"on {check.device}, {what} needs {needs}{near}"
