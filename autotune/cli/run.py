"""`autotune run`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import StorageError
from ..launch.port import Launcher
from ..records.codec import to_json
from ..records.printable import shell_word
from ..records.study import Goal, Objective, Sampler, StudySpec
from ..records.units import format_share, parse_bytes, parse_duration, parse_share
from . import options
from .command import make_app, print_json

if TYPE_CHECKING:
    from ..store.study import Study


def _read_plans(path: str) -> tuple[str, ...]:
    from ..ort_logs.log import read_first

    return read_first(Path(path))


def _parse_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def run(
    context: typer.Context,
    script: options.ScriptArgument,
    arguments: options.ArgumentsArgument = None,
    is_module: options.ModuleOption = False,
    memory_limit_bytes: options.MemoryLimitOption = None,
    goal: Annotated[
        Goal,
        options.chosen_from(
            Goal,
            "--objective",
            help="'throughput' finds the most samples/s. 'memory' finds the lowest peak within --max-slowdown, at "
            "batch sizes from a 16th of the script's to twice the script's.",
        ),
    ] = Objective.goal,
    max_slowdown: Annotated[
        float | None,
        options.parsed_by(
            parse_share,
            "--max-slowdown",
            help="With --objective memory: the largest loss of samples/s against your script. Default: "
            f"{format_share(Objective.max_slowdown)}.",
        ),
    ] = None,
    target_memory_bytes: Annotated[
        int | None,
        options.parsed_by(
            parse_bytes,
            "--target-memory",
            help="Limit for the answer's peak, as in 20GiB. Trials may use all of --memory-limit, and batch sizes "
            "start at a 16th of the script's.",
        ),
    ] = None,
    time_budget_s: Annotated[
        float,
        options.parsed_by(
            parse_duration,
            "--time-budget",
            help="Time for the whole study, as in 10m or 1h30m. The unmodified script is measured even if that takes "
            "longer.",
        ),
    ] = options.as_typed(StudySpec.time_budget_s),
    max_trials: Annotated[
        int, typer.Option(metavar="N", min=1, help="Try at most this many settings.")
    ] = StudySpec.max_trials,
    batch_sizes: options.BatchSizesOption = None,
    own_batch_size: options.OwnBatchSizeOption = None,
    keep_global_batch: Annotated[
        bool,
        typer.Option(
            "--keep-global-batch",
            help="Keep micro-batch times accumulation: try only batch sizes that divide it, and set the accumulation "
            "to match. Transformers, Lightning and Accelerate need nothing else; other scripts need {accumulation:4}.",
        ),
    ] = False,
    engine: options.EngineOption = StudySpec.engine,
    plans_first: Annotated[
        Any,
        options.parsed_by(
            _read_plans,
            "--plans-from",
            metavar="LOGFILE",
            help="Try these plans first: an ONNX Runtime training log, or a mem_opt.json. See `autotune plans`.",
        ),
    ] = None,
    choices: Annotated[
        Any,
        options.parsed_by(
            _parse_names,
            "--allow",
            metavar="NAMES",
            help="Try these choices on and off, as in bf16,fused-optimizer. `autotune engines` lists them.",
        ),
    ] = None,
    storage: options.StorageOption = options.DEFAULT_STORAGE,
    study: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The study's name. Default: made from the script and its arguments."),
    ] = None,
    output: options.OutputOption = None,
    python: options.PythonOption = None,
    devices: Annotated[
        Any,
        options.parsed_by(
            options.parse_devices,
            "--devices",
            metavar="0,1",
            help="GPUs to run trials on, several trials at the same time. Default: the script's choice.",
        ),
    ] = None,
    gpus_per_run: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="GPUs of each trial, of --devices or of a cluster; 0 for all processors of a cluster's node. Default: "
            "as many as torchrun, accelerate or deepspeed is told to start processes, and 1 for a script.",
        ),
    ] = None,
    cluster: options.ClusterOption = None,
    cluster_files: options.ClusterFilesOption = None,
    cluster_resource: options.ClusterResourceOption = "",
    sampler: Annotated[
        Sampler, options.chosen_from(Sampler, "--sampler", help="The cost model, or one of Optuna's samplers.")
    ] = StudySpec.sampler,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the sampler.")] = StudySpec.seed,
    finalist_repetitions: Annotated[
        int,
        typer.Option(
            "--repetitions",
            metavar="N",
            min=1,
            help="Measure baseline and finalists again at most this many times, in turns. Repetitions end when the "
            "answer is clear. Fewer than 3 confirm nothing. If the baseline does not fit, 2 are enough.",
        ),
    ] = StudySpec.finalist_repetitions,
    start_timeout_s: options.StartTimeoutOption = None,
    trial_timeout_s: options.TrialTimeoutOption = None,
    look_ahead: options.StudyLookAheadOption = StudySpec.look_ahead,
    shapes: options.ShapeOption = None,
    inputs: options.InputsOption = None,
    max_error: options.MaxErrorOption = None,
    scratch: options.ScratchOption = False,
    leaves_files: options.LeaveFilesOption = False,
    json: options.JsonOption = False,
) -> None:
    """Find the fastest setting of a training script that fits your memory, and write the files to run it.

    With --objective memory: the setting with the lowest peak, within --max-slowdown of your script's speed.

    The same command again resumes the study.
    """
    from ..store.database import open_store
    from .cluster import check_gpus, launcher_of
    from .places import prepare_storage, runs_of, shown_storage
    from .spec import check_same, default_study_name, spec_of

    spec = spec_of(context.params)
    check_gpus(spec, cluster)
    name = default_study_name(spec) if study is None else study
    # Before the study is touched: the launcher may refuse the options.
    with (
        launcher_of(spec, runs_of(name), cluster, files=cluster_files, resource=cluster_resource) as launcher,
        open_store(prepare_storage(storage)) as store,
    ):
        try:
            opened = store.create(name, spec)
        except StorageError:
            if name not in store:
                raise
            opened = store.open(name)
            if (facts := opened.record().facts) is not None:
                check_same(name, opened.spec, spec, script_sha256=facts.script_sha256)
            opened.set_spec(spec)
        tune_study(opened, launcher, storage=shown_storage(store, storage), output=output, json=json)


app = make_app(run)


def tune_study(study: Study, launcher: Launcher, *, storage: str, output: Path | None, json: bool) -> None:
    """Take a study to its verdict on the screen, write the bundle, and exit with the code that says how it went."""
    from .. import pipeline
    from ..export.bundle import check_target
    from ..report.build import build_report
    from .cluster import keep_to_kind
    from .live.display import Display
    from .local_launcher import interruption
    from .places import bundle_of, prepare_state_folder, runs_of
    from .summary import how_to_go_on, how_to_launch, print_summary
    from .tables import make_console, print_changes

    console = make_console()
    results = make_console(stderr=json)
    directory = bundle_of(study.name, output)
    prepare_state_folder()
    check_target(directory)
    runs = runs_of(study.name)
    before = study.record()
    if before.facts is not None:
        keep_to_kind(launcher, before.facts.environment)
    console.say(f"Study {study.name} in {storage}{', resumed' if before.trials else ''}")
    with interruption() as interrupted, Display(console, study.spec, interrupted, known=before.trials) as display:
        record = pipeline.tune(study, launcher=launcher, watcher=display, interruption=interrupted, runs=runs)
    print_changes(console, launcher.changes)
    go_on = how_to_go_on(record, storage, is_interrupted=interrupted.finish.is_set())
    if interrupted.cancel.is_set():
        console.say(go_on)
        raise typer.Exit(130)
    has_winner = record.verdict is not None and record.verdict.winner is not None
    if has_winner:
        pipeline.export(study, directory)
    print_summary(results, record, directory if has_winner else None)
    answer = "" if record.verdict is None else record.verdict.kind_of_answer
    if not answer:
        results.say(f"Another process measures the finalists. Its answer: autotune show {shell_word(study.name)}")
    elif interrupted.finish.is_set() or answer == "undecided" or (record.verdict and record.verdict.needed_s):
        console.say(go_on)
    if json:
        command = how_to_launch(record, directory) if has_winner else None
        print_json(to_json(build_report(record, bundle=str(directory) if has_winner else None, command=command)))
    if interrupted.finish.is_set():
        raise typer.Exit(130)
    if answer and not has_winner:
        raise typer.Exit(1)
