"""`autotune fit`"""

from __future__ import annotations

import typer

from .options import (
    ArgumentsArgument,
    BatchSizeOption,
    BatchSizesOption,
    DeviceOption,
    EngineOption,
    JsonOption,
    MemoryLimitOption,
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
    add_command(app, "fit", fit, short="Tell which batch sizes should fit, and with which plans.")


def fit(
    script: ScriptArgument,
    arguments: ArgumentsArgument = None,
    memory_limit: MemoryLimitOption = None,
    batch_sizes: BatchSizesOption = None,
    batch_size: BatchSizeOption = None,
    engine: EngineOption = "aot",
    python: PythonOption = None,
    devices: DeviceOption = None,
    start_timeout: StartTimeoutOption = "5m",
    trial_timeout: TrialTimeoutOption = "2m",
    scratch: ScratchOption = False,
    json: JsonOption = False,
) -> None:
    """Run a script for a few steps, and tell from that which batch sizes should fit, and with which plans."""
    from .. import pipeline
    from ..errors import UsageError
    from ..records import to_json
    from ..report import describe_facts, fit_sentence, fit_table
    from ..tuning import Budget
    from .live import Display
    from .options import print_json
    from .running import Options, interruption, make_launcher, make_spec, runs_of
    from .tables import make_console, print_table

    spec = make_spec(
        Options(
            script=script,
            arguments=tuple(arguments or ()),
            memory_limit=memory_limit,
            batch_sizes=batch_sizes,
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
        raise UsageError("the script runs on one device", hint=f"autotune fit --devices {spec.devices[0]}")
    runs = runs_of("fit")
    launcher = make_launcher(spec, runs)
    with interruption() as interrupted, Display(make_console(), spec, interrupted) as display:
        facts, limit_bytes, fits = pipeline.fit(
            spec,
            launcher=launcher,
            watcher=display,
            interruption=interrupted,
            budget=Budget(spec.time_budget_s, interrupted),
            runs=runs,
        )
    if json:
        print_json({"limit_bytes": limit_bytes, "fits": to_json(fits), **describe_facts(facts)})
    else:
        console = make_console(stderr=False)
        console.print(f"\n{fit_sentence(fits, limit_bytes=limit_bytes)}\n", soft_wrap=True)
        if fits:
            print_table(console, fit_table(fits))
            console.print("\nNone of it was run but the script as it is. `autotune run` measures and proves the best.")
    if interrupted.finish.is_set():
        raise typer.Exit(130)
