"""`autotune gate`"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import AutotuneError, UsageError
from ..records.cards import read_cards
from ..records.codec import to_json
from ..records.figures import format_measured
from ..records.gate import Gate, GateBaseline, PastGate, Reference
from ..records.outcome import Measured
from ..records.printable import as_operand, first_line, printable, shell_word
from ..records.study import StudySpec
from ..records.units import format_share, parse_bytes, parse_duration, parse_share
from . import options
from .command import make_app, print_json
from .gate_growth import compares_lines, gate_growth, is_file, other_version
from .gate_limit import gate_limit, limits_of
from .settings import names_file

if TYPE_CHECKING:
    from ..export.bundle import Bundle


_REFERENCES: dict[str, Reference] = {"stored": "stored", "script": "script"}


def gate(
    context: typer.Context,
    bundle: Annotated[
        str | None,
        typer.Argument(
            metavar="[BUNDLE]",
            help="The folder that `autotune run` wrote. With --limit, --for or --against it may be left out.",
        ),
    ] = None,
    script: options.LaterScriptArgument = None,
    arguments: options.ArgumentsArgument = None,
    limit_bytes: Annotated[
        int | None,
        options.parsed_by(
            parse_bytes,
            "--limit",
            help="Answer whether the bundle's setting, or a script as it is, stays below this much memory, as in "
            "24GiB.",
        ),
    ] = None,
    cards: Annotated[
        Any,
        options.parsed_by(
            read_cards,
            "--for",
            metavar="CARD,...",
            help="Answer whether the bundle's setting, or a script as it is, should fit GPUs that this machine need "
            "not have, as in a100-40g, by sizes alone.",
        ),
    ] = None,
    look_ahead: options.LookAheadOption = 0,
    shapes: options.ShapeOption = None,
    inputs: options.InputsOption = None,
    is_module: options.ModuleOption = False,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="stored|script|PATH|REVISION",
            help="What to compare with: 'stored' figures of the setting on the same kind of device; the unmodified "
            "'script', and the stored ratio of the two; or the setting on another version of the script. Default: "
            "stored if the device is the baseline's, else script. Without a bundle: the script's memory, line by "
            "line, with that of another version, of a git revision, or of a file from `autotune explain --json`.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|STUDY",
            help="The earlier figures: a file from --update-baseline, or a study that measured the same setting. "
            "Default: the bundle's own.",
        ),
    ] = None,
    update_baseline: Annotated[
        bool,
        typer.Option(
            "--update-baseline",
            help="Write the new figures to the --baseline FILE, unless they are a regression or not comparable.",
        ),
    ] = False,
    allowed_slowdown: Annotated[
        Any,
        options.parsed_by(
            parse_share,
            "--max-slowdown",
            help="The allowed slowdown. A loss this large is found; a smaller one may pass.",
        ),
    ] = "5%",
    allowed_growth: Annotated[
        Any,
        options.parsed_by(
            parse_share,
            "--max-memory-growth",
            help="The allowed growth of the peak. Growth this large is found; less may pass.",
        ),
    ] = "3%",
    finalist_repetitions: Annotated[
        int,
        typer.Option(
            "--repetitions",
            metavar="N",
            min=3,
            help="Measure at most this many times. Repetitions end when the answer is clear or the time is up.",
        ),
    ] = 20,
    time_budget_s: Annotated[
        Any,
        options.parsed_by(parse_duration, "--time-budget", help="Start no repetition that would end later than this."),
    ] = options.as_typed(StudySpec.time_budget_s),
    python: options.PythonOption = None,
    devices: options.DeviceOption = None,
    start_timeout_s: options.StartTimeoutOption = None,
    trial_timeout_s: options.TrialTimeoutOption = None,
    leaves_files: options.LeaveFilesOption = False,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the answer as JUnit XML.")] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the answer as Markdown. On GitHub Actions it is also in the job's summary."
        ),
    ] = None,
    storage: options.StorageOption = options.DEFAULT_STORAGE,
    history: Annotated[
        bool, typer.Option("--history", help="Show earlier gates of this bundle, and measure nothing.")
    ] = False,
    json: options.JsonOption = False,
) -> None:
    """Compare a bundle with its earlier figures, or hold the memory of a script against a limit or another version.

    A regression is a figure that the repetitions show to be worse, and do not show to be within the allowance. With
    --limit the script runs for a few steps. With --for its memory is predicted, from the sizes of its tensors alone.
    Without a bundle, --against compares the memory of two versions of the script line by line, also predicted.
    """
    from ..machine.host import check_platform

    check_platform()
    reports = {"junit": junit, "markdown": markdown}
    positional = [one for one in (bundle, script, *(arguments or ())) if one is not None]
    if compares_lines(context, positional):
        _check_files(reports.values())
        gate_growth(context.params, positional, reports)
        return
    limits = limits_of(context, positional)
    if look_ahead and (limits is None or limits.cards is None):
        raise UsageError("--look-ahead goes together with --for", hint="name a GPU, as in --for a100-40g")
    if limits is not None:
        _check_files(reports.values())
        gate_limit(context.params, positional, limits, reports)
        return
    if bundle is None or script is None:
        raise UsageError(
            "a gate takes a bundle and a script, and one of them is missing",
            hint="autotune gate BUNDLE train.py; or a script alone with a limit: autotune gate train.py --limit 24GiB",
        )
    from .. import pipeline
    from ..export.bundle import read_bundle
    from ..verdict.gate.baseline import LEAST_REPETITIONS, new_baseline, why_no_baseline, write_baseline
    from ..verdict.gate.comparison import Allowed
    from .gate_answer import EXITS, name_of, tell, write_reports
    from .local_launcher import interruption, prepare_one_run
    from .spec import spec_of
    from .tables import make_console, print_changes

    read = read_bundle(Path(bundle))
    spec = spec_of(context.params, engine=read.stack.engine, bundle_batch_size=read.stack.batch_size)
    spec = replace(spec, look_ahead=read.stack.look_ahead)  # like is compared with like
    name = name_of(spec)
    key = read.configuration.as_searched.key
    if history:
        _show_history(storage, printable(name), key, json=json)
        return
    reference: Reference | None = None if against is None else _REFERENCES.get(against, "other")
    _check(context.params, spec, reference, reports.values())
    other = other_version(str(against), spec) if reference == "other" else None
    before = _baseline(read, baseline, storage, may_be_new=update_baseline)
    _check_baseline(before, other, look_ahead=spec.look_ahead)
    launcher, runs = prepare_one_run("gate", spec, read.surroundings)
    console = make_console()
    began_at, script_sha256 = time.time(), spec.script_sha256()
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
            told=lambda *what: _tell(console, *what),
            least_repetitions=LEAST_REPETITIONS if update_baseline else 0,
        )
    print_changes(console, launcher.changes)
    if found is None:
        console.say("Stopped before enough repetitions: there is no answer.")
        raise typer.Exit(130)
    tell(found, _next(found, can_name_other=other is None and is_file(spec)), as_json=json)
    _keep(PastGate(began_at, printable(name), script_sha256, key, found), storage, console)
    write_reports(found, name, reports, console)
    if update_baseline and baseline is not None:
        if why_not := why_no_baseline(found):
            console.say(f"The baseline stays as it was: {why_not}.")
        else:
            write_baseline(Path(baseline), new_baseline(found, key, spec))
            console.say(f"Baseline written to {baseline}")
    raise typer.Exit(EXITS[found.answer])


def _check(
    given: Mapping[str, Any], spec: StudySpec, reference: Reference | None, reports: Iterable[Path | None]
) -> None:
    from ..verdict.gate.baseline import LEAST_REPETITIONS
    from ..verdict.gate.comparison import LEAST_ALLOWED

    updates, baseline = given["update_baseline"], given["baseline"]
    if updates and baseline is None:
        raise UsageError("--update-baseline needs to know which file", hint="add --baseline autotune-gate.json")
    if updates and given["finalist_repetitions"] < LEAST_REPETITIONS:
        raise UsageError(
            f"a baseline takes {LEAST_REPETITIONS} repetitions at least", hint=f"--repetitions {LEAST_REPETITIONS}"
        )
    if reference == "other" and not is_file(spec):
        raise UsageError(
            "--against PATH names another script, and this is run as a module or by a launcher",
            hint="compare with the stored figures: leave --against out",
        )
    for name, field in {"--max-slowdown": "allowed_slowdown", "--max-memory-growth": "allowed_growth"}.items():
        if given[field] < LEAST_ALLOWED:
            raise UsageError(
                f"{name}: repetitions cannot show a loss below {format_share(LEAST_ALLOWED)}",
                hint=f"{name} {format_share(LEAST_ALLOWED).replace(' ', '')}",
            )
    _check_files(reports)


def _check_files(reports: Iterable[Path | None]) -> None:
    for file in filter(None, reports):
        if not file.absolute().parent.is_dir():
            folder = shell_word(as_operand(str(file.parent)))
            raise UsageError(f"there is no folder for {str(file)!r}", hint=f"mkdir -p {folder}")
        if file.is_dir():
            raise UsageError(f"{str(file)!r} is a folder", hint="name a file in it")


def _baseline(read: Bundle, baseline: str | None, storage: str, *, may_be_new: bool) -> GateBaseline | None:
    """Return what the bundle's setting came to before: by a file, by a study's repetitions, or by the bundle itself."""
    from ..export.stack import build_stack
    from ..verdict.gate.baseline import baseline_of_bundle, read_baseline
    from .places import stored_record

    key = read.configuration.as_searched.key
    if baseline is None or (may_be_new and not Path(baseline).exists()):
        return baseline_of_bundle(read.stack, key)
    if may_be_new or names_file(baseline) or Path(baseline).is_file():
        return read_baseline(Path(baseline), key)
    found = baseline_of_bundle(build_stack(stored_record(baseline, storage), read.configuration.as_searched), key)
    if found is None:
        raise UsageError(
            f"study {baseline!r} has no repetitions of the bundle's setting, {read.configuration}",
            hint=f"see what it measured: autotune show {shell_word(baseline)}",
        )
    return found


def _check_baseline(before: GateBaseline | None, other: StudySpec | None, *, look_ahead: int) -> None:
    if other is not None:
        return
    if before is not None and bool(before.look_ahead) != bool(look_ahead):
        theirs, ours = ("with" if read else "without" for read in (before.look_ahead, look_ahead))
        raise UsageError(
            f"the earlier figures were measured {theirs} --look-ahead, those of the bundle {ours}",
            hint="take the baseline anew with this bundle, or leave --baseline out",
        )
    if before is None:
        raise UsageError(
            "the bundle has no figures of its setting: an earlier version of autotune wrote it",
            hint="write it again: `autotune export STUDY`; or name another version of the script: --against PATH",
        )


def _tell(console: Any, name: str, number: int, outcome: Any) -> None:
    if outcome is not None:
        figures = format_measured(outcome.measurement) if isinstance(outcome, Measured) else first_line(outcome.cause)
        console.say(f"repetition {number + 1:2}  {name:8} {figures}")


def _keep(past: PastGate, storage: str, console: Any) -> None:
    """Keep the answer for `--history`; it has been told by now, so its exit code holds even if it cannot be kept."""
    from ..store.database import open_store
    from .places import prepare_storage

    try:
        with open_store(prepare_storage(storage)) as store:
            store.add_gate(past)
    except AutotuneError as error:
        console.say(f"The answer is not kept for --history: {error}")


def _show_history(storage: str, name: str, key: str, *, json: bool) -> None:
    from ..report.gates import gate_table
    from .places import open_known
    from .tables import make_console, print_table

    with open_known(storage) as store:
        gates = store.gates(name, key)
    if json:
        print_json([to_json(one) for one in gates])
    elif gates:
        print_table(make_console(stderr=False), gate_table(gates))
    else:
        typer.echo(f"This bundle has no gate on {name} yet.")


def _next(found: Gate, *, can_name_other: bool) -> list[str]:
    if found.answer == "regression" and found.repetitions and can_name_other:
        return ["To see whether the script is the cause: the same command with --against PATH, its version before."]
    if found.answer == "not_comparable" and found.repetitions:
        return ["Try a quieter machine, or more repetitions: --repetitions 40 --time-budget 20m."]
    if found.answer == "not_comparable" and found.differs:
        path = "Name another version of the script with --against PATH, or take" if can_name_other else "Take"
        return [f"{path} a baseline here: `autotune run`."]
    return []


app = make_app(
    gate,
    epilog="Exit codes: 0 no regression, 1 it could not be measured, 2 wrong usage, 3 regression or over the limit, 4 "
    "not comparable, 130 interrupted.",
)
