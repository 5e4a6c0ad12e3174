"""One run, watched from its start to its end: its deadlines, its peaks, and its measured steps."""

from __future__ import annotations

import dataclasses
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..errors import FormatError, RunError
from ..machine.host import oom_kills
from ..machine.meters.run_meter import RunMeter, Sample
from ..records.environment import THROTTLING, DeviceConditions, DeviceReading, conditions_of
from ..records.facts import Facts
from ..records.measurement import CONTENDED_SHARE, Measurement, Peaks
from ..records.outcome import Died, Measured, Outcome, Phase, TimedOut
from ..records.progress import Progress
from ..records.run import Request, Result
from ..records.units import format_share
from .ending import Ending, Patience, failure_of
from .logs import log_tail
from .port import Event, EventKind, RunResult
from .process_tree import ProcessTree
from .ranks import Lost, begun_with, first_lost, least_far, named
from .result_log import ResultLog
from .watch import Deadlines, ResultsFile, read_progress

_SHORT = "the meter saw less on the GPU than torch reserved, whose peaks were short or not all at once"
_FROM_CUDA = "what the run holds outside torch's allocator is CUDA's figure, in which other programs may be"
_UNKNOWN = "what the run holds outside torch's allocator is not known, and not in the peak"


class DevicePeak:
    """The peak of one trial on its GPUs, as the meter saw it.

    torch's allocator knows for certain how much it has reserved, so a meter's figure below that is not the whole. Such
    a figure is left out, and CUDA's figure from the training process stands for it, as where the meter has none. Each
    irregularity becomes a note of the measurement.
    """

    def __init__(self) -> None:
        self._seen_bytes: int | None = None
        self._by_device: dict[str, int] = {}
        self._contended = False
        self._unread: list[str] = []
        self._doubts: list[str] = []

    def add(self, sample: Sample) -> None:
        """Take in a sample of the trial."""
        if sample.used_bytes is not None:
            self._seen_bytes = max(sample.used_bytes, self._seen_bytes or 0)
        for uuid, used in sample.by_device.items():
            self._by_device[uuid] = max(used, self._by_device.get(uuid, 0))
        self._contended = self._contended or sample.contended
        for kept, problem in ((self._unread, sample.unread), (self._doubts, sample.doubt)):
            if problem and problem not in kept:
                kept.append(problem)

    def complete(self, measurement: Measurement, devices: Mapping[int, str]) -> Measurement:
        """Return the worker's measurement with the device's peak; ``peaks.reserved`` must be known.

        ``devices`` are the UUIDs of the ranks' GPUs: a rank that has one alone gets its peak, too.
        ``peaks.non_torch`` comes in as CUDA's figure of what the process holds outside torch's allocator, None if it
        could be another rank's.
        """
        reserved, from_cuda = measurement.peaks.reserved, measurement.peaks.non_torch
        assert reserved is not None
        seen, notes = self._seen_bytes, self._doubts
        unread = "; ".join(self._unread)
        if seen is None or seen < reserved:
            notes = [f"{_UNKNOWN if from_cuda is None else _FROM_CUDA}: {self._why_not(unread)}"]
            seen, outside = None, from_cuda
        elif unread:
            notes = [*notes, f"the peak may be higher: for a part of the trial the meter had no figure ({unread})"]
            outside = max(seen - reserved, from_cuda or 0)
        else:
            outside = seen - reserved
        return dataclasses.replace(
            measurement,
            peaks=dataclasses.replace(measurement.peaks, device=seen, non_torch=outside),
            rank_peaks=tuple(self._of_rank(*ranked, devices) for ranked in enumerate(measurement.rank_peaks)),
            contended=measurement.contended or self._contended,
            notes=(*measurement.notes, *notes),
        )

    def _of_rank(self, rank: int, peaks: Peaks, devices: Mapping[int, str]) -> Peaks:
        own = devices.get(rank, "")
        seen = self._by_device.get(own)
        if seen is None or peaks.reserved is None or seen < peaks.reserved or [*devices.values()].count(own) > 1:
            return peaks
        return dataclasses.replace(peaks, device=seen, non_torch=seen - peaks.reserved)

    def _why_not(self, unread: str) -> str:
        if self._seen_bytes is not None:
            return _SHORT
        if unread:
            return f"the meter had no figure of the GPU ({unread}); `autotune doctor` shows what is found"
        return "the trial was over before the meter could look"


class MeasuredWindow:
    """The meter's looks at the GPUs of one trial, as long as its training processes say that it is being measured.

    A window may begin anew: what was seen before then is of steps that do not count. Nor does what others did in a time
    that may have begun before the window.
    """

    def __init__(self) -> None:
        self._since_s = 0.0
        self._readings: list[DeviceReading] = []
        self._neighbours_s = 0.0

    def add(self, sample: Sample, before: Sequence[Progress], after: Sequence[Progress]) -> None:
        """Take in a sample that was taken between two looks at where the processes are."""
        since_s = _since_s(before)
        if not since_s or since_s != _since_s(after):
            return
        if since_s != self._since_s:
            self._since_s = since_s
            self._readings.clear()
            self._neighbours_s = 0.0
        if sample.reading is not None:
            self._readings.append(sample.reading)
        if sample.neighbours.since_s >= since_s:
            self._neighbours_s += sample.neighbours.seconds

    def complete(self, measurement: Measurement) -> Measurement:
        """Return the worker's measurement with what was seen, and notes where the GPU slowed down or others used it."""
        conditions = conditions_of(self._readings)
        notes = [] if conditions is None else _throttling(conditions)
        lost = min(1.0, self._neighbours_s / sum(measurement.step_times_s))
        if lost > CONTENDED_SHARE:
            notes.append(f"other programs used the GPU for {format_share(lost)} of the measured time")
            waited = min(1.0, measurement.waited_share + lost)
            measurement = dataclasses.replace(measurement, contended=True, waited_share=waited)
        return dataclasses.replace(measurement, conditions=conditions, notes=(*measurement.notes, *notes))


def _since_s(training: Sequence[Progress]) -> float:
    """Return when the last of the processes began to measure; 0.0 while one does not."""
    began_s = [progress.measuring_since_s for progress in training]
    return max(began_s) if began_s and all(began_s) else 0.0


def _throttling(conditions: DeviceConditions) -> list[str]:
    if not conditions.throttled_share:
        return []
    why = " and ".join(limit.replace("_", " ") for limit in conditions.limits if limit in THROTTLING)
    share = format_share(conditions.throttled_share)
    return [f"the GPU slowed itself down ({why}) in {share} of the looks at it: cooler, it may be faster"]


_LOOK_S = 0.025
_DISK_FULL_BYTES = 2**20


class Supervision:
    """Watches a run that has just been started; ``watch`` once, kill the process tree, then ``conclude``.

    ``notes`` are added to those of every measurement. ``clock`` gives the time in seconds.
    """

    def __init__(
        self,
        process_tree: ProcessTree,
        request: Request,
        *,
        directory: Path,
        meter: RunMeter,
        patience: Patience,
        on_event: Callable[[Event], None],
        notes: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._process_tree = process_tree
        self._request = request
        self._directory = directory
        self._meter = meter
        self._patience = patience
        self._on_event = on_event
        self._notes = notes
        self._began_s = clock()
        self._oom_kills = oom_kills()
        self._result_log = ResultLog()
        self._results = ResultsFile(directory / "results.jsonl")
        self._progress: tuple[Progress, ...] = ()
        self._outcomes: list[Outcome | None] = [None] * len(request.configurations)
        self._device_peaks = [DevicePeak() for _ in request.configurations]
        self._windows = [MeasuredWindow() for _ in request.configurations]
        self._announced = (-1, 0)  # the configuration and the steps that were last told to on_event
        self._is_describing = False
        self._lost: Lost | None = None
        self._grace_began_s: float | None = None
        self._trained_after_s: float | None = None

    def watch(self, cancel: threading.Event) -> Ending:
        """Look at the run every few hundredths of a second until it is over or has to be."""
        patience = self._patience
        deadlines = Deadlines(
            start_timeout_s=patience.start_timeout_s, trial_timeout_s=patience.trial_timeout_s, now_s=self._began_s
        )
        while True:
            exited = self._process_tree.exited()  # before reading: what it wrote last must not be missed
            had_failed = self._result_log.failure(self._done) is not None
            self._read()
            self._look_for_lost(had_failed=had_failed)
            index = self._done
            if cancel.is_set():
                return Ending("cancelled", index)
            if exited:
                return Ending("exited", index)
            over_limit = self._sample()
            if over_limit is not None and not self._complete:
                return Ending("over_limit", index, over_limit)
            now_s = self._clock()
            ending = self._graced(index, now_s)
            if ending is not None:
                return ending
            trial = (index, self._lead.index if self._lead else 0)
            describing_s = self._result_log.may_take_s if index == len(self._outcomes) else None
            if describing_s is not None and not self._is_describing:
                self._is_describing = True
                self._tell("describing", index - 1, may_take_s=describing_s)
            deadlines.advance(
                trial=(*trial, describing_s is not None),
                stepped=bool(self._steps or self._done),
                now_s=now_s,
                describing_s=describing_s,
            )
            passed = None if self._complete else deadlines.passed(now_s)
            if passed is not None:
                self._process_tree.dump_stacks(
                    {progress.process for progress in self._progress} or {self._process_tree.pid}
                )
                return Ending(passed, index)
            cancel.wait(_LOOK_S)

    def conclude(self, ending: Ending, status: int) -> RunResult:
        """Name what is missing, now that no process of the run is left; ``status`` is the main one's return code."""
        # What fails once the run is being ended fails of that; a measurement that came in late is one.
        self._read(failures=ending.how == "exited")
        index = self._done
        failure = None
        if not self._complete and not self._left_out(ending, index):
            told = self._result_log.failure(index) or self._result_log.starter_failure
            if self._cause_of(ending) is not None:
                told = None
            failure = self._with_log(told or self._failure_of(ending, index, status))
            if index < len(self._outcomes):
                self._set(index, failure)
                failure = None
        self._tell("ended", min(index, len(self._outcomes) - 1))
        return RunResult(
            outcomes=tuple(self._outcomes),
            environment=self._result_log.environment,
            facts=self._facts(ending, failure),
            compared=self._result_log.compared,
            located=self._result_log.located,
            traced=self._result_log.traced,
            directory=self._directory,
            failure=failure,
            reason=self._result_log.reason,
            trained_after_s=self._trained_after_s,
            audit=self._result_log.audit,
        )

    def _facts(self, ending: Ending, failure: Outcome | None) -> Facts | None:
        """Return the facts; of a description that did not come to its end with the reason, or none if stopped."""
        result_log = self._result_log
        if result_log.facts is None or result_log.is_described or result_log.facts.undescribed is not None:
            return result_log.facts
        if ending.how == "cancelled":
            return None
        why = failure or Died(cause=f"the worker left before the script was described: {result_log.reason}")
        # What killed the run would kill trials with plans too, unless a smaller one or a later end helps them.
        keeps_plans = isinstance(why, TimedOut) or why.for_memory
        clusters = result_log.facts.clusters if keeps_plans else ()
        return dataclasses.replace(result_log.facts, clusters=clusters, undescribed=why)

    @property
    def has_outcome(self) -> bool:
        """Return whether an outcome was told."""
        return self._outcomes[0] is not None

    @property
    def _lead(self) -> Progress | None:
        """Return the training process that is least far: where it is, the trial is."""
        return min(self._progress, key=lambda progress: progress.place, default=None)

    @property
    def _steps(self) -> int:
        return self._lead.steps if self._lead else 0

    @property
    def _done(self) -> int:
        """Return the number of configurations with an outcome: the index of the one under way while there is one."""
        return next((i for i, outcome in enumerate(self._outcomes) if outcome is None), len(self._outcomes))

    @property
    def _complete(self) -> bool:
        """Return whether the run has written all that it was started for."""
        if self._request.mode == "verify":
            return bool(self._result_log.compared or self._done)
        if self._request.mode == "locate":
            return bool(self._result_log.located or self._done)
        if self._request.mode == "trace":
            return bool(self._result_log.traced or self._done)
        goes_on = {"discover": not self._result_log.is_described, "audit": self._result_log.audit is None}
        is_over = self._result_log.ended or not goes_on.get(self._request.mode, False)
        return self._done == len(self._outcomes) and is_over

    def _phase(self, index: int) -> Phase:
        """Return where the trial is; ``start`` if the training processes have not come to it yet."""
        return self._lead.phase if self._lead and self._lead.index >= index else "start"

    def _read(self, *, failures: bool = True) -> None:
        """Take in what the training processes have written since the last look, ``failures`` or measurements only."""
        try:
            for line in self._results.read():
                if failures or not isinstance(line, Result) or isinstance(line.outcome, Measured):
                    self._result_log.add(line)
        except FormatError as error:
            raise RunError(f"{self._directory}: {error}", hint="is the disk full?") from error
        # After the results: a process says how many there are before it writes its first line.
        self._progress = read_progress(self._directory)
        for progress in self._progress:
            self._result_log.num_processes = max(self._result_log.num_processes, progress.num_processes)
            self._result_log.devices[progress.rank] = progress.device
        if self._trained_after_s is None and self._lead is not None and self._lead.trains:
            self._trained_after_s = self._clock() - self._began_s
        while (index := self._done) < len(self._outcomes):
            has_begun = index == 0 or self._result_log.has(index) or self._has_come_to(index)
            if self._announced[0] < index and has_begun:
                self._announced = (index, self._steps)
                self._tell("started", index)
            if self._steps > self._announced[1]:
                self._announced = (self._announced[0], self._steps)
                self._tell("step", index)
            outcome = self._result_log.outcome(index)
            if outcome is None:
                return
            self._set(index, self._with_log(outcome))

    def _look_for_lost(self, *, had_failed: bool) -> None:
        """Look for a rank that something has killed: that brings down the others, which write what they failed of."""
        if self._result_log.num_processes == 1 or self._lost is not None:
            return
        lost = first_lost(self._progress, self._result_log.heard(self._done), self._process_tree.end_of)
        # A launcher ends the ranks that are left behind one that failed by SIGTERM.
        if lost is not None and (not had_failed or lost.code not in (None, -signal.SIGTERM)):
            self._lost = lost

    def _has_come_to(self, index: int) -> bool:
        return self._lead is not None and self._lead.index >= index

    def _set(self, index: int, outcome: Outcome) -> None:
        if isinstance(outcome, Measured):
            measurement = outcome.measurement
            if measurement.peaks.reserved is not None:  # on GPUs, which the meter saw meanwhile
                measurement = self._device_peaks[index].complete(measurement, self._result_log.devices)
                measurement = self._windows[index].complete(measurement)
            outcome = Measured(dataclasses.replace(measurement, notes=(*measurement.notes, *self._notes)))
        self._outcomes[index] = outcome
        self._tell("result", index, outcome)

    def _sample(self) -> Sample | None:
        """Sample the meter for the trial; give the sample if it is above the limit.

        A process that holds a device alone is kept below the limit by torch's allocator, which says so by itself. What
        is seen here is the resident set, ranks that share a device, and what grows outside the allocator.
        """
        before, training = self._lead, self._progress
        if self._meter.must_be_told and (before is None or not before.trains):
            return None  # where the script will train is not known yet, and what it starts with is in no peak
        sample = self._meter.sample(self._progress, self._process_tree.members, main=self._process_tree.pid)
        if sample is None:
            return None
        self._progress = read_progress(self._directory)
        # Where the processes say they are, before the sample and after it.
        if (None if before is None else before.index) != (None if self._lead is None else self._lead.index):
            return None
        if before is not None and sample.kind == "device":
            index = min(before.index, len(self._device_peaks) - 1)
            self._device_peaks[index].add(sample)
            self._windows[index].add(sample, training, self._progress)
        limit = self._request.memory_limit_bytes
        # While others move on the device, or where the figure is doubtful, some of it may not be the run's.
        if limit is None or sample.used_bytes is None or sample.contended or sample.doubt:
            return None
        return sample if sample.used_bytes > limit else None

    def _graced(self, index: int, now_s: float) -> Ending | None:
        """Return the end of a run that has nothing more to say, or whose ranks wait for one that failed."""
        failed = not self._complete and self._result_log.failure(index) is not None
        if not (self._complete or self._result_log.ended or failed):
            self._grace_began_s = None
            return None
        if self._grace_began_s is None:
            self._grace_began_s = now_s
        if now_s - self._grace_began_s < self._patience.grace_s:
            return None
        return Ending("finished", index)

    def _left_out(self, ending: Ending, index: int) -> bool:
        """Return whether there is nothing to say about a configuration, because the run was not about it any more."""
        if ending.how == "cancelled":
            return True
        if index == 0:
            return False  # a run always says something about its first configuration
        if index > ending.index and ending.how != "exited":
            return True  # its predecessor's result came in while the run was being killed
        if self._result_log.has(index):
            return False
        if ending.how == "finished" or (ending.how == "exited" and self._result_log.ended_ranks):
            return True
        before = self._outcomes[index - 1]
        return not isinstance(before, Measured) and not self._has_come_to(index)

    def _cause_of(self, ending: Ending) -> Lost | None:
        """Return the process whose loss ended the run, if that is what did."""
        return self._lost if ending.how in ("exited", "finished") else None

    def _failure_of(self, ending: Ending, index: int, status: int) -> Outcome:
        kills = oom_kills()
        known = kills is not None and self._oom_kills is not None
        phase = self._phase(index)
        if index == len(self._outcomes):
            place = "while the script was being described"
        elif phase != "start":
            place = f"in {phase}"
        else:
            place = "between two trials" if index else "before its first step"
        reason, lost = self._result_log.reason, self._cause_of(ending)
        if lost is not None:
            ending, reason = dataclasses.replace(ending, how="exited"), ""
            status = 1 if lost.code is None else lost.code
        failure = failure_of(
            ending,
            status=status,
            place=place,
            phase=phase,
            steps=self._steps,
            reason=reason,
            patience=self._patience,
            describing_s=self._result_log.may_take_s,
            limit_bytes=self._request.memory_limit_bytes,
            oom_kills=(kills or 0) - (self._oom_kills or 0) if known else None,
        )
        if lost is not None:
            if lost.code is None and isinstance(failure, Died):
                where = f"{place}, after step {self._steps}" if self._steps else place
                failure = dataclasses.replace(failure, cause=f"left without a word {where}", exit_status=None)
            failure = begun_with(failure, lost.progress.rank, self._result_log.num_processes)
        elif ending.how.endswith("timeout") and (stuck := least_far(self._progress)) is not None:
            assert isinstance(failure, TimedOut)
            behind = f"{named(stuck.rank, len(self._progress))} came less far than the others"
            failure = dataclasses.replace(failure, cause=f"{failure.cause}; {behind}")
        if isinstance(failure, Died) and shutil.disk_usage(self._directory).free < _DISK_FULL_BYTES:
            # It may well have died of that, and then says nothing about the configuration.
            raise RunError(
                f"the disk of {str(self._directory)!r} is full, and {failure.cause}",
                hint="logs go to .autotune in the folder you are in: make room there, or run from another one",
            )
        return failure

    def _with_log(self, outcome: Outcome) -> Outcome:
        """Add the last lines of the logs to a failure, if the worker has not put in its own."""
        if isinstance(outcome, Measured) or outcome.log_tail:
            return outcome
        return dataclasses.replace(outcome, log_tail=log_tail(self._directory))

    def _tell(
        self, kind: EventKind, index: int, outcome: Outcome | None = None, may_take_s: float | None = None
    ) -> None:
        at_s, environment = self._clock() - self._began_s, self._result_log.environment
        self._on_event(Event(kind, index, self._steps, self._phase(index), outcome, at_s, environment, may_take_s))
