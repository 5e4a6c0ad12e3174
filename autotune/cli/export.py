"""`autotune export`"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from ..records.command import shell_word
from ..records.printable import printable
from .command import make_app, print_json
from .options import DEFAULT_STORAGE, JsonOption, OutputOption, StorageOption, StudyArgument, chosen_from

__all__ = ["app"]


def export(
    study: StudyArgument,
    output: OutputOption = None,
    trial: Annotated[
        int | None, typer.Option(metavar="N", help="Export this trial's setting, to autotune-STUDY-trial-N.")
    ] = None,
    to: Annotated[
        str | None,
        chosen_from(
            Literal["mlflow", "wandb", "tensorboard"],
            "--to",
            help="Send the study to an experiment tracker instead, a run for each trial. Its own variables say where; "
            "TensorBoard's files go to runs/STUDY, or to --output.",
        ),
    ] = None,
    with_bundle: Annotated[
        bool,
        typer.Option(
            "--with-bundle",
            help="With --to mlflow or wandb: send the bundle along, which holds the script's arguments and variables.",
        ),
    ] = False,
    storage: StorageOption = DEFAULT_STORAGE,
    json: JsonOption = False,
) -> None:
    """Write a study's bundle again: mem_opt.json, the stack, env.sh and the report.

    With --to: send the study to an experiment tracker.
    """
    from .. import pipeline
    from ..errors import UsageError
    from ..store import open_store
    from .places import bundle_of, known_storage
    from .summary import how_to_launch

    if to is not None:
        _send(study, to, output=output, trial=trial, with_bundle=with_bundle, storage=storage, json=json)
        return
    if with_bundle:
        raise UsageError(
            "--with-bundle sends the bundle to a tracker", hint="name it: --to mlflow or --to wandb; or leave it out"
        )
    directory = bundle_of(study, output, trial=trial)
    with open_store(known_storage(storage), create=False) as store:
        opened = store.open(study)
        record = opened.record()
        chosen = None
        if trial is not None:
            found = next((one for one in record.shown if one.number == trial), None)
            if found is None:
                raise UsageError(
                    f"study {study!r} has no trial {trial}", hint=f"`autotune show {shell_word(study)}` lists them"
                )
            if found.measured is None:
                raise UsageError(
                    f"trial {trial} was not measured, so it is no setting to run",
                    hint=f"why: autotune show {shell_word(study)} --trial {trial}",
                )
            chosen = found.configuration
        written = pipeline.export(opened, directory, configuration=chosen)
    command = how_to_launch(record, directory)
    if json:
        print_json({"bundle": str(written), "launch": command})
    else:
        typer.echo(os.fsencode(written))  # for a shell, so as it is
        typer.echo(command, err=True)


def _send(
    study: str, to: str, *, output: Path | None, trial: int | None, with_bundle: bool, storage: str, json: bool
) -> None:
    from .. import pipeline
    from ..errors import UsageError
    from ..store import open_store
    from ..trackers import TRACKERS
    from .places import known_storage, logs_of

    if trial is not None:
        raise UsageError("--trial exports one setting, and --to sends all of them", hint="leave one of the two out")
    if output is not None and to != "tensorboard":
        raise UsageError(
            f"--output is for files, and {TRACKERS[to]} says where by its own variables", hint="leave it out"
        )
    if with_bundle and to == "tensorboard":
        raise UsageError(
            "--with-bundle goes with --to mlflow or wandb: TensorBoard keeps no files", hint="leave it out"
        )
    with open_store(known_storage(storage), create=False) as store:
        sent = pipeline.send(store.open(study), to, logs_of(study, output), with_bundle=with_bundle)
    if json:
        print_json({"to": to, "where": sent.where, "new_trials": sent.new, "look": sent.look})
    else:
        typer.echo(f"{TRACKERS[to]} has {study} in {printable(sent.where)}; {sent.new} trials were sent.")
        typer.echo(sent.look, err=True)


app = make_app(export)
