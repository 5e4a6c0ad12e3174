"""`autotune show`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .options import DEFAULT_STORAGE, JsonOption, StorageOption, StudyArgument

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("show")(show)


def show(
    study: StudyArgument,
    trial: Annotated[int | None, typer.Option(help="Show this trial in full, with the end of its log.")] = None,
    storage: StorageOption = DEFAULT_STORAGE,
    json: JsonOption = False,
) -> None:
    """Show a study: its answer, plan table and trials."""
    from ..report import build_document
    from ..store import open_store
    from .options import print_json

    with open_store(storage) as store:
        record = store.open(study).record()
    if trial is not None:
        _show_trial(record, trial, json=json)
        return
    document = build_document(record)
    if json:
        print_json(document)
    else:
        _show_study(document)


def _show_study(document: dict[str, Any]) -> None:
    from ..report import setting_rows, trial_table
    from .summary import print_summary
    from .tables import make_console, print_facts, print_rows, print_table

    console = make_console(stderr=False)
    print_facts(console, document)
    console.print()
    print_rows(console, setting_rows(document))
    console.print()
    print_table(console, trial_table(document))
    print_summary(console, document, None)


def _show_trial(record: Any, number: int, *, json: bool) -> None:
    from ..errors import UsageError
    from ..launch import log_tail
    from ..records import Measured, to_json
    from .options import print_json
    from .tables import make_console, print_rows

    found = next((trial for trial in record.trials if trial.number == number), None)
    if found is None:
        numbers = ", ".join(str(trial.number) for trial in record.trials) or "none"
        raise UsageError(f"study {record.name!r} has no trial {number}", hint=f"it has {numbers}")
    if json:
        print_json(to_json(found))
        return
    console = make_console(stderr=False)
    rows = [("Setting", str(found.configuration)), ("State", "recovered" if found.recovered else found.state)]
    outcome = found.outcome
    if isinstance(outcome, Measured):
        rows += [(name, str(value)) for name, value in to_json(outcome.measurement).items()]
    elif outcome is not None:
        rows += [("Outcome", outcome.kind), ("Cause", outcome.cause), ("Next", outcome.advice)]
    rows.append(("Logs", found.run_directory))
    print_rows(console, [(name, value) for name, value in rows if value])
    tail = outcome.log_tail if outcome is not None and not isinstance(outcome, Measured) else ()
    for line in tail or (log_tail(Path(found.run_directory)) if found.run_directory else ()):
        console.print(line, markup=False)
