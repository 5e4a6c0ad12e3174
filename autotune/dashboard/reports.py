"""The reports of studies, made again only when a study has changed, and the logs of their runs."""

from __future__ import annotations

import itertools
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from ..records.study import StudyRecord
from ..report.build import build_report
from ..report.record import Report
from ..store.database import Store

_NAMES = ("stdout.log", "stderr.log")
_MOST_BYTES = 64 * 1024


def log_files(run_directory: str) -> tuple[Path, ...]:
    """The logs that are there, of a run's folder; none where that is not in a folder of autotune's own for runs."""
    folder = Path(run_directory)
    is_own = folder.is_absolute() and (".autotune", "runs") in itertools.pairwise(folder.parts)
    if not is_own or "\0" in run_directory or ".." in folder.parts or os.path.realpath(folder) != str(folder):
        return ()
    return tuple(path for path in (folder / name for name in _NAMES) if path.is_file() and not path.is_symlink())


def read_end(path: Path) -> str:
    """Return the last of a log, from the beginning of a line; OSError if it has become a link meanwhile."""
    # A pipe is not waited for.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return ""
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _MOST_BYTES))
        read = file.read(_MOST_BYTES)
    if size > _MOST_BYTES:
        read = read.partition(b"\n")[2]
    return read.decode("utf-8", errors="replace")


_MOST = 32  # a study of a thousand trials takes some tens of megabytes


@dataclass(frozen=True)
class Seen:
    """A study as it was at a version of it."""

    version: str
    record: StudyRecord
    report: Report
    is_running: bool


class Reports:
    """The studies of a database as they stand. Usable from several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, Seen] = {}

    def of(self, name: str) -> Seen:
        """Return one study; StorageError naming similar ones if there is none of that name."""
        study = self._store.open(name)
        version = study.version()
        seen = self._seen.pop(name, None)
        if seen is None or seen.version != version:
            record = study.record()
            seen = Seen(version, record, build_report(record), study.is_running())
        self._seen[name] = seen
        for oldest in [*self._seen][:-_MOST]:
            self._seen.pop(oldest, None)
        return seen
