"""`autotune run`"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import (
    DEFAULT_STORAGE,
    ArgumentsArgument,
    BatchSizeOption,
    BatchSizesOption,
    EngineOption,
    JsonOption,
    MemoryLimitOption,
    OutputOption,
    PythonOption,
    ScratchOption,
    ScriptArgument,
    StorageOption,
    add_command,
)

if TYPE_CHECKING:
    from ..launch import Launcher
    from ..records import StudySpec
    from ..store import Store, Study

__all__ = ["register", "tune_study"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "run", run, short="Find the fastest setting that fits your memory.")


def run(
    script: ScriptArgument,
    arguments: ArgumentsArgument = None,
    memory_limit: MemoryLimitOption = None,
    objective: Annotated[
        str,
        typer.Option(
            metavar="throughput|memory",
            help="Find the most samples/s, or the least memory at no more than --max-slowdown (batch sizes from a 16th "
            "to twice the script's).",
        ),
    ] = "throughput",
    max_slowdown: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="With --objective memory: how many fewer samples/s than your script trains may be. Default: 3%.",
        ),
    ] = None,
    target_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="The answer has to peak at no more than this, as in 20GiB; trials may use all of --memory-limit "
            "(batch sizes from a 16th of the script's).",
        ),
    ] = None,
    time_budget: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Take about this long in all, as in 10m or 1h30m; discovery is never cut short."
        ),
    ] = "10m",
    max_trials: Annotated[int, typer.Option(metavar="N", min=1, help="Search at most this many configurations.")] = 60,
    batch_sizes: BatchSizesOption = None,
    batch_size: BatchSizeOption = None,
    engine: EngineOption = "aot",
    plans_from: Annotated[
        Path | None,
        typer.Option(
            metavar="LOGFILE",
            help="Try first what ONNX Runtime listed in this training log, or a mem_opt.json; see `autotune plans`.",
        ),
    ] = None,
    allow: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Try these choices of the engine both ways, as in compute-optimizer; see `engines`."
        ),
    ] = None,
    storage: StorageOption = DEFAULT_STORAGE,
    study: Annotated[
        str | None, typer.Option(metavar="NAME", help="The study's name. Default: from the script and its arguments.")
    ] = None,
    output: OutputOption = None,
    python: PythonOption = None,
    devices: Annotated[
        str | None, typer.Option(metavar="0,1", help="GPUs to run trials on at the same time. Default: as the script.")
    ] = None,
    sampler: Annotated[
        str, typer.Option(metavar="model|tpe|gp|nsga2|random", help="The cost model, or one of Optuna's samplers.")
    ] = "model",
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the sampler.")] = 0,
    rounds: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="How often finalists and baseline are measured again, in turns; fewer than 3 cannot tell them apart. "
            "One less where the baseline does not fit.",
        ),
    ] = 3,
    start_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Give a run this long until its first training step ends.")
    ] = "5m",
    trial_timeout: Annotated[str, typer.Option(metavar="TIME", help="Give each trial this long from then on.")] = "2m",
    scratch: ScratchOption = False,
    json: JsonOption = False,
) -> None:
    """Find the fastest setting of a training script that fits your memory, and write the files to run it.

    With --objective memory: the setting that needs the least memory and is as fast, but for --max-slowdown.

    The same command again resumes the study.
    """
    from ..store import open_store
    from .running import (
        Options,
        check_same,
        default_study_name,
        make_launcher,
        make_spec,
        prepare_storage,
        runs_of,
        shown_storage,
    )

    spec = make_spec(
        Options(
            script=script,
            arguments=tuple(arguments or ()),
            engine=engine,
            memory_limit=memory_limit,
            objective=objective,
            max_slowdown=max_slowdown,
            target_memory=target_memory,
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
            plans_from=plans_from,
            allow=allow,
        )
    )
    name = default_study_name(spec) if study is None else study
    launcher = make_launcher(spec, runs_of(name))  # before the study is touched: it may refuse the options
    with open_store(prepare_storage(storage)) as store:
        opened = _create(store, name, spec)
        if opened is None:
            opened = store.open(name)
            if opened.record().facts is not None:
                check_same(name, opened.spec, spec)
            opened.set_spec(spec)
        tune_study(opened, store, launcher, storage=shown_storage(store, storage), output=output, json=json)


def _create(store: Store, name: str, spec: StudySpec) -> Study | None:
    """Make a study, or give None where there is one of that name, be it that the same command has just made it."""
    from ..errors import StorageError

    if name in store:
        return None
    try:
        return store.create(name, spec)
    except StorageError:
        if name in store:
            return None
        raise


def tune_study(
    study: Study, store: Store, launcher: Launcher, *, storage: str, output: Path | None, json: bool
) -> None:
    """Take a study to its verdict on the screen, write the bundle, and exit with the code that says how it went.

    ``storage`` is the database as it may be shown.
    """
    from .. import pipeline
    from ..export import check_replaceable
    from ..report import build_document
    from .live import Display
    from .options import print_json
    from .running import folder_of, interruption, runs_of
    from .summary import how_to_go_on, how_to_launch, print_summary
    from .tables import make_console

    console = make_console()
    directory = output or Path(f"autotune-{folder_of(study.name)}")
    check_replaceable(directory)
    runs = runs_of(study.name)
    known = study.record().trials
    again = ", resumed" if known else ""
    console.print(f"Study {study.name} in {storage}{again}", markup=False, soft_wrap=True)
    with interruption() as interrupted, Display(console, study.spec, interrupted, known=known) as display:
        record = pipeline.tune(
            study, store=store, launcher=launcher, watcher=display, interruption=interrupted, runs=runs
        )
    go_on = how_to_go_on(record, storage)
    if interrupted.cancel.is_set():
        console.print(go_on, markup=False, soft_wrap=True)
        raise typer.Exit(130)
    has_winner = record.verdict is not None and record.verdict.winner is not None
    if has_winner:
        pipeline.export(study, directory)
    print_summary(console, record, directory if has_winner else None)
    answer = "" if record.verdict is None else record.verdict.kind_of_answer
    if not answer:
        elsewhere = f"Another process measures the finalists; its answer: autotune show {shlex.quote(study.name)}"
        console.print(elsewhere, markup=False, soft_wrap=True)
    elif interrupted.finish.is_set() or answer == "undecided":
        console.print(go_on, markup=False, soft_wrap=True)
    if json:
        command = how_to_launch(record, directory) if has_winner else None
        print_json(build_document(record, bundle=str(directory) if has_winner else None, command=command))
    if interrupted.finish.is_set():
        raise typer.Exit(130)
    if answer and not has_winner:
        raise typer.Exit(1)
