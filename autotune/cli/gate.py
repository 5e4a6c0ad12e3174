"""`autotune gate`"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from ..records import Gate, GateAnswer, Reference, StudySpec
from ..records.units import parse_duration, parse_share
from .command import make_app, print_json
from .options import (
    ArgumentsArgument,
    BundleArgument,
    DeviceOption,
    JsonOption,
    LeaveFilesOption,
    ModuleOption,
    PythonOption,
    ScriptArgument,
    StartTimeoutOption,
    TrialTimeoutOption,
    as_typed,
    parsed_by,
)

__all__ = ["EXITS", "app"]

EXITS: dict[GateAnswer, int] = {"pass": 0, "improvement": 0, "failed": 1, "regression": 3, "not_comparable": 4}
"""The exit code of each answer."""

_ROUNDS = 20
_REFERENCES: dict[str, Reference] = {"stored": "stored", "script": "script"}
_TOLD = {"setting": "the script", "other": "the other version of the script"}
_SUMMARY = "GITHUB_STEP_SUMMARY"


def gate(
    bundle: BundleArgument,
    script: ScriptArgument,
    arguments: ArgumentsArgument = None,
    is_module: ModuleOption = False,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="stored|script|PATH",
            help="What the setting is held against: what was measured of it before, on such a device; the script as it "
            "stands, and how the two compared before; or the setting on another version of the script. Default: "
            "stored where this device is the baseline's, else script.",
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="FILE", help="What it came to before. Default: what is in the bundle."),
    ] = None,
    update_baseline: Annotated[
        bool,
        typer.Option(
            "--update-baseline",
            help="Write what was measured to the --baseline FILE, unless it is a regression or could not be compared.",
        ),
    ] = False,
    graphs_only: Annotated[
        bool,
        typer.Option(
            "--graphs-only",
            help="Hold the memory alone, simulated from the script's graphs: a few steps on whatever the script runs "
            "on, a CPU too, and nothing is timed.",
        ),
    ] = False,
    allowed_slowdown: Annotated[
        Any,
        parsed_by(parse_share, "--max-slowdown", metavar="SHARE", help="A slowdown as large as this is found."),
    ] = "5%",
    allowed_growth: Annotated[
        Any,
        parsed_by(parse_share, "--max-memory-growth", metavar="SHARE", help="A peak higher by this is found."),
    ] = "3%",
    finalist_rounds: Annotated[
        int,
        typer.Option(
            "--rounds",
            metavar="N",
            min=3,
            help="How often it is measured at most: rounds go on while the answer is open and there is time.",
        ),
    ] = _ROUNDS,
    time_budget_s: Annotated[
        Any,
        parsed_by(parse_duration, "--time-budget", metavar="TIME", help="Begin no round that would end after this."),
    ] = as_typed(StudySpec.time_budget_s),
    python: PythonOption = None,
    devices: DeviceOption = None,
    start_timeout_s: StartTimeoutOption = as_typed(StudySpec.start_timeout_s),
    trial_timeout_s: TrialTimeoutOption = as_typed(StudySpec.trial_timeout_s),
    leaves_files: LeaveFilesOption = False,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write the answer as JUnit's XML.")
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            "--markdown", metavar="FILE", help="Write it as Markdown. In GitHub's CI the job's summary has it."
        ),
    ] = None,
    sarif: Annotated[
        Path | None,
        typer.Option("--sarif", metavar="FILE", help="Write it as SARIF, for code hosts that show it beside the code."),
    ] = None,
    bmf: Annotated[
        Path | None, typer.Option("--bmf", metavar="FILE", help="Write what was measured for Bencher.")
    ] = None,
    github_benchmark: Annotated[
        Path | None,
        typer.Option(
            "--github-benchmark",
            metavar="FILE",
            help="Write what was measured for github-action-benchmark, as its customSmallerIsBetter.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Hold a bundle against what it came to before: is it slower, or does it need more memory?

    Only what rounds show to be worse, and not to be within what is allowed, is a regression.
    """
    options = locals()  # each is named as the field of the spec that it sets
    import dataclasses

    from .. import pipeline
    from ..errors import RunError, UsageError
    from ..export import read_bundle
    from ..gate import (
        LEAST_ALLOWED,
        LEAST_ROUNDS,
        Allowed,
        baseline_of_bundle,
        is_baseline,
        read_baseline,
        render_benchmark_action,
        render_bmf,
        render_junit,
        render_markdown,
        render_sarif,
        write_baseline,
    )
    from ..machine import check_platform
    from ..records import Measured, choice_settings, to_json
    from ..records.figures import format_rate, peak_bytes
    from ..records.printable import first_line
    from ..records.units import format_bytes, format_share
    from .interruption import interruption
    from .local_launcher import make_launcher
    from .places import prepare_state_folder, runs_of
    from .spec import find_script, spec_of
    from .tables import make_console, print_changes

    check_platform()
    read = read_bundle(bundle)
    spec = spec_of({**options, "engine": read.stack.engine, "own_batch_size": read.stack.batch_size})
    if len(spec.devices) > 1:
        raise UsageError("a gate measures on one device", hint=f"autotune gate --devices {spec.devices[0]}")
    if update_baseline and baseline is None:
        raise UsageError("--update-baseline needs to know which file", hint="add --baseline autotune-gate.json")
    if update_baseline and finalist_rounds < LEAST_ROUNDS:
        raise UsageError(f"a baseline takes {LEAST_ROUNDS} rounds at least", hint=f"--rounds {LEAST_ROUNDS}")
    if graphs_only and (update_baseline or against == "script"):
        other_option = "--update-baseline" if update_baseline else "--against script"
        raise UsageError(f"{other_option} takes rounds, and --graphs-only has none", hint="leave one of the two out")
    other = None
    reference: Reference | None = None if against is None else _REFERENCES.get(against, "other")
    if reference == "other" and (is_module or Path(spec.script).suffix != ".py"):
        raise UsageError(
            "--against PATH names another script, and this is run as a module or by a launcher",
            hint="hold it against what was measured before: leave --against out",
        )
    rendered = (
        (junit, render_junit),
        (markdown, render_markdown),
        (sarif, render_sarif),
        (bmf, render_bmf),
        (github_benchmark, render_benchmark_action),
    )
    for name, share in (("--max-slowdown", allowed_slowdown), ("--max-memory-growth", allowed_growth)):
        if share < LEAST_ALLOWED and not graphs_only:
            raise UsageError(
                f"{name}: rounds tell no loss below {format_share(LEAST_ALLOWED)} from none",
                hint=f"{name} {format_share(LEAST_ALLOWED)}",
            )
    for file, _ in rendered:
        if file is not None and not file.absolute().parent.is_dir():
            raise UsageError(f"there is no folder for {str(file)!r}", hint=f"mkdir -p {shlex.quote(str(file.parent))}")
    if reference == "other":
        path, module = find_script(Path(str(against)), is_module=is_module, python=spec.python)
        other = dataclasses.replace(spec, script=path, module=module)
    key = read.configuration.key
    before = (
        baseline_of_bundle(read.stack, key)
        if baseline is None or (update_baseline and not baseline.exists())
        else read_baseline(baseline, key)
    )
    if graphs_only and other is None and (before is None or before.graph is None):
        raise UsageError(
            "the baseline says nothing of the script's graphs: they could not be simulated, or the script has changed "
            "since they were",
            hint="name another version of the script: --against PATH",
        )
    if before is None and other is None:
        raise UsageError(
            "the bundle does not say what its setting came to: an earlier version of autotune wrote it",
            hint="write it again: `autotune export STUDY`; or name another version of the script: --against PATH",
        )
    runs = runs_of("gate")
    # The script as it stands is to run without them, and a run sets those of its setting by itself.
    chosen = choice_settings(read.stack.engine, read.stack.choices, {})
    launcher = make_launcher(spec, runs, {name: at for name, at in read.environment.items() if name not in chosen})
    console = make_console()
    prepare_state_folder()

    def told(name: str, number: int, outcome: Any) -> None:
        if outcome is None:
            if graphs_only:
                console.print(f"describing {_TOLD[name]}", markup=False, soft_wrap=True)
            return
        if isinstance(outcome, Measured):
            measured = outcome.measurement
            figures = f"{format_rate(measured.samples_per_s)}/s  {format_bytes(peak_bytes(measured.peaks) or 0)}"
        else:
            figures = first_line(outcome.cause)
        console.print(f"round {number + 1:2}  {name:8} {figures}", markup=False, soft_wrap=True)

    with interruption() as interrupted:
        found = pipeline.gate(
            read,
            spec,
            before,
            reference=reference,
            other=other,
            allowed=Allowed(allowed_slowdown, allowed_growth),
            launcher=launcher,
            interruption=interrupted,
            runs=runs,
            told=told,
            least_rounds=LEAST_ROUNDS if update_baseline else 0,
            graphs_only=graphs_only,
        )
    print_changes(console, launcher.changes)
    if found is None:
        raise typer.Exit(130)
    name = _name(spec.script if is_module else spec.title)
    if json:
        print_json({**to_json(found), "exit_code": EXITS[found.answer]})
    else:
        is_file = not is_module and Path(spec.script).suffix == ".py"
        typer.echo("\n".join((*found.sentences, *_next(found, can_name_other=other is None and is_file))))
    summary = os.environ.get(_SUMMARY)
    try:
        for file, render in rendered:
            if file is not None:
                file.write_text(render(found, name), encoding="utf-8")
        if summary:
            with Path(summary).open("a", encoding="utf-8") as opened:
                opened.write(render_markdown(found, name))
    except OSError as error:
        raise RunError(
            f"the answer could not be written to {error.filename!r}: {error.strerror}", hint="name another file"
        ) from error
    if update_baseline and baseline is not None:
        if is_baseline(found):
            write_baseline(baseline, pipeline.baseline_from(found, read, spec, before))
            console.print(f"Baseline written to {baseline}", markup=False, soft_wrap=True)
        else:
            console.print(
                f"The baseline stays as it was: it takes {LEAST_ROUNDS} rounds without a regression.",
                markup=False,
            )
    if EXITS[found.answer]:
        raise typer.Exit(EXITS[found.answer])


def _name(title: str) -> str:
    """The script's path in the folder that the gate runs in, which CI makes the repository's; else its name."""
    path, here = Path(title).absolute(), Path.cwd()
    return path.relative_to(here).as_posix() if path.suffix == ".py" and path.is_relative_to(here) else path.name


def _next(found: Gate, *, can_name_other: bool) -> list[str]:
    """What to do about the answer."""
    if found.answer == "regression" and found.rounds and can_name_other:
        return ["To see whether the script is the cause: the same command with --against PATH, its version before."]
    if found.answer == "not_comparable" and found.rounds:
        return ["A quieter machine may tell, or more rounds: --rounds 40 --time-budget 20m."]
    if found.answer == "not_comparable" and found.differs:
        path = "Name another version of the script with --against PATH, or take" if can_name_other else "Take"
        return [f"{path} a baseline here: `autotune run`."]
    return []


app = make_app(
    gate,
    epilog="Exit codes: 0 no regression, 1 it could not be measured, 2 wrong usage, 3 regression, 4 not comparable, "
    "130 interrupted.",
)
