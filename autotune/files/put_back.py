"""Puts back what runs have changed, from the change log."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from .change_log import ChangeLog, Entry, open_lock, try_lock
from .changes import Changes

# A file system may round times, and a run writes a little longer than its controller lives.
_SLACK_S = 5.0


def put_back(folder: Path | str, *, of_the_dead: bool = True) -> Changes | None:
    """Restore what the change log in ``folder`` names; None while a process of a run lives.

    ``of_the_dead``: files that were written after the runs' last sign of life are somebody else's, and stay.
    """
    folder = Path(folder)
    descriptor = open_lock(folder / "lock")
    try:
        return _restore(folder, of_the_dead=of_the_dead) if try_lock(descriptor) else None
    finally:
        os.close(descriptor)


def _restore(folder: Path, *, of_the_dead: bool) -> Changes:
    # This may be ended at any moment, and is done again then.
    changes, log, alive_s = Changes(), ChangeLog(folder), float("inf")
    log.read()
    if of_the_dead:
        with contextlib.suppress(FileNotFoundError):
            alive_s = (folder / "alive").stat().st_mtime + _SLACK_S
    first = log.first.values()
    # Looked at before anything is changed: to remove one of two names of a file changes the time of the other.
    newer = {path for path in (*log.first, *log.about) if _is_newer(path, alive_s)}
    _open_folders(log)
    data = _data(log)
    changes.data += sorted(path for path in data if os.path.lexists(path))
    left: list[str] = []
    # What is inside of others comes before them, so that each is looked at by itself.
    for entry in sorted((one for one in first if one.was == "absent"), key=lambda one: one.path, reverse=True):
        is_data = entry.is_early and any(f"{entry.path}{os.sep}".startswith(f"{above}{os.sep}") for above in data)
        if is_data or not os.path.lexists(entry.path):
            continue
        if entry.path not in newer and _clear(entry.path):
            changes.removed.append(entry.path)
        else:
            left.append(entry.path)
    changes.others = _others(left, log, newer)
    for entry in sorted((one for one in first if one.was == "folder"), key=lambda one: one.path):
        if not os.path.isdir(entry.path):
            _clear(entry.path)  # what is no folder always goes
            Path(entry.path).mkdir(parents=True)
            Path(entry.path).chmod(entry.mode)
            changes.put_back.append(entry.path)
    for entry in first:
        path = entry.path
        if entry.was != "link" or (os.path.islink(path) and os.readlink(path) == entry.kept):
            continue
        if _clear(path):
            Path(path).symlink_to(entry.kept)
            changes.put_back.append(path)
    _put_files_back(log.entries, changes, newer)
    changes.unkept |= {entry.path: entry.kept for entry in first if entry.was == "unkept" and _has_changed(entry)}
    _describe(log, changes, newer)
    changes.removed = _outermost(changes.removed)
    for place in {str(Path(entry.kept).parent) for entry in log.entries if entry.was == "file"}:
        with contextlib.suppress(OSError):
            Path(place).rmdir()
    log.clear()
    return changes


def _has_changed(entry: Entry) -> bool:
    # Many files are opened to be written to, and are not.
    try:
        return os.lstat(entry.path).st_mtime_ns != entry.mtime_ns
    except FileNotFoundError:
        return True


def _data(log: ChangeLog) -> set[str]:
    """Return the outermost new path around each path that a run has made before its training and read."""
    found = set()
    for path in [entry.path for entry in log.entries if entry.was == "read"]:
        around = [str(one) for one in (Path(path), *Path(path).parents)]
        made = [one for one in around if one in log.first and log.first[one].was == "absent"]
        if made and log.first[made[-1]].is_early:
            found.add(made[-1])
    return found


def _put_files_back(entries: Iterable[Entry], changes: Changes, newer: set[str]) -> None:
    for entry in entries:
        # Nothing lies there where the run died before the change.
        if entry.was != "file" or not os.path.lexists(entry.kept):
            continue
        path = entry.path
        if os.path.lexists(path) and os.path.samestat(os.lstat(path), os.lstat(entry.kept)):
            os.unlink(entry.kept)
            continue
        is_folder = os.path.isdir(path) and not os.path.islink(path)
        if path in newer or (is_folder and not _clear(path)):
            suffix = f".before-autotune-{os.path.basename(entry.kept)[:8]}"
            # File systems have 255 bytes for a name.
            name = os.fsdecode(os.fsencode(os.path.basename(path))[: 255 - len(suffix)])
            older = os.path.join(os.path.dirname(path), name + suffix)
            os.rename(entry.kept, older)
            changes.newer[path] = older
            continue
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        os.replace(entry.kept, path)
        changes.put_back.append(path)


def _open_folders(log: ChangeLog) -> None:
    for path in log.about:
        with contextlib.suppress(OSError):
            mode = os.lstat(path).st_mode
            if stat.S_ISDIR(mode):
                os.chmod(path, stat.S_IMODE(mode) | stat.S_IRWXU)


def _describe(log: ChangeLog, changes: Changes, newer: set[str]) -> None:
    """Restore permissions and times, once everything else is in its place."""
    for entry in sorted(log.about.values(), key=lambda one: one.path, reverse=True):
        path = entry.path
        try:
            found = os.lstat(path)
            if path in newer or stat.S_ISLNK(found.st_mode):
                continue
            has_other_time = (
                found.st_mtime_ns != entry.mtime_ns and path not in changes.unkept and not stat.S_ISDIR(found.st_mode)
            )
            if has_other_time:
                os.utime(path, ns=(found.st_atime_ns, entry.mtime_ns))
            if stat.S_IMODE(found.st_mode) != entry.mode:
                os.chmod(path, entry.mode)
            elif not has_other_time:
                continue
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:  # who may write to a file need not own it
            changes.unkept[path] = f"its permissions and time stay as they are now: {error.strerror}"
            continue
        if path not in changes.put_back:
            changes.put_back.append(path)


def _is_newer(path: str, alive_s: float) -> bool:
    """Return whether a file came here after a run had died, by the time that `mv` and `cp -p` do not preserve."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not stat.S_ISDIR(found.st_mode) and found.st_ctime > alive_s


def _others(left: list[str], log: ChangeLog, newer: set[str]) -> list[str]:
    """Return the paths that no run was seen to write, or somebody wrote later, where runs have made something."""
    found = {path for path in left if path in newer}
    for path in _outermost(left):
        for above, folders, files in os.walk(path):
            inside = (os.path.join(above, name) for name in (*folders, *files))
            found |= {one for one in inside if one not in log.first}
    return _outermost(list(found))


def _clear(path: str) -> bool:
    """Remove a file, or an empty folder, and return whether it is gone."""
    if os.path.isdir(path) and not os.path.islink(path):
        with contextlib.suppress(OSError):
            Path(path).rmdir()
    elif os.path.lexists(path):
        os.unlink(path)
    return not os.path.lexists(path)


def _outermost(paths: list[str]) -> list[str]:
    kept = set(paths)
    return sorted(path for path in paths if not any(str(above) in kept for above in Path(path).parents))
