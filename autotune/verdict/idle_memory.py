"""Memory that an allocator holds for no tensor, and the choice that gives it back.

On a GPU that is torch's allocator, which can make segments that grow. On a CPU it is the heap of the C library, which a
process can replace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..records.choice_types import Choice
from ..records.choices import AllocatorChoice, PreloadedHeap, choices_of
from ..records.matrix import highest
from ..records.outcome import Measured, Outcome, OutOfMemory
from ..records.study import Remark, StudyRecord
from ..records.study_results import trials_of
from ..records.units import format_bytes
from ..records.words import counted, sentence
from .aim import Aim

# A share of the limit: a batch that is larger by less changes the speed by next to nothing.
_WORTH_HAVING = 0.05


@dataclass(frozen=True)
class Widening:
    """A choice to try unasked, which changes nothing that is computed, and why: a sentence's second half."""

    choice: str
    why: str


def widening_to_begin_with(record: StudyRecord) -> Widening | None:
    """Return another heap, where the script's own keeps memory: trials would not show what plans free."""
    choice, share = _choice(record), _heap_share(record)
    own = [] if record.facts is None else trials_of(record, record.facts.baseline)
    if not isinstance(choice, PreloadedHeap) or not own or share < _WORTH_HAVING:
        return None
    return Widening(choice.name, _heap_keeps(round(share * (own[0].peaks.fit_bytes or 0))))


def widening(record: StudyRecord, aim: Aim) -> Widening | None:
    """Return the choice to try unasked, as trials lacked memory that lay idle; None where none did.

    It is none to try where the study was allowed it, cannot have it (``Choice.refusal_for``), or where the environment
    says that it shall not be made.
    """
    choice = _choice(record)
    if choice is None or _is_named(record, choice):
        return None
    why = idle_memory(record, aim)
    return Widening(choice.name, why) if why else None


def tried_unasked(record: StudyRecord) -> tuple[str, ...]:
    """Return the choices that trials have made, though the study was not allowed them."""
    choice = _choice(record)
    return () if choice is None or not _is_tried(record, choice) else (choice.name,)


def idle_memory_offer(record: StudyRecord, aim: Aim) -> Remark | None:
    """Offer the choice that gives back what lay idle in trials; None where one made it, or none lay idle."""
    idle = idle_memory(record, aim)
    if not idle:
        return None
    may = "it may take less" if aim.seeks_memory else "more may fit"
    choice = _choice(record)
    if choice is None:
        missing = _missing(record)
        if missing is None:
            return None
        offer = (
            f"with {missing.name} {may}. Install {missing.package} (its name in Debian and Ubuntu), and start a new "
        )
        offer += "study by adding --study and a name to the command"
    elif _is_tried(record, choice):
        return None
    elif _is_named(record, choice):
        offer = f"with --allow {choice.name} {may}"
    else:
        offer = f"with {choice.name} {may}. This study tries it if you resume it"
    return Remark("allocator_idle", f"{sentence(idle)}: {offer}.")


def idle_memory(record: StudyRecord, aim: Aim) -> str:
    """Say which allocator held, or freed to try again, what kept trials from fitting; empty otherwise.

    Where the least memory is looked for, a twentieth of a trial's own peak that lies idle is worth having.
    """
    ended = (*(trial.outcome for trial in record.trials), *(repeat.outcome for repeat in record.repeats))
    outcomes = [outcome for outcome in ended if outcome is not None]
    heap_share = _heap_share(record)
    retried = sum(one.measurement is not None and one.measurement.allocator_retries > 0 for one in outcomes)
    idle_bytes = max((size for outcome in outcomes for size in _idle(outcome, aim, heap_share)), default=0)
    if heap_share:
        return _heap_keeps(idle_bytes) if idle_bytes else ""
    seen = []
    if retried:
        seen.append(f"had to free memory and try again in {counted(retried, 'measurement')}")
    if idle_bytes:
        seen.append(f"kept up to {format_bytes(idle_bytes)} that no tensor used")
    return f"torch's allocator {' and '.join(seen)}" if seen else ""


def _heap_keeps(size: int) -> str:
    return f"the C library's heap kept up to {format_bytes(size)} that no tensor used"


def _choice(record: StudyRecord) -> Choice | None:
    found = (one for one in _candidates(record) if record.facts and not one.refusal_for(record.facts))
    return next((one for one in found if not _fails(record, one)), None)


def _missing(record: StudyRecord) -> PreloadedHeap | None:
    """Return the choice that only lacks its library."""
    found = (one for one in _candidates(record) if isinstance(one, PreloadedHeap))
    return next((one for one in found if record.facts and one.refusal_for(record.facts) == one.missing), None)


def _candidates(record: StudyRecord) -> Iterator[Choice]:
    known, allowed = choices_of(record.spec.engine).values(), record.spec.choices
    return (one for one in known if one.gives_back_idle and not {one.name, *one.excludes}.intersection(allowed))


def _is_named(record: StudyRecord, choice: Choice) -> bool:
    """Return whether the environment says something of it."""
    variables = (record.facts.environment.variables if record.facts else None) or {}
    if not isinstance(choice, AllocatorChoice):
        return False
    return any(choice.setting in variables.get(name, "") for name in choice.variables)


def _fails(record: StudyRecord, choice: Choice) -> bool:
    """Return whether all that made the choice failed, and not for memory."""
    ended = [trial.outcome for trial in record.trials if trial.configuration.makes(choice.name)]
    return bool(ended) and not any(one is None or isinstance(one, Measured | OutOfMemory) for one in ended)


def _is_tried(record: StudyRecord, choice: Choice) -> bool:
    return any(trial.configuration.makes(choice.name) for trial in record.trials)


def _heap_share(record: StudyRecord) -> float:
    """Return the share of the script's own peak on a CPU that its heap kept for no tensor; 0.0 where nothing tells.

    What a step needs is the peak of the memory matrix: there the heap is emptied before each phase. Nothing tells where
    batches bring more data at one time than at another, as the matrix is of two steps.
    """
    facts = record.facts
    arrivals = None if facts is None else facts.batch_control.arrivals
    if arrivals is not None and any(one.usual is None for one in arrivals.arrived):
        return 0.0
    row = None if facts is None else highest(facts.memory_matrix)
    if facts is None or row is None or row.peak is None or facts.environment.device_kind != "cpu":
        return 0.0
    own = trials_of(record, facts.baseline)
    fit_bytes = own[0].peaks.fit_bytes if own else None
    return max(0.0, 1 - row.peak * own[0].num_processes / fit_bytes) if fit_bytes else 0.0


def _idle(outcome: Outcome, aim: Aim, heap_share: float) -> Iterator[int]:
    """Yield what lay idle, if it is worth having and would have been had; ``heap_share`` of a CPU's memory did."""
    limit_bytes = aim.run_limit_bytes
    if isinstance(outcome, OutOfMemory):
        idle_bytes = outcome.idle_bytes or round(heap_share * limit_bytes)
        if idle_bytes >= _WORTH_HAVING * limit_bytes:
            yield idle_bytes
    if outcome.measurement is None or outcome.measurement.peaks.fit_bytes is None:
        return
    peaks, fit_bytes = outcome.measurement.peaks, outcome.measurement.peaks.fit_bytes
    idle_bytes = round(heap_share * fit_bytes)
    if peaks.reserved is not None and peaks.allocated is not None:
        idle_bytes = peaks.reserved - peaks.allocated
    if aim.seeks_memory:
        is_worth_having = idle_bytes > 0 and idle_bytes >= _WORTH_HAVING * fit_bytes
    else:
        # More than is left: with it, what does not fit may.
        is_worth_having = idle_bytes >= max(limit_bytes - fit_bytes, _WORTH_HAVING * limit_bytes)
    if is_worth_having:
        yield idle_bytes
