"""`autotune explain`"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from ..errors import UsageError
from ..records.cards import CARDS, Card, card_named
from ..records.codec import to_json
from ..records.engines import ENGINES
from ..records.explanation import Explanation
from ..records.study import StudySpec
from ..records.units import format_bytes
from . import options
from .command import make_app, print_json


def explain(
    context: typer.Context,
    script: options.ScriptArgument,
    arguments: options.ArgumentsArgument = None,
    is_module: options.ModuleOption = False,
    cards: options.CardOption = None,
    changes: Annotated[
        bool,
        typer.Option(
            "--changes",
            help="Also follow the script with each change that may lower the peak: checkpointing, offloading, others.",
        ),
    ] = False,
    look_ahead: options.LookAheadOption = 0,
    own_batch_size: options.OwnBatchSizeOption = None,
    python: options.PythonOption = None,
    start_timeout_s: options.StartTimeoutOption = None,
    trial_timeout_s: options.TrialTimeoutOption = None,
    scratch: options.ScratchOption = False,
    leaves_files: options.LeaveFilesOption = False,
    json: options.JsonOption = False,
) -> None:
    """Say where a script's GPU memory goes: the peak of a step, by module and by line.

    Nothing is computed, and no GPU is needed: the script's first steps are followed by the sizes of its tensors alone.
    """
    from .. import pipeline
    from ..report.explanation import change_sentences, closing_sentences, explanation_sentences
    from .live.run_count import RunCount
    from .local_launcher import interruption, prepare_one_run
    from .spec import spec_of
    from .tables import make_console, print_changes

    spec = spec_of(context.params, engine=StudySpec.engine)
    if ENGINES[spec.engine].target != "script":
        raise UsageError("explain is for scripts that train", hint="`autotune discover` lists a model's memory")
    card = card_of(cards)
    launcher, runs = prepare_one_run("explain", spec)
    make_console().print("Following the unmodified script's first steps by the sizes of its tensors", style="dim")
    with interruption() as interrupted, RunCount(make_console(), interrupted) as count:
        explained = pipeline.explain(
            spec,
            card,
            launcher=launcher,
            interruption=interrupted,
            runs=runs,
            tries_changes=changes,
            look_ahead=look_ahead,
            progress=count.progress,
        )
    print_changes(make_console(), launcher.changes)
    if json:
        told = (*explanation_sentences(explained), *change_sentences(explained), *closing_sentences(explained))
        print_json({"sentences": told, **to_json(explained)})
    else:
        _print(explained)
    if interrupted.finish.is_set():
        raise typer.Exit(130)


def _print(explained: Explanation) -> None:
    from ..report.explanation import (
        change_sentences,
        change_table,
        closing_sentences,
        draw_timeline,
        explanation_sentences,
        kind_table,
        line_table,
        module_table,
        tensor_table,
    )
    from .tables import make_console, print_table

    console = make_console(stderr=False)
    console.print()
    for told in explanation_sentences(explained):
        console.say(told)
    console.print()
    for drawn in draw_timeline(explained):
        console.say(drawn)
    tables = (kind_table(explained), module_table(explained), line_table(explained), tensor_table(explained))
    for table in tables:
        console.print()
        print_table(console, table)
    if explained.changes:
        console.say(
            f"\nEach change alone; as it is, the script has {format_bytes(explained.peak_bytes)} at its peak:\n"
        )
        print_table(console, change_table(explained))
        console.print()
        for told in change_sentences(explained):
            console.say(told)
    console.print()
    for told in closing_sentences(explained):
        console.say(told)


def card_of(named: Sequence[Card] | None) -> Card:
    """Return the card that --for names: by default this machine's first GPU, or an A100 where there is none.

    Raises:
        UsageError: it names several.
    """
    card, *others = named or [_card_here()]
    if others:
        raise UsageError("lines are told for one card at a time", hint=f"--for {card.name}")
    return card


def _card_here() -> Card:
    from ..machine.meters.nvidia import read_gpus

    for device in read_gpus().devices:
        if device.memory_bytes is not None:
            return card_named(device.name, device.usable_bytes or device.memory_bytes)
    return CARDS["a100-80gb"]


app = make_app(explain)
