"""`autotune discover`"""

from __future__ import annotations

from typing import Annotated

import typer

from .options import (
    ArgumentsArgument,
    BatchSizeOption,
    DeviceOption,
    EngineOption,
    JsonOption,
    PythonOption,
    ScratchOption,
    ScriptArgument,
    StartTimeoutOption,
    TrialTimeoutOption,
    add_command,
)

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "discover", discover, short="List what a script could recompute, and what that saves.")


def discover(
    script: ScriptArgument,
    arguments: ArgumentsArgument = None,
    batch_size: BatchSizeOption = None,
    engine: EngineOption = "aot",
    python: PythonOption = None,
    devices: DeviceOption = None,
    start_timeout: StartTimeoutOption = "5m",
    trial_timeout: TrialTimeoutOption = "2m",
    memory_matrix: Annotated[
        bool, typer.Option("--memory-matrix", help="Print what the memory held at each phase of two steps.")
    ] = False,
    scratch: ScratchOption = False,
    json: JsonOption = False,
) -> None:
    """Run a script for a few steps and list what it could recompute, with what each plan saves and costs."""
    from .. import pipeline
    from ..errors import UsageError
    from ..records import to_json
    from ..report import describe_facts
    from ..tuning import Budget, memory_limit
    from .live import Display
    from .options import print_json
    from .running import Options, interruption, make_launcher, make_spec, runs_of
    from .tables import make_console

    spec = make_spec(
        Options(
            script=script,
            arguments=tuple(arguments or ()),
            batch_size=batch_size,
            engine=engine,
            python=python,
            devices=devices,
            start_timeout=start_timeout,
            trial_timeout=trial_timeout,
            scratch=scratch,
        )
    )
    if len(spec.devices) > 1:
        raise UsageError("discovery runs on one device", hint=f"autotune discover --devices {spec.devices[0]}")
    runs = runs_of("discover")
    launcher = make_launcher(spec, runs)
    with interruption() as interrupted, Display(make_console(), spec, interrupted) as display:
        found = pipeline.discover(
            spec,
            launcher=launcher,
            watcher=display,
            interruption=interrupted,
            budget=Budget(spec.time_budget_s, interrupted),
            runs=runs,
        )
        display.discovered(found.facts, found.baseline, memory_limit(None, found.facts))
    if memory_matrix and not json:  # whose document has it
        for row in found.facts.memory_matrix:
            typer.echo(str(row))
    if json:
        print_json({**describe_facts(found.facts), "baseline": to_json(found.baseline)})
    if interrupted.finish.is_set():
        raise typer.Exit(130)
