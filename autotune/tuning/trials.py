"""The search at work: each device is kept busy with what is asked for, and every outcome is stored first."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..errors import AutotuneError
from ..launch.port import Event
from ..launch.requests import trial_request
from ..records.choices import engine_choices
from ..records.codec import loads, to_json
from ..records.configuration import Configuration
from ..records.environment import Environment
from ..records.outcome import NoEffect, Outcome, TimedOut
from ..records.study import Trial
from ..search.search import Asked, Search
from ..search.space import build_space
from ..store.study import Unstored
from ..verdict.decision import nothing_else_tells
from ..verdict.idle_memory import Widening, tried_unasked, widening, widening_to_begin_with
from ..verdict.search_end import SearchEnd
from .budget import RunCancel
from .context import Context, unused


def keep_unstored(
    directory: Path, number: int, configuration: Configuration, outcome: Outcome, environment: Environment | None
) -> None:
    """Keep an outcome beside what its run has written; where that fails too, the trial is measured again."""
    trial = Trial(number, configuration, "finished", outcome, environment, run_directory=str(directory))
    with suppress(OSError):
        _file(directory, number).write_text(json.dumps(to_json(trial)), encoding="utf-8")


def kept_unstored(trial: Trial) -> Unstored | None:
    """Return what was kept of a trial; None if nothing was, as where its owner died, or was on another machine."""
    try:
        text = _file(Path(trial.run_directory), trial.number).read_text(encoding="utf-8")
        found: Trial = loads(Trial, text, where="an outcome that was kept")
    except (OSError, ValueError):
        return None
    is_it = (found.number, found.configuration) == (trial.number, trial.configuration)
    return (found.outcome, found.environment) if is_it and found.outcome is not None else None


def _file(directory: Path, number: int) -> Path:
    return directory / f"unstored-{number}.json"


# After so many failures and nothing else, the script is what fails: it can't be run twice, say.
_HOPELESS = 5


def open_search(context: Context, baseline: Outcome, run_directory: str, *, took_s: float) -> Search:
    """Set up a study's search, with the baseline as a finished trial that took ``took_s`` seconds."""
    study, facts = context.study, context.facts
    study.recover(kept_unstored)
    record = context.snapshot.refresh()
    search = _search(context, tried_unasked(record))
    number = search.add_baseline(baseline)
    study.add_trial(number, facts.baseline, baseline, facts.environment, run_directory, took_s=took_s)
    # Last, so that a crash before this moment repeats the discovery, and none after it does.
    study.set_facts(facts)
    for trial in study.untold():
        assert trial.outcome is not None
        search.tell(trial.number, trial.outcome, trial.environment)
        study.mark_told(trial.number)
    if study.spec.plans_first:
        context.watcher.given(search.space.given)
    context.watcher.searching(search.space)
    return search


def _search(context: Context, unasked: Sequence[str] = (), *, patient_from: int = 0) -> Search:
    spec, facts, record = context.study.spec, context.facts, context.snapshot.record
    fits, with_plans = context.baseline_fits, context.plans_may_help
    space = build_space(facts, spec, baseline_fits=fits, with_plans=with_plans, unasked=unasked)
    study, limit_bytes = context.study.optuna, context.limit_bytes
    search = Search(study, space, facts, spec, limit_bytes, history=record.trials, patient_from=patient_from)
    search.learn(record.repeats)
    return search


class Trials:
    """Runs what a search asks for."""

    def __init__(self, context: Context, search: Search) -> None:
        self._context, self._search = context, search
        spec, others = context.study.spec, engine_choices(context.study.spec.engine)
        self._compilers = [others[name].engine for name in spec.choices if name in others]
        self._turn, self._failed = threading.Lock(), threading.Event()

    def run(self) -> SearchEnd:
        """Run what the search asks for until the search or the budget ends it; return the reason."""
        context = self._context
        context.snapshot.refresh()
        heap = widening_to_begin_with(context.snapshot.record)
        begins_with_heap = heap is not None and self._search.is_short_of_memory() and self._widen(heap)
        end = self._run_devices()
        if begins_with_heap and not end.cut_short and widening_to_begin_with(context.snapshot.record) is None:
            # Each setting with another heap failed.
            self._search_with()
            end = self._run_devices()
        if not end.cut_short or self._search.is_out_of_patience:
            wider = widening(context.snapshot.record, context.aim)
            end = self._run_devices() if self._widen(wider) else end
        facts, may_help = self._context.facts, self._context.plans_may_help
        if may_help and not end.cut_short and isinstance(facts.undescribed, TimedOut) and not facts.knows_plans:
            # A later session may find the plans.
            end = replace(end, cut_short="time was too short to find out what could be recomputed")
        self._context.watcher.search_ended(end.reason)
        return end

    def _run_devices(self) -> SearchEnd:
        places = self._context.study.spec.devices_of_runs
        with ThreadPoolExecutor(len(places)) as pool:
            ends = [each.result() for each in [pool.submit(self._work, devices) for devices in places]]
        # The search has come to its own end only if no device was stopped before that.
        return next((one for one in ends if one.cut_short), ends[-1])

    def _widen(self, wider: Widening | None) -> bool:
        """Search with a choice that was not allowed, if there is time; return whether that is so now."""
        context = self._context
        over = context.budget.why_search_over(self._confirmation_s())
        if wider is None or wider.choice in self._search.space.choices or over:
            return False
        self._search_with(wider.choice)
        context.watcher.widened(wider.choice, wider.why)
        return True

    def _search_with(self, *unasked: str) -> None:
        told = len(self._context.study.optuna.get_trials(deepcopy=False))
        self._search = _search(self._context, unasked, patient_from=told)

    def run_again(self) -> SearchEnd:
        """Go on with the search, by what the confirmations have shown meanwhile; return the reason for its end."""
        self._search.learn(self._context.snapshot.record.repeats)
        self._context.watcher.searching_again()
        return self.run()

    def _work(self, devices: tuple[int, ...]) -> SearchEnd:
        snapshot, budget, costs = self._context.snapshot, self._context.budget, self._context.budget.costs
        try:
            while not self._failed.is_set():
                with self._turn:
                    snapshot.refresh()
                    over = self._why_over()
                    if over is not None:
                        return over
                    confirmation_s = self._confirmation_s()
                    left_s = budget.for_search_s(confirmation_s)
                    within_s, confirmable_s = max(0.0, left_s - costs.start_s), self._context.confirmable_trial_s()
                    asked = self._search.ask(
                        within_s=within_s,
                        confirmable_s=confirmable_s,
                        only_confirmable=budget.can_confirm(confirmation_s),
                        start=costs.start_s / costs.trial_s if costs.start_s and costs.trial_s else None,
                        compiling_s=max(map(costs.compiling_s, self._compilers), default=0.0),
                        tracing_s=costs.tracing_s(self._context.study.spec.engine),
                    )
                    if not asked:
                        assert self._search.end is not None, "it asked for nothing"
                        return self._search.end
                    directory = unused(self._context.runs / f"trial-{asked[0].number:04d}")
                    # Another process may have taken some of them at the same moment.
                    mine = tuple(one for one in asked if snapshot.begin(one.number, one.configuration, str(directory)))
                    if self._search.most_left is not None:
                        # At the most, each trial left is a run of its own.
                        most_s = self._search.most_left * (costs.start_s + costs.trial_s)
                        self._context.watcher.forecast(most_s / len(self._context.study.spec.devices_of_runs))
                if mine:
                    self._run(mine, devices, directory, ends_at=time.monotonic() + left_s)
        except BaseException:
            self._failed.set()  # the other devices end too, once what they measure is stored
            raise
        return self._search.ended("Another device failed.", "another device failed")

    def _why_over(self, *, in_run: bool = False) -> SearchEnd | None:
        over = self._context.budget.why_search_over(self._confirmation_s(), in_run=in_run)
        if over is not None:
            # Short time stops nothing where nothing is left to try.
            own = self._search.nothing_left() if over.is_for_time else None
            return own or self._search.ended_by(over)
        trials, baseline = self._context.snapshot.record.trials, self._context.facts.baseline
        ended = [one for one in trials if one.outcome is not None and one.configuration.key != baseline.key]
        # Where another batch size has no effect, plans at the script's own may have one.
        failed = sum(
            not isinstance(one.outcome, NoEffect) or one.configuration.batch_size == baseline.batch_size
            for one in ended
        )
        if in_run or failed < _HOPELESS or not nothing_else_tells(trials, self._context.facts):
            return None
        reason = f"The first {failed} trials all failed, and not for memory."
        return self._search.ended(reason, f"the first {failed} trials all failed")

    def _confirmation_s(self) -> float:
        """Return the seconds that confirmations and proof take if the search ends now; 0.0 with nothing to confirm."""
        context = self._context
        record = context.confirmable(context.snapshot.record)
        best = context.left_to_confirm(record)
        return 0.0 if best is None else context.confirming_s(record, (best,))

    def _run(self, asked: tuple[Asked, ...], devices: tuple[int, ...], directory: Path, *, ends_at: float) -> None:
        """Store each outcome of a run as it comes, and tell the search; give back the trials that were not reached.

        The run ends early once none of its trials left may still win, and at ``ends_at``, by ``time.monotonic``. Once
        an outcome cannot be stored, those that the run has measured are kept beside it until the study goes on.
        """
        context = self._context
        configurations = tuple(one.configuration for one in asked)
        context.watcher.run_began(devices, configurations)
        stored: dict[int, bool] = {}
        unstorable: AutotuneError | None = None
        cancel = RunCancel(context.interruption.cancel, ends_at)
        began = time.monotonic()

        def on_event(event: Event) -> None:
            nonlocal unstorable
            context.watcher.event(devices, event)
            outcome = event.outcome
            if event.kind != "result" or outcome is None or context.interruption.explains(outcome):
                return
            if unstorable is None:
                try:
                    take(event.index, outcome, event.environment)
                except AutotuneError as error:
                    unstorable = error
                    cancel.set()
            number = asked[event.index].number
            if unstorable is not None and number not in stored:
                keep_unstored(directory, number, configurations[event.index], outcome, event.environment)

        def take(index: int, outcome: Outcome, environment: Environment | None) -> None:
            number = asked[index].number
            seconds = 0.0 if stored else time.monotonic() - began
            context.budget.costs.note_trial(configurations[index], outcome, seconds)
            stored[number] = context.snapshot.finish(number, outcome, environment)
            if stored[number]:
                shown_number = context.snapshot.record.shown_number(number)
                context.watcher.trial_ended(shown_number, configurations[index], outcome)
                self._search.tell(number, outcome, environment)
                context.study.mark_told(number)
            rest = asked[index + 1 :]
            # What was just found may be the first that has to be confirmed.
            cancel.ends_by(time.monotonic() + context.budget.for_search_s(self._confirmation_s()))
            if self._why_over(in_run=True) or (rest and not self._search.goes_on(rest)):
                cancel.set()  # nothing new is started, in this run neither

        request = trial_request(
            context.study.spec,
            context.facts,
            configurations,
            context.limit_bytes,
            measuring=replace(context.measuring, rate_to_beat=self._search.rate_to_beat()),
            may_fork=True,
            kernel_search=False,
        )
        launcher = context.stopwatch.timed(context.launcher, "search")
        launcher.run(request, devices=devices, on_event=on_event, cancel=cancel, directory=directory)
        if unstorable is not None:
            raise unstorable
        for one in asked:
            if one.number not in stored:
                context.study.release(one.number)
