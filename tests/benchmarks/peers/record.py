"""What is measured of the peers of one workload under one limit, and its file: raw, and stored as each thing ends."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from autotune.errors import UsageError
from autotune.records.codec import dumps, from_json, loads, to_json
from autotune.records.environment import Environment, device_differences
from autotune.records.outcome import Measured, Outcome, ScriptError
from autotune.records.proof import Differences, difference_of
from autotune.records.study import StudyRecord
from autotune.report.build import build_report

NOTHING = "nothing"
"""What is done to the model of a script that runs as it stands."""

AUTOTUNE = "autotune"
"""What a bundle does to a script; a colon and the bundle's own name follow."""

# Of the largest gradient: rounding stays below it, half precision included; a mask drawn anew is far above.
ROUNDING = 0.02
# How a run ends that was measured, or that a smaller batch may fit.
_SAYS_SOMETHING = ("measured", "out_of_memory", "host_out_of_memory")
# What tells of a machine and not of what was measured on it; and graphs, of which a record has what they foretell.
_PRIVATE = frozenset(
    {"hostname", "run_directory", "working_directory", "bundles", "graphs", "traces", "log_tail", "traceback"}
)
COMPUTED = ("losses", "gradients", "buffers", "counters")


@dataclass(frozen=True)
class Setting:
    """A script with something done to its model, at a batch size; 0 is what the script has by itself."""

    what: str
    batch_size: int

    def __str__(self) -> str:
        return f"{self.what} at batch {self.batch_size}" if self.batch_size else f"{self.what} at its own batch"


@dataclass(frozen=True)
class Run:
    """A setting measured once, in a fresh process.

    ``own`` is the script as it stands and without a limit; ``probe`` a batch size that was looked at; ``repetition``
    one of a repetition, in which all settings are measured in turns. ``sitting`` tells what was measured in one go.
    """

    purpose: Literal["own", "probe", "repetition"]
    setting: Setting
    outcome: Outcome
    seconds: float
    sitting: str
    repetition: int = -1


@dataclass(frozen=True)
class Check:
    """The first steps of a setting, compared with those of the script: the same seeds, equal numerics, its own batch.

    ``differences`` are empty where nothing could be compared, and ``reason`` says why.
    """

    what: str
    differences: Differences = ()
    reason: str = ""
    seconds: float = 0.0

    @property
    def answer(self) -> Literal["equal bits", "rounding", "differs", "not comparable"]:
        """What the comparison came to; counters and buffers beside the gradients are held against it too."""
        found = [difference_of(self.differences, group) for group in COMPUTED]
        if self.reason or not difference_of(self.differences, "gradients").compared:
            return "not comparable"
        if not any(one.differing for one in found):
            return "equal bits"
        wide = any(one.differing and (one.relative is None or one.relative > ROUNDING) for one in found)
        return "differs" if wide or difference_of(self.differences, "counters").differing else "rounding"


@dataclass(frozen=True)
class Found:
    """The batch size that a library's finder came to, None where it came to none for the ``reason``.

    Of a bundle it is the bundle's batch size, ``what`` is what the bundle does, and ``reason`` says it in words.
    """

    peer: str
    batch_size: int | None
    reason: str = ""
    what: str = ""


@dataclass(frozen=True)
class Record:
    """One workload under one limit; ``asked`` are the peers' names in the order of the table.

    ``batch_sizes`` is what peers may choose from, both ends included. ``libraries`` are the versions of those that
    peers are of. ``environment`` is None before anything was measured. ``study`` is autotune's own, with its trials in
    their order, None before there is one; ``foreseen_bytes`` is what discovery alone told of the trials' peaks, by
    their numbers.
    """

    workload: str
    script_sha256: str
    arguments: tuple[str, ...]
    limit_bytes: int
    batch_sizes: tuple[int, int]
    asked: tuple[str, ...] = ()
    environment: Environment | None = None
    libraries: dict[str, str] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    checks: tuple[Check, ...] = ()
    found: tuple[Found, ...] = ()
    study: StudyRecord | None = None
    foreseen_bytes: dict[str, int] = field(default_factory=dict)
    version: int = 1

    @property
    def own_batch_size(self) -> int | None:
        """The script's own batch size, once it was measured."""
        own = [one.outcome for one in self.runs if one.purpose == "own"]
        return own[0].measurement.batch_size if own and isinstance(own[0], Measured) else None

    @property
    def device_seconds(self) -> float:
        """How long all of it has taken, failures and processes' starts included."""
        return sum(one.seconds for one in (*self.runs, *self.checks))

    def probes(self, what: str) -> dict[int, Outcome]:
        """Return the outcome of each batch size that was looked at, without its repetitions."""
        return {
            one.setting.batch_size: one.outcome
            for one in self.runs
            if one.purpose == "probe" and one.setting.what == what
        }

    def repetitions(self, setting: Setting) -> list[Run]:
        """The repetitions of a setting."""
        return [one for one in self.runs if one.purpose == "repetition" and one.setting == setting]

    def found_by(self, peer: str) -> Found | None:
        """What a finder or a bundle came to."""
        return next((one for one in self.found if one.peer == peer), None)

    def check(self, what: str) -> Check | None:
        """What was compared with the script."""
        return next((one for one in self.checks if one.what == what), None)

    def without_failures(self) -> Record:
        """The same without what failed for another reason than memory, to be tried again."""
        return replace(
            self,
            runs=tuple(one for one in self.runs if one.outcome.kind in _SAYS_SOMETHING),
            checks=tuple(one for one in self.checks if one.differences),
            found=tuple(one for one in self.found if one.batch_size is not None),
        )

    def with_study(self, study: StudyRecord) -> Record:
        """The same with a study of it, as far as that may be shown to anybody."""
        points = build_report(study).points
        foreseen = {str(one.number): one.foreseen_bytes for one in points if one.foreseen_bytes is not None}
        return replace(self, study=public(study), foreseen_bytes=foreseen)

    def in_environment(self, environment: Environment | None) -> Record:
        """The same, measured there; UsageError where earlier runs were measured elsewhere."""
        if environment is None:
            return self
        public = replace(environment, hostname="")
        before = self.environment or public
        differs = [f"{what} {there} -> {here}" for what, there, here in device_differences(before, public)]
        if before.library != public.library:
            differs.append(f"{before.library} -> {public.library}")
        if differs:
            raise UsageError(
                f"the record of {self.workload!r} was measured elsewhere: {', '.join(differs)}",
                hint="give this one another folder with --records DIR",
            )
        return replace(self, environment=before)


def without_logs(outcome: Outcome) -> Outcome:
    """A failure as a record has it: its cause without what the machine's files said."""
    if isinstance(outcome, Measured):
        return outcome
    changes = {"traceback": ""} if isinstance(outcome, ScriptError) else {}
    return replace(outcome, log_tail=(), **changes)


def public(study: StudyRecord) -> StudyRecord:
    """A study with its raw samples and environment, without what tells of the machine beyond its device."""

    def blanked(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: type(one)() if key in _PRIVATE else blanked(one) for key, one in value.items()}
        return [blanked(one) for one in value] if isinstance(value, list) else value

    known = from_json(StudyRecord, blanked(to_json(study)))
    return replace(known, spec=replace(known.spec, script=Path(study.spec.script).name, python=""))


def file_of(records: Path, device: str, name: str) -> Path:
    """Where a record of a workload under a limit is: in the folder of its device."""
    return records / re.sub(r"\W+", "-", device).strip("-").lower() / f"{name.replace(' ', '')}.json"


def read_record(path: Path) -> Record | None:
    """The record in a file; None where there is no file yet. FormatError for anything else in it."""
    return loads(Record, path.read_text(encoding="utf-8"), where=path.name) if path.exists() else None


def write_record(path: Path, record: Record) -> None:
    """Put a record in its place as a whole: whoever is killed meanwhile leaves the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".writing")
    beside.write_text(dumps(record, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)
