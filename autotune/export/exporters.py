"""Exporters of a setting to a file that does without autotune, and the choice of the nearest setting for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..errors import PredictionError, UsageError
from ..predict.prediction import Predictor
from ..records.choices import HeapChoice, made_choices
from ..records.configuration import Configuration
from ..records.engines import ENGINES
from ..records.facts import Facts, Located
from ..records.plan import ALL, RECOMPUTE, Plan
from ..records.words import joined
from . import plain_code, transformers_args
from .expressing import Expressed, Refusal
from .heading import Heading


@dataclass(frozen=True)
class Exporter:
    """A form in which a setting is written, for scripts that run without autotune.

    ``express`` expresses the plans of a setting; UsageError where the script can have no such file. ``render`` gives
    the file's contents. With ``tells_choices`` the file tells its reader of choices that the file does not make.
    """

    name: str
    file_name: str
    usage: str
    express: Callable[[Configuration, Facts, Located], Expressed]
    render: Callable[[Expressed, Heading, Located], str]
    tells_choices: bool = False


_ALL = (
    Exporter("torch", "recompute.py", plain_code.USAGE, plain_code.express, plain_code.render, tells_choices=True),
    Exporter(
        "transformers",
        "training_arguments.py",
        transformers_args.USAGE,
        transformers_args.express,
        transformers_args.render,
    ),
)
EXPORTERS = {one.name: one for one in _ALL}
"""The exporters that ``--as`` knows, by their names."""


def express(exporter: Exporter, configuration: Configuration, facts: Facts, located: Located) -> Expressed:
    """Express a setting, or the nearest that the exporter can express; UsageError where no such file can be."""
    said = exporter.express(configuration, facts, located)
    kept_choices = _kept_choices(configuration) if exporter.tells_choices else ()
    refusals = [*_around(configuration, kept_choices), *said.refusals]
    if not refusals:
        return said
    plain = replace(configuration, engine="aot", level=0, choices=kept_choices)
    if ENGINES[configuration.engine].worker != "worker" or configuration.engine == "ortmodule":
        plain = replace(plain, plans=())
    return replace(_nearest(exporter, plain, configuration, facts, located), refusals=tuple(refusals))


def _around(configuration: Configuration, kept_choices: tuple[str, ...]) -> Iterator[Refusal]:
    """Return what no file can express of what is around the plans."""
    if configuration.engine == "inductor":
        yield Refusal("it is compiled by Inductor, and what is written runs in eager: `autotune launch` compiles it")
    if configuration.engine == "ortmodule":
        why = "it runs in ONNX Runtime, whose plans torch does not have: the bundle's README.txt says how it is put in"
        yield Refusal(why)
    dropped = [one for one in configuration.choices if one not in kept_choices]
    if dropped:
        yield Refusal(f"{joined(dropped)} {'is' if len(dropped) == 1 else 'are'} no part of what is written")


def _kept_choices(configuration: Configuration) -> tuple[str, ...]:
    """The choices that are left to the file's reader, who is told how they are made."""
    try:
        made = made_choices("eager", configuration.choices)
    except UsageError:
        return ()
    told = {choice: value for choice, value in made.items() if isinstance(choice, HeapChoice) or not choice.variables}
    return tuple(f"{choice.name}={value}" for choice, value in told.items() if choice.made_by)


def _nearest(
    exporter: Exporter, plain: Configuration, wanted: Configuration, facts: Facts, located: Located
) -> Expressed:
    """Return what can be expressed with about the memory of the setting that was asked for, at the least cost.

    The plans that can be expressed are tried, and beside them the first blocks of each class, as many as the simulation
    needs. Where nothing can be simulated, all blocks are taken in the place of what could not be expressed.
    """

    def said(plans: tuple[Plan, ...]) -> Expressed:
        return exporter.express(replace(plain, plans=plans), facts, located)

    kept = tuple(plan for plan in plain.plans if not said((plan,)).refusals)
    options = [one for one in map(said, _with_blocks(kept, facts)) if not one.refusals]
    assert options, "nothing but a batch size can always be expressed"
    try:
        predictor = Predictor(facts)
        target = predictor.predict(replace(wanted, engine="aot", level=0)).peak_bytes
        predicted = [(predictor.predict(one.configuration), one) for one in options]
    except PredictionError:
        return options[0 if len(kept) == len(plain.plans) else -1]
    fitting = [(one, each) for one, each in predicted if one.peak_bytes <= target]
    if fitting:
        return min(fitting, key=lambda pair: pair[0].recompute_time_s)[1]
    return min(predicted, key=lambda pair: pair[0].peak_bytes)[1]


def _with_blocks(kept: tuple[Plan, ...], facts: Facts) -> Iterator[tuple[Plan, ...]]:
    """The plans by themselves, and beside them the first blocks of each class; all of a class last."""
    yield kept
    for row in facts.clusters:
        if row.is_layer:
            others = tuple(plan for plan in kept if plan.cluster != row.cluster_id)
            for count in (*range(1, row.frequency), ALL):
                yield (*others, Plan(row.cluster_id, RECOMPUTE, count))
