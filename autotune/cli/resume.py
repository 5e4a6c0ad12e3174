"""`autotune resume`"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from .options import DEFAULT_STORAGE, JsonOption, StorageOption, StudyArgument

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("resume")(resume)


def resume(
    study: StudyArgument,
    time_budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Search for this long. Default: the study's own budget.")
    ] = None,
    max_trials: Annotated[int | None, typer.Option(min=1, help="Raise the number of configurations.")] = None,
    storage: StorageOption = DEFAULT_STORAGE,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the bundle goes. Default: autotune-STUDY.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Go on with a study from its database alone: script, arguments and options are in there."""
    from ..records.units import parse_duration
    from ..store import open_store
    from .run import tune_study

    with open_store(storage) as store:
        opened = store.open(study)
        spec = opened.spec
        if time_budget is not None:
            spec = replace(spec, time_budget_s=parse_duration(time_budget))
        if max_trials is not None:
            spec = replace(spec, max_trials=max_trials)
        if spec != opened.spec:
            opened.set_spec(spec)
        tune_study(opened, store, output=output, json=json)
