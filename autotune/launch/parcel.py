"""A folder as one parcel that goes to another machine: what it may hold, how it is packed and unpacked."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

from ..errors import UsageError
from ..records.units import format_bytes

__all__ = ["MOST_BYTES", "MOST_FILES", "pack", "unpack"]

MOST_BYTES = 100 * 2**20
MOST_FILES = 10_000
# What is made anew where it is needed, or is of no use on another machine.
_LEFT_OUT = frozenset({".git", ".hg", ".autotune", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
_HINT = (
    "run from a folder that holds the script and little else, with data elsewhere; or, where all nodes see this folder "
    "under the same path, --cluster-files shared"
)


def pack(folder: Path) -> bytes:
    """Pack what is in a folder, but for caches, version control and virtual environments.

    UsageError, before anything is read, if it is too much, or holds a link that would lead elsewhere on another
    machine.
    """
    found = list(_members(folder))
    parcel = io.BytesIO()
    try:
        with tarfile.open(fileobj=parcel, mode="w:gz", compresslevel=1) as archive:
            for path in found:
                archive.add(path, path.relative_to(folder), recursive=False)
    except OSError as error:
        raise UsageError(
            f"cannot send {str(error.filename or folder)!r}: {error.strerror or error}", hint=_HINT
        ) from None
    return parcel.getvalue()


def unpack(parcel: bytes, folder: Path) -> None:
    """Unpack it into a folder that is there; nothing in it may come to lie outside."""
    with tarfile.open(fileobj=io.BytesIO(parcel), mode="r:gz") as archive:
        archive.extractall(folder, filter="data")


def _members(folder: Path) -> Iterator[Path]:
    """Everything to be sent, each folder before what is in it; the first thing that forbids it ends the search."""
    top = folder.resolve()
    num_bytes = num_files = 0
    for at, folders, files in os.walk(top, onerror=_refuse):
        here = Path(at)
        folders[:] = [
            one for one in sorted(folders) if one not in _LEFT_OUT and not (here / one / "pyvenv.cfg").exists()
        ]
        for name in [*folders, *sorted(files)]:
            path = here / name
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode):
                _check_link(path, top)
            elif stat.S_ISREG(status.st_mode):
                num_bytes += status.st_size
            elif not stat.S_ISDIR(status.st_mode):
                continue  # a socket or a pipe belongs to a process of this machine
            num_files += 1
            if num_bytes > MOST_BYTES:
                raise UsageError(
                    f"{str(folder)!r} holds more than the {format_bytes(MOST_BYTES)} that are sent", hint=_HINT
                )
            if num_files > MOST_FILES:
                raise UsageError(f"{str(folder)!r} holds more than the {MOST_FILES:,} files that are sent", hint=_HINT)
            yield top / path.relative_to(top)


def _check_link(path: Path, top: Path) -> None:
    target = path.readlink()
    if target.is_absolute() or not path.resolve().is_relative_to(top):
        raise UsageError(
            f"{str(path)!r} is a link to {str(target)!r}, which leads out of the folder that is sent",
            hint="replace it by what it leads to, or name that by its own path; or --cluster-files shared, where all "
            "nodes see this folder under the same path",
        )


def _refuse(error: OSError) -> None:
    raise UsageError(f"cannot send {error.filename!r}: {error.strerror}", hint=_HINT) from None
