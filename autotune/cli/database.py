"""`autotune database`"""

from __future__ import annotations

from typing import Annotated

import typer

from .command import make_app, print_json
from .options import DEFAULT_STORAGE, JsonOption, StorageOption


def database(
    storage: StorageOption = DEFAULT_STORAGE,
    roles: Annotated[
        bool,
        typer.Option(
            "--roles",
            help="Print the SQL that makes the roles autotune_read and autotune_tune of a PostgreSQL database.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Make the tables of a database of studies, or upgrade them.

    Every command does so by itself, if it may. Where a database has an owner, this is the command for that owner.
    """
    from ..store.opening import open_store
    from .places import prepare_storage, shown_storage

    with open_store(prepare_storage(storage)) as store:
        store.prepare()
        sql = store.roles_sql() if roles else None
        where, count = shown_storage(store, storage), len(store.names())
    if json:
        print_json({"storage": where, "studies": count, "roles": sql})
    elif sql is not None:
        typer.echo(sql, nl=False)
    else:
        typer.echo(f"{where} is up to date; it holds {count} {'study' if count == 1 else 'studies'}.")


app = make_app(database)
