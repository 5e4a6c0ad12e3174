"""The way in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .owner import Owner

if TYPE_CHECKING:
    from .database import SqlStore


def open_store(
    url: str,
    *,
    create: bool = True,
    timeout_s: float = 15.0,
    grace_s: float = 120.0,
    owner: Owner | None = None,
) -> SqlStore:
    """Open a database of studies, and make its tables if it has none.

    Args:
        url: ``sqlite:///FILE``, the bare path of a file, or ``postgresql://user:password@host/database``.
        create: Make the SQLite file if it is not there. Commands that only read pass False, so that a mistyped name
            is an error and not an empty database.
        timeout_s: How long to wait for a locked database, or for a server.
        grace_s: How long an owner on another machine may be silent before its trials are taken over.
        owner: Who begins trials; this process unless told otherwise.

    Raises:
        StorageError: The URL or what it names cannot be used.
        RunError: The database is locked, or no room is left.
    """
    from .database import SqlStore
    from .location import parse_location

    location = parse_location(url)
    return SqlStore(location, create=create, timeout_s=timeout_s, grace_s=grace_s, owner=owner or Owner.current())
