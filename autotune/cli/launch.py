"""`autotune launch`"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from .options import ArgumentsArgument, PythonOption, ScriptArgument, add_command

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    epilog = "Exit codes: the script's own; 2 wrong usage, 3 the bundle cannot be applied to this script."
    add_command(app, "launch", launch, short="Run a script to its end with a bundle applied.", epilog=epilog)


def launch(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder that `autotune run` wrote.")],
    script: ScriptArgument,
    arguments: ArgumentsArgument = None,
    python: PythonOption = None,
) -> None:
    """Run a script to its own end with a bundle's setting applied; output and exit status are the script's own."""
    import tempfile

    from ..discovery import check_script, script_sha256
    from ..errors import RunError
    from ..export import read_bundle
    from ..launch import check_interpreter, fill_arguments, worker_command
    from ..records import Request, dumps
    from .running import check_platform, interpreter_of

    check_platform()
    read = read_bundle(bundle)
    path = check_script(script)
    chosen = interpreter_of(read.stack.engine, python)
    if python is not None:
        check_interpreter(chosen)
    if script_sha256(path) != read.stack.script_sha256:
        sys.stderr.write(f"autotune: note: {path.name} is not the script that was measured; its speed may differ\n")
    request = Request(
        mode="launch",
        script=str(path),
        arguments=fill_arguments(tuple(arguments or ()), read.stack.batch_size),
        configurations=(read.configuration,),
        batch_control=read.stack.batch_control,
    )
    directory = None
    try:
        # The worker removes it as soon as it has read it.
        directory = Path(tempfile.mkdtemp(prefix="autotune-launch-"))
        (directory / "request.json").write_text(dumps(request))
        command = worker_command(chosen, directory)
        for name, value in read.environment.items():
            if os.environ.get(name, value) != value:
                sys.stderr.write(f"autotune: note: {name}={value} as measured, instead of {os.environ[name]}\n")
        sys.stdout.flush()
        sys.stderr.flush()
        # Replaces this process: signals, exit status and output are the script's own.
        os.execve(command[0], command, os.environ | read.environment)  # noqa: S606
    except OSError as error:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
        raise RunError(
            f"the script could not be started: {error.strerror or error}",
            hint="it takes a few kilobytes in the temporary folder; TMPDIR names another one",
        ) from error
