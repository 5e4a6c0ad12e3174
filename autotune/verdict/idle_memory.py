"""Memory that torch's allocator holds for no tensor, and the choice that gives it back: segments that grow."""

from __future__ import annotations

from collections.abc import Iterator

from ..records.choices import AllocatorChoice, choices_of
from ..records.outcome import Outcome, OutOfMemory
from ..records.study import Remark, StudyRecord
from ..records.units import format_bytes
from ..records.words import counted
from .aim import Aim

# A share of the limit: a batch that is larger by less changes the speed by next to nothing.
_WORTH_HAVING = 0.05


def growing_segments(record: StudyRecord, aim: Aim) -> str:
    """Return the choice to try unasked, as trials lacked memory that lay idle; empty where none did.

    The choice changes nothing that is computed. It is none to try where the study was allowed it, cannot have it
    (``Choice.refusal_for``), or where the environment says that there shall be no such segments.
    """
    choice = _choice(record)
    is_free = choice is not None and not _is_named(record, choice)
    return choice.name if choice is not None and is_free and idle_memory(record, aim) else ""


def tried_unasked(record: StudyRecord) -> tuple[str, ...]:
    """Return the choices that trials have made, though the study was not allowed them."""
    choice = _choice(record)
    return () if choice is None or not _is_tried(record, choice) else (choice.name,)


def allocator_offer(record: StudyRecord, aim: Aim) -> Remark | None:
    """Offer segments that grow, where trials lacked memory that lay idle; None where a trial had them, or none did."""
    choice, idle = _choice(record), idle_memory(record, aim)
    if choice is None or not idle or _is_tried(record, choice):
        return None
    may = "it may take less" if aim.seeks_memory else "more may fit"
    offer = f"with {choice.name} {may}. This study tries it if you resume it"
    if _is_named(record, choice):
        offer = f"with --allow {choice.name} {may}"
    return Remark("allocator_idle", f"Torch's allocator {idle}: {offer}.")


def idle_memory(record: StudyRecord, aim: Aim) -> str:
    """Say what the allocator held, or freed to try again, where that kept trials from fitting; empty otherwise.

    Where the least memory is looked for, a twentieth of a trial's own peak that lies idle is worth having.
    """
    ended = (*(trial.outcome for trial in record.trials), *(repeat.outcome for repeat in record.repeats))
    outcomes = [outcome for outcome in ended if outcome is not None]
    retried = sum(one.measurement is not None and one.measurement.allocator_retries > 0 for one in outcomes)
    idle_bytes = max((size for outcome in outcomes for size in _idle(outcome, aim)), default=0)
    seen = []
    if retried:
        seen.append(f"had to free memory and try again in {counted(retried, 'measurement')}")
    if idle_bytes:
        seen.append(f"kept up to {format_bytes(idle_bytes)} that no tensor used")
    return " and ".join(seen)


def _choice(record: StudyRecord) -> AllocatorChoice | None:
    facts, spec = record.facts, record.spec
    if facts is None:
        return None
    found = (one for one in choices_of(spec.engine).values() if isinstance(one, AllocatorChoice))
    return next((one for one in found if one.name not in spec.choices and not one.refusal_for(facts)), None)


def _is_named(record: StudyRecord, choice: AllocatorChoice) -> bool:
    variables = (record.facts.environment.variables if record.facts else None) or {}
    return any(choice.setting in variables.get(name, "") for name in choice.variables)


def _is_tried(record: StudyRecord, choice: AllocatorChoice) -> bool:
    return any(trial.configuration.makes(choice.name) for trial in record.trials)


def _idle(outcome: Outcome, aim: Aim) -> Iterator[int]:
    """Yield what lay idle, if it is worth having and would have been had."""
    if isinstance(outcome, OutOfMemory) and (outcome.idle_bytes or 0) >= _WORTH_HAVING * aim.run_limit_bytes:
        yield outcome.idle_bytes or 0
    if outcome.measurement is None:
        return
    peaks = outcome.measurement.peaks
    if peaks.reserved is None or peaks.allocated is None or peaks.fit_bytes is None:
        return
    idle_bytes, left_bytes = peaks.reserved - peaks.allocated, aim.run_limit_bytes - peaks.fit_bytes
    if aim.seeks_memory:
        is_worth_having = idle_bytes >= _WORTH_HAVING * peaks.fit_bytes
    else:
        # More than is left: with it, what does not fit may.
        is_worth_having = idle_bytes >= max(left_bytes, _WORTH_HAVING * aim.run_limit_bytes)
    if is_worth_having:
        yield idle_bytes
