"""`autotune gate` with --limit or --for: a script, or a bundle's setting, against a memory limit."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from ..errors import UsageError
from ..export.stack import STACK_NAME
from ..records.cards import Card
from ..records.engines import COMPILING_ENGINES
from ..records.gate import LimitGate
from .gate_answer import EXITS, name_of, tell, write_reports

OF_BUNDLES = {
    "against": "--against",
    "baseline": "--baseline",
    "update_baseline": "--update-baseline",
    "allowed_slowdown": "--max-slowdown",
    "allowed_growth": "--max-memory-growth",
    "finalist_repetitions": "--repetitions",
    "time_budget_s": "--time-budget",
    "history": "--history",
    "shapes": "--shape",
    "inputs": "--inputs",
}
"""Options that compare a bundle, by their parameters."""


@dataclass(frozen=True)
class Limits:
    """Name the bytes or the cards that a script is held against; with both, cards have no more than the bytes."""

    memory_bytes: int | None
    cards: tuple[Card, ...] | None

    @property
    def option(self) -> str:
        """Return the option that asks for it."""
        return "--limit" if self.cards is None else "--for"

    def limited_cards(self) -> list[Card]:
        """Return the cards with no more memory than the limit."""
        cards, most = self.cards or (), self.memory_bytes
        return [card if most is None else replace(card, memory_bytes=min(card.memory_bytes, most)) for card in cards]


def limits_of(context: typer.Context, positional: Sequence[str]) -> Limits | None:
    """Return what the options ask a script to be held against; None if a bundle is to be compared.

    What stands in the project's settings counts where nothing is typed, and no bundle is named.

    Raises:
        UsageError: the options do not go together.
    """
    typed = {name for name in context.params if is_typed(context, name)}
    given = {name: context.params[name] for name in ("limit_bytes", "cards")}
    if given.keys() & typed:
        given = {name: value if name in typed else None for name, value in given.items()}
    elif positional and _is_bundle(positional[0]):
        return None
    limits = Limits(given["limit_bytes"], given["cards"])
    if limits.memory_bytes is None and limits.cards is None:
        return None
    others = OF_BUNDLES if limits.cards is None else {**OF_BUNDLES, "devices": "--devices"}
    for name, option in others.items():
        if name in typed:
            raise UsageError(f"{limits.option} does not go together with {option}", hint=f"leave {option} out")
    return limits


def gate_limit(
    options: Mapping[str, Any], positional: Sequence[str], limits: Limits, reports: Mapping[str, Path | None]
) -> None:
    """Hold a script or a bundle's setting against a limit, here or on cards that are not there; exit with the answer.

    Args:
        options: the command's, by parameter.
        positional: a bundle if there is one, the script, and its arguments.
        limits: what it is held against.
        reports: the files to write, as of ``write_reports``.
    """
    from .. import pipeline
    from ..export.bundle import read_bundle
    from .local_launcher import interruption, prepare_one_run
    from .spec import spec_of
    from .tables import make_console, print_changes

    has_bundle = _check_positional(positional, is_module=options["is_module"])
    script, *arguments = positional[has_bundle:]
    read = read_bundle(Path(positional[0])) if has_bundle else None
    stack = None if read is None else read.stack
    if limits.cards is not None and stack is not None and stack.engine in COMPILING_ENGINES:
        raise UsageError(
            f"what engine {stack.engine!r} allocates cannot be followed without the GPU",
            hint="measure the setting on a GPU: autotune gate BUNDLE SCRIPT --limit SIZE",
        )
    given: Any = {**options, "script": script, "arguments": tuple(arguments)}
    if limits.cards is not None:
        given["devices"] = None  # of the project's settings
    own_size = None if stack is None else stack.batch_size
    spec = spec_of(given, engine="eager" if stack is None else stack.engine, bundle_batch_size=own_size)
    launcher, runs = prepare_one_run("gate", spec, None if read is None else read.surroundings)
    console = make_console()
    steps = "Following the first steps by the sizes of their tensors"
    console.print("Running the first steps" if limits.cards is None else steps, style="dim")
    with interruption() as interrupted:
        where: dict[str, Any] = {"launcher": launcher, "interruption": interrupted, "runs": runs}
        if limits.cards is not None:
            found: LimitGate | None = pipeline.gate_cards(
                spec, limits.limited_cards(), read, look_ahead=options["look_ahead"], **where
            )
        else:
            assert limits.memory_bytes is not None, "or a bundle is compared"
            found = pipeline.gate_limit(spec, limits.memory_bytes, read, **where)
    print_changes(console, launcher.changes)
    if found is None:
        console.say("Stopped before the run had ended: there is no answer.")
        raise typer.Exit(130)
    tell(found, (), as_json=options["json"])
    write_reports(found, name_of(spec), reports, console)
    raise typer.Exit(EXITS[found.answer])


def is_typed(context: typer.Context, name: str) -> bool:
    """Return whether an option stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _is_bundle(path: str) -> bool:
    return (Path(path) / STACK_NAME).is_file()


def names_script(first: str, *, is_module: bool) -> bool:
    """Return whether what stands first is no bundle, but something to run."""
    path = Path(first)
    return is_module or path.is_file() or path.suffix == ".py" or shutil.which(first) is not None


def _check_positional(positional: Sequence[str], *, is_module: bool) -> bool:
    """Return whether a bundle stands before the script; UsageError if one of them is missing."""
    if not positional:
        raise UsageError("the script is missing", hint="autotune gate train.py --limit 24GiB")
    first, *others = positional
    if _is_bundle(first):
        if not others:
            raise UsageError(
                f"{first!r} is a bundle, and the script is missing", hint="autotune gate BUNDLE train.py --limit 24GiB"
            )
        return True
    if others and not names_script(first, is_module=is_module) and Path(others[0]).is_file():
        raise UsageError(f"there is no bundle in {first!r}", hint="name a folder that `autotune run` has written")
    return False
