"""`autotune gate` with --limit or --for: a script against a memory limit, without a bundle."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from ..errors import UsageError
from ..records.cards import Card
from ..records.gate import LimitGate
from ..records.study import StudySpec
from .gate_answer import EXITS, name_of, tell, write_reports

# Options that compare a bundle, by their parameters.
_OF_BUNDLES = {
    "against": "--against",
    "baseline": "--baseline",
    "update_baseline": "--update-baseline",
    "graphs_only": "--graphs-only",
    "allowed_slowdown": "--max-slowdown",
    "allowed_growth": "--max-memory-growth",
    "finalist_repetitions": "--repetitions",
    "time_budget_s": "--time-budget",
    "history": "--history",
    "shapes": "--shape",
    "inputs": "--inputs",
}


def gate_limit(
    context: typer.Context, script: str, arguments: Sequence[str], reports: Mapping[str, Path | None]
) -> None:
    """Hold a script against a limit on this device, or on cards that are not there, and exit with the answer.

    ``reports`` are the files to write, as ``write_reports`` takes them.
    """
    from .local_launcher import interruption, prepare_one_run
    from .spec import spec_of
    from .tables import make_console, print_changes

    _check(context)
    given: Any = {**context.params, "script": script, "arguments": tuple(arguments)}
    spec = spec_of(given, engine="eager")
    launcher, runs = prepare_one_run("gate", spec)
    console = make_console()
    steps = "Following the unmodified script's first steps by the sizes of its tensors"
    console.print("Running the unmodified script's first steps" if given["cards"] is None else steps, style="dim")
    with interruption() as interrupted:
        where: dict[str, Any] = {"launcher": launcher, "interruption": interrupted, "runs": runs}
        found = (
            _on_this_device(spec, given["limit_bytes"], where)
            if given["cards"] is None
            else _on_cards(spec, _limited(given["cards"], given["limit_bytes"]), where)
        )
    print_changes(console, launcher.changes)
    if found is None:
        console.say("Stopped before the run had ended: there is no answer.")
        raise typer.Exit(130)
    tell(found, (), as_json=given["json"])
    write_reports(found, name_of(spec), reports, console)
    raise typer.Exit(EXITS[found.answer])


def _check(context: typer.Context) -> None:
    limits = "--limit" if context.params["cards"] is None else "--for"
    others = {**_OF_BUNDLES, **({} if context.params["cards"] is None else {"devices": "--devices"})}
    for parameter, option in others.items():
        source = context.get_parameter_source(parameter)
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"{limits} does not go together with {option}", hint=f"leave {option} out")


def _limited(cards: Sequence[Card], limit_bytes: int | None) -> list[Card]:
    if limit_bytes is None:
        return list(cards)
    return [dataclasses.replace(card, memory_bytes=min(card.memory_bytes, limit_bytes)) for card in cards]


def _on_this_device(spec: StudySpec, limit_bytes: int, where: Mapping[str, Any]) -> LimitGate | None:
    from .. import pipeline

    return pipeline.gate_limit(spec, limit_bytes, **where)


def _on_cards(spec: StudySpec, cards: Sequence[Card], where: Mapping[str, Any]) -> LimitGate:
    from .. import pipeline
    from ..report.cards import cards_sentences
    from ..tuning.side_by_side import say_nothing
    from ..verdict.gate.limit import decide_by_cards

    traced, fits = pipeline.fit_cards(spec, cards, progress=say_nothing, own_alone=True, **where)
    _, *notes = cards_sentences(traced, fits)
    return decide_by_cards(fits, traced.batch_size, notes)
