"""`autotune discover`"""

from __future__ import annotations

from typing import Annotated

import typer

from ..records.codec import to_json
from ..records.study import StudySpec
from . import options
from .command import make_app, print_json


def discover(
    context: typer.Context,
    script: options.ScriptArgument,
    arguments: options.ArgumentsArgument = None,
    is_module: options.ModuleOption = False,
    own_batch_size: options.OwnBatchSizeOption = None,
    engine: options.EngineOption = StudySpec.engine,
    python: options.PythonOption = None,
    devices: options.DeviceOption = None,
    start_timeout_s: options.StartTimeoutOption = None,
    trial_timeout_s: options.TrialTimeoutOption = None,
    memory_matrix: Annotated[
        bool, typer.Option("--memory-matrix", help="Print the memory before and after each phase of two steps.")
    ] = False,
    look_ahead: options.StudyLookAheadOption = StudySpec.look_ahead,
    shapes: options.ShapeOption = None,
    inputs: options.InputsOption = None,
    scratch: options.ScratchOption = False,
    leaves_files: options.LeaveFilesOption = False,
    json: options.JsonOption = False,
) -> None:
    """Run a script for a few steps and list what it can recompute, with savings and costs."""
    from .. import pipeline
    from ..report.build import describe_facts
    from ..tuning.budget import Budget
    from ..tuning.context import memory_of
    from ..verdict.aim import Aim
    from .live.display import Display, print_baseline
    from .local_launcher import interruption, prepare_one_run
    from .spec import spec_of
    from .tables import make_console, print_changes, print_facts

    spec = spec_of(context.params)
    launcher, runs = prepare_one_run("discover", spec)
    with interruption() as interrupted, Display(make_console(), spec, interrupted) as display:
        budget = Budget(spec.time_budget_s, interrupted)
        found = pipeline.discover(
            spec, launcher=launcher, watcher=display, interruption=interrupted, budget=budget, runs=runs
        )
    print_changes(make_console(), launcher.changes)
    results = make_console(stderr=json)
    results.print()
    print_facts(results, describe_facts(found.facts))
    aim = Aim(spec.objective, memory_of(found.facts.environment))
    print_baseline(results, found.baseline, aim, spec, facts=found.facts)
    if json:
        print_json({**to_json(describe_facts(found.facts)), "baseline": to_json(found.baseline)})
    elif memory_matrix:
        for row in found.facts.memory_matrix:
            typer.echo(str(row))
    if interrupted.finish.is_set():
        raise typer.Exit(130)


app = make_app(discover)
