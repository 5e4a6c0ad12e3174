"""`autotune run`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    DEFAULT_STORAGE,
    ArgumentsArgument,
    JsonOption,
    ScriptArgument,
    StorageOption,
)

__all__ = ["register", "tune_study"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run")(run)


def run(
    script: ScriptArgument,
    arguments: ArgumentsArgument = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Stay under this much memory, as in 24GiB. Default: what the device has."),
    ] = None,
    time_budget: Annotated[
        str, typer.Option(metavar="TIME", help="Stop searching after this long, as in 10m.")
    ] = "10m",
    max_trials: Annotated[int, typer.Option(min=1, help="Search at most this many configurations.")] = 60,
    batch_sizes: Annotated[
        str | None,
        typer.Option(metavar="LOW:HIGH", help="Batch sizes to search. Default: half to 16 times the script's own."),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="The script's own batch size, where its arguments hold {batch_size}.")
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar="aot|eager", help="What applies plans; 'eager' leaves the script alone: batch sizes only."
        ),
    ] = "aot",
    storage: StorageOption = DEFAULT_STORAGE,
    study: Annotated[
        str | None, typer.Option(metavar="NAME", help="The study's name. Default: from the script and its arguments.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the bundle goes. Default: autotune-STUDY.")
    ] = None,
    python: Annotated[
        str | None, typer.Option(metavar="PATH", help="The interpreter that runs the script. Default: this one.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option(metavar="0,1", help="GPUs to run trials on at the same time. Default: as the script.")
    ] = None,
    sampler: Annotated[str, typer.Option(metavar="tpe|gp|nsga2|random", help="Optuna's sampler.")] = "tpe",
    seed: Annotated[int, typer.Option(help="Seed of the sampler.")] = 0,
    rounds: Annotated[
        int, typer.Option(min=1, help="How often finalists and baseline are measured again, in turns.")
    ] = 3,
    start_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Give a run this long until its first training step ends.")
    ] = "5m",
    trial_timeout: Annotated[str, typer.Option(metavar="TIME", help="Give each trial this long from then on.")] = "2m",
    scratch: Annotated[
        bool,
        typer.Option(
            "--scratch", help="Run trials in a scratch folder: a trial runs the script for real, its files included."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Find the fastest setting of a training script that fits your memory, and write the files to run it.

    The same command again resumes the study.
    """
    from ..store import open_store
    from .running import Options, default_study_name, make_spec, prepare_storage

    spec = make_spec(
        Options(
            script=script,
            arguments=tuple(arguments or ()),
            engine=engine,
            memory_limit=memory_limit,
            time_budget=time_budget,
            max_trials=max_trials,
            batch_sizes=batch_sizes,
            batch_size=batch_size,
            devices=devices,
            sampler=sampler,
            seed=seed,
            python=python,
            start_timeout=start_timeout,
            trial_timeout=trial_timeout,
            rounds=rounds,
            scratch=scratch,
        )
    )
    name = study or default_study_name(spec)
    with open_store(prepare_storage(storage)) as store:
        if name in store:
            opened = store.open(name)
            opened.set_spec(spec)
        else:
            opened = store.create(name, spec)
        tune_study(opened, store, output=output, json=json)


def tune_study(study: object, store: object, *, output: Path | None, json: bool) -> None:
    """Take a study to its verdict on the screen, write the bundle, and exit with the code that says how it went."""
    from typing import cast

    from .. import pipeline
    from ..records import Measured
    from ..report import build_document
    from ..store import Store, Study
    from .live import Display
    from .options import print_json
    from .running import interruption, make_launcher, runs_of
    from .summary import print_summary
    from .tables import make_console

    opened, database = cast(Study, study), cast(Store, store)
    console = make_console()
    runs = runs_of(opened.name)
    known = sum(isinstance(trial.outcome, Measured) for trial in opened.record().trials)
    resumed = f", resumed with {known} trials measured" if known else ""
    console.print(f"Study {opened.name} in {database.url}{resumed}")
    with interruption() as interrupted, Display(console, opened.spec.time_budget_s) as display:
        record = pipeline.tune(
            opened,
            store=database,
            launcher=make_launcher(opened.spec, runs),
            watcher=display,
            interruption=interrupted,
            runs=runs,
        )
        stopped = interrupted.finish.is_set()
    directory = output or Path(f"autotune-{opened.name}")
    has_winner = record.verdict is not None and record.verdict.winner is not None
    if has_winner:
        pipeline.export(opened, directory)
    document = build_document(record, bundle=str(directory))
    print_summary(console, document, directory if has_winner else None)
    if json:
        print_json(document)
    if stopped:
        raise typer.Exit(130)
    if record.verdict is not None and record.verdict.kind_of_answer == "nothing_fits":
        raise typer.Exit(1)
