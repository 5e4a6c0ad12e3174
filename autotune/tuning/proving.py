"""The proof of a configuration: a few short runs with the same seeds, compared bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..launch.port import RunResult
from ..records.choices import made_choices
from ..records.configuration import Configuration
from ..records.engines import ENGINES
from ..records.outcome import Measured, Outcome
from ..records.printable import first_line
from ..records.proof import Differences, Proof, ProofAnswer, are_within, difference_of, differing, largest_share
from ..records.run import Verifying
from ..records.units import format_share

Start = Callable[[str, Configuration, Verifying], RunResult | None]
"""Makes a run in mode ``verify``, from its folder's name, a configuration and the rules; None if interrupted."""

# Bounds of differences, as shares of the largest value. Where code keeps the script's casts, only the order of sums
# rounds, which depends on what is fused.
_KEPT_CASTS = 1e-3
# A model may differ by so many times what changing the last bit of its parameters does.
_TIMES_A_BIT = 3.0
# Where other kernels run, or code rounds as it is fused, half precision included. The wider one is for what was shown
# with casts kept already. A mask drawn anew is far above.
_ROUNDING, _AS_FUSED = 0.02, 0.05


def prove(
    configuration: Configuration, start: Start, *, script_batch_size: int | None, max_error: float
) -> Proof | None:
    """Compare a configuration with the script, and where they differ with the same engine and choices without plans.

    All runs have the configuration's batch size, or the script's own where there is no memory for the former without
    plans. Return None if interrupted before there was an answer.
    """
    try:
        try:
            return _prove(configuration, configuration.batch_size, start, max_error)
        except _FailedError as failed:
            if script_batch_size == configuration.batch_size or not failed.for_memory:
                raise
            return _prove(configuration, script_batch_size, start, max_error)
    except _FailedError as failed:
        return Proof(configuration, "unknown", f"Equivalence unknown: {failed}")
    except _InterruptedError:
        return None


class _FailedError(Exception):
    """A run failed before its steps were done."""

    def __init__(self, what: str, outcome: Outcome) -> None:
        cause = "it ended without a word" if isinstance(outcome, Measured) else outcome.cause
        super().__init__(f"{what} failed in the runs for it: {first_line(cause)}")
        self.for_memory = outcome is not None and outcome.for_memory


class _InterruptedError(Exception):
    """A run was cancelled."""


def _prove(configuration: Configuration, batch_size: int | None, start: Start, max_error: float) -> Proof:
    accumulation = configuration.accumulation if batch_size == configuration.batch_size else 0
    planned = replace(configuration, batch_size=batch_size, accumulation=accumulation)
    script = replace(configuration.untouched, batch_size=batch_size, accumulation=accumulation)
    engine = replace(planned, plans=(), level=0, sized=())
    converts = any(choice.changes for choice in made_choices(configuration.engine, configuration.choices))
    properties = ENGINES[configuration.engine]
    bound = _KEPT_CASTS if properties.keeps_casts else _ROUNDING
    if converts and properties.computes == "outputs":
        bound = max_error

    def conclude(*runs: RunResult) -> Proof:
        return _conclude(configuration, batch_size, bound, *runs)

    references: list[Path] = []

    def run(what: str, name: str, one: Configuration, *, is_reference: bool = False, **how: bool) -> RunResult:
        rules = Verifying(references=tuple(map(str, references)), is_reference=is_reference, **how)
        result = start(name, one, rules)
        if result is None:
            raise _InterruptedError
        if is_reference:
            references.append(result.directory)
        if not result.compared:
            outcome = result.outcomes[0] or result.failure
            if outcome is None:
                raise _InterruptedError
            raise _FailedError(what, outcome)
        return result

    def exported(proof: Proof) -> Proof:
        """Add the comparison of the code as it is exported, where that may round in another way."""
        if not (proof.holds and proof.is_compiled and properties.keeps_casts):
            return proof
        try:
            run("this setting as exported", "proof-exported", planned, is_reference=True, as_exported=True)
            bare = run("the engine without plans, as exported", "proof-exported-engine", engine, as_exported=True)
        except (_FailedError, _InterruptedError) as error:
            why = f"{error}" if isinstance(error, _FailedError) else "`autotune verify` does so"
            return replace(proof, statement=f"{proof.statement} The exported code was not compared: {why}.")
        return _with_exported(proof, bare.differences(-1))

    try:
        first = run("the script", "proof-script", script, is_reference=True)
        own = run("this setting", "proof-setting", planned, is_reference=True)
        if _is_repeated(own.differences(0)):
            return exported(conclude(first, own))
        if properties.computes == "outputs":
            again = run("the model", "proof-script-again", script)
            return _conclude(configuration, batch_size, bound, first, own, again=again)
        unplanned = run("the engine without plans", "proof-engine", engine, is_reference=True)
        again = run("the script", "proof-script-again", script)
        proof = conclude(first, own, unplanned, again)
        if proof.answer == "inexact" and not proof.equal_to_engine:
            # Not to be blamed on the plans if the engine does not even repeat itself.
            repeated = run("the engine without plans", "proof-engine-again", engine)
            itself = repeated.differences(2)
            if differing(itself):
                statement = (
                    f"Equivalence unknown: two runs of the engine without plans differ themselves: {_told(itself)}."
                )
                return replace(proof, answer="unknown", statement=statement)
            if proof.is_compiled and properties.keeps_casts and are_within(proof.to_engine, _ROUNDING):
                nudged = run("the engine without plans, nudged", "proof-engine-nudged", engine, is_nudged=True)
                by_a_bit = nudged.differences(2)
                bound = max(bound, _TIMES_A_BIT * largest_share(by_a_bit))
                proof = conclude(first, own, unplanned, again)
                nudge = "The last bit of its parameters changed, the engine without plans differs from itself:"
                proof = replace(proof, statement=f"{proof.statement} {nudge} {_told(by_a_bit)}.")
        return exported(proof)
    finally:
        for directory in references:
            for path in directory.glob("values-*"):
                with suppress(OSError):
                    path.unlink()


def _conclude(
    configuration: Configuration,
    batch_size: int | None,
    bound: float,
    first: RunResult,
    own: RunResult,
    unplanned: RunResult | None = None,
    again: RunResult | None = None,
) -> Proof:
    """Return what the runs show; the last two are there where the setting does not repeat the script."""
    runs = [one for one in (first, own, unplanned, again) if one is not None]
    steps = {one.steps for run in runs for one in run.compared}
    to_script = own.differences(0)
    itself = () if again is None else again.differences(0)
    to_engine = () if unplanned is None else unplanned.differences(1)
    engine_to_script = () if unplanned is None else unplanned.differences(0)
    key = ENGINES[configuration.engine].computes
    # Nothing but the model itself is there to hold outputs against.
    held = to_script if key == "outputs" else to_engine
    answer: ProofAnswer = "exact" if not differing(held) else "inexact"
    is_compiled = any(one.is_compiled for one in own.compared)
    if answer == "inexact" and is_compiled and are_within(held, bound):
        answer = "close"
    if difference_of(to_script, "counters").differing:
        answer = "inexact"
    proof = Proof(
        configuration=configuration,
        answer=answer,
        statement="",
        steps=min(steps),
        equal_to_engine=None if unplanned is None else not differing(to_engine),
        equal_to_script=not differing(to_script),
        random_equal=not difference_of(to_script, "random").differing,
        to_engine=to_engine,
        to_script=to_script,
        engine_to_script=engine_to_script,
        sampled_one_in=max(one.sampled_one_in for run in runs for one in run.compared),
        num_processes=len(own.compared),
        is_compiled=is_compiled,
    )
    doubt = ""
    if len(steps) > 1:
        doubt = f"the runs made {', '.join(map(str, sorted(steps)))} steps"
    elif len({len(run.compared) for run in runs}) > 1:
        doubt = "the runs trained in different numbers of processes"
    elif differing(itself):
        same = "on the same inputs" if key == "outputs" else "with the same seeds"
        doubt = f"two runs of the {ENGINES[configuration.engine].target} itself differ, {same}: {_told(itself)}"
    elif blind := [one.rank for one in own.compared if not difference_of(one.differences[0], key).compared]:
        doubt = f"no {key[:-1]} was seen" + (f" in rank {blind[0]}" if proof.num_processes > 1 else "")
    if doubt:
        return replace(proof, answer="unknown", statement=f"Equivalence unknown: {doubt}.")
    processes = f" of each of {proof.num_processes} processes" if proof.num_processes > 1 else ""
    where = f"the first {proof.steps} steps{processes}" + ("" if batch_size is None else f" at batch {batch_size}")
    if batch_size != configuration.batch_size:
        where += f" (for batch {configuration.batch_size} there is not enough memory without plans)"
    sentences = [_sentence(proof, where, bound)]
    if proof.sampled_one_in != 1 and not (proof.equal_to_script and proof.equal_to_engine is not False):
        sentences.append(f"All bits were compared; differences were sized on one value in {proof.sampled_one_in}.")
    if key != "outputs":
        sentences.append(_about_random(proof, itself))
    return replace(proof, statement=" ".join(sentences))


def _with_exported(proof: Proof, exported: Differences) -> Proof:
    """Add to the proof of code that keeps casts how far plans move the exported code, which keeps none."""
    code = "as exported, with rounding that depends on fusion,"
    if not differing(exported):
        says = f"Also {code} they have the same bits as without plans."
    elif are_within(exported, _AS_FUSED):
        says = f"{code.capitalize()} they differ from those without plans by rounding: {_told(exported)}."
    else:
        says = f"But {code} they differ from those without plans by more than rounding: {_told(exported)}."
        proof = replace(proof, answer="inexact")
    return replace(proof, exported=exported, statement=f"{proof.statement} {says}")


def _sentence(proof: Proof, where: str, bound: float) -> str:
    if ENGINES[proof.configuration.engine].computes == "outputs":
        return _of_outputs(proof, where, bound)
    keeps_casts = proof.is_compiled and ENGINES[proof.configuration.engine].keeps_casts
    casts = " and the script's casts kept" if keeps_casts else ""
    start = f"In {where}, with the same seeds{casts}, losses, gradients and buffers"
    if proof.answer == "close":
        return (
            f"{start} equal those of the same engine without plans up to rounding, because operators are fused "
            f"differently: {_told(proof.to_engine)}. {_about_compiled(proof)}"
        )
    if proof.equal_to_engine is None:
        return f"{start} have the same bits as in the unmodified script."
    if not proof.equal_to_engine:
        return f"{start} differ from those of the same engine without plans: {_told(proof.to_engine)}."
    if proof.answer == "inexact":
        own = _told(proof.to_script)
        return f"{start} equal those of the engine without plans, but counters differ from the script's: {own}."
    if proof.equal_to_script:
        return f"{start} have the same bits as without plans and as in the unmodified script."
    why = " (generated code rounds differently, and draws other dropout masks)" if proof.is_compiled else ""
    choices = " ".join(proof.configuration.choices)
    itself = f"With {choices} the engine" if choices else "The engine itself"
    return (
        f"{start} have the same bits as without plans. {itself} differs from the unmodified script, with and "
        f"without plans{why}: {_told(proof.to_script)}."
    )


def _of_outputs(proof: Proof, where: str, bound: float) -> str:
    start = f"In {where.replace('steps', 'runs')}, on the same inputs, outputs"
    made = made_choices(proof.configuration.engine, proof.configuration.choices)
    converted = " and ".join(choice.name for choice in made if choice.changes)
    if proof.equal_to_script:
        return f"{start} have the same bits as with ONNX Runtime's defaults."
    if converted:
        allowed = f"--max-error {format_share(bound)}"
        limit = f"which {allowed} allows" if proof.answer == "close" else f"by more than {allowed}"
        why = f"because of {converted}, {limit}"
        return f"{start} differ from the model's own, {why}: {_told(proof.to_script)}."
    rounding = "by rounding, because other kernels run" if proof.answer == "close" else "by more than rounding"
    return f"{start} differ from those with ONNX Runtime's defaults {rounding}: {_told(proof.to_script)}."


def _about_compiled(proof: Proof) -> str:
    if proof.equal_to_script:
        return "The unmodified script computes the same bits."
    choices = "".join(f"{choice} and " for choice in proof.configuration.choices)
    return (
        f"They also differ from the unmodified script, because of {choices}generated code, which rounds differently "
        f"and may draw other random numbers: with plans {_told(proof.to_script)}, "
        f"without {_told(proof.engine_to_script)}."
    )


def _about_random(proof: Proof, itself: Differences) -> str:
    if difference_of(itself, "random").differing:
        return "Two runs of the script leave its random generators in different states, so these were not compared."
    if proof.random_equal:
        return "After each step the random generators are in the script's state."
    name = difference_of(proof.to_script, "random").name
    return f"The random generators ({name}) are not always in the script's state after a step."


def _is_repeated(differences: Differences) -> bool:
    """Return whether all values are there and the same, the generators' states included."""
    seen = any(difference_of(differences, group).compared for group in ("gradients", "outputs"))
    return seen and not any(one.differing for one in differences)


def _told(differences: Differences) -> str:
    """Say where two runs differ most, in words: ``gradients by up to 8.1e-04 of the largest (head.weight, step 1)``."""
    parts = []
    for one in differing(differences):
        size = "beyond comparison"
        if one.relative is not None:
            size = f"by up to {one.relative:.1e} of the largest"
        elif one.absolute is not None:
            size = f"by {one.absolute:.1e} where there should be zeros"
        parts.append(f"{one.group} {size} ({one.place})")
    return ", ".join(parts) or "nowhere"
