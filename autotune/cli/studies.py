"""`autotune studies`"""

from __future__ import annotations

from pathlib import Path

from ..records.study import StudyRecord
from .command import make_app, print_json
from .options import DEFAULT_STORAGE, JsonOption, StorageOption


def studies(storage: StorageOption = DEFAULT_STORAGE, json: JsonOption = False) -> None:
    """List the studies of a database."""
    import time

    from ..report.tables import Table
    from .places import open_known
    from .tables import make_console, print_table

    records = []
    if storage != DEFAULT_STORAGE or Path(storage).exists():
        with open_known(storage) as store:
            records = [store.open(name).record() for name in store.names()]
    if json:
        document = [
            {
                "name": record.name,
                "script": record.spec.script,
                "created_at": record.created_at,
                "trials": _finished(record),
                "answer": None if record.verdict is None else record.verdict.kind_of_answer,
                "reason": None if record.verdict is None else record.verdict.sentences,
            }
            for record in records
        ]
        print_json(document)
        return
    console = make_console(stderr=False)
    if not records:
        console.say(f"No studies in {storage} yet: `autotune run train.py` makes one.")
        return
    rows = tuple(
        (
            record.name,
            time.strftime("%Y-%m-%d %H:%M", time.localtime(record.created_at)),
            str(_finished(record)),
            "not finished" if record.verdict is None else record.verdict.sentences,
        )
        for record in records
    )
    print_table(console, Table(("Study", "Begun", "Trials", "Answer"), rows, frozenset({2})))


app = make_app(studies)


def _finished(record: StudyRecord) -> int:
    return sum(trial.outcome is not None for trial in record.trials)
