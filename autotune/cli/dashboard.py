"""`autotune dashboard`"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ..errors import UsageError
from .command import make_app
from .options import DEFAULT_STORAGE, StorageOption

_PATIENCE_S = 5.0  # with a server that does not answer, for each try: somebody sits before an empty page
_TOKEN = "AUTOTUNE_DASHBOARD_TOKEN"  # noqa: S105 - the name of a variable


def dashboard(
    storage: StorageOption = DEFAULT_STORAGE,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="The address to listen on. An address that other machines can reach needs a token, which is printed "
            f"with the address; {_TOKEN} sets it.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, max=65535, help="The port; 0 for any free one. Default: 8421, or the next free one."
        ),
    ] = None,
) -> None:
    """Show the studies and gates of a database in a browser.

    Pages of running studies update themselves. The dashboard only reads the database, and runs until Ctrl-C.
    """
    import secrets

    from ..store.database import open_store
    from .places import prepare_storage, shown_storage

    try:
        from ..dashboard.app import make_app as make_pages
        from ..dashboard.serving import Server, is_this_machine
    except ImportError as error:
        raise UsageError(
            f"the dashboard needs a package that is not here: {error.name}",
            hint="pip install 'autotune-memory[dashboard]'",
        ) from None

    token = os.environ.get(_TOKEN, "") or ("" if is_this_machine(host) else secrets.token_urlsafe(24))
    is_own = storage == DEFAULT_STORAGE  # somebody may want to see the first study from its beginning
    with open_store(prepare_storage(storage), create=is_own, timeout_s=_PATIENCE_S) as store:
        server = Server(make_pages(store, token=token), host=host, port=port)
        typer.echo(f"Studies of {shown_storage(store, storage)}: {server.address}{f'?token={token}' if token else ''}")
        typer.echo("Ctrl-C ends it.", err=True)
        server.run()


app = make_app(dashboard)
