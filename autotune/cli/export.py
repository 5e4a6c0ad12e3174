"""`autotune export`"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from ..export.exporters import EXPORTERS
from ..export.trackers.sending import TRACKERS
from ..records.codec import to_json
from ..records.configuration import Configuration
from ..records.figures import format_figures, format_measured
from ..records.outcome import Measured, Outcome
from ..records.printable import first_line, printable, shell_word
from ..records.study import StudyRecord
from ..records.words import setting_words
from .command import make_app, print_json
from .options import DEFAULT_STORAGE, JsonOption, OutputOption, StorageOption, StudyArgument, chosen_from
from .show import find_trial


def export(
    study: StudyArgument,
    output: OutputOption = None,
    trial: Annotated[
        int | None, typer.Option(metavar="N", help="Export this trial's setting, to autotune-STUDY-trial-N.")
    ] = None,
    to: Annotated[
        str | None,
        chosen_from(
            tuple(TRACKERS),
            "--to",
            help="Send the study to an experiment tracker instead, one run per trial. The tracker's own environment "
            "variables give the address. TensorBoard's files go to runs/STUDY, or to --output.",
        ),
    ] = None,
    with_bundle: Annotated[
        bool,
        typer.Option(
            "--with-bundle",
            help="With --to mlflow or wandb: also send the bundle, which holds the script's arguments and variables.",
        ),
    ] = False,
    kind: Annotated[
        str | None,
        chosen_from(
            tuple(EXPORTERS),
            "--as",
            help="Write the setting as a file that works without autotune: plain PyTorch code, or arguments for "
            "transformers' Trainer. autotune measures the file and checks its results before it is written.",
        ),
    ] = None,
    nearest: Annotated[
        bool,
        typer.Option("--nearest", help="With --as: if the setting cannot be written so, take the nearest that can."),
    ] = False,
    repetitions: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="With --as: measure the file this many times, in turns with the script and the setting. Default: 2.",
        ),
    ] = None,
    storage: StorageOption = DEFAULT_STORAGE,
    json: JsonOption = False,
) -> None:
    """Write a study's bundle again: mem_opt.json, the stack, env.sh and the report.

    With --to: send the study to an experiment tracker. With --as: write the
    setting as plain code, or as a framework's arguments.
    """
    from .. import pipeline
    from .places import bundle_of, open_known
    from .summary import how_to_launch

    if kind is not None and to is not None:
        raise UsageError("--as writes a file, and --to sends a study", hint="leave one of the two out")
    for option, is_given, needed, other in (
        ("--repetitions", repetitions is not None, kind, "--as torch"),
        ("--nearest", nearest, kind, "--as torch"),
        ("--with-bundle", with_bundle, to, "--to mlflow"),
    ):
        if is_given and needed is None:
            raise UsageError(f"{option} goes with {other.split()[0]}", hint=f"add {other}, or leave {option} out")
    if to is not None:
        _send(study, to, output=output, trial=trial, with_bundle=with_bundle, storage=storage, json=json)
        return
    if kind is not None:
        _export_file(
            study, kind, output, trial=trial, nearest=nearest, repetitions=repetitions or 2, storage=storage, json=json
        )
        return
    directory = bundle_of(study, output, trial=trial)
    with open_known(storage) as store:
        opened = store.open(study)
        record = opened.record()
        written = pipeline.export(opened, directory, configuration=_chosen(record, trial))
    command = how_to_launch(record, directory)
    if json:
        print_json({"bundle": str(written), "launch": command})
    else:
        typer.echo(os.fsencode(written))  # for a shell, so as it is
        typer.echo(command, err=True)


def _chosen(record: StudyRecord, trial: int | None) -> Configuration | None:
    if trial is None:
        return None
    found = find_trial(record, trial)
    if found.measured is None:
        raise UsageError(
            f"trial {trial} was not measured, so it is no setting to run",
            hint=f"why: autotune show {shell_word(record.name)} --trial {trial}",
        )
    return found.configuration


def _export_file(
    study: str,
    kind: str,
    output: Path | None,
    *,
    trial: int | None,
    nearest: bool,
    repetitions: int,
    storage: str,
    json: bool,
) -> None:
    from .. import pipeline
    from ..export.variables import allowed
    from .local_launcher import interruption, make_launcher
    from .places import prepare_state_folder, runs_of, stored_record
    from .tables import make_console, print_changes, print_rows

    exporter = EXPORTERS[kind]
    path = output or Path(exporter.file_name)
    record, runs = stored_record(study, storage), runs_of(study)
    # As in the study, whatever this shell has: threads, say.
    found = {} if record.facts is None else record.facts.environment.variables or {}
    launcher = make_launcher(record.spec, runs, {name: at for name, at in found.items() if allowed(name, at)})
    console = make_console()
    prepare_state_folder()

    def told(what: str, outcome: Outcome | None) -> None:
        text = what[:1].upper() + what[1:]
        if isinstance(outcome, Measured):
            text = f"  {format_measured(outcome.measurement)}"
        elif outcome is not None:
            text = f"  failed: {first_line(outcome.cause)}"
        console.say(text)

    with interruption() as interrupted:
        taken = pipeline.export_file(
            record,
            exporter,
            path,
            configuration=_chosen(record, trial),
            nearest=nearest,
            repetitions=repetitions,
            launcher=launcher,
            interruption=interrupted,
            runs=runs,
            told=told,
        )
    print_changes(console, launcher.changes)
    shown, said = taken.shown, taken.said
    clusters = () if record.facts is None else record.facts.clusters
    words = setting_words(said.configuration, clusters)
    if json:
        print_json(
            {
                "file": str(path),
                "setting": to_json(said.configuration),
                "words": words,
                "refusals": list(said.reasons),
                "shown": to_json(shown),
            }
        )
        return
    what = "the nearest that can be written" if said.refusals else "the setting"
    console.say(f"{printable(str(path))} says {what}, {words}; it was measured and checked.")
    console.say(f"To use it: {exporter.usage}.")
    for reason in said.reasons:
        console.say(f"Not written: {reason}.")
    named = {"Your script": shown.script, "autotune launch": shown.setting, "This file": shown.file}
    print_rows(console, [(name, format_figures(one)) for name, one in named.items() if one is not None])
    console.say(shown.proof.statement)
    typer.echo(os.fsencode(path))  # for a shell, so as it is


def _send(
    study: str, to: str, *, output: Path | None, trial: int | None, with_bundle: bool, storage: str, json: bool
) -> None:
    from .. import pipeline
    from .places import logs_of, open_known

    if trial is not None:
        raise UsageError("--trial exports one setting, and --to sends all of them", hint="leave one of the two out")
    if output is not None and to != "tensorboard":
        raise UsageError(
            f"--output is for files, and {TRACKERS[to]} says where by its own variables", hint="leave it out"
        )
    if with_bundle and to == "tensorboard":
        raise UsageError(
            "--with-bundle goes with --to mlflow or wandb: TensorBoard keeps no files", hint="leave it out"
        )
    with open_known(storage) as store:
        sent = pipeline.send(store.open(study), to, logs_of(study, output), with_bundle=with_bundle)
    if json:
        print_json({"to": to, "where": sent.where, "new_trials": sent.new, "look": sent.look})
    else:
        typer.echo(f"{TRACKERS[to]} has {study} in {printable(sent.where)}; {sent.new} trials were sent.")
        typer.echo(sent.look, err=True)


app = make_app(export)
