"""The Optuna study as the search's only memory: what it holds is read here, and outcomes are written here.

Everything the search decides by is in the study's trials, so that a resumed study, and several controllers that work on
one, see the same. Values are ``(samples_per_s, peak_bytes)``; the constraint ``memory`` is the peak's excess over the
limit as a share of it, ``speed`` by what share samples/s fell short when the trial ended, where the objective bounds
them. User attributes hold what Optuna has no place for: ``origin``, ``outcome``, ``configuration`` for readers of a
dashboard, ``device``, ``steps_seen`` where the script ended too early, ``needed_bytes`` where memory did.
"""

from __future__ import annotations

import uuid
from typing import Any, cast

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from ..records.chosen import choices_of
from ..records.configuration import Configuration
from ..records.environment import Environment
from ..records.outcome import OUTCOMES, Measured, NoTrainingStep, Outcome, OutOfMemory, TimedOut
from .candidates import Observation, Origin
from .score import Score
from .space import BATCH_SIZE, Point, Space

_MEMORY, _SPEED = "memory", "speed"
_OUT_OF_MEMORY = {kind for kind, outcome in OUTCOMES.items() if outcome.for_memory}
_CLAIM = "claim"  # user attribute of a trial: what its maker finds it by
# Below this many trials TPE draws at random; what is not worth a trial is kept from it, so it is low.
_STARTUP_TRIALS = 6


class _Plain(RandomSampler):
    """Leaves what an enqueued trial does not say as the script has it."""

    def __init__(self, space: Space) -> None:
        super().__init__()
        self._point = space.point(space.baseline) or {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> int:
        """Give the script's own value."""
        del study, trial, param_distribution
        return self._point[param_name]


def make_sampler(name: str, seed: int) -> BaseSampler:
    """Make the sampler of Optuna's that proposes; where the cost model does, ``model``, none is asked."""
    return TPESampler(seed=seed, n_startup_trials=_STARTUP_TRIALS) if name == "tpe" else RandomSampler(seed=seed)


def drawn(study: optuna.Study, space: Space, sampler: BaseSampler) -> Point:
    """Draw what a sampler would try next, after the trials of the study that were begun; no trial is made of it."""
    scratch = optuna.create_study(directions=study.directions, sampler=sampler)
    scratch.add_trials(one for one in study.get_trials(deepcopy=False) if one.state != TrialState.WAITING)
    return scratch.ask(distributions(space)).params


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Give the parameters as Optuna sees them: whole numbers, the batch size on a log scale.

    The range of the batch size always holds the script's own, which the baseline has even where it is not searched.
    """
    ranges = {name: [*values] for name, values in space.parameters.items()}
    if BATCH_SIZE in ranges and space.own_batch_size:
        ranges[BATCH_SIZE].append(space.own_batch_size)
    return {name: IntDistribution(min(values), max(values), log=name == BATCH_SIZE) for name, values in ranges.items()}


def observe(study: optuna.Study, space: Space) -> list[Observation]:
    """Read every trial of the study that stands for a configuration being tried or tried.

    Left out are trials still waiting, and trials that failed without an outcome: their owner died or never reached
    them, and the configuration is free again. So are those that make a choice which is not in the space: another
    controller has a wider one.
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
    """Tell whether the baseline's loss is a number; so it is taken to be until the baseline is known."""
    trials = study.get_trials(deepcopy=False)
    return not any(t.user_attrs.get("origin") == "baseline" and t.user_attrs.get("nonfinite_loss") for t in trials)


def add(study: optuna.Study, space: Space, configuration: Configuration, outcome: Outcome, score: Score | None) -> int:
    """Add a finished trial for an outcome that was measured before the study asked; returns its number.

    It is told at once rather than asked for first: there is no moment at which a dead controller leaves it running.
    """
    _add(
        study,
        space,
        configuration,
        "baseline",
        _attributes(outcome),
        state=TrialState.FAIL if score is None else TrialState.COMPLETE,
        values=None if score is None else [score.samples_per_s, score.peak_bytes],
        constraints=None if score is None else _constraints(score),
    )
    # Of two controllers that have discovered at the same time, the first to add its baseline counts.
    return min(t.number for t in study.get_trials(deepcopy=False) if t.user_attrs.get("origin") == "baseline")


def begin(study: optuna.Study, space: Space, configuration: Configuration, origin: Origin) -> int:
    """Add a running trial of a configuration, and give its number. Others see all of it at once, or nothing."""
    claim = uuid.uuid4().hex
    _add(study, space, configuration, origin, {_CLAIM: claim}, state=TrialState.RUNNING)
    trials = study.get_trials(deepcopy=False)
    return next(trial.number for trial in reversed(trials) if trial.user_attrs.get(_CLAIM) == claim)


def take_up(study: optuna.Study, space: Space) -> tuple[int, Configuration]:
    """Begin the trial that was enqueued first; gives its number and configuration.

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
    """Give what is written of a trial, or what it was enqueued with; what is left open is as the script has it."""
    written = trial.system_attrs.get("fixed_params", {}) | trial.params
    return space.plain_point | written if written else {}


def _is_elsewhere(trial: FrozenTrial, space: Space) -> bool:
    known = choices_of(space.engine)
    others = ((known[name], value) for name, value in trial.params.items() if name in known.keys() - space.choices)
    return any(value != choice.default for choice, value in others)


def tell(
    study: optuna.Study, number: int, outcome: Outcome, environment: Environment | None, score: Score | None
) -> None:
    """Tell the study how a trial ended; a trial that is finished already stays as it is.

    May be cut off anywhere and called again: attributes are overwritten, constraints are set once, the state last.
    """
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
    """Fail a trial that was never run, without an outcome: its configuration may be asked for again."""
    study.tell(number, state=TrialState.FAIL, skip_if_finished=True)


def put_back(study: optuna.Study, number: int) -> None:
    """Enqueue a trial again that was asked for and can't be run now."""
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
    if trial.state != TrialState.COMPLETE:
        return Observation(
            trial.number,
            configuration,
            origin,
            "failed",
            steps_seen=trial.user_attrs.get("steps_seen", 0),
            timed_out=trial.user_attrs.get("outcome") == TimedOut.kind,
        )
    samples_per_s, peak_bytes = trial.values
    return Observation(
        number=trial.number,
        configuration=configuration,
        origin=origin,
        state="scored",
        samples_per_s=samples_per_s,
        peak_bytes=peak_bytes,
        feasible=trial.constraints.get(_MEMORY, 0.0) <= 0,
        out_of_memory=trial.user_attrs.get("outcome") in _OUT_OF_MEMORY,
        needed_bytes=trial.user_attrs.get("needed_bytes"),
    )
