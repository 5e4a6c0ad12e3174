"""`autotune resume`"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from .options import DEFAULT_STORAGE, JsonOption, OutputOption, StorageOption, StudyArgument, add_command

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "resume", resume, short="Go on with a study from its database alone.")


def resume(
    study: StudyArgument,
    time_budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Take about this long from now on. Default: as the last time.")
    ] = None,
    max_trials: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Search at most this many configurations in all. Default: as before."),
    ] = None,
    storage: StorageOption = DEFAULT_STORAGE,
    output: OutputOption = None,
    json: JsonOption = False,
) -> None:
    """Go on with a study from its database alone: script, arguments and options are in there."""
    from ..records.units import parse_duration
    from ..store import open_store
    from .run import tune_study
    from .running import make_launcher, parsed, runs_of, shown_storage

    budget_s = None if time_budget is None else parsed("--time-budget", parse_duration, time_budget)
    with open_store(storage, create=False) as store:
        opened = store.open(study)
        spec = opened.spec
        if budget_s is not None:
            spec = replace(spec, time_budget_s=budget_s)
        if max_trials is not None:
            spec = replace(spec, max_trials=max_trials)
        launcher = make_launcher(spec, runs_of(study))  # before the study is touched: it may refuse
        if spec != opened.spec:
            opened.set_spec(spec)
        tune_study(opened, store, launcher, storage=shown_storage(store, storage), output=output, json=json)
