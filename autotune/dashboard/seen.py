"""The reports of studies, made again only when a study has changed."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ..records.study import StudyRecord
from ..report.build import build_report
from ..report.record import Report
from ..store.port import Store

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
        self._seen = functools.lru_cache(_MOST)(self._look)

    def of(self, name: str) -> Seen:
        """Return one study; StorageError naming similar ones if there is none of that name."""
        return self._seen(name, self._store.open(name).version())

    def _look(self, name: str, version: str) -> Seen:
        study = self._store.open(name)
        record = study.record()
        return Seen(version, record, build_report(record), study.is_running())
