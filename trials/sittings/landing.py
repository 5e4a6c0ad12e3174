"""Put what sittings have found among the records that stay: raw samples, losers, and facts beside what was believed."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from autotune.store.database import open_store
from tests.benchmarks.peers.record import Record, file_of, read_record, write_record
from trials import lines

from .folder import DATABASE, FACTS, JOURNAL, TESTS, Folder
from .sitting import Journal

# What a rehearsal's device is called before its name.
REHEARSED = "null GPU as"
# Of a fact, what is of that one machine, and places in it.
_PRIVATE = frozenset({"pid", "pids", "processes", "used_by", "uuid", "uuids"})
_PLACE = re.compile(r"(?<![\w.])/[\w.+-]+(/[\w.+-]+)+")


def land(folder: Path, records: Path) -> list[Path]:
    """Copy what a folder holds into the folder of its device; gives the files.

    Raises:
        SystemExit: nothing was found yet, or it was a rehearsal.
    """
    with tempfile.TemporaryDirectory() as work:
        found = Path(work, "found")
        Folder(folder, found).unpack()
        device = Journal(found / JOURNAL).device
        if not device:
            raise SystemExit(f"{folder} has nothing of any device: begin with `make gpu PART=first`")
        if device.startswith(REHEARSED):
            raise SystemExit(f"{folder} is of a rehearsal, on a {device}: that is no record")
        own = file_of(records, device, "any").parent
        own.mkdir(parents=True, exist_ok=True)
        landed = []
        if (found / FACTS).exists():
            facts = json.loads((found / FACTS).read_text(encoding="utf-8"))
            landed.append(own / FACTS)
            landed[-1].write_text(json.dumps(_public(facts), indent=1) + "\n", encoding="utf-8")
        if tests := lines.read(found / TESTS):
            landed.append(_land_tests(tests, own))
        for path in sorted(found.glob("records/*/*.json")):
            landed.append(records / path.relative_to(found / "records"))
            landed[-1].parent.mkdir(exist_ok=True)
            shutil.copyfile(path, landed[-1])
        if (found / DATABASE).exists():
            landed += _land_studies(f"sqlite:///{found / DATABASE}", own)
    return landed


def _public(value: Any) -> Any:
    """A value of facts without what tells of the machine beyond its device."""
    if isinstance(value, dict):
        return {key: None if key in _PRIVATE else _public(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_public(one) for one in value]
    return _PLACE.sub("/...", value) if isinstance(value, str) else value


def _land_tests(tests: Iterable[dict[str, Any]], folder: Path) -> Path:
    """The last that was seen of each test, without tracebacks: they name places of that machine."""
    last = {test["test"]: {key: value for key, value in test.items() if key != "why"} for test in tests}
    path = folder / "tests.json"
    path.write_text("[\n" + ",\n".join(map(json.dumps, last.values())) + "\n]\n", encoding="utf-8")
    return path


def _land_studies(storage: str, folder: Path) -> list[Path]:
    """Studies beside which no peers were measured, as records without peers."""
    with_peers = {record.study.name for record in _records(folder) if record.runs and record.study is not None}
    landed = []
    with open_store(storage, create=False) as store:
        for name in store.names():
            study = store.open(name).record()
            path = file_of(folder.parent, folder.name, f"study-{name}")
            if name in with_peers:
                path.unlink(missing_ok=True)
            if name in with_peers or study.facts is None or study.verdict is None:
                continue
            limit_bytes = study.verdict.memory_limit_bytes
            sizes = study.spec.batch_sizes or (0, 0)
            workload = Path(study.spec.script).parent.name
            arguments = tuple(study.spec.arguments)
            record = Record(workload, study.facts.script_sha256, arguments, limit_bytes, sizes)
            landed.append(path)
            write_record(path, record.with_study(study).in_environment(study.facts.environment))
    return landed


def _records(folder: Path) -> Iterable[Record]:
    paths = (path for path in folder.glob("*.json") if not path.name.startswith((FACTS, "tests.json", "noise-")))
    return [record for path in paths if (record := read_record(path)) is not None]
