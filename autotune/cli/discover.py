"""`autotune discover`"""

from __future__ import annotations

from typing import Annotated

import typer

from .options import ArgumentsArgument, JsonOption, ScriptArgument

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("discover")(discover)


def discover(
    script: ScriptArgument,
    arguments: ArgumentsArgument = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="The script's own batch size, where its arguments hold {batch_size}.")
    ] = None,
    python: Annotated[
        str | None, typer.Option(metavar="PATH", help="The interpreter that runs the script. Default: this one.")
    ] = None,
    devices: Annotated[str | None, typer.Option(metavar="0", help="The GPU to run on.")] = None,
    start_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Give the script this long until its first training step ends.")
    ] = "5m",
    trial_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Give the measurement this long from then on.")
    ] = "2m",
    json: JsonOption = False,
) -> None:
    """Run a script for a few steps and list what it could recompute, with what each plan saves and costs."""
    from .. import pipeline
    from ..records import to_json
    from ..report import describe_facts
    from .live import Display
    from .options import print_json
    from .running import Options, interruption, make_launcher, make_spec, runs_of
    from .tables import make_console

    spec = make_spec(
        Options(
            script=script,
            arguments=tuple(arguments or ()),
            batch_size=batch_size,
            python=python,
            devices=devices,
            start_timeout=start_timeout,
            trial_timeout=trial_timeout,
        )
    )
    console = make_console()
    with interruption() as interrupted, Display(console, spec.start_timeout_s) as display:
        facts, baseline = pipeline.discover(
            spec,
            launcher=make_launcher(spec, runs_of("discover")),
            watcher=display,
            interruption=interrupted,
            budget=pipeline.Budget(spec.time_budget_s, interrupted),
        )
        display.discovered(facts, baseline, pipeline.memory_limit(None, facts))
    if json:
        print_json({**describe_facts(facts), "baseline": to_json(baseline)})
