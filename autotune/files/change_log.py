"""The change log of what runs change on disk, one line of JSON for each path, written before the change."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal


def open_lock(path: Path) -> int:
    """Open a lock file, made if it is not there; no program that is started inherits the descriptor."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def try_lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file; False if others hold it and ``wait`` is not set. A file system without locks has one user."""
    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock alone."""
    descriptor = open_lock(path)
    try:
        try_lock(descriptor, wait=True)
        yield
    finally:
        # A process that was forked meanwhile has the descriptor too: closing ours would not be enough.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


Was = Literal["file", "folder", "link", "absent", "unkept", "read", "about"]


class ForeignLogError(Exception):
    """A change log that lies in another folder than ``written_in`` (empty if unknown), so that its paths are others."""

    def __init__(self, written_in: str) -> None:
        super().__init__(f"written in {written_in or 'another folder'!r}")
        self.written_in = written_in


@dataclass(frozen=True)
class Entry:
    """The state of a path before the first change.

    ``file``: the file lies at ``kept`` meanwhile, or the change did not come about. ``link``: one to ``kept``.
    ``unkept``: a file that could not be kept aside, for the reason ``kept``. ``read``: a run has read what it made
    there. ``about``: the permissions and time of a file or a folder before a run changed those alone.
    """

    path: str  # absolute, links in its folders resolved
    was: Was
    kept: str = ""
    mode: int = 0
    is_early: bool = False  # noted before the run's first training step
    inode: int = 0  # of a file that is kept
    mtime_ns: int = 0  # of a file that is not kept


class ChangeLog:
    """The change log in a folder, which begins with the folder's name; processes write it in ``turn``.

    As far as it was read, ``first`` has the entry that counts of each path, ``entries`` all of them, ``was_read`` the
    paths that were read, ``about`` the entries of that kind, and ``linked`` the entries of kept files, by inode.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: list[Entry] = []
        self.first: dict[str, Entry] = {}
        self.was_read: set[str] = set()
        self.about: dict[str, Entry] = {}
        self.linked: dict[int, list[Entry]] = {}
        self._path = folder / "journal.jsonl"
        self._offset = 0

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the change log's lock, having read what others have written."""
        with held(self.folder / "journal.lock"):
            self.read()
            yield

    def read(self) -> None:
        """Read what was written since the last time, but for a line that a power loss has cut off.

        Raises:
            ForeignLogError: it came here with a copy of its folder, or in somebody's archive.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        if data and self._offset == 0:
            self._check_origin(data.split(b"\n", 1)[0])
        self._offset += len(data)
        for line in data.split(b"\n"):
            with contextlib.suppress(ValueError, TypeError):
                if line:
                    self._take(Entry(**json.loads(line)))

    def append(self, entry: Entry) -> None:
        """Write an entry within ``turn``, to the disk itself where a file is about to be moved."""
        line = json.dumps(asdict(entry)).encode()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            # An unfinished line of somebody who died would swallow this one.
            data = (b"" if os.fstat(descriptor).st_size else self._origin()) + b"\n" + line + b"\n"
            written = os.write(descriptor, data)
            self._offset += written
            if written < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
            if entry.was == "file":
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._take(entry)

    def clear(self) -> None:
        """Remove the change log."""
        self._path.unlink(missing_ok=True)

    def kept_as(self, found: os.stat_result) -> Entry | None:
        """Return as what this very file is kept; None where it is not."""
        for entry in self.linked.get(found.st_ino, ()):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.lstat(entry.kept), found):
                    return entry
        return None

    def forget(self, path: str) -> None:
        """Drop the entry of a path, as its change did not come about."""
        self.first.pop(path, None)

    def _origin(self) -> bytes:
        return json.dumps({"folder": os.path.realpath(self.folder)}).encode()

    def _check_origin(self, line: bytes) -> None:
        if line != self._origin():
            origin = json.loads(line) if line.startswith(b"{") and line.endswith(b"}") else {}
            raise ForeignLogError(str(origin.get("folder", "")))

    def _take(self, entry: Entry) -> None:
        self.entries.append(entry)
        if entry.was == "read":
            self.was_read.add(entry.path)
        elif entry.was == "about":
            self.about.setdefault(entry.path, entry)
        elif entry.was in ("file", "unkept"):  # what was tried before did not come about
            self.first[entry.path] = entry
        else:
            self.first.setdefault(entry.path, entry)
        if entry.was == "file":
            self.linked.setdefault(entry.inode, []).append(entry)
