"""`autotune launch`"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from .options import ArgumentsArgument, ScriptArgument

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("launch")(launch)


def launch(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder that `autotune run` wrote.")],
    script: ScriptArgument,
    arguments: ArgumentsArgument = None,
    python: Annotated[
        str | None, typer.Option(metavar="PATH", help="The interpreter that runs the script. Default: this one.")
    ] = None,
) -> None:
    """Run a script to its own end with a bundle's setting applied; output and exit status are the script's own.

    Exit status 3 means that the bundle could not be applied to this script.
    """
    from ..discovery import check_script, script_sha256
    from ..export import read_bundle
    from ..launch import fill_arguments, worker_command
    from ..records import Request, dumps
    from .running import interpreter

    read = read_bundle(bundle)
    path = check_script(script)
    if script_sha256(path) != read.stack.script_sha256:
        sys.stderr.write(f"autotune: note: {path.name} is not the script that was measured; its speed may differ\n")
    request = Request(
        mode="launch",
        script=str(path),
        arguments=fill_arguments(tuple(arguments or ()), read.stack.batch_size),
        configurations=(read.configuration,),
        batch_control=read.stack.batch_control,
    )
    # The worker removes it as soon as it has read it.
    directory = Path(tempfile.mkdtemp(prefix="autotune-launch-"))
    (directory / "request.json").write_text(dumps(request))
    command = worker_command(interpreter(python), directory)
    sys.stdout.flush()
    sys.stderr.flush()
    # Replaces this process: signals, exit status and output are the script's own.
    os.execve(command[0], command, os.environ | read.environment)  # noqa: S606
