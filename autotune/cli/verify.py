"""`autotune verify`"""

from __future__ import annotations

import sys

import typer

from ..records.codec import to_json
from ..records.printable import printable
from ..records.stale import mismatches
from . import options
from .command import make_app, print_json


def verify(
    context: typer.Context,
    bundle: options.BundleArgument,
    script: options.ScriptArgument,
    arguments: options.ArgumentsArgument = None,
    shapes: options.ShapeOption = None,
    inputs: options.InputsOption = None,
    is_module: options.ModuleOption = False,
    python: options.PythonOption = None,
    devices: options.DeviceOption = None,
    start_timeout_s: options.StartTimeoutOption = None,
    trial_timeout_s: options.TrialTimeoutOption = None,
    scratch: options.ScratchOption = False,
    leaves_files: options.LeaveFilesOption = False,
    json: options.JsonOption = False,
) -> None:
    """Run a script's first steps with and without a bundle, from the same seeds, and compare every bit.

    Engines that generate code round differently. With them, equal means equal but for rounding.
    """
    from .. import pipeline
    from ..export.bundle import read_bundle
    from ..machine.host import check_platform
    from ..report.tables import proof_table
    from .local_launcher import interruption, prepare_one_run
    from .spec import spec_of
    from .tables import make_console, print_changes, print_table

    check_platform()
    read = read_bundle(bundle)
    spec = spec_of(context.params, engine=read.stack.engine, bundle_batch_size=read.stack.batch_size)
    launcher, runs = prepare_one_run("verify", spec, read.surroundings)
    expected = read.stack.fingerprint
    now = expected.files_now(spec.script, spec.module, spec.arguments)
    for one in mismatches(expected, now, engine=spec.engine):
        sys.stderr.write(f"autotune: note: {printable(one.said)}\n")
    console = make_console()
    with interruption() as interrupted:
        proof = pipeline.verify(read, spec, launcher=launcher, cancel=interrupted.finish, runs=runs, began=console.say)
    print_changes(console, launcher.changes)
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
    if interrupted.finish.is_set():
        raise typer.Exit(130)


app = make_app(verify, epilog="Exit codes: 0 equal, 1 not, 2 wrong usage, 130 interrupted.")
