"""What sittings leave, in at most six files of one folder: it may be cut off at any second, carried and gone on from.

Sittings work in a folder of their own. What they find there is written into this one a moment later, logs every 15 s:
each file beside its old version, and then in its place. The next sitting unpacks it, on another machine too.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sqlite3
import tarfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

JOURNAL, FACTS, TESTS, DATABASE = "journal.jsonl", "facts.json", "tests.jsonl", "studies.db"
_PLAIN = (FACTS, TESTS, JOURNAL)
# What peers, noise and landscapes go on from, by folder.
_FOUND = ("records", "landscapes")
_RECORDS, _LOGS = "records.tar.gz", "logs.tar.gz"
MOST_BYTES = 16 << 20
# Logs are only for people: those of steps, then those of runs and bundles, without what compilers made.
_OF_STEPS = "logs"
_CACHES = ("caches", "cache", "__pycache__")
_LARGEST_LOG = 4 << 20
_LOGS_EVERY_S = 15.0


class Folder:
    """A folder of that kind.

    Args:
        path: the folder; it is made when there is something to keep.
        work: where the sitting works.
    """

    def __init__(self, path: Path, work: Path) -> None:
        self._path = path
        self._work = work
        self._kept: dict[str, object] = {}
        self._told: set[str] = set()
        self._logs_kept_at = -_LOGS_EVERY_S

    @property
    def holds_anything(self) -> bool:
        """Whether a sitting has left anything there."""
        return any((self._path / name).exists() for name in (*_PLAIN, DATABASE, _RECORDS, _LOGS))

    def unpack(self) -> None:
        """Empty the place of work, and bring what earlier sittings have found."""
        if self._work.exists():
            # At once, so that nobody who is still at work there writes into what comes.
            old = self._work.with_name(f"{self._work.name}-old")
            shutil.rmtree(old, ignore_errors=True)
            self._work.rename(old)
            shutil.rmtree(old, ignore_errors=True)
        self._work.mkdir(parents=True)
        for name in (*_PLAIN, DATABASE):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(self._path / name, self._work / name)
        for name in (_RECORDS, _LOGS):
            with contextlib.suppress(FileNotFoundError), tarfile.open(self._path / name) as archive:
                archive.extractall(self._work, filter="data")

    def keep(self, *, all_of_it: bool = False) -> None:
        """Write what has changed; logs every 15 s only, or at once with ``all_of_it``."""
        # A line says that something was found: lines are read before what was found is kept, and kept behind it.
        lines = [self._read(name) for name in _PLAIN]
        self._keep(_RECORDS, _state_of(_files_below(*(self._work / name for name in _FOUND))), self._archive)
        database = self._work / DATABASE
        self._keep(DATABASE, _state_of([database, database.with_name(f"{DATABASE}-wal")]), self._back_up)
        for name, state, content in lines:
            self._keep(name, state, functools.partial(self._write, content))
        if all_of_it or time.monotonic() - self._logs_kept_at > _LOGS_EVERY_S:
            self._keep(_LOGS, _state_of(self._logs()), self._archive_logs)
            self._logs_kept_at = time.monotonic()

    def _keep(self, name: str, state: list[tuple[Path, int, int]], write: Callable[[Path, list[Path]], object]) -> None:
        if not state or self._kept.get(name) == state:
            return
        new = self._path / f"{name}.new"
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            write(new, [path for path, *_ in state])
            new_bytes = new.stat().st_size
            new.replace(self._path / name)
        except (OSError, sqlite3.Error) as error:
            # What is measured goes on, and the next try may be a better one.
            self._say(f"{name} was not written: {error}")
        else:
            self._kept[name] = state
            if new_bytes > MOST_BYTES:
                self._say(f"{name} has {new_bytes >> 20} MiB, more than {MOST_BYTES >> 20}")

    def _read(self, name: str) -> tuple[str, list[tuple[Path, int, int]], bytes]:
        path = self._work / name
        state = _state_of([path])
        return name, state, path.read_bytes() if state else b""

    @staticmethod
    def _write(content: bytes, new: Path, _: list[Path]) -> None:
        new.write_bytes(content)

    def _back_up(self, new: Path, sources: list[Path]) -> None:
        # Elsewhere first: SQLite makes a file beside it meanwhile.
        copy = self._work / f"{DATABASE}.kept"
        copy.unlink(missing_ok=True)
        with (
            contextlib.closing(sqlite3.connect(sources[0])) as here,
            contextlib.closing(sqlite3.connect(copy)) as there,
        ):
            here.backup(there)
            there.execute("PRAGMA journal_mode=DELETE")  # one file, readable where nobody may write
        shutil.copyfile(copy, new)

    def _archive(self, new: Path, sources: list[Path]) -> None:
        with tarfile.open(new, "w:gz", compresslevel=3) as archive:
            for path in sources:
                with contextlib.suppress(FileNotFoundError):  # its writer may have taken it away
                    archive.add(path, path.relative_to(self._work))

    def _archive_logs(self, new: Path, sources: list[Path]) -> None:
        """Archive logs; of what is too much for one file, the largest of runs are left out."""
        of_steps = self._work / _OF_STEPS
        sources = sorted(sources, key=lambda path: (not path.is_relative_to(of_steps), _size_of(path)))
        self._archive(new, sources)
        while new.stat().st_size > MOST_BYTES and sources:
            self._say(f"{_LOGS} would be more than {MOST_BYTES >> 20} MiB: the largest files are left out")
            sources = sources[: len(sources) * 3 // 4]
            self._archive(new, sources)

    def _say(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            print(f"-- {what}", flush=True)

    def _logs(self) -> list[Path]:
        known = {*_PLAIN, *_FOUND, "running.json"}
        others = [
            path for path in self._work.iterdir() if path.name not in known and not path.name.startswith(DATABASE)
        ]
        return [path for path in _files_below(*others) if _size_of(path) <= _LARGEST_LOG]


def _files_below(*paths: Path) -> list[Path]:
    found = []
    for path in paths:
        if path.is_file():
            found.append(path)
        for folder, folders, names in os.walk(path):
            folders[:] = [name for name in folders if name not in _CACHES]
            found += [Path(folder, name) for name in names]
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def _state_of(paths: Iterable[Path]) -> list[tuple[Path, int, int]]:
    """Files that are there, with sizes and times of their last change."""
    found = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            found.append((path, status.st_size, status.st_mtime_ns))
    return found


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
