"""The search at work: each device is kept busy with what is asked for, and every outcome is stored first."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from ..launch import Event, trial_request
from ..records import HostOutOfMemory, Measured, Outcome, OutOfMemory
from ..search import Asked, Search, build_space, feasible_trials
from .budget import RunCancel
from .context import Context, devices_of, unused
from .proving import PROOF_RUNS

__all__ = ["Trials", "open_search"]

# After so many failures and nothing else, the script is what fails: it can't be run twice, say.
_HOPELESS = 5


def open_search(context: Context, baseline: Outcome, run_directory: str) -> Search:
    """Set up a study's search, with the baseline as a trial like any other, and tell it what it has not learnt yet."""
    study, facts = context.study, context.facts
    study.recover()
    history = study.record().trials
    space = build_space(facts, study.spec)
    search = Search(study.optuna, space, facts, study.spec, context.limit_bytes, history=history)
    search.learn(study.record().repeats)
    number = search.add_baseline(baseline)
    study.add_trial(number, facts.baseline, baseline, facts.environment, run_directory)
    # Last, so that a crash before this moment repeats the discovery, and none after it does.
    study.set_facts(facts)
    for trial in study.untold():
        assert trial.outcome is not None
        search.tell(trial.number, trial.outcome, trial.environment)
        study.mark_told(trial.number)
    if study.spec.plans_first:
        context.watcher.given(space.given)
    context.watcher.searching(space.num_configurations)
    return search


class Trials:
    """Runs what a search asks for."""

    def __init__(self, context: Context, search: Search) -> None:
        self._context = context
        self._study = context.study
        self._launcher = context.launcher
        self._watcher = context.watcher
        self._interruption = context.interruption
        self._budget = context.budget
        self._facts = context.facts
        self._runs = context.runs
        self._limit_bytes = context.limit_bytes
        self._search = search
        self._turn, self._failed = threading.Lock(), threading.Event()

    def run(self) -> str:
        """Run what the search asks for until it, or the budget, says to stop; gives the reason."""
        devices = devices_of(self._study.spec)
        with ThreadPoolExecutor(len(devices)) as pool:
            reasons = [pool.submit(self._work, device) for device in devices]
            reason = [each.result() for each in reasons][-1]
        self._watcher.search_ended(reason)
        return reason

    def run_again(self) -> str:
        """Go on with the search, by what the finals have shown meanwhile; gives the reason for its end."""
        self._search.learn(self._study.record().repeats)
        self._watcher.searching_again()
        return self.run()

    def _work(self, device: int | None) -> str:
        """Keep a device busy until there is nothing left to ask for; gives the reason."""
        try:
            while not self._failed.is_set():
                with self._turn:
                    over = self._why_over() or self._why_hopeless()
                    asked = () if over else self._search.ask()
                    if not asked:
                        return over or self._search.stop_reason
                    directory = unused(self._runs / f"trial-{asked[0].number:04d}")
                    # Another process may have taken some of them at the same moment.
                    mine = tuple(
                        one for one in asked if self._study.begin(one.number, one.configuration, str(directory))
                    )
                if mine:
                    self._run(mine, device, directory)
        except BaseException:
            self._failed.set()  # the other devices end too, once what they measure is stored
            raise
        return "Another device failed."

    def _why_over(self, *, in_run: bool = False) -> str:
        return self._budget.why_over(runs_to_keep=self._runs_to_keep(), in_run=in_run)

    def _runs_to_keep(self) -> int:
        """How many runs come after the search: none as long as there is nothing to measure again."""
        record, spec, own = self._study.record(), self._study.spec, self._facts.baseline
        able = feasible_trials(record.trials, self._facts, self._context.aim)
        if all(trial.configuration.key == own.key for trial in able):
            return 0
        # One finalist at least, beside the baseline where that may be the answer.
        entrants = 1 + self._context.baseline_fits
        proof = 0 if spec.leaves_untouched else PROOF_RUNS
        return entrants * self._context.rounds + proof

    def _why_hopeless(self) -> str:
        """Why more trials would tell no more than those before them, or an empty string."""
        others = (one for one in self._study.record().trials if one.configuration.key != self._facts.baseline.key)
        outcomes = [one.outcome for one in others if one.outcome is not None]
        telling = (Measured, OutOfMemory, HostOutOfMemory)
        if len(outcomes) < _HOPELESS or any(isinstance(outcome, telling) for outcome in outcomes):
            return ""
        return f"The first {len(outcomes)} trials all failed, and not for memory."

    def _run(self, asked: tuple[Asked, ...], device: int | None, directory: Path) -> None:
        """One run: each outcome is stored as it comes, then the search is told; what it does not reach is given back.

        It ends early once nothing that is left in it may still win.
        """
        configurations = tuple(one.configuration for one in asked)
        self._watcher.run_began(device, configurations)
        stored: dict[int, bool] = {}
        cancel = RunCancel(self._interruption.cancel)
        began = time.monotonic()

        def on_event(event: Event) -> None:
            self._watcher.event(device, event)
            if event.kind == "result" and event.outcome is not None and not self._interruption.explains(event.outcome):
                number = asked[event.index].number
                stored[number] = self._study.finish(number, event.outcome, event.environment)
                if stored[number]:
                    self._watcher.trial_ended(number, configurations[event.index], event.outcome)
                    self._search.tell(number, event.outcome, event.environment)
                    self._study.mark_told(number)
                rest = asked[event.index + 1 :]
                if self._why_over(in_run=True) or (rest and not self._search.goes_on(rest)):
                    cancel.set()  # nothing new is started, in this run neither

        measuring = replace(self._study.spec.measuring, rate_to_beat=self._search.rate_to_beat())
        result = self._launcher.run(
            trial_request(
                self._study.spec,
                self._facts,
                configurations,
                self._limit_bytes,
                measuring=measuring,
                may_fork=True,
            ),
            device=device,
            on_event=on_event,
            cancel=cancel,
            directory=directory,
        )
        if all(isinstance(outcome, Measured) for outcome in result.outcomes):  # others end early
            self._budget.note_run(time.monotonic() - began, alone=len(asked) == 1)
        for one in asked:
            if one.number not in stored:
                self._study.release(one.number)
