"""`autotune export`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import DEFAULT_STORAGE, JsonOption, StorageOption, StudyArgument

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export")(export)


def export(
    study: StudyArgument,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the bundle goes. Default: autotune-STUDY.")
    ] = None,
    trial: Annotated[int | None, typer.Option(help="Export this trial's setting instead of the winner's.")] = None,
    storage: StorageOption = DEFAULT_STORAGE,
    json: JsonOption = False,
) -> None:
    """Write a study's bundle again: mem_opt.json, the stack, env.sh and the report."""
    from .. import pipeline
    from ..errors import UsageError
    from ..report import build_document, launch_sentence
    from ..store import open_store
    from .options import print_json

    directory = output or Path(f"autotune-{study}")
    with open_store(storage) as store:
        opened = store.open(study)
        record = opened.record()
        chosen = None
        if trial is not None:
            found = next((one for one in record.trials if one.number == trial), None)
            if found is None:
                raise UsageError(f"study {study!r} has no trial {trial}", hint=f"`autotune show {study}` lists them")
            chosen = found.configuration
        written = pipeline.export(opened, directory, configuration=chosen)
    document = build_document(record, bundle=str(directory))
    if json:
        print_json({"bundle": str(written), "launch": launch_sentence(document)})
    else:
        typer.echo(f"{written}")
        typer.echo(launch_sentence(document), err=True)
