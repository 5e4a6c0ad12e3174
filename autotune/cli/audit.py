"""`autotune audit`"""

from __future__ import annotations

import typer

from ..errors import UsageError
from ..records.codec import to_json
from ..records.engines import ENGINES
from ..records.printable import as_operand, shell_line
from ..records.study import StudySpec
from . import options
from .command import make_app, print_json


def audit(
    context: typer.Context,
    script: options.ScriptArgument,
    arguments: options.ArgumentsArgument = None,
    is_module: options.ModuleOption = False,
    own_batch_size: options.OwnBatchSizeOption = None,
    python: options.PythonOption = None,
    devices: options.DeviceOption = None,
    start_timeout_s: options.StartTimeoutOption = None,
    trial_timeout_s: options.TrialTimeoutOption = None,
    scratch: options.ScratchOption = False,
    leaves_files: options.LeaveFilesOption = False,
    json: options.JsonOption = False,
) -> None:
    """Run a script for a few steps, and measure what its own checkpointing, offloading and compiling save and cost.

    The first steps are also compared with the same steps without checkpointing and offloading, from the same seeds.
    """
    from .. import pipeline
    from ..report.audit import audit_rows, audit_sentences, holder_table, region_table
    from ..verdict.auditing import judge_audit
    from .live.display import Display
    from .local_launcher import interruption, prepare_one_run
    from .spec import spec_of
    from .tables import make_console, print_changes, print_rows, print_table

    spec = spec_of(context.params, engine=StudySpec.engine)
    if ENGINES[spec.engine].target != "script":
        raise UsageError("an ONNX model keeps nothing for a backward", hint="audit the script that trains it")
    launcher, runs = prepare_one_run("audit", spec)
    make_console().print("Running the unmodified script for a few steps", style="dim")
    with interruption() as interrupted, Display(make_console(), spec, interrupted) as display:
        found, baseline = pipeline.audit(spec, launcher=launcher, watcher=display, interruption=interrupted, runs=runs)
    print_changes(make_console(), launcher.changes)
    if json:
        head = {"sentences": audit_sentences(found), "verdict": judge_audit(found)}
        print_json({**head, **to_json(found), "baseline": to_json(baseline)})
    else:
        console = make_console(stderr=False)
        console.print()
        for sentence in audit_sentences(found):
            console.say(sentence)
        console.print()
        print_rows(console, audit_rows(found))
        for table in (region_table(found), holder_table(found)):
            if table.rows:
                console.print()
                print_table(console, table)
        for note in found.notes:
            console.say(f"note: {note}")
        target = ("-m", spec.module) if spec.module else (as_operand(str(script)),)
        words = ("autotune", "run", *target, *(("--", *spec.arguments) if spec.arguments else ()))
        console.say(f"\nTo recompute other parts: {shell_line(words)}")
    if interrupted.finish.is_set():
        raise typer.Exit(130)
    if found.proof is not None and found.proof.is_wrong:
        raise typer.Exit(3)


app = make_app(
    audit,
    epilog="Exit codes: 0 audited, 1 it could not be measured, 2 wrong usage, 3 checkpointing loses gradients or "
    "changes what is computed, 130 interrupted.",
)
