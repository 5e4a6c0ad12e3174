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
from ..records.chosen import engine_choices
from ..records.codec import loads, to_json
from ..records.configuration import Configuration
from ..records.environment import Environment
from ..records.outcome import Outcome, TimedOut
from ..records.study import Trial
from ..search.search import Asked, Search
from ..search.space import build_space
from ..store.study import Unstored
from ..verdict.decision import nothing_else_tells
from ..verdict.idle_memory import growing_segments, idle_memory, tried_unasked
from ..verdict.search_end import STOPPED_FOR_TIME, SearchEnd
from .budget import RunCancel
from .context import Context, devices_of, unused


def keep_unstored(
    directory: Path, number: int, configuration: Configuration, outcome: Outcome, environment: Environment | None
) -> None:
    """Keep an outcome beside what its run has written. Where that fails too, the trial is measured again."""
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
    """Set up a study's search, with the baseline as a trial like any other, and tell it what it has not learnt yet.

    ``took_s`` is what the baseline took.
    """
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
    """Make the search that follows from all trials so far."""
    spec, facts, record = context.study.spec, context.facts, context.snapshot.record
    space = build_space(facts, spec, baseline_fits=context.baseline_fits, unasked=unasked)
    search = Search(
        context.study.optuna,
        space,
        facts,
        spec,
        context.limit_bytes,
        history=record.trials,
        patient_from=patient_from,
    )
    search.learn(record.repeats)
    return search


class Trials:
    """Runs what a search asks for."""

    def __init__(self, context: Context, search: Search) -> None:
        self._context = context
        self._study = context.study
        self._snapshot = context.snapshot
        self._launcher = context.stopwatch.timed(context.launcher, "search")
        self._watcher = context.watcher
        self._interruption = context.interruption
        self._budget = context.budget
        self._facts = context.facts
        self._runs = context.runs
        self._limit_bytes = context.limit_bytes
        self._search = search
        others = engine_choices(self._study.spec.engine)
        self._compilers = [others[name].engine for name in self._study.spec.choices if name in others]
        self._turn, self._failed = threading.Lock(), threading.Event()

    def run(self) -> SearchEnd:
        """Run what the search asks for until it, or the budget, says to stop; gives the reason."""
        end = self._run_devices()
        if (not end.cut_short or self._search.is_out_of_patience) and self._widen():
            end = self._run_devices()
        if not end.cut_short and isinstance(self._facts.undescribed, TimedOut):
            # A later session may find the plans.
            end = replace(end, cut_short="there was no time to find out what could be recomputed")
        self._watcher.search_ended(end.reason)
        return end

    def _run_devices(self) -> SearchEnd:
        devices = devices_of(self._study.spec)
        with ThreadPoolExecutor(len(devices)) as pool:
            ends = [each.result() for each in [pool.submit(self._work, device) for device in devices]]
        # The search has come to its own end only if no device was stopped before that.
        return next((one for one in ends if one.cut_short), ends[-1])

    def _widen(self) -> bool:
        """Widen the search where trials lacked memory that lay idle; gives whether it is wider now."""
        record, aim = self._snapshot.record, self._context.aim
        choice = growing_segments(record, aim)
        is_over = self._interruption.finish.is_set() or self._budget.why_search_over(self._finals_s()) is not None
        if is_over or not choice or choice in self._search.space.choices:
            return False
        self._search = _search(
            self._context, (choice,), patient_from=len(self._study.optuna.get_trials(deepcopy=False))
        )
        self._watcher.widened(choice, idle_memory(record, aim))
        return True

    def run_again(self) -> SearchEnd:
        """Go on with the search, by what the finals have shown meanwhile; gives the reason for its end."""
        self._search.learn(self._snapshot.record.repeats)
        self._watcher.searching_again()
        return self.run()

    def _work(self, device: int | None) -> SearchEnd:
        """Keep a device busy until there is nothing left to ask for; gives the reason."""
        try:
            while not self._failed.is_set():
                with self._turn:
                    self._snapshot.refresh()
                    over = self._why_over()
                    if over is not None:
                        return over
                    left_s = self._budget.for_search_s(self._finals_s())
                    costs = self._budget.costs
                    asked = self._search.ask(
                        within_s=max(0.0, left_s - costs.start_s),
                        start=costs.start_s / costs.trial_s if costs.start_s and costs.trial_s else None,
                        compiling_s=max(map(costs.compiling_s, self._compilers), default=0.0),
                    )
                    if not asked:
                        assert self._search.end is not None, "it asked for nothing"
                        return self._search.end
                    directory = unused(self._runs / f"trial-{asked[0].number:04d}")
                    # Another process may have taken some of them at the same moment.
                    mine = tuple(
                        one for one in asked if self._snapshot.begin(one.number, one.configuration, str(directory))
                    )
                    self._forecast()
                if mine:
                    self._run(mine, device, directory, ends_at=time.monotonic() + left_s)
        except BaseException:
            self._failed.set()  # the other devices end too, once what they measure is stored
            raise
        return self._search.ended("Another device failed.", "the search ended as another device failed")

    def _forecast(self) -> None:
        """Tell how much of the search may be left, were each trial a run of its own."""
        most = self._search.most_left
        if most is not None:
            costs, num_devices = self._budget.costs, len(devices_of(self._study.spec))
            self._watcher.forecast(most * (costs.start_s + costs.trial_s) / num_devices)

    def _why_over(self, *, in_run: bool = False) -> SearchEnd | None:
        """Return why nothing new may start; None if something may."""
        over = self._budget.why_search_over(self._finals_s(), in_run=in_run)
        if over is not None:
            # Short time stops nothing where nothing is left to try.
            own = self._search.nothing_left() if over.cut_short == STOPPED_FOR_TIME else None
            return own or self._search.ended(over.reason, over.cut_short)
        return None if in_run else self._why_hopeless()

    def _finals_s(self) -> float:
        """Return the seconds that finals and proof take if the search ends now; 0.0 with nothing to confirm."""
        record, context = self._snapshot.record, self._context
        best = context.left_to_confirm(record)
        return 0.0 if best is None else context.confirming_s(record, (best,))

    def _why_hopeless(self) -> SearchEnd | None:
        """Return why more trials would tell no more than those before them; None if they may."""
        trials, own = self._snapshot.record.trials, self._facts.baseline
        failed = sum(one.outcome is not None and one.configuration.key != own.key for one in trials)
        if failed < _HOPELESS or not nothing_else_tells(trials, self._facts):
            return None
        reason = f"The first {failed} trials all failed, and not for memory."
        return self._search.ended(reason, f"the search stopped as the first {failed} trials all failed")

    def _run(self, asked: tuple[Asked, ...], device: int | None, directory: Path, *, ends_at: float) -> None:
        """One run: each outcome is stored as it comes, then the search is told; what it does not reach is given back.

        It ends early once nothing that is left in it may still win, and at ``ends_at``, by ``time.monotonic``. Once
        something cannot be stored, what the run has measured by then is kept beside it, for when the study goes on.
        """
        configurations = tuple(one.configuration for one in asked)
        self._watcher.run_began(device, configurations)
        stored: dict[int, bool] = {}
        unstorable: AutotuneError | None = None
        cancel = RunCancel(self._interruption.cancel, ends_at)
        began = time.monotonic()

        def on_event(event: Event) -> None:
            nonlocal unstorable
            self._watcher.event(device, event)
            if event.kind == "result" and event.outcome is not None and not self._interruption.explains(event.outcome):
                if unstorable is None:
                    try:
                        take(event.index, event.outcome, event.environment)
                    except AutotuneError as error:
                        unstorable = error
                        cancel.set()
                number = asked[event.index].number
                if unstorable is not None and number not in stored:
                    keep_unstored(directory, number, configurations[event.index], event.outcome, event.environment)

        def take(index: int, outcome: Outcome, environment: Environment | None) -> None:
            number = asked[index].number
            seconds = 0.0 if stored else time.monotonic() - began
            self._budget.costs.note_trial(configurations[index], outcome, seconds)
            stored[number] = self._snapshot.finish(number, outcome, environment)
            if stored[number]:
                self._watcher.trial_ended(self._snapshot.record.shown_number(number), configurations[index], outcome)
                self._search.tell(number, outcome, environment)
                self._study.mark_told(number)
            rest = asked[index + 1 :]
            # What was just found may be the first that has to be confirmed.
            cancel.ends_by(time.monotonic() + self._budget.for_search_s(self._finals_s()))
            if self._why_over(in_run=True) or (rest and not self._search.goes_on(rest)):
                cancel.set()  # nothing new is started, in this run neither

        measuring = replace(self._context.measuring, rate_to_beat=self._search.rate_to_beat())
        self._launcher.run(
            trial_request(
                self._study.spec,
                self._facts,
                configurations,
                self._limit_bytes,
                measuring=measuring,
                may_fork=True,
                kernel_search=False,
            ),
            device=device,
            on_event=on_event,
            cancel=cancel,
            directory=directory,
        )
        if unstorable is not None:
            raise unstorable
        for one in asked:
            if one.number not in stored:
                self._study.release(one.number)
