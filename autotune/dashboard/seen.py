"""The reports of studies, made again only when a study has changed."""

from __future__ import annotations

import threading
from collections import OrderedDict
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
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, Seen] = OrderedDict()

    def version(self, name: str) -> str:
        """The version at which a study stands; cheap."""
        return self._store.open(name).version()

    def of(self, name: str) -> Seen:
        """One study; StorageError naming similar ones if there is none of that name."""
        study = self._store.open(name)
        version = study.version()
        with self._lock:
            known = self._seen.get(name)
            if known is not None and known.version == version:
                self._seen.move_to_end(name)
                return known
        record = study.record()
        seen = Seen(version, record, build_report(record), study.is_running())
        with self._lock:
            self._seen[name] = seen
            self._seen.move_to_end(name)
            while len(self._seen) > _MOST:
                self._seen.popitem(last=False)
        return seen
