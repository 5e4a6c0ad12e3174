"""`autotune discover`"""

from __future__ import annotations

from typing import Annotated

import typer

from ..records.study import StudySpec
from .command import make_app, print_json
from .options import (
    ArgumentsArgument,
    DeviceOption,
    EngineOption,
    InputsOption,
    JsonOption,
    LeaveFilesOption,
    ModuleOption,
    OwnBatchSizeOption,
    PythonOption,
    ScratchOption,
    ScriptArgument,
    ShapeOption,
    StartTimeoutOption,
    TrialTimeoutOption,
)


def discover(
    context: typer.Context,
    script: ScriptArgument,
    arguments: ArgumentsArgument = None,
    is_module: ModuleOption = False,
    own_batch_size: OwnBatchSizeOption = None,
    engine: EngineOption = StudySpec.engine,
    python: PythonOption = None,
    devices: DeviceOption = None,
    start_timeout_s: StartTimeoutOption = None,
    trial_timeout_s: TrialTimeoutOption = None,
    memory_matrix: Annotated[
        bool, typer.Option("--memory-matrix", help="Print what the memory held at each phase of two steps.")
    ] = False,
    shapes: ShapeOption = None,
    inputs: InputsOption = None,
    scratch: ScratchOption = False,
    leaves_files: LeaveFilesOption = False,
    json: JsonOption = False,
) -> None:
    """Run a script for a few steps and list what it could recompute, with what each plan saves and costs."""
    from .. import pipeline
    from ..errors import UsageError
    from ..records.codec import to_json
    from ..report.build import describe_facts
    from ..tuning.budget import Budget
    from ..tuning.context import memory_of
    from ..verdict.aim import Aim
    from .interruption import interruption
    from .live.display import Display
    from .live.lines import print_baseline
    from .local_launcher import make_launcher
    from .places import prepare_state_folder, runs_of
    from .spec import spec_of
    from .tables import make_console, print_changes, print_facts

    spec = spec_of(context.params)
    if len(spec.devices) > 1:
        raise UsageError("discovery runs on one device", hint=f"autotune discover --devices {spec.devices[0]}")
    runs = runs_of("discover")
    launcher = make_launcher(spec, runs)
    prepare_state_folder()
    with interruption() as interrupted, Display(make_console(), spec, interrupted) as display:
        found = pipeline.discover(
            spec,
            launcher=launcher,
            watcher=display,
            interruption=interrupted,
            budget=Budget(spec.time_budget_s, interrupted),
            runs=runs,
        )
    print_changes(make_console(), launcher.changes)
    results = make_console(stderr=json)
    results.print()
    print_facts(results, describe_facts(found.facts))
    print_baseline(results, found.baseline, Aim(spec.objective, memory_of(found.facts.environment)), spec)
    if memory_matrix and not json:  # whose document has it
        for row in found.facts.memory_matrix:
            typer.echo(str(row))
    if json:
        print_json({**to_json(describe_facts(found.facts)), "baseline": to_json(found.baseline)})
    if interrupted.finish.is_set():
        raise typer.Exit(130)


app = make_app(discover)
