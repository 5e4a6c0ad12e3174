"""The Optuna study as the search's only memory: trials are read and outcomes written here.

So a resumed study, and several controllers of one study, see the same. Values are ``(samples_per_s, peak_bytes)``; the
constraints ``memory`` and ``speed`` are ``Score.violation`` and ``Score.slowness``. User attributes hold what Optuna
has no place for: ``origin``, ``outcome``, ``configuration`` for readers of a dashboard, ``device``, ``steps_seen``
where the script ended too early, ``needed_bytes`` where memory ran out.
"""

from __future__ import annotations

import uuid
from typing import Any, cast

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial, TrialState

from ..records.choices import choices_of
from ..records.configuration import Configuration
from ..records.environment import Environment
from ..records.outcome import OUTCOMES, Measured, NoEffect, NoTrainingStep, Outcome, OutOfMemory, TimedOut
from .candidates import Observation, Origin
from .score import Score
from .space import BATCH_SIZE, Point, Space

_MEMORY, _SPEED = "memory", "speed"
_OUT_OF_MEMORY = {kind for kind, outcome in OUTCOMES.items() if outcome.for_memory}
_CLAIM = "claim"  # user attribute of a trial: what its maker finds it by


class _Plain(RandomSampler):
    """Leaves what an enqueued trial does not say as the script has it."""

    def __init__(self, space: Space) -> None:
        super().__init__()
        self._point = space.point(space.baseline) or {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> int:
        """Return the script's own value."""
        del study, trial, param_distribution
        return self._point[param_name]


def drawn(study: optuna.Study, space: Space, sampler: BaseSampler) -> Point:
    """Draw what a sampler would try next after the study's begun trials, without making a trial."""
    scratch = optuna.create_study(directions=study.directions, sampler=sampler)
    scratch.add_trials(one for one in study.get_trials(deepcopy=False) if one.state != TrialState.WAITING)
    return scratch.ask(distributions(space)).params


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return the parameters as Optuna sees them: whole numbers, the batch size (the baseline's too) in logarithms."""
    ranges = {name: [*values] for name, values in space.parameters.items()}
    if BATCH_SIZE in ranges and space.own_batch_size:
        ranges[BATCH_SIZE].append(space.own_batch_size)
    return {name: IntDistribution(min(values), max(values), log=name == BATCH_SIZE) for name, values in ranges.items()}


def observe(study: optuna.Study, space: Space) -> list[Observation]:
    """Read the trials of the study that are under way or have ended.

    Left out are waiting trials, trials that failed without an outcome, as their owner died or never reached them, and
    trials with a choice that is not in the space, as another controller has a wider one.
    """
    observations = []
    for trial in study.get_trials(deepcopy=False):
        is_free = trial.state in (TrialState.FAIL, TrialState.PRUNED) and "outcome" not in trial.user_attrs
        if trial.state == TrialState.WAITING or is_free:
            continue
        point = _point(trial, space)
        if space.parameters.keys() <= point.keys() and not _is_elsewhere(trial, space):
            observations.append(_observation(trial, point, space))
    return observations


def baseline_is_finite(study: optuna.Study) -> bool:
    """Return whether the baseline's loss is a number, as is assumed until the baseline is known."""
    trials = study.get_trials(deepcopy=False)
    return not any(t.user_attrs.get("origin") == "baseline" and t.user_attrs.get("nonfinite_loss") for t in trials)


def add_baseline(study: optuna.Study, space: Space, outcome: Outcome, score: Score | None) -> int:
    """Add the baseline as a finished trial and return its number; no dead controller can leave it running."""
    told: dict[str, Any] = {"state": TrialState.FAIL}
    if score is not None:
        values = [score.samples_per_s, score.peak_bytes]
        told = {"state": TrialState.COMPLETE, "values": values, "constraints": _constraints(score)}
    _add(study, space, space.baseline, "baseline", _attributes(outcome), **told)
    # Of two controllers that have discovered at the same time, the first to add its baseline counts.
    return min(t.number for t in study.get_trials(deepcopy=False) if t.user_attrs.get("origin") == "baseline")


def begin(study: optuna.Study, space: Space, configuration: Configuration, origin: Origin) -> int:
    """Add a running trial of a configuration, which others see whole or not at all; return its number."""
    claim = uuid.uuid4().hex
    _add(study, space, configuration, origin, {_CLAIM: claim}, state=TrialState.RUNNING)
    trials = study.get_trials(deepcopy=False)
    return next(trial.number for trial in reversed(trials) if trial.user_attrs.get(_CLAIM) == claim)


def take_up(study: optuna.Study, space: Space) -> tuple[int, Configuration]:
    """Begin the trial that was enqueued first; return its number and configuration.

    Where another controller was quicker, it is the script as it stands, which has had its trial.
    """
    study.sampler = _Plain(space)
    trial = study.ask(distributions(space))
    configuration = space.configuration(trial.params)
    if trial.user_attrs.get("origin") != "given":  # what somebody brought along stays that
        trial.set_user_attr("origin", "recovered")
    trial.set_user_attr("configuration", str(configuration))
    return trial.number, configuration


def _add(
    study: optuna.Study,
    space: Space,
    configuration: Configuration,
    origin: Origin,
    attributes: dict[str, Any],
    **told: Any,
) -> None:
    point = space.point(configuration)
    assert point is not None, f"{configuration} is not in the space"
    attributes = {"origin": origin, "configuration": str(configuration), **attributes}
    study.add_trial(
        optuna.trial.create_trial(params=point, distributions=distributions(space), user_attrs=attributes, **told)
    )


def _point(trial: FrozenTrial, space: Space) -> Point:
    """Return a trial's parameters, or those that it was enqueued with, and the script's own for what is left open."""
    written = trial.system_attrs.get("fixed_params", {}) | trial.params
    return space.plain_point | written if written else {}


def _is_elsewhere(trial: FrozenTrial, space: Space) -> bool:
    known = choices_of(space.engine)
    others = ((known[name], value) for name, value in trial.params.items() if name in known.keys() - space.choices)
    return any(value != choice.default for choice, value in others)


def tell(
    study: optuna.Study, number: int, outcome: Outcome, environment: Environment | None, score: Score | None
) -> None:
    """Tell the study how a trial ended unless it is finished; this may be cut off anywhere and called again."""
    frozen = study.get_trials(deepcopy=False)[number]
    if frozen.state.is_finished():
        return
    # The trial may have been asked for by a controller that is dead by now. Optuna has no public way from a number to
    # a Trial that can be written to, other than the id that its own storages use.
    trial = optuna.trial.Trial(study, frozen._trial_id)
    for name, value in _attributes(outcome).items():
        trial.set_user_attr(name, value)
    if environment is not None:
        trial.set_user_attr("device", environment.device_name)
    if score is None:
        study.tell(number, state=TrialState.FAIL, skip_if_finished=True)
        return
    for name, violation in _constraints(score).items():
        if name not in frozen.constraints:
            trial.set_constraint(name, violation)
    study.tell(number, [score.samples_per_s, score.peak_bytes], skip_if_finished=True)


def set_free(study: optuna.Study, number: int) -> None:
    """Fail a trial without an outcome: its configuration may be asked for again."""
    study.tell(number, state=TrialState.FAIL, skip_if_finished=True)


def put_back(study: optuna.Study, number: int) -> None:
    """Enqueue a trial again that can't be run now."""
    trial = study.get_trials(deepcopy=False)[number]
    study.enqueue_trial(trial.params, user_attrs=trial.user_attrs)
    set_free(study, number)


def _constraints(score: Score) -> dict[str, float]:
    return {_MEMORY: score.violation} | ({} if score.slowness is None else {_SPEED: score.slowness})


def _attributes(outcome: Outcome) -> dict[str, str | bool | int]:
    attributes: dict[str, str | bool | int] = {"outcome": outcome.kind}
    if isinstance(outcome, NoTrainingStep):
        attributes["steps_seen"] = outcome.steps_seen
    if isinstance(outcome, Measured) and outcome.measurement.nonfinite_loss:
        attributes["nonfinite_loss"] = True
    if isinstance(outcome, OutOfMemory) and outcome.needed_bytes is not None:
        attributes["needed_bytes"] = outcome.needed_bytes
    return attributes


def _observation(trial: FrozenTrial, point: Point, space: Space) -> Observation:
    # A trial that another process has only just asked for has no origin yet.
    origin = cast("Origin", trial.user_attrs.get("origin", "sampler"))
    configuration = space.baseline if origin == "baseline" else space.configuration(point)
    if not trial.state.is_finished():
        return Observation(trial.number, configuration, origin, "running")
    is_scored, outcome = trial.state == TrialState.COMPLETE, trial.user_attrs.get("outcome")
    samples_per_s, peak_bytes = trial.values if is_scored else (0.0, None)
    return Observation(
        trial.number,
        configuration,
        origin,
        "scored" if is_scored else "failed",
        samples_per_s,
        peak_bytes,
        feasible=is_scored and trial.constraints.get(_MEMORY, 0.0) <= 0,
        out_of_memory=is_scored and outcome in _OUT_OF_MEMORY,
        steps_seen=trial.user_attrs.get("steps_seen", 0),
        timed_out=outcome == TimedOut.kind,
        no_effect=outcome == NoEffect.kind and configuration.batch_size != space.own_batch_size,
        needed_bytes=trial.user_attrs.get("needed_bytes"),
    )
