"""`autotune studies`"""

from __future__ import annotations

import typer

from .options import DEFAULT_STORAGE, JsonOption, StorageOption

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("studies")(studies)


def studies(storage: StorageOption = DEFAULT_STORAGE, json: JsonOption = False) -> None:
    """List the studies of a database."""
    import time

    from ..report import Table
    from ..store import open_store
    from .options import print_json
    from .tables import make_console, print_table

    with open_store(storage) as store:
        records = [store.open(name).record() for name in store.names()]
    if json:
        rows = [
            {
                "name": record.name,
                "script": record.spec.script,
                "created_at": record.created_at,
                "trials": len(record.trials),
                "answer": None if record.verdict is None else record.verdict.kind_of_answer,
                "reason": None if record.verdict is None else record.verdict.reason,
            }
            for record in records
        ]
        print_json(rows)
        return
    console = make_console(stderr=False)
    if not records:
        console.print("No studies yet: `autotune run train.py` makes one.")
        return
    print_table(
        console,
        Table(
            ("Study", "Begun", "Trials", "Answer"),
            tuple(
                (
                    record.name,
                    time.strftime("%Y-%m-%d %H:%M", time.localtime(record.created_at)),
                    str(len(record.trials)),
                    "not finished" if record.verdict is None else record.verdict.reason,
                )
                for record in records
            ),
            frozenset({2}),
        ),
    )
