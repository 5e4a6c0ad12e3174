"""``stack.json``: everything needed to run a configuration, worked out from the study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..errors import ExportError
from ..records.choice_types import StackLine
from ..records.choices import choice_settings, converted_by, made_choices
from ..records.codec import dumps
from ..records.configuration import Configuration
from ..records.engines import ENGINES
from ..records.environment import Environment
from ..records.facts import Facts
from ..records.global_batch import accumulation_seen, accumulation_to_keep, global_batch
from ..records.look_ahead import SeenBatch
from ..records.outcome import Measured
from ..records.printable import printable, printable_strings, shell_word
from ..records.schedules import schedule_caution
from ..records.stack import STACK_VERSION, Stack, StackLayer
from ..records.study import Repeat, StudyRecord, Trial
from ..records.study_results import as_measured, figures_of, proof_of, readings_of, script_figures_of
from ..records.words import recomputed_words
from ..verdict.memory_limit import limit_of
from .variables import MEM_OPT_NAME, MEM_OPT_VARIABLE, allowed

STACK_NAME = "stack.json"
AS_TYPED = ("script_name", "arguments")
"""What stays as it is: a command that names them is to find the same file. They are shown in such commands only."""


def choose_configuration(record: StudyRecord, configuration: Configuration | None) -> Configuration:
    """Return the configuration that was asked for, else the verdict's winner; ExportError without either."""
    if configuration is not None:
        return configuration
    if record.verdict is None:
        raise ExportError(
            f"study {record.name!r} has no answer yet",
            hint=f"finish it first: autotune resume {shell_word(record.name)}",
        )
    if record.verdict.winner is None:
        own = None if record.baseline is None else record.baseline.measured
        hint = f"let it go on: autotune resume {shell_word(record.name)}; or "
        if record.verdict.kind_of_answer == "nothing_fits":
            hint = "try smaller --batch-sizes or a larger --memory-limit; or "
        elif own is not None and own.samples_per_s <= 0:
            hint = ""  # the next trials' could not be counted either
        raise ExportError(
            f"study {record.name!r} has no winner to export: {record.verdict.sentences}",
            hint=f"{hint}export one trial by its number with --trial",
        )
    return record.verdict.winner


def build_stack(record: StudyRecord, configuration: Configuration) -> Stack:
    """Return the stack of a configuration, all strings printable but ``AS_TYPED``; ExportError before discovery."""
    facts = record.facts
    if facts is None:
        raise ExportError(
            f"study {record.name!r} ended before discovery was done",
            hint=f"run it again: autotune resume {shell_word(record.name)}",
        )
    accumulation = accumulation_seen(record)
    assert accumulation is not None  # there are facts
    limit = limit_of(record)
    assert limit is not None  # likewise
    environment = _environment(record, facts, configuration)
    script_batch_size = facts.baseline.batch_size
    kept = accumulation_to_keep(accumulation, script_batch_size, configuration.batch_size)
    reading, script_reading = readings_of(record, configuration)
    stack = Stack(
        version=STACK_VERSION,
        autotune=record.autotune,
        study=record.name,
        engine=configuration.engine,
        level=configuration.level,
        plans=tuple(map(str, configuration.plans)),
        batch_size=configuration.batch_size,
        script_batch_size=script_batch_size,
        batch_control=facts.batch_control,
        accumulation=accumulation_seen(record, configuration) or accumulation,
        accumulation_for_same_global_batch=kept,
        optimizers=facts.optimizers,
        precision=facts.precision,
        variables=_variables(environment, configuration),
        environment=environment,
        figures=figures_of(record, configuration),
        baseline_figures=script_figures_of(record, configuration),
        memory_limit_bytes=limit,
        script_name=Path(record.spec.script).name,
        script_sha256=facts.script_sha256,
        module=record.spec.module,
        recomputed=recomputed_words(configuration, facts.clusters),
        arguments=record.spec.arguments,
        verdict=_verdict(record, configuration),
        proof=proof_of(record, configuration),
        choices=configuration.choices,
        layers=_layers(facts, configuration),
        accumulation_set=configuration.accumulation,
        accumulation_control=facts.accumulation_control,
        global_batch=global_batch(record, configuration),
        script_global_batch=global_batch(record, facts.baseline),
        reading=reading,
        script_reading=script_reading,
        # A path that does not print would not be found again; the script itself may have any name.
        files=(*facts.files[:1], *(one for one in facts.files[1:] if printable(one.path) == one.path)),
        cautions=tuple(filter(None, [schedule_caution(record, configuration)])),
        models=facts.models,
        occurrences=_occurrences(record, configuration),
        look_ahead=record.spec.look_ahead,
        measured_batch=_measured_batch(record, configuration),
        sized=as_measured(record, configuration).sized,
        max_error=record.spec.max_error if converted_by(configuration.engine, configuration.choices) else 0.0,
    )
    built = printable_strings(stack)
    return replace(built, **{name: getattr(stack, name) for name in AS_TYPED})


def render_stack(stack: Stack) -> str:
    """The file's contents."""
    return dumps(stack, indent=2) + "\n"


def _measured_batch(record: StudyRecord, configuration: Configuration) -> SeenBatch | None:
    outcomes = [one.outcome for one in measured_at(record, configuration)]
    largest = [one.measurement.largest for one in outcomes if isinstance(one, Measured)]
    return max(filter(None, largest), key=lambda batch: batch.elements, default=None)


def measured_at(record: StudyRecord, configuration: Configuration) -> list[Trial | Repeat]:
    """Return the trials and then the repetitions of a configuration."""
    found: tuple[Trial | Repeat, ...] = (*record.trials, *record.repeats)
    return [one for one in found if one.configuration.key == configuration.key]


def _environment(record: StudyRecord, facts: Facts, configuration: Configuration) -> Environment:
    found = [one.environment for one in measured_at(record, configuration) if one.environment is not None]
    return found[-1] if found else facts.environment


def _occurrences(record: StudyRecord, configuration: Configuration) -> dict[str, int]:
    """Return how many occurrences each plan recomputed, where all measurements of the configuration agree."""
    outcomes = [one.outcome for one in measured_at(record, configuration)]
    measured = [one.measurement.occurrences for one in outcomes if isinstance(one, Measured)]
    known = [one for one in measured if one]
    first = known[0] if known else {}
    return {plan: number for plan, number in first.items() if all(one.get(plan) == number for one in known)}


def _variables(environment: Environment, configuration: Configuration) -> dict[str, str]:
    if ENGINES[configuration.engine].target == "model":
        return {}
    found = environment.variables or {}
    kept = {name: value for name, value in sorted(found.items()) if allowed(name, value)}
    # ORTModule reads these two, so that the same folder works with it.
    kept |= {MEM_OPT_VARIABLE: MEM_OPT_NAME, "ORTMODULE_MEMORY_OPT_LEVEL": str(configuration.level)}
    made = choice_settings(configuration.engine, configuration.choices, kept)
    return kept | dict(ENGINES[configuration.engine].variables) | made


def _layers(facts: Facts, configuration: Configuration) -> tuple[StackLayer, ...]:
    """The optimizer stack from the model outwards, and what is below all of it."""
    engine = ENGINES[configuration.engine]
    made = made_choices(configuration.engine, configuration.choices)
    lines = [choice.stack_line(value) for choice, value in made.items()]
    own = {"level": str(configuration.level), "plans": ",".join(map(str, configuration.plans))}
    layers = [StackLayer(engine.layer, applies=True, settings=own | _settings(lines, "engine"))] if engine.layer else []
    layers += _chosen_layers(lines, "model")
    for one in facts.optimizers:
        taken = {name: value for name, value in _settings(lines, "optimizers").items() if one.leaves_open(name)}
        layers.append(StackLayer(one.name, applies=True, settings=one.settings | taken))
    wrappers = dict.fromkeys(name for root in facts.roots for name in reversed(root.wrapped_by))
    layers += [StackLayer(name, applies=True) for name in wrappers if name not in engine.later_layers]
    for name, reason in engine.later_layers.items():
        layers.append(StackLayer(name, applies=True) if name in wrappers else StackLayer(name, False, reason=reason))
    return (*layers, *_chosen_layers(lines, "process"))


def _chosen_layers(lines: list[StackLine], part: str) -> list[StackLayer]:
    names = dict.fromkeys(line.layer for line in lines if line.part == part)
    return [StackLayer(name, True, _settings([one for one in lines if one.layer == name], part)) for name in names]


def _settings(lines: list[StackLine], part: str) -> dict[str, str]:
    return {name: value for line in lines if line.part == part for name, value in line.settings.items()}


def _verdict(record: StudyRecord, configuration: Configuration) -> str:
    verdict = record.verdict
    if verdict is None:
        return "chosen by hand; the study has no answer yet"
    if verdict.winner is None or verdict.winner.key != configuration.key:
        return f"chosen by hand; the study's own answer: {verdict.sentences}"
    return verdict.sentences
