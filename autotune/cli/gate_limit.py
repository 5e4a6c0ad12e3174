"""`autotune gate` with --limit or --for: a script, or a bundle's setting, against a memory limit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from ..errors import UsageError
from ..records.cards import Card
from .gate_answer import EXITS, name_of, tell, write_reports

# Engines that run torch's own kernels, one by one.
_FOLLOWED = ("eager", "aot")
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


def gate_limit(context: typer.Context, positional: Sequence[str], reports: Mapping[str, Path | None]) -> None:
    """Hold a script or a bundle's setting against a limit, here or on cards that are not there; exit with the answer.

    ``positional`` are a bundle if there is one, the script and its arguments; ``reports`` are as of ``write_reports``.
    """
    from .. import pipeline
    from ..export.bundle import read_bundle
    from ..export.stack import STACK_NAME
    from .local_launcher import interruption, prepare_one_run
    from .spec import spec_of
    from .tables import make_console, print_changes

    _check(context)
    has_bundle = (Path(positional[0]) / STACK_NAME).is_file()
    if has_bundle and len(positional) == 1:
        raise UsageError("a bundle is named, and no script", hint="autotune gate BUNDLE train.py --limit 24GiB")
    script, *arguments = positional[has_bundle:]
    read = read_bundle(Path(positional[0])) if has_bundle else None
    given: Any = {**context.params, "script": script, "arguments": tuple(arguments)}
    stack = None if read is None else read.stack
    engine = "eager" if stack is None else stack.engine
    if given["cards"] is not None and engine not in _FOLLOWED:
        raise UsageError(
            f"what engine {engine!r} allocates cannot be followed without the GPU",
            hint="measure the setting on a GPU: autotune gate BUNDLE SCRIPT --limit SIZE",
        )
    spec = spec_of(given, engine=engine, bundle_batch_size=None if stack is None else stack.batch_size)
    launcher, runs = prepare_one_run("gate", spec, None if read is None else read.surroundings)
    console = make_console()
    steps = "Following the first steps by the sizes of tensors"
    console.print("Running the first steps" if given["cards"] is None else steps, style="dim")
    with interruption() as interrupted:
        where: dict[str, Any] = {"launcher": launcher, "interruption": interrupted, "runs": runs}
        found = (
            pipeline.gate_limit(spec, given["limit_bytes"], read, **where)
            if given["cards"] is None
            else pipeline.gate_cards(spec, _limited(given["cards"], given["limit_bytes"]), read, **where)
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
