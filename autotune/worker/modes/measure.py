"""Trials: one configuration after the other, each measured for some steps."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ...metering.trial_meter import TrialMeter, WallClock, Window
from ...metering.waiting import WaitingTime
from ...records.matrix import MemoryPhase
from ...records.measurement import Schedule
from ...records.measuring import Measuring
from ...records.outcome import Fallback, Measured, Outcome
from ..describing.arriving import ArrivingData
from ..describing.description import Baseline, optimizer_facts
from ..describing.root_inputs import RootCall
from ..garbage import LongLived
from ..hooks.schedules import ScheduleHooks
from ..measuring.cycles import BatchCycles
from ..measuring.memory_matrix import MemoryMatrix
from ..measuring.memory_split import memory_split
from ..measuring.peaks import MemoryWatch
from ..proving.seeds import SEED
from .base import Mode

if TYPE_CHECKING:
    from ..measuring.sized_plans import SmallerBatches


class DeviceClock(WallClock):
    """Marks of time at step boundaries, as events in the device's current stream, without waiting for the device.

    ``step_times_s`` has those that the device has come to. ``device`` is a CUDA index, None the current device.
    """

    def __init__(self, device: int | None = None) -> None:
        self._marks: list[Any] = []
        self._times_s: list[float] = []
        self._device = device

    def mark(self) -> None:
        """End a step and begin the next."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        self._marks.append(event)

    def step_times_s(self) -> list[float]:
        """Return the seconds between the marks, of the steps that the device has done."""
        # In the order of their stream: behind one that the device has not come to there is none that it has.
        for begin, end in zip(self._marks[len(self._times_s) :], self._marks[len(self._times_s) + 1 :], strict=False):
            if not (begin.query() and end.query()):
                break
            self._times_s.append(begin.elapsed_time(end) / 1e3)
        return list(self._times_s)


def make_meter(measuring: Measuring, *, fixed_length: bool, device: int | None = None) -> TrialMeter:
    """Make a meter; ``device`` is the CUDA index of the device that is trained on, None for the CPU."""
    memory = MemoryWatch(device)
    if device is None:
        return TrialMeter(measuring, fixed_length=fixed_length, memory=memory)
    return TrialMeter(
        measuring,
        fixed_length=fixed_length,
        memory=memory,
        make_clock=functools.partial(DeviceClock, device),
        synchronize=functools.partial(torch.cuda.synchronize, device),
        # The name of the device's thread is from torch's csrc/autograd/engine.cpp.
        make_waiting=functools.partial(WaitingTime, launching="pt_autograd_"),
    )


# The first row of the second step of a memory matrix closes the first step.
_MATRIX_STEPS = 2


class MeasureMode(Mode):
    """Measures the configurations of a request, and takes the memory matrix of each where that is asked for."""

    def __post_init__(self) -> None:
        self._meter: TrialMeter | None = None
        self._meter_device: int | None = None
        self._loss: torch.Tensor | None = None
        self._baseline = Baseline()
        self._long_lived = LongLived()
        self._arriving = ArrivingData()
        # The trial's outcome, once it was measured and while its memory matrix is taken.
        self._outcome: Outcome | None = None
        self._matrix: MemoryMatrix | None = None
        self._cycles = BatchCycles(self._script.loaders)
        self._smaller: SmallerBatches | None = None
        self._is_first_step = True
        self._graphs_before_step = 0
        self._occurrences: dict[str, int] = {}
        self._made_schedules = ScheduleHooks()
        self._schedules: tuple[Schedule, ...] = ()
        self._calls_before: tuple[Counter[Any], int] | None = None
        self._calls_in_step: Counter[Any] | None = None

    def installed(self) -> None:
        """Watch the schedulers that the script makes, and read batches ahead if that is asked for."""
        self._made_schedules.install()
        if self._process.request.look_ahead:
            torch.manual_seed(SEED)  # trials are compared, and a script may shuffle
            self._script.loaders.may_sample = True

    def ready(self) -> None:
        """Begin the trial with its first training call."""
        process = self._process
        process.limit_memory(anew=self._meter is None)
        # A model may move itself to a device in its first forward.
        if self._meter is None or self._meter_device != process.device:
            several = process.num_processes > 1
            self._meter = make_meter(process.request.measuring, fixed_length=several, device=process.device)
            self._meter_device = process.device
            self._meter.begin()

    def inputs(self, call: RootCall) -> None:
        """Count the data of a root's training call."""
        self._arriving.see(call)
        if self._smaller is not None:
            self._smaller.call_begins((call.arguments, call.keywords))

    def loss(self, loss: torch.Tensor) -> None:
        """Keep the trial's latest loss: a copy, as it may be a part of something large."""
        if self._meter is not None:
            self._loss = loss.detach().clone()

    def memory(self, phase: MemoryPhase) -> None:
        """Take a row of the memory matrix."""
        # A backward inside a backward belongs to it: the script's own checkpoint.
        if self._matrix is not None and torch._C._current_graph_task_id() == -1:
            self._matrix.take(phase)

    def step(self, window: Window) -> None:
        """Measure a step; the first one also shows whether the configuration could be applied."""
        process, engine = self._process, self._applied.engine
        assert self._meter is not None
        if self._matrix is not None:
            self._matrix.step += 1
            if self._matrix.step == self._matrix.first_step + _MATRIX_STEPS:
                self._finish()
            return
        graphs = engine.num_compiled if engine is not None else 0
        compiled, self._graphs_before_step = graphs != self._graphs_before_step, graphs
        failure = self._applied.problem() if self._is_first_step else self._engine_stopped(window)
        if failure is not None:
            process.give_up(failure)
        if self._is_first_step:
            self._is_first_step = False
            self._occurrences = self._applied.occurrences()
            # By now its kernels are loaded, and the libraries that they are from.
            process.limit_memory(anew=True)
        if process.steps == 1 and len(process.request.configurations) > 1:
            self._long_lived.first_step_done()
        if not self._meter.is_measuring:
            self._take_stock()
        had_given_up, place = self._cycles.has_given_up, self._cycles.next()
        if self._cycles.has_given_up and not had_given_up:
            process.note("the script does not train with the batches of an epoch: it may need more memory")
            self._script.loaders.sample = None
            if self._smaller is not None:
                self._smaller.stop()
            self._begin_anew()
        elif self._smaller is not None and self._smaller.step_done(self._cycles.taken):
            self._cycles = BatchCycles(self._script.loaders)
            self._begin_anew()
            return
        assert self._meter is not None
        is_done = self._meter.step(
            window, compiled=compiled, weight=place.weight, begins=place.begins, completes=place.completes
        )
        if process.steps == 1 and process.request.look_ahead:
            self._read_epoch()
        process.progressed(measuring_since_s=self._meter.measuring_since_s)
        if is_done:
            self._take_stock()
            self._outcome = self._result()
            if process.request.memory_matrix and isinstance(self._outcome, Measured):
                self._stay_at_largest()
                self._matrix = MemoryMatrix(self._script.roots.modules, step=process.steps, rank=process.rank)
            else:
                self._finish()

    def measured(self) -> Outcome | None:
        """Return what was measured, with the memory matrix as far as it was taken."""
        outcome, matrix = self._outcome, self._matrix
        if matrix is not None and isinstance(outcome, Measured):
            measurement = replace(outcome.measurement, memory_matrix=matrix.rows)
            self._baseline = replace(self._baseline, measurement=measurement)
            outcome = Measured(measurement)
        return outcome

    def ended_early(self) -> bool:
        """Write what was measured so far, if that is enough for a figure."""
        meter, outcome = self._meter, self.measured()
        if meter is not None:
            meter.script_ended()
        if outcome is None and meter is not None and meter.has_figure:
            self._process.note(f"the script ended after {meter.measured_steps} measured steps")
            outcome = self._result()
        if outcome is not None:
            self._process.finish_with(outcome)
        return outcome is not None

    def trial_done(self) -> None:
        """Go on to the next configuration, or end the run."""
        if self._process.index + 1 < len(self._process.request.configurations):
            self._switch()
        else:
            self._process.end()

    def _finish(self) -> None:
        outcome = self.measured()
        assert outcome is not None
        self._outcome = self._matrix = None
        self._process.finish_with(outcome)
        if not isinstance(outcome, Measured):
            self._process.end("the trial failed")
        self.trial_done()

    def _switch(self) -> None:
        process = self._process
        # Before there are graphs of the next trial, which do not outlive it.
        self._long_lived.trial_done()
        refusal = self._applied.use_next()
        if refusal:
            process.end(reason=f"cannot go on to {process.configuration} in this process: {refusal}")
        self._meter = None
        self._script.loaders.begin_sample()
        self._cycles, self._is_first_step = BatchCycles(self._script.loaders), True
        self._weigh_smaller()
        self._calls_before = self._calls_in_step = None
        # Caches go before the controller attributes its samples to the next trial.
        self.ready()
        process.progressed()

    def _begin_anew(self) -> None:
        """Measure from here on as if the trial had just begun."""
        self._meter = None
        self.ready()

    def _weigh_smaller(self) -> None:
        """Find out whether smaller batches of the epoch can do without plans, if the configuration has any."""
        engine, sample = self._applied.engine, self._script.loaders.sample
        if engine is None or sample is None or not sample.differs or len(self._script.roots.roots) != 1:
            return
        # Not at the top: a script without plans needs no engine.
        from ..engines.plan_engine import PlanEngine
        from ..measuring.sized_plans import SmallerBatches

        if self._smaller is None and isinstance(engine, PlanEngine):
            self._smaller = SmallerBatches(engine, self._script.loaders)
        if self._smaller is not None:
            self._smaller.begin_trial()

    def _stay_at_largest(self) -> None:
        """Look at what a step needs with the largest batch from here on."""
        if (sample := self._script.loaders.sample) is not None:
            sample.stay_at_largest()

    def _read_epoch(self) -> None:
        # Processes that train together take the same number of steps, and each would read an epoch of its own.
        several = self._process.num_processes > 1
        loaders, request = self._script.loaders, self._process.request
        recomputes = any(one.plans or one.level for one in request.configurations)
        why_not = "the script trains in several processes"
        if several or (why_not := loaders.read_epoch(request.look_ahead, keeps=recomputes)):
            self._process.note(f"no batch was read ahead: {why_not}")
        self._weigh_smaller()

    def _take_stock(self) -> None:
        """Keep the figures of models, optimizers and schedulers: when the script has ended, they are gone."""
        self._schedules = self._made_schedules.schedules(self._process.steps)
        modules, optimizers = self._script.roots.modules(), self._script.steps.optimizers
        split, facts = memory_split(modules, optimizers), tuple(map(optimizer_facts, optimizers))
        self._baseline = replace(self._baseline, split=split, optimizers=facts)

    def _result(self) -> Outcome:
        process, meter, engine = self._process, self._meter, self._applied.engine
        assert meter is not None
        if engine is not None and not engine.active:
            engine = None
        if engine is not None and engine.ran_unchanged():
            cause = "no step of the trial used the parts of the model that the plans change"
            return Fallback(cause=cause, advice="Those parts ran earlier only; plans for others can be measured.")
        saved = engine.saved_bytes() if engine is not None else None
        sample = self._script.loaders.sample
        assert self._baseline.split is not None
        split = replace(self._baseline.split, activations=saved)
        measurement = meter.measurement(
            num_processes=process.num_processes,
            split=split,
            saved_bytes=saved,
            nonfinite_loss=self._loss is not None and not bool(torch.isfinite(self._loss).all()),
            kernels_searched=process.kernels_searched,
            occurrences=self._occurrences,
            schedules=self._schedules,
            epoch_wait_s=self._script.loaders.epoch_wait_s(),
            largest=None if sample is None else sample.largest,
            sized=engine.configuration.sized if engine is not None else (),
            notes=process.notes,
        )
        if measurement.peaks.reserved is not None:
            peaks = replace(measurement.peaks, non_torch=process.outside_bytes())
            measurement = replace(measurement, peaks=peaks)
        arrived = self._arriving.arrived()
        self._baseline = replace(self._baseline, measurement=measurement, arrived=arrived)
        taken = self._baseline.micro_batches
        assert taken is not None
        return self._applied.batch_problem(measurement.batch_size, taken, arrived) or Measured(measurement)

    def _engine_stopped(self, window: Window) -> Outcome | None:
        """Return the fallback where Dynamo has given up on the model, which it compiled too often.

        Then no graph runs at all, or one runs less often in a step in which Dynamo gave up on something. Fewer runs
        alone say nothing: not every step needs every part of a model.
        """
        engine = self._applied.engine
        calls = engine.forward_calls() if engine is not None and engine.active else None
        if engine is None or calls is None:
            return None
        given_up = engine.frames_given_up()
        before, self._calls_before = self._calls_before, (calls, given_up)
        if before is None:
            return None
        earlier, self._calls_in_step = self._calls_in_step, calls - before[0]
        fewer = earlier is not None and bool(earlier - self._calls_in_step) and given_up > before[1]
        if not window.calls or (self._calls_in_step and not fewer):
            return None
        assert self._meter is not None
        cause = f"after {self._meter.steps} steps Dynamo gave up on the model, which it had to compile anew too often"
        return Fallback(cause=cause, advice="TORCH_LOGS=recompiles says why; --engine eager searches batch sizes only.")
