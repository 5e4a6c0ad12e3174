"""What is measured next, one after the other; each is stored as it ends, and a later sitting goes on from there."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.records.outcome import Measured, Outcome
from autotune.tuning.budget import Interruption

from . import batches
from .batches import Chosen, Range
from .entrants import PEERS, REFERENCE, Peer
from .measuring import Measurer
from .record import NOTHING, Check, Record, Run, Setting, without_logs, write_record

# What a run takes as long as none was seen; a judgement.
_UNKNOWN_S = 20.0


@dataclass(frozen=True)
class Own:
    """Measure the script as it stands, without a limit."""


@dataclass(frozen=True)
class Probe:
    """Look at a batch size."""

    setting: Setting


@dataclass(frozen=True)
class Find:
    """Ask a library's finder."""

    peer: Peer


@dataclass(frozen=True)
class Compare:
    """Compare first steps with the script's."""

    what: str


@dataclass(frozen=True)
class Turn:
    """Measure a setting in a repetition."""

    setting: Setting
    repetition: int


Task = Own | Probe | Find | Compare | Turn


def sizes_of(record: Record) -> Range | None:
    """What peers may choose from; None as long as the script's own batch size is not known."""
    own = record.own_batch_size
    return None if not own else Range(own, *record.batch_sizes, record.limit_bytes)


def choice_of(record: Record, peer: Peer) -> int | Chosen | None:
    """The batch size of a peer, or the next one to look at; None where its finder has to be asked."""
    sizes = sizes_of(record)
    if sizes is None:
        return Chosen(None, _why_no_size(record))
    if peer.needs is not None:
        package, beside = peer.needs
        return Chosen(None, f"needs {beside}" if record.libraries.get(package) else f"{package} is not installed")
    if peer.finder:
        found = record.found_by(peer.name)
        return None if found is None else Chosen(found.batch_size, found.reason)
    if peer.choice is None:
        bundle = record.found_by(peer.name)
        return Chosen(None, "no bundle was given") if bundle is None else Chosen(bundle.batch_size)
    return peer.choice(record.probes(peer.what), sizes)


def settings_of(record: Record, peer: Peer) -> tuple[Setting, ...]:
    """The settings of which a peer has the best one; none as long as it has none."""
    chosen = choice_of(record, peer)
    if not isinstance(chosen, Chosen) or chosen.batch_size is None:
        return ()
    bundle = record.found_by(peer.name)
    what = peer.what if bundle is None or not bundle.what else bundle.what
    return tuple(Setting(what, size) for size in (chosen.batch_size, chosen.or_else) if size is not None)


def next_task(record: Record, asked: Sequence[Peer], *, repetitions: int, sitting: str) -> Task | None:
    """Return the next thing to do: batch sizes first, then gradients, then repetitions; None once nothing is left."""
    if not any(one.purpose == "own" for one in record.runs):
        return Own()
    for peer in asked:
        chosen = choice_of(record, peer)
        if chosen is None:
            return Find(peer)
        if isinstance(chosen, int):
            return Probe(Setting(peer.what, chosen))
    settings = list(dict.fromkeys(setting for peer in asked for setting in settings_of(record, peer)))
    for what in dict.fromkeys([NOTHING, *(one.what for one in settings)] if settings else []):
        if record.check(what) is None:
            return Compare(what)
    reference = next(iter(settings_of(record, PEERS[REFERENCE])), None)
    for number in range(repetitions):
        order = random.Random(f"{record.workload}, {record.limit_bytes}, {number}").sample(settings, len(settings))
        left = [one for one in order if not any(run.repetition == number for run in record.repetitions(one))]
        if not left:
            continue
        # What goes on with a repetition of an earlier sitting is held against a reference of its own sitting; or of the
        # one before, where that came to nothing more: sittings too short for two runs come to an end as well.
        beside = [] if reference is None else [one for one in record.repetitions(reference) if one.repetition == number]
        if beside and not any(one.sitting == sitting or one is record.runs[-1] for one in beside):
            assert reference is not None
            return Turn(reference, number)
        return Turn(left[0], number)
    return None


class Sitting:
    """Measures what is left of a record, for some time.

    Args:
        record: what is known so far.
        path: the record's file.
        asked: the peers, in the order of the table; the reference is always among them.
        measurer: runs everybody.
        repetitions: how many repetitions there are.
        interruption: set by Ctrl-C.
        ends_at: when to begin nothing more, by ``time.monotonic``.
        told: told what is done, as it begins and as it ended.
    """

    def __init__(
        self,
        record: Record,
        path: Path,
        asked: Sequence[Peer],
        measurer: Measurer,
        *,
        repetitions: int,
        interruption: Interruption,
        ends_at: float,
        told: Callable[[str], None],
    ) -> None:
        self.record = replace(record, asked=tuple(dict.fromkeys([*record.asked, *(one.name for one in asked)])))
        self._path = path
        self._asked = asked
        self._measurer = measurer
        self._repetitions = repetitions
        self._interruption = interruption
        self._ends_at = ends_at
        self._told = told
        self._name = uuid.uuid4().hex[:8]

    @property
    def task(self) -> Task | None:
        """Return the next thing to do; None once nothing is left."""
        return next_task(self.record, self._asked, repetitions=self._repetitions, sitting=self._name)

    def go_on(self, most_tasks: int | None = None) -> bool:
        """Do what is left, or so many things of it, as long as there is time; whether nothing is left."""
        done = 0
        while (task := self.task) is not None:
            if done == most_tasks or not self._may_begin(task) or not self._do(task):
                return False
            done += 1
        return True

    def _do(self, task: Task) -> bool:
        """Do one thing and store what came of it; False if it was interrupted."""
        match task:
            case Own():
                return self._measure("own", Setting(NOTHING, 0), None) is not None
            case Probe(setting):
                return self._measure("probe", setting, self.record.limit_bytes) is not None
            case Turn(setting, number):
                return self._measure("repetition", setting, self.record.limit_bytes, number) is not None
            case Compare(what):
                return self._compare(what)
            case Find(peer):
                return self._find(peer)

    def _measure(self, purpose, setting: Setting, limit_bytes: int | None, number: int = -1) -> Outcome | None:
        where = f"repetition {number + 1}: " if number >= 0 else ""
        self._told(f"{where}{setting}")
        measured = self._measurer.measure(setting, limit_bytes)
        if measured is None:
            return None
        outcome, environment, seconds = measured
        self._told(f"  {_words(outcome)}, {seconds:.1f} s")
        run = Run(purpose, setting, without_logs(outcome), round(seconds, 2), self._name, number)
        record = self.record.in_environment(environment)
        self._store(replace(record, runs=(*record.runs, run)))
        return outcome

    def _compare(self, what: str) -> bool:
        own = self.record.own_batch_size
        assert own
        self._told(f"gradients of {what} beside the script's")
        itself = self.record.check(NOTHING)
        if what != NOTHING and itself is not None and itself.reason:
            check: Check | None = Check(what, reason=itself.reason)
        else:
            check = self._measurer.check(what, own)
        if check is None:
            return False
        self._told(f"  {check.answer}{f': {check.reason}' if check.reason else ''}")
        self._store(replace(self.record, checks=(*self.record.checks, check)))
        return True

    def _find(self, peer: Peer) -> bool:
        sizes = sizes_of(self.record)
        assert sizes is not None
        probes = self.record.probes(NOTHING)
        # The kindest beginning for who goes down: the smallest that is known not to fit.
        most = min((size for size, outcome in probes.items() if not sizes.fits(outcome)), default=sizes.most)

        def train(batch_size: int) -> str | None:
            outcome = self.record.probes(NOTHING).get(batch_size)
            if outcome is None:
                setting = Setting(NOTHING, batch_size)
                if not self._may_begin(Probe(setting)):
                    return None
                outcome = self._measure("probe", setting, self.record.limit_bytes)
            if outcome is None:
                return None
            if isinstance(outcome, Measured):
                return "fits"
            return "out of memory" if batches.lacks_memory(outcome) else outcome.cause

        self._told(f"{peer.name} looks for a batch size")
        answered = self._measurer.find(peer.name, peer.finder, sizes.first, most, train)
        if answered is None:
            return False
        found, version = answered
        self._told(f"  {found.batch_size or found.reason}")
        libraries = self.record.libraries | ({peer.finder.partition("-")[0]: version} if version else {})
        self._store(replace(self.record, found=(*self.record.found, found), libraries=libraries))
        return True

    def _store(self, record: Record) -> None:
        write_record(self._path, record)
        self.record = record

    def _may_begin(self, task: Task) -> bool:
        is_over = time.monotonic() + self._expected_s(task) > self._ends_at
        return not is_over and not self._interruption.finish.is_set()

    def _expected_s(self, task: Task) -> float:
        """What it will take, by the longest of its kind so far: a run of nothing is shorter than one that compiles."""
        match task:
            case Probe(setting) | Turn(setting, _):
                what = setting.what
            case Compare(what):
                pass
            case _:
                what = NOTHING
        runs = [one.seconds for one in self.record.runs if one.setting.what == what]
        return max(runs or [one.seconds for one in self.record.runs], default=_UNKNOWN_S)


def _why_no_size(record: Record) -> str:
    own = next((one.outcome for one in record.runs if one.purpose == "own"), None)
    cause = "" if own is None or isinstance(own, Measured) else f": {own.cause}"
    return f"the script's own batch size is not known{cause}"


def _words(outcome: Outcome) -> str:
    if not isinstance(outcome, Measured):
        return outcome.cause
    return f"{outcome.measurement.samples_per_s:.4g} samples/s, {outcome.measurement.peaks.fit_bytes / 2**20:,.0f} MiB"
