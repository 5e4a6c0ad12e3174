"""Pack a folder into one archive that goes to another machine, within limits, and unpack it there."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import UsageError
from ..records.units import format_bytes

MOST_BYTES = 100 * 2**20
MOST_FILES = 10_000
# What is made anew where it is needed, or is of no use on another machine.
_LEFT_OUT = frozenset({".git", ".hg", ".autotune", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
# Looking for what makes a folder too large, which may have millions of files.
_LOOK_S = 3.0
_HINT = (
    "run from a folder with the script and little else, with data elsewhere; or, if all nodes have this folder "
    "under the same path, --cluster-files shared"
)


def pack(folder: Path) -> bytes:
    """Pack what is in a folder, but for caches, version control and virtual environments.

    UsageError, before anything is read, if it is too much, or holds a link that would lead elsewhere on another
    machine.
    """
    packed, top = io.BytesIO(), folder.resolve()
    try:
        found = list(_members(top))
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
            for path in found:
                archive.add(path, path.relative_to(top), recursive=False)
    except OSError as error:
        raise UsageError(
            f"cannot send {str(error.filename or folder)!r}: {error.strerror or error}", hint=_HINT
        ) from None
    return packed.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """Unpack it into a folder that is there; nothing in it may come to lie outside."""
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:  # Python before 3.11.4, such as Debian 12's
            archive.extractall(folder, members=[_staying(one) for one in archive])  # noqa: S202


def _staying(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return the member; TarError if it or what it links to lies outside of the archive, or it is no file or folder."""
    leads_to = os.path.join(os.path.dirname(member.name), member.linkname) if member.issym() else member.name  # noqa: PTH118, PTH120
    is_outside = any(
        Path(one).is_absolute() or os.path.normpath(one).startswith("..") for one in (member.name, leads_to)
    )
    if is_outside or not (member.isreg() or member.isdir() or member.issym()):
        raise tarfile.TarError(f"the archive has something in it that does not stay in its folder: {member.name!r}")
    return member


def _members(top: Path) -> Iterator[Path]:
    """Find everything to be sent, each folder before what is in it; the first thing that forbids it ends the search."""
    num_bytes = num_files = 0
    for here, folders, files in _walk(top):
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
                raise _too_much(top, format_bytes(MOST_BYTES), _bytes_of, format_bytes)
            if num_files > MOST_FILES:
                raise _too_much(top, f"{MOST_FILES:,} files", lambda _: 1, "{:,} files".format)
            yield path


def _walk(top: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Walk as ``os.walk`` does, without what stays here."""
    for at, folders, files in os.walk(top, onerror=_refuse):
        folders[:] = [
            one
            for one in sorted(folders)
            if one not in _LEFT_OUT and not os.path.exists(os.path.join(at, one, "pyvenv.cfg"))  # noqa: PTH110, PTH118
        ]
        yield Path(at), folders, files


def _too_much(top: Path, most: str, weigh: Callable[[os.stat_result], int], shown: Callable[[int], str]) -> UsageError:
    """Say that there is more than is sent, and what to move away first: the innermost path that half of it is in.

    ``weigh`` gives the size of a path, or 1 to count it; ``shown`` says a sum of those in words, as ``most`` does.
    """
    weights, is_whole = _weigh(top, weigh)
    total = weights.pop(top)
    path = max(weights, key=lambda one: (min(2 * weights[one], total), len(one.parts)), default=top)
    # Many files of which each lies somewhere else have no place that is to be named.
    in_it = f", {shown(weights[path])} of them in {str(path.relative_to(top))!r}" if 10 * weights[path] > total else ""
    at_least = "" if is_whole else "at least "
    return UsageError(
        f"{str(top)!r} contains more than the {most} that are sent: {at_least}{shown(total)}{in_it}", hint=_HINT
    )


def _weigh(top: Path, weigh: Callable[[os.stat_result], int]) -> tuple[Counter[Path], bool]:
    """Return what every folder and every file weighs, and whether there was time for all of them."""
    weights: Counter[Path] = Counter({top: 0})
    walked: list[Path] = []
    deadline, is_whole = time.monotonic() + _LOOK_S, True
    for here, folders, files in _walk(top):
        walked.append(here)
        inner = set(folders)
        for name in (*folders, *files):
            is_whole = time.monotonic() < deadline
            if not is_whole:
                break
            weight = weigh((here / name).lstat())
            weights[here] += weight
            if weight > 1 and name not in inner:  # one file of many is nothing to move
                weights[here / name] = weight
        if not is_whole:
            break
    for folder in reversed(walked[1:]):
        weights[folder.parent] += weights[folder]
    return weights, is_whole


def _bytes_of(status: os.stat_result) -> int:
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _check_link(path: Path, top: Path) -> None:
    target = path.readlink()
    if target.is_absolute() or not Path(os.path.realpath(path)).is_relative_to(top):  # a loop leads nowhere
        raise UsageError(
            f"{str(path)!r} is a link to {str(target)!r}, which leads out of the folder that is sent",
            hint="replace it by what it leads to, or name that by its own path; or --cluster-files shared, where all "
            "nodes see this folder under the same path",
        )


def _refuse(error: OSError) -> None:
    raise UsageError(f"cannot send {error.filename!r}: {error.strerror}", hint=_HINT) from None
