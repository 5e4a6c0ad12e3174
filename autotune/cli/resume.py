"""`autotune resume`"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from ..records.units import parse_duration
from . import options
from .command import make_app


def resume(
    study: options.StudyArgument,
    time_budget_s: Annotated[
        float | None,
        options.parsed_by(parse_duration, "--time-budget", help="Time from now on. Default: as the last time."),
    ] = None,
    max_trials: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Try at most this many settings in all. Default: as before.")
    ] = None,
    cluster: options.ClusterOption = None,
    cluster_files: options.ClusterFilesOption = None,
    cluster_resource: options.ClusterResourceOption = "",
    storage: options.StorageOption = options.DEFAULT_STORAGE,
    output: options.OutputOption = None,
    json: options.JsonOption = False,
) -> None:
    """Continue a study from its database, which has script, arguments and options."""
    from .cluster import launcher_of
    from .places import open_known, runs_of, shown_storage
    from .run import tune_study

    with open_known(storage) as store:
        opened = store.open(study)
        spec = replace(
            opened.spec,
            time_budget_s=time_budget_s or opened.spec.time_budget_s,
            max_trials=max_trials or opened.spec.max_trials,
        )
        # Before the study is touched: the launcher may refuse.
        with launcher_of(spec, runs_of(study), cluster, files=cluster_files, resource=cluster_resource) as launcher:
            if spec != opened.spec:
                opened.set_spec(spec)
            tune_study(opened, launcher, storage=shown_storage(store, storage), output=output, json=json)


app = make_app(resume)
