"""`autotune launch`"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import RunError
from ..records.codec import dumps
from ..records.engines import ENGINES
from ..records.printable import printable
from ..records.stale import REFUSED_STATUS, mismatches, refusal_text
from . import options
from .command import make_app


def launch(
    bundle: options.BundleArgument,
    script: options.ScriptArgument,
    arguments: options.ArgumentsArgument = None,
    shapes: options.ShapeOption = None,
    inputs: options.InputsOption = None,
    is_module: options.ModuleOption = False,
    python: options.PythonOption = None,
    allow_stale: Annotated[
        bool,
        typer.Option(
            "--allow-stale",
            help="If the script, its model or torch have changed since the bundle was made, apply what still fits, and "
            "say what does not.",
        ),
    ] = False,
) -> None:
    """Run a script to its end with a bundle's setting applied; output and exit status are the script's own.

    A script that runs out of memory is told with the batch, and ends with exit code 4.
    """
    import tempfile

    from ..export.bundle import read_bundle
    from ..launch.process import worker_command
    from ..launch.requests import launch_request
    from ..machine.environments import engine_interpreter
    from ..machine.host import check_platform
    from ..machine.interpreter import check_worker_python, worker_of
    from ..worker.refusal import note_once, tell_refusal
    from .spec import find_script, target_arguments

    check_platform()
    read = read_bundle(bundle)
    chosen = engine_interpreter(read.stack.engine, named=python)
    given = target_arguments(script, arguments, shapes, inputs)
    path, module = find_script(script, is_module=is_module, python=chosen)
    if python is not None:
        check_worker_python(chosen)
    expected = read.stack.fingerprint
    changed = mismatches(expected, expected.files_now(path, module, given), engine=read.stack.engine)
    if changed and not allow_stale:
        tell_refusal(refusal_text(changed, target=ENGINES[read.stack.engine].target))
        raise typer.Exit(REFUSED_STATUS)
    for one in changed:
        note_once(f"autotune: note: {printable(one.said)}\n")
    own, set_to = read.stack.script_batch_size, read.configuration.batch_size
    if own and set_to and own != set_to:
        note_once(f"autotune: note: the batch size is the bundle's, {set_to}, instead of {own}\n")
    for caution in read.stack.cautions:
        note_once(f"autotune: note: {caution}\n")
    request = launch_request(
        read.stack,
        read.configuration,
        script=path,
        module=module,
        arguments=given,
        allow_stale=allow_stale,
        is_stale=bool(changed),
    )
    directory = None
    try:
        # The worker removes it as soon as it has read it.
        directory = Path(tempfile.mkdtemp(prefix="autotune-launch-"))
        (directory / "request.json").write_text(dumps(request), encoding="utf-8")
        command = worker_command(chosen, directory, worker=worker_of(read.stack.engine))
        for name, value in read.environment.items():
            if os.environ.get(name, value) != value:
                note_once(f"autotune: note: {name}={value} as measured, instead of {os.environ[name]}\n")
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


app = make_app(
    launch,
    epilog="Exit codes: the script's own; 2 wrong usage, 3 the bundle does not fit this script, 4 out of memory.",
)
