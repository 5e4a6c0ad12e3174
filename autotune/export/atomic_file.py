"""A single file that is written whole or not at all, and over nothing but an older one of ours."""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from ..errors import ExportError
from .heading import MARK

_HEAD_BYTES = 1 << 12
_ANOTHER = "name another file with --output FILE"


def check_free(path: Path) -> None:
    """ExportError unless a file may be written to a path, and there is nothing or one that was exported before."""
    folder = next(one for one in Path(os.path.realpath(path)).parents if os.path.lexists(one))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ExportError(
            f"{str(folder)!r} may not be written to, so {str(path)!r} cannot be made there", hint=_ANOTHER
        )
    if not os.path.lexists(path):
        return
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                if MARK.encode() in file.read(_HEAD_BYTES):
                    return
    raise ExportError(f"{str(path)!r} is there already, and was not exported by autotune", hint=_ANOTHER)


def write_synced(path: Path, text: str) -> None:
    """Write a text, and return when it is on the disk."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def write_whole(path: Path, text: str) -> Path:
    """Write a file whole, and return its absolute path; ExportError where that fails, and then nothing has changed."""
    check_free(path)
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:64]}-", dir=target.parent)
        try:
            os.close(descriptor)
            write_synced(Path(name), text)
            Path(name).chmod(0o644)
            Path(name).replace(target)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ExportError(
            f"{str(target)!r} could not be written: {error.strerror or error}",
            hint=_ANOTHER if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else f"make room, or {_ANOTHER}",
        ) from error
    return target
