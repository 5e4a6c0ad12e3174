"""`autotune show`"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from ..records.codec import to_json
from ..records.environment import conditions_words
from ..records.figures import format_peak
from ..records.measurement import Measurement
from ..records.outcome import Measured
from ..records.printable import printable
from ..records.study import StudyRecord, Trial
from ..records.units import format_bytes, format_duration, format_rate
from ..records.words import brief_words, cut_names
from ..report.record import Report
from .command import make_app, print_json
from .options import DEFAULT_STORAGE, JsonOption, StorageOption, StudyArgument


def show(
    study: StudyArgument,
    trial: Annotated[
        int | None, typer.Option(metavar="N", help="Show this trial in full, with the end of its log.")
    ] = None,
    storage: StorageOption = DEFAULT_STORAGE,
    json: JsonOption = False,
) -> None:
    """Show a study: its answer, plan table and trials."""
    from ..report.build import build_report
    from .places import stored_record

    record = stored_record(study, storage)
    if trial is not None:
        _show_trial(record, trial, json=json)
        return
    report = build_report(record)
    if json:
        print_json(to_json(report))
    else:
        _show_study(record, report)


app = make_app(show)


def _show_study(record: StudyRecord, report: Report) -> None:
    from ..report.tables import front_table, setting_rows, spent_table, trial_table
    from .summary import print_summary
    from .tables import make_console, print_facts, print_rows, print_table

    console = make_console(stderr=False)
    print_facts(console, report)
    console.print()
    print_rows(console, setting_rows(report))
    console.print()
    print_table(console, trial_table(report))
    more = {"What each amount of memory buys, as measured once:": front_table(report)}
    more["Where the time went:"] = spent_table(report)
    for title, table in more.items():
        if table.rows:
            console.print(f"\n{title}")
            print_table(console, table)
    print_summary(console, record, None)


def find_trial(record: StudyRecord, number: int) -> Trial:
    """Return the trial that people know by a number; UsageError where there is none."""
    found = next((trial for trial in record.shown if trial.number == number), None)
    if found is None:
        numbers = ", ".join(str(trial.number) for trial in record.shown) or "none"
        raise UsageError(f"study {record.name!r} has no trial {number}", hint=f"it has {numbers}")
    return found


def _show_trial(record: StudyRecord, number: int, *, json: bool) -> None:
    from rich.text import Text

    from ..launch.logs import log_tail
    from .tables import make_console, print_rows

    found = find_trial(record, number)
    if json:
        print_json(to_json(found))
        return
    clusters = () if record.facts is None else record.facts.clusters
    rows = [("Setting", brief_words(found.configuration, clusters))]
    rows.append(("Its plans", cut_names("  ".join(map(str, found.configuration.plans)))))
    rows.append(("State", "recovered" if found.recovered else found.state))
    outcome = found.outcome
    if isinstance(outcome, Measured):
        rows += _measurement_rows(outcome.measurement)
    elif outcome is not None:
        rows += [("Outcome", outcome.kind), ("Cause", outcome.cause), ("Next", outcome.advice)]
    rows.append(("Logs", found.run_directory))
    console = make_console(stderr=False)
    print_rows(console, [(name, value) for name, value in rows if value])
    tail = outcome.log_tail if outcome is not None and not isinstance(outcome, Measured) else ()
    tail = tail or (log_tail(Path(found.run_directory)) if found.run_directory else ())
    if tail:
        console.print()
    for line in tail:
        console.print(Text(printable(line.expandtabs())), soft_wrap=True)


def _measurement_rows(measurement: Measurement) -> list[tuple[str, str]]:
    rate_low, rate_high = measurement.samples_per_s_interval
    low, high = measurement.step_time_interval_s
    times = f"{format_duration(low)} to {format_duration(high)}, {measurement.num_steps} steps"
    sizes = dataclasses.asdict(measurement.peaks).items()
    peaks = ", ".join(f"{name.replace('_', ' ')} {format_bytes(size)}" for name, size in sizes if size is not None)
    warmup = f"{measurement.warmup_steps} steps, {format_duration(measurement.warmup_s)}"
    rate = f"{format_rate(measurement.samples_per_s)} ({format_rate(rate_low)} to {format_rate(rate_high)})"
    flags = {
        "other processes used the device meanwhile": measurement.contended,
        "the loss was not finite": measurement.nonfinite_loss,
        "the allocator had to free memory and try again": measurement.allocator_retries > 0,
        "samples are guessed from the shape of the input": measurement.samples_are_guessed,
    }
    return [
        ("Samples/s", rate),
        ("Step time", f"{format_duration(measurement.step_time_s)} ({times})"),
        ("Peaks", peaks),
        ("GPU", conditions_words(measurement.conditions)),
        ("Batch size", "" if measurement.batch_size is None else str(measurement.batch_size)),
        ("Largest batch", "" if measurement.largest is None else measurement.largest.sizes),
        ("Calls per step", f"{measurement.calls_per_step:g}"),
        ("Processes", str(measurement.num_processes)),
        ("Peak by rank", ", ".join(map(format_peak, measurement.rank_peaks))),
        ("Warm-up", warmup),
        ("Notes", "; ".join([*(flag for flag, holds in flags.items() if holds), *measurement.notes])),
    ]
