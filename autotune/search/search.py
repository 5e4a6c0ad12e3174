"""The search: asks for runs, learns from outcomes, and says why it stops."""

from __future__ import annotations

import functools
import math
import statistics
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import optuna
from optuna.samplers import RandomSampler, TPESampler
from optuna.trial import TrialState

from ..records.configuration import Configuration
from ..records.environment import Environment
from ..records.facts import Facts
from ..records.outcome import Measured, Outcome
from ..records.study import Repeat, StudySpec, Trial
from ..records.words import counted
from ..verdict.aim import Aim
from ..verdict.search_end import EVEN_CHANCE, NOTHING_BELIEVED, Believed, SearchEnd, out_of_time
from . import optuna_trials
from .candidates import Origin
from .cost.context import SearchContext
from .cost.model import CostModel
from .knowledge import Knowledge, with_repetitions
from .proposal import plans_first, propose
from .score import score
from .space import Space

# So many trials of a sampler that does not know when to stop, without a gain above the noise, a share, end the search.
_PATIENCE = 8
_NOISE = 0.02
# Below this many trials TPE draws at random; what is not worth a trial is kept from it, so it is low.
_STARTUP_TRIALS = 6
# What starting a run takes, in trials, where nobody says: between a CPU's and a GPU's.
START = 6.0
# How much slower a machine may be in one run than in another, as a share.
_DRIFT = 0.1
# A sampler's suggestion takes others of the same batch size and engine along: switching plans costs a fraction of a
# fresh process. More at once would be suggested without having learnt from the first.
_SUGGESTIONS = 3

# Where step times scatter a trial takes about so many times its least steps; one that is cut off was for nothing.
_MORE_THAN_LEAST = 2.0
# Where nothing that can be confirmed in the time left is worth a trial, others are: these parts of that time, in turn.
_PARTS_OF_TIME = (0.25, 0.5, 1.0)
_TOO_SHORT = "What is left to try takes longer than the time that is left for it."


@dataclass(frozen=True)
class Asked:
    """A trial to run: Optuna's number and the configuration."""

    number: int
    configuration: Configuration


class Search:
    """Decides what a study tries next.

    All it knows is in the Optuna study and in its arguments, so it may be made anew at any time. Methods may be called
    from several threads. No configuration of ``history`` is asked for again, recovered ones excepted. Trials before
    ``patient_from`` do not count where a sampler's last ones have to bring something. The caller watches the time
    budget.

    Attributes:
        space: What may be tried.
        is_out_of_patience: Whether it ended as its last trials brought nothing.
        end: Once ``ask`` returned nothing, why; None before.
        most_left: How many trials there may still be at most, those asked for last included; None before. Most often
            it is a loose bound: the search ends when no run is expected to be worth its time.
    """

    def __init__(
        self,
        study: optuna.Study,
        space: Space,
        facts: Facts,
        spec: StudySpec,
        limit_bytes: int,
        *,
        history: Sequence[Trial] = (),
        patient_from: int = 0,
    ) -> None:
        self.end: SearchEnd | None = None
        self.is_out_of_patience = False
        self.most_left: int | None = None
        self._compiling_s = self._tracing_s = 0.0
        self._study, self.space, self._spec = study, space, spec
        self._aim = Aim(spec.objective, limit_bytes)
        self._patient_from = patient_from
        self._tried = [trial.configuration for trial in history if not trial.recovered]
        own = [trial.outcome for trial in history if trial.configuration.key == facts.baseline.key]
        self._batches_per_step = _batches_per_step(own[0] if own else None)
        self._context = SearchContext(space, facts, self._aim, least_steps=spec.least_steps)
        # What a trial brought is asked for several times before the next one: when it is told, why to stop, what next.
        self._model_of = functools.lru_cache(maxsize=2)(functools.partial(CostModel, self._context))
        self._repeats: Sequence[Repeat] = ()
        self._lock = threading.RLock()
        # A resumed study must not draw what it drew when it began.
        seed = spec.seed + len(study.get_trials(deepcopy=False))
        tpe = TPESampler(seed=seed, n_startup_trials=_STARTUP_TRIALS)
        self._sampler = tpe if spec.sampler == "tpe" else RandomSampler(seed=seed)

    def add_baseline(self, outcome: Outcome) -> int:
        """Add the baseline, which discovery measured, as a finished trial unless it is one; return its number."""
        with self._lock:
            self._batches_per_step = _batches_per_step(outcome)
            for one in optuna_trials.observe(self._study, self.space):
                if one.origin == "baseline":
                    return one.number
            told = score(outcome, self._aim, expected_bytes=None, baseline_is_finite=False)
            return optuna_trials.add_baseline(self._study, self.space, outcome, told)

    def ask(
        self,
        *,
        within_s: float = math.inf,
        confirmable_s: float = math.inf,
        only_confirmable: bool = False,
        start: float | None = None,
        compiling_s: float = 0.0,
        tracing_s: float = 0.0,
    ) -> tuple[Asked, ...]:
        """Choose the trials of the next run, from least to most memory expected; none if the search has an ``end``.

        They share batch size, engine and choices; one alone where the engine cannot change plans within a process.

        Args:
            within_s: The most seconds from a trial's first step on.
            confirmable_s: The most for its setting to be confirmed in the time left. Such settings go first, but for
                the plans that were given.
            only_confirmable: Whether a gain is known that there is time to confirm. Others are then not worth a trial.
            start: The time that starting a run takes, in trials; None where it is unknown.
            compiling_s: Seconds that the first step takes on top where a choice has the model compiled.
            tracing_s: Seconds that it takes on top where plans have the model traced.
        """
        with self._lock:
            self.end, self.is_out_of_patience = None, False
            self._compiling_s, self._tracing_s = compiling_s, tracing_s
            while True:
                start = START if start is None else start
                longest_s = (part * within_s for part in (() if only_confirmable else _PARTS_OF_TIME))
                limits_s = (min(within_s, confirmable_s), *(one for one in longest_s if one > confirmable_s))
                asked = self._interrupted()
                if not asked:
                    known = self._knowledge(within_s=within_s)
                    asked = self._given(known) or self._next_of(known, within_s, limits_s, start)
                # Nothing asked for and no reason to stop: another controller took it all first, which is known by now.
                if asked or self.end is not None:
                    return asked

    def is_short_of_memory(self) -> bool:
        """Return whether the least memory is looked for, or something that may be tried is not expected to fit."""
        with self._lock:
            return self._aim.seeks_memory or bool((self._knowledge().model.fits() < EVEN_CHANCE).any())

    def nothing_left(self) -> SearchEnd | None:
        """Return why the search would be over with any time there is; None if something is left to try."""
        with self._lock:
            knowledge = self._knowledge()
            return None if knowledge.open.any() else self._why_over(knowledge, 1, math.inf)

    def ended_by(self, end: SearchEnd) -> SearchEnd:
        """Return an end from outside of the search, with what the search knows."""
        return replace(end, num_configurations=self.space.num_configurations, believed=self._believed())

    def ended(self, reason: str, cut_short: str = "") -> SearchEnd:
        """Make the end of the search from its reason and from what stopped it."""
        return self.ended_by(SearchEnd(reason, cut_short))

    def tell(self, number: int, outcome: Outcome, environment: Environment | None = None) -> None:
        """Learn from an outcome; a trial that is finished already stays as it is."""
        with self._lock:
            knowledge = self._knowledge()
            expected_bytes = None
            # Only a trial without a peak of its own is told by the expected one, and expecting takes a while.
            if not isinstance(outcome, Measured):
                running = [one.configuration for one in knowledge.observations if one.number == number]
                expected_bytes = knowledge.model.expected_bytes(running[0]) if running else None
            told = score(
                outcome,
                self._aim,
                expected_bytes=expected_bytes,
                baseline_is_finite=optuna_trials.baseline_is_finite(self._study),
                reference_per_s=_reference_per_s(knowledge),
            )
            optuna_trials.tell(self._study, number, outcome, environment, told)

    def learn(self, repeats: Sequence[Repeat]) -> None:
        """Learn from all repetitions of confirmations."""
        with self._lock:
            self._repeats = tuple(repeats)

    def goes_on(self, rest: Sequence[Asked]) -> bool:
        """Return whether the rest of a run may still win, or has plans that somebody brought along."""
        with self._lock:
            knowledge = self._knowledge()
            given_numbers = {one.number for one in knowledge.observations if one.origin == "given"}
            indices = [self._context.candidates.index(one.configuration) for one in rest]
            may_win = (index is None or bool(knowledge.may_win[index]) for index in indices)
            return any(one.number in given_numbers for one in rest) or any(may_win)

    def rate_to_beat(self) -> float | None:
        """Return the samples/s below which nothing can be the answer, by the trials so far; None without any."""
        with self._lock:
            knowledge = self._knowledge()
            if self._aim.seeks_memory:
                least = self._aim.slowest * (_reference_per_s(knowledge) or 0.0)
            else:
                least = max((one.samples_per_s for one in knowledge.feasible), default=0.0)
            return (1 - _DRIFT) * least or None

    def _believed(self) -> Believed:
        with self._lock:
            knowledge = self._knowledge()
            fitting = [one for one in knowledge.feasible if one.samples_per_s > 0]
            if not fitting:
                return NOTHING_BELIEVED
            keys, chances = [one.configuration.key for one in fitting], knowledge.model.fits_again(fitting)
            rates, _ = knowledge.model.figures_of(fitting, of_any_process=True)
        per_s = {} if self._aim.seeks_memory else dict(zip(keys, np.exp(rates).tolist(), strict=True))
        return Believed(per_s, dict(zip(keys, chances.tolist(), strict=True)))

    def _given(self, knowledge: Knowledge) -> tuple[Asked, ...]:
        room, first = self._room(knowledge), plans_first(knowledge)
        self.most_left = min(room, int(knowledge.worthwhile.sum()) + len(first))
        return self._claim_all(first[: room if self.space.switches else 1], "given") if room > 0 else ()

    def _next_of(self, known: Knowledge, within_s: float, limits_s: Iterable[float], start: float) -> tuple[Asked, ...]:
        asked: tuple[Asked, ...] = ()
        for limit_s in limits_s:
            knowledge = known if limit_s == within_s else self._knowledge(within_s=limit_s)
            asked = self._next(knowledge, limit_s, start)
            if asked or self.end is None or not self.end.is_for_time:
                break
        return asked

    def _room(self, knowledge: Knowledge) -> int:
        return self._spec.max_trials - sum(one.origin != "baseline" for one in knowledge.observations)

    def _next(self, knowledge: Knowledge, within_s: float, start: float) -> tuple[Asked, ...]:
        room = self._room(knowledge)
        most = room if self.space.switches else 1
        self.end = self._why_over(knowledge, room, within_s)
        if self.end is not None:
            return ()
        if self._spec.sampler == "model":
            return self._propose(knowledge, most, start)
        self.end = self._why_stop(knowledge)
        return () if self.end is not None else self._suggest(knowledge, most)

    def _propose(self, knowledge: Knowledge, most: int, start: float) -> tuple[Asked, ...]:
        proposal = propose(knowledge, most=most, start=start, seed=self._spec.seed)
        if proposal.reason:
            unhurried = self._knowledge()
            is_hurried = bool((unhurried.open & ~knowledge.open).any())
            self.end = self.ended(proposal.reason)
            # A reason that holds only of what there is time for is none.
            if is_hurried and propose(unhurried, most=most, start=start, seed=self._spec.seed).configurations:
                self.end = self.ended_by(out_of_time(_TOO_SHORT))
        return self._claim_all(proposal.configurations, "sampler")

    def _knowledge(
        self, *, without: int | None = None, within_s: float = math.inf, longest_s: float | None = None
    ) -> Knowledge:
        seen = optuna_trials.observe(self._study, self.space)
        finite = optuna_trials.baseline_is_finite(self._study)
        others = [one for one in seen if one.number != without]
        observations = [with_repetitions(one, self._repeats, self._aim, baseline_is_finite=finite) for one in others]
        longest_s = self._spec.trial_timeout_s if longest_s is None else longest_s
        return Knowledge(
            self._context,
            observations,
            self._tried,
            longest_s=min(longest_s, within_s / _MORE_THAN_LEAST),
            longest_compiled_s=min(longest_s, within_s / _MORE_THAN_LEAST - self._compiling_s),
            longest_planned_s=min(longest_s, within_s / _MORE_THAN_LEAST - self._tracing_s),
            batches_per_step=self._batches_per_step,
            model_of=self._model_of,
        )

    def _why_over(self, knowledge: Knowledge, room: int, within_s: float) -> SearchEnd | None:
        if room <= 0:
            trials = counted(self._spec.max_trials, "trial")
            return self.ended(f"The study may have no more than {trials}.", f"--max-trials allows {trials}")
        if knowledge.open.any():
            return None
        if within_s < math.inf and self._knowledge().open.any():
            return self.ended_by(out_of_time(_TOO_SHORT))
        if knowledge.engine_fails:
            failed = f"Every trial under engine {self.space.engine} failed"
            return self.ended(f"{failed}, and there is nothing left to try without it.")
        if self._knowledge(longest_s=math.inf).open.any():
            return self.ended(
                "What is left to try takes longer than a trial may.", "what is left takes longer than --trial-timeout"
            )
        if len(self._context.candidates) == 1:
            return self.ended("There is nothing to try but the unmodified script.")
        untried = len(self._context.candidates) - len(knowledge.tried)
        if not untried:
            return self.ended("Every setting has been tried.")
        has_failed = any(one.state == "failed" for one in knowledge.observations)
        rest = "would fail as those tried did" if has_failed else "should not be better"
        others = "The only other setting" if untried == 1 else f"All {untried:,} other settings"
        return self.ended(f"{others} should not fit {self._aim.limit_text()}, or {rest}.")

    def _why_stop(self, knowledge: Knowledge) -> SearchEnd | None:
        """Return why a sampler that knows no reason of its own has to stop; None if it need not."""
        if not knowledge.worthwhile.any() and self._knowledge().worthwhile.any():
            return self.ended_by(out_of_time(_TOO_SHORT))
        if not knowledge.worthwhile.any():
            return self.ended("Every configuration that could still be the best has been tried.")
        finished = [one for one in knowledge.observations if one.state != "running"]
        latest = [one for one in finished if one.origin == "sampler" and one.number >= self._patient_from][-_PATIENCE:]
        if len(latest) < _PATIENCE:
            return None
        least = self._aim.slowest * (_reference_per_s(knowledge) or 0.0)
        merits = {
            one.number: self._aim.merit(one.samples_per_s, one.peak_bytes)
            for one in finished
            if one.feasible and one.samples_per_s >= least
        }
        recent = max((merits.get(one.number, 0.0) for one in latest), default=0.0)
        before = max((merit for number, merit in merits.items() if number < latest[0].number), default=0.0)
        if recent > before * (1 + _NOISE):
            return None
        self.is_out_of_patience = True
        better = "smaller" if self._aim.seeks_memory else "faster"
        reason = f"The last {_PATIENCE} trials were not {better} than the best before them by more than {_NOISE:.0%}."
        if before == recent == 0.0:
            reason = f"Nothing tried fits {self._aim.limit_text()}, the last {_PATIENCE} trials included."
        return self.ended(reason, f"the last {_PATIENCE} trials brought nothing")

    def _suggest(self, knowledge: Knowledge, room: int) -> tuple[Asked, ...]:
        """Take what a sampler suggests, and what it suggests next of the same kind."""
        candidates, worth = self._context.candidates, knowledge.worthwhile
        run: list[Asked] = []
        while len(run) < min(_SUGGESTIONS, room) and worth.any():
            place = candidates.nearest(optuna_trials.drawn(self._study, self.space, self._sampler), worth)
            asked = self._claim(candidates.configuration(place), "sampler")
            if asked is None:
                break
            run.append(asked)
            if not self.space.shares_runs(asked.configuration.engine):
                break
            worth = worth & (candidates.kinds == candidates.kinds[place])
            worth[place] = False
        return self._in_order(knowledge, run)

    def _interrupted(self) -> tuple[Asked, ...]:
        """Take up the trials whose owner died and that can share a run, from the first on."""
        run: list[Asked] = []
        while self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            asked = self._unless_taken(*optuna_trials.take_up(self._study, self.space))
            if asked is None:
                continue
            kinds = {
                (one.batch_size, one.engine, one.choices) for one in (each.configuration for each in (*run, asked))
            }
            if not self._is_wanted(asked):
                optuna_trials.set_free(self._study, asked.number)  # what was learnt meanwhile rules it out
            elif run and (len(kinds) > 1 or not self.space.shares_runs(asked.configuration.engine)):
                optuna_trials.put_back(self._study, asked.number)
                break
            else:
                run.append(asked)
        return self._in_order(self._knowledge(), run) if run else ()

    def _is_wanted(self, asked: Asked) -> bool:
        """Return whether a trial that was given back is open, and may win or was brought along."""
        knowledge, place = self._knowledge(without=asked.number), self._context.candidates.index(asked.configuration)
        if place is None or not knowledge.open[place]:
            return False
        seen = optuna_trials.observe(self._study, self.space)
        is_given = any(one.number == asked.number and one.origin == "given" for one in seen)
        return is_given or bool(knowledge.may_win[place])

    def _claim_all(self, configurations: Sequence[Configuration], origin: Origin) -> tuple[Asked, ...]:
        claims = (self._claim(configuration, origin) for configuration in configurations)
        return tuple(asked for asked in claims if asked is not None)

    def _claim(self, configuration: Configuration, origin: Origin) -> Asked | None:
        """Begin a trial; None where another controller was the first to begin one of this configuration."""
        return self._unless_taken(optuna_trials.begin(self._study, self.space, configuration, origin), configuration)

    def _unless_taken(self, number: int, configuration: Configuration) -> Asked | None:
        seen = optuna_trials.observe(self._study, self.space)
        if any(one.configuration.key == configuration.key and one.number < number for one in seen):
            optuna_trials.set_free(self._study, number)
            return None
        return Asked(number, configuration)

    def _in_order(self, knowledge: Knowledge, run: Sequence[Asked]) -> tuple[Asked, ...]:
        ordered = knowledge.model.in_order([asked.configuration for asked in run])
        return tuple(sorted(run, key=lambda asked: ordered.index(asked.configuration)))


def _reference_per_s(knowledge: Knowledge) -> float | None:
    """Return the samples/s that those of an answer are held against; None where they are not known."""
    if knowledge.reference is not None:
        return knowledge.reference.samples_per_s
    return max((one.samples_per_s for one in knowledge.feasible), default=None)


def _batches_per_step(baseline: Outcome | None) -> float:
    """Return how many batches of its size the script's optimizer step takes, those of all processes together."""
    size = baseline.measurement.batch_size if isinstance(baseline, Measured) else None
    if not isinstance(baseline, Measured) or not size:
        return 1.0
    return max(1.0, statistics.median(baseline.measurement.samples_per_step) / baseline.measurement.cycle / size)
