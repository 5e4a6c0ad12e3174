"""The answer of a gate that holds a script against a memory limit: by one run, or by what is predicted for cards."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import AutotuneError
from ...records.cards import Card, CardFit
from ...records.environment import Environment
from ...records.gate import LimitAnswer, LimitCheck, LimitFound, LimitGate
from ...records.outcome import Measured, Outcome, OutOfMemory
from ...records.units import format_bytes
from ...records.words import counted, joined, sentence
from .decision import advice_of, cause_of

_HEADINGS: dict[LimitFound, str] = {
    "over": "over the limit",
    "near": "too near the limit to tell",
    "within": "within the limit",
    "not_known": "not known",
}


def decide_by_run(
    outcome: Outcome, environment: Environment | None, limit_bytes: int, *, setting: str = ""
) -> LimitGate:
    """Decide by one run, which was kept below the limit, of a setting, or of the script as it is."""
    device = "this device" if environment is None else environment.device_name
    subject, limit = _subject(setting), format_bytes(limit_bytes)
    if isinstance(outcome, OutOfMemory):
        if environment is not None and environment.device_memory_bytes < limit_bytes:
            has = format_bytes(environment.device_memory_bytes)
            return _failed(
                f"No answer up to {limit}: {subject} needs more than the {has} that {device} has.",
                "Hold it against a card that has as much, which need not be here: --for.",
            )
        sentences = [f"Over the limit: {subject} needs more than {limit}.", f"{sentence(cause_of(outcome))}."]
        return LimitGate("over_limit", (*sentences, *_named(setting)), (LimitCheck(device, limit_bytes, "over"),))
    if not isinstance(outcome, Measured):
        return _failed(f"{sentence(subject)} could not be measured: {cause_of(outcome)}.", advice_of(outcome))
    measured = outcome.measurement
    peak_bytes, size, retries = measured.peaks.fit_bytes, measured.batch_size, measured.allocator_retries
    if peak_bytes is None:
        return _failed("The peak could not be measured, so nothing can be held against the limit.")
    found: LimitFound = "within" if peak_bytes <= limit_bytes else "over"
    steps = counted(measured.warmup_steps + measured.num_steps, "optimizer step")
    sentences = [
        f"{sentence(_HEADINGS[found])}: {subject} peaks at {format_bytes(peak_bytes)}; the limit is {limit}.",
        f"Measured on {device} in {steps}{f' at batch {size}' if size else ''}.",
    ]
    if retries:
        sentences.append(f"torch freed what it had cached {counted(retries, 'time')} to stay below the limit.")
    check = LimitCheck(device, limit_bytes, found, peak_bytes)
    return LimitGate(_answer([check]), (*sentences, *_named(setting)), (check,), size)


def decide_by_cards(
    fits: Sequence[CardFit], *, batch_size: int | None, steps: int, cautions: Sequence[str], setting: str = ""
) -> LimitGate:
    """Decide by what is predicted for cards that are not there.

    Args:
        fits: what is predicted for each card.
        batch_size: the batch size of the steps that were followed.
        steps: how many optimizer steps were.
        cautions: sentences about what may differ on the cards.
        setting: what was applied to the script; empty for nothing.
    """
    checks = [_check(one) for one in fits]
    told = [_told(check, fit, _subject(setting)) for check, fit in zip(checks, fits, strict=True)]
    if len(checks) == 1:
        (check,) = checks
        heading = "No answer" if check.found == "not_known" else sentence(_HEADINGS[check.found])
        sentences = [f"{heading}: {told[0]}"]
    else:
        groups = {words: [one.device for one in checks if one.found == found] for found, words in _HEADINGS.items()}
        heading = ", ".join(f"{words} on {joined(names)}" for words, names in groups.items() if names)
        sentences = [f"{sentence(heading)}.", *map(sentence, told)]
    error = max(one.error for one in fits)
    seen = (
        f"None of it ran on a GPU: {counted(steps, 'optimizer step')} were followed by the sizes of their "
        f"tensors. A peak is within the limit if one that is {error:.0%} higher is, too."
    )
    sentences += [*_named(setting), *map(sentence, cautions), seen]
    return LimitGate(_answer(checks), tuple(sentences), tuple(checks), batch_size)


def decide_without_answer(error: AutotuneError, cards: Sequence[Card]) -> LimitGate:
    """Return the answer where nothing could be predicted for any card."""
    checks = tuple(LimitCheck(card.name, card.memory_bytes, "not_known") for card in cards)
    hint = [f"{sentence(error.hint.rstrip('.'))}."] if error.hint else []
    return LimitGate("failed", (f"No answer: {error}.", *hint), checks)


def _check(fit: CardFit) -> LimitCheck:
    card = fit.card
    if fit.plain is None:
        return LimitCheck(card.name, card.memory_bytes, "not_known")
    own = fit.plain.own
    found: LimitFound = "within" if own.fits else "near" if own.peak_bytes <= card.memory_bytes else "over"
    return LimitCheck(card.name, card.memory_bytes, found, own.peak_bytes, fit.interval(own))


def _answer(checks: Sequence[LimitCheck]) -> LimitAnswer:
    found = {check.found for check in checks}
    return "over_limit" if found & {"over", "near"} else "failed" if "not_known" in found else "pass"


def _failed(*sentences: str) -> LimitGate:
    return LimitGate("failed", tuple(filter(None, sentences)))


def _subject(setting: str) -> str:
    return "the setting" if setting else "the script"


def _named(setting: str) -> list[str]:
    return [f"The setting is {setting}."] if setting else []


def _told(check: LimitCheck, fit: CardFit, subject: str) -> str:
    if check.peak_bytes is None or check.interval is None:
        return f"on {check.device}, {fit.problem}."
    low, high = map(format_bytes, check.interval)
    needs = f"{format_bytes(check.peak_bytes)} ({low} to {high})"
    return f"on {check.device}, {subject} needs {needs}; the limit is {format_bytes(check.limit_bytes)}."
