"""`autotune verify`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .options import (
    ArgumentsArgument,
    JsonOption,
    PythonOption,
    ScratchOption,
    ScriptArgument,
    add_command,
)

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    epilog = "Exit codes: 0 equal, 1 not, 2 wrong usage, 130 interrupted."
    add_command(app, "verify", verify, short="Prove that a bundle trains a script as it is.", epilog=epilog)


def verify(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder that `autotune run` wrote.")],
    script: ScriptArgument,
    arguments: ArgumentsArgument = None,
    python: PythonOption = None,
    devices: Annotated[str | None, typer.Option(metavar="0", help="The GPU to run on. Default: as the script.")] = None,
    start_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Give each run this long until its first training step ends.")
    ] = "5m",
    trial_timeout: Annotated[str, typer.Option(metavar="TIME", help="Give each run this long from then on.")] = "2m",
    scratch: ScratchOption = False,
    json: JsonOption = False,
) -> None:
    """Run a script's first steps with the same seeds, as it is and with a bundle applied, and compare every bit.

    Where an engine generates code, which rounds as it is fused, equal means: but for rounding.
    """
    from .. import pipeline
    from ..discovery import script_sha256
    from ..errors import UsageError
    from ..export import read_bundle
    from ..records import to_json
    from ..report import proof_table
    from .options import print_json
    from .running import Options, check_platform, interruption, make_launcher, make_spec, runs_of
    from .tables import make_console, print_table

    check_platform()
    read = read_bundle(bundle)
    spec = make_spec(
        Options(
            script=script,
            arguments=tuple(arguments or ()),
            batch_size=read.stack.batch_size,
            engine=read.stack.engine,
            python=python,
            devices=devices,
            start_timeout=start_timeout,
            trial_timeout=trial_timeout,
            scratch=scratch,
        )
    )
    if len(spec.devices) > 1:
        raise UsageError("a proof runs on one device", hint=f"autotune verify --devices {spec.devices[0]}")
    runs = runs_of("verify")
    launcher = make_launcher(spec, runs, read.environment)
    if script_sha256(Path(spec.script)) != read.stack.script_sha256:
        sys.stderr.write(f"autotune: note: {Path(spec.script).name} is not the script that was measured\n")
    console = make_console()
    with interruption() as interrupted:
        proof = pipeline.verify(
            read,
            spec,
            launcher=launcher,
            cancel=interrupted.finish,
            runs=runs,
            began=lambda what: console.print(what, markup=False, soft_wrap=True),
        )
    if proof is None:
        raise typer.Exit(130)
    if json:
        print_json(to_json(proof))
    else:
        typer.echo(proof.statement)
    if proof.steps:
        print_table(console, proof_table(proof))
    if not proof.holds:
        raise typer.Exit(1)
