"""`autotune export`"""

from __future__ import annotations

from shlex import quote
from typing import Annotated

import typer

from .command import make_app, print_json
from .options import DEFAULT_STORAGE, JsonOption, OutputOption, StorageOption, StudyArgument

__all__ = ["app"]


def export(
    study: StudyArgument,
    output: OutputOption = None,
    trial: Annotated[
        int | None, typer.Option(metavar="N", help="Export this trial's setting, to autotune-STUDY-trial-N.")
    ] = None,
    storage: StorageOption = DEFAULT_STORAGE,
    json: JsonOption = False,
) -> None:
    """Write a study's bundle again: mem_opt.json, the stack, env.sh and the report."""
    from .. import pipeline
    from ..errors import UsageError
    from ..store import open_store
    from .places import bundle_of
    from .summary import how_to_launch

    directory = bundle_of(study, output, trial=trial)
    with open_store(storage, create=False) as store:
        opened = store.open(study)
        record = opened.record()
        chosen = None
        if trial is not None:
            found = next((one for one in record.shown if one.number == trial), None)
            if found is None:
                raise UsageError(
                    f"study {study!r} has no trial {trial}", hint=f"`autotune show {quote(study)}` lists them"
                )
            if found.measured is None:
                raise UsageError(
                    f"trial {trial} was not measured, so it is no setting to run",
                    hint=f"why: autotune show {quote(study)} --trial {trial}",
                )
            chosen = found.configuration
        written = pipeline.export(opened, directory, configuration=chosen)
    command = how_to_launch(record, directory)
    if json:
        print_json({"bundle": str(written), "launch": command})
    else:
        typer.echo(f"{written}")
        typer.echo(command, err=True)


app = make_app(export)
