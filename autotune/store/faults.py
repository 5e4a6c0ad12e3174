"""Translation of a database's failures into the exceptions of ``errors``."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from ..errors import AutotuneError, NotPermittedError, RunError, StorageError
from ..records.printable import shell_word
from .connections import Location

# Of SQLSTATE: PostgreSQL documentation, appendix A.
_NOT_PERMITTED = "42501"
# The connection failed (class 08); the server shuts down, has crashed, or is starting.
_GONE = ("08", "57P01", "57P02", "57P03")
_GO_ON = "run the same command again to go on: finished trials are stored"
_RESUME_AFTER_IO = f"see that the disk works and has room, and that files may grow (ulimit -f), then {_GO_ON}"
# SQLite grows a file beside the database by 32 KiB.
_FULL_BYTES = 2**16
_RESUME = f"make room, then {_GO_ON}"


@contextmanager
def translated(location: Location, *, opening: bool = False) -> Iterator[None]:
    """Raise StorageError (it cannot be used) or RunError (it failed at work) for database failures in the block.

    A server that does not answer cannot be used while ``opening``; later it has failed at work. Failures may come from
    the driver, from SQLAlchemy, or from Optuna wrapped around those. Anything else passes.
    """
    try:
        yield
    except AutotuneError:
        raise
    except Exception as error:
        fault = _translate(error, location, opening=opening)
        if fault is None:
            raise
        raise fault from error


def _translate(error: Exception, location: Location, *, opening: bool) -> AutotuneError | None:
    if isinstance(error, UnicodeEncodeError):
        return StorageError(
            f"{error.object!r} cannot be stored: it is not valid Unicode", hint="use a path or name that is UTF-8"
        )
    cause = _driver_error(error)
    if cause is None:
        return None
    if isinstance(cause, sqlite3.Error):
        return _of_sqlite(cause, location)
    return _of_server(cause, location, opening=opening)


def _driver_error(error: BaseException) -> BaseException | None:
    """Find the driver's own error: below SQLAlchemy's (``orig``) or ours, and those below Optuna's (``__cause__``)."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, sqlite3.Error):
            return seen
        if isinstance(seen, sa.exc.DBAPIError):
            return seen.orig or seen
        if isinstance(seen, sa.exc.SQLAlchemyError):
            return seen
        seen = seen.__cause__
    return None


def _of_sqlite(error: sqlite3.Error, location: Location) -> AutotuneError:
    name, file = getattr(error, "sqlite_errorname", ""), shell_word(str(location))
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return RunError(
            f"the database {location} stayed locked by another process: {error}",
            hint=f"end the program that locks it (`fuser -v {file}` shows it), then run the same command again",
        )
    if name.startswith("SQLITE_FULL") or (name.startswith("SQLITE_IOERR") and _is_full(location)):
        return RunError(f"no room left for the database {location}: {error}", hint=_RESUME)
    if name.startswith("SQLITE_IOERR"):
        return RunError(f"reading or writing the database {location} failed: {error} ({name})", hint=_RESUME_AFTER_IO)
    if name.startswith("SQLITE_NOTADB"):
        return StorageError(f"{location} is not an SQLite database", hint="name another file with --storage")
    if name.startswith("SQLITE_CORRUPT"):
        return StorageError(
            f"the database {location} is damaged: {error}",
            hint=f"`sqlite3 {file} .recover` may save what is left of it; or name another file with --storage",
        )
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return StorageError(
            f"the database {location} cannot be written: {error}",
            hint="the file and its folder must be writable; or name another file with --storage",
        )
    if name.startswith("SQLITE_CANTOPEN"):
        return StorageError(
            f"the database {location} cannot be opened: {error}",
            hint="the folder must exist and be writable; or name another file with --storage",
        )
    return RunError(f"the database {location} failed: {error}", hint=f"the message is SQLite's own; {_GO_ON}")


def _is_full(location: Location) -> bool:
    """Tell whether the disk of a file is full: SQLite then fails to make a file beside the database."""
    try:
        return location.path is not None and shutil.disk_usage(location.path.parent).free < _FULL_BYTES
    except OSError:
        return False


def _of_server(error: BaseException, location: Location, *, opening: bool) -> AutotuneError:
    state = getattr(error, "sqlstate", None) or ""  # empty where it did not answer
    first, *_ = str(error).strip().splitlines() or [type(error).__name__]
    if state.startswith("53"):
        return RunError(f"the server of {location} is out of room: {first}", hint=_RESUME)
    if state in ("55P03", "57014", "40P01"):
        return RunError(f"{location} stayed locked by another session: {first}", hint="run the same command again")
    if state == _NOT_PERMITTED:
        return NotPermittedError(
            f"{location} does not permit this: {first}", hint="ask the owner of the database for the right to do it"
        )
    # Optuna goes on after the first failure of a connection, and then hears that it was to be rolled back.
    names = ("OperationalError", "InterfaceError", "ConnectionTimeout", "PendingRollbackError")
    no_answer = type(error).__name__.endswith(names)
    if not (state.startswith(_GONE) if state else no_answer):
        return RunError(f"{location} failed: {first}", hint=f"the message is the server's own; {_GO_ON}")
    if not opening:
        return RunError(f"{location} does not answer any more: {first}", hint=f"once it answers, {_GO_ON}")
    return StorageError(
        f"{location} cannot be reached: {first}",
        hint="check host, port, user, password and the database's name in the storage URL, and that the server runs",
    )
