"""The next run by the cost model: a batch size, and the plans that are worth switching through there.

What a run is worth is how much better than the best its trials should be, by what is looked for, per second that it
takes. Trials of one run are drawn together, so that one more is worth what it adds to the others.

The rules below are judgements held against ``tests/benchmarks/search.py``. A gain is a share of the best: of its
samples/s more, or of its memory less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..records import Configuration
from .candidates import Indices
from .cost.features import Array
from .knowledge import LEAST_LIKELY, Knowledge
from .space import BATCH_SIZE
from .standing import Standing

__all__ = ["Proposal", "plans_first", "propose"]

# When to stop: a run of one trial that should bring less gain than this is not worth its time, and one of more trials
# has to bring as much for the time that it takes. That is what a run is expected to bring; an upper bound of single
# candidates would have everything tried that is like the best.
_GAIN = 0.005
# What starting a process takes, in trials, and the most trials that one run has.
_START = 4.0
_MOST_IN_RUN = 6
# A trial joins a run if it adds this share of what the run is worth a trial; else it may wait for what the run shows.
_WORTH_JOINING = 0.6
# How closely to look, which takes time, as that may mean to simulate: at so many candidates of each kind of run, at so
# many of all, drawing so many things that may be true.
_SHORTLIST, _CLOSE_LOOKS, _DRAWN = 12, 100, 256
# For the sentence at the end: the best that may well be is within so many standard deviations of what is expected, of
# candidates with this chance of being allowed.
_LIKELY, _LIKELY_ALLOWED = 1.0, 0.5


@dataclass(frozen=True)
class Proposal:
    """A run to make, or the reason to stop."""

    configurations: tuple[Configuration, ...]
    reason: str = ""


def plans_first(knowledge: Knowledge) -> tuple[Configuration, ...]:
    """The plans that somebody brought along, at the script's own batch size or the nearest; those not tried yet."""
    space = knowledge.space
    rows, sizes, own = space.rows, space.parameters.get(BATCH_SIZE, ()), space.own_batch_size
    size = {BATCH_SIZE: min(sizes, key=lambda one: abs(math.log(one / own)))} if sizes else {}
    points = (
        {plan.cluster_id: plan.applies_to(rows[plan.cluster_id].frequency) for plan in plans}
        for plans in space.given.sets
    )
    wanted = [space.configuration(space.plain_point | size | point) for point in points]
    return knowledge.model.in_order([one for one in wanted if knowledge.is_open(one)])


def propose(knowledge: Knowledge, *, most: int, seed: int) -> Proposal:
    """Choose the next run, from least to most memory: for the first thing that is looked for and worth one.

    Args:
        knowledge: The study so far.
        most: How many trials the run may have.
        seed: Of the draws.
    """
    proposal = Proposal(())
    for standing in knowledge.standings:
        proposal = _proposed(knowledge, standing, most=most, seed=seed)
        if proposal.configurations:
            break
    return proposal


def _proposed(knowledge: Knowledge, standing: Standing, *, most: int, seed: int) -> Proposal:
    candidates = knowledge.ground.candidates
    chance = np.random.default_rng(seed)
    for _ in range(2):  # what is looked at closely is simulated, and that may change what is worth a close look
        shortlist = _shortlist(knowledge, standing)
        if not len(shortlist):
            return Proposal((), standing.exhausted_reason())
        gains, allowed, fits = standing.drawn(shortlist, _DRAWN, chance)
    bound = _bound(standing, shortlist)
    gains = gains * allowed
    gains[:, allowed.mean(axis=0) < LEAST_LIKELY] = 0.0
    kinds = candidates.kinds[shortlist]
    runs = [_run(gains, fits, np.flatnonzero(kinds == kind), most) for kind in sorted(set(kinds.tolist()))]
    worth, chosen = max(runs, key=lambda run: run[0])
    if standing.best is not None and worth <= _GAIN / (_START + 1):
        return Proposal((), standing.stop_reason(bound))
    if not chosen:
        return Proposal((), standing.exhausted_reason())
    configurations = [candidates.configuration(int(shortlist[number])) for number in chosen]
    return Proposal(knowledge.model.in_order(configurations))


def _shortlist(knowledge: Knowledge, standing: Standing) -> Indices:
    """Of each kind of run the candidates whose expected gain is largest.

    That is the expected improvement of Jones, Schonlau and Welch (1998), times the chance of being allowed.
    """
    from scipy.special import ndtr  # late for the same reason as in CostModel.fits()

    candidates, is_open = knowledge.ground.candidates, knowledge.open
    gain, sd = standing.gains()
    allowed = standing.allowed()
    if standing.best is None:
        value = np.exp(gain - gain.max()) * allowed
    else:
        margin = gain / sd
        value = sd * (margin * ndtr(margin) + np.exp(-0.5 * margin**2) / np.sqrt(2 * np.pi)) * allowed
    value = np.where(is_open, value, 0.0)
    chosen = []
    for kind in np.unique(candidates.kinds):
        there = np.flatnonzero((candidates.kinds == kind) & (value > 0))
        chosen.append(there[np.argsort(-value[there], kind="stable")[:_SHORTLIST]])
    indices = np.concatenate(chosen) if chosen else np.zeros(0, dtype=np.intp)
    return indices[np.argsort(-value[indices], kind="stable")[:_CLOSE_LOOKS]]


def _bound(standing: Standing, shortlist: Indices) -> float:
    """How much better than the best any of them may well be, as a difference of logarithms."""
    gain, sd = standing.gains()
    reach = np.where(standing.allowed() >= _LIKELY_ALLOWED, gain + _LIKELY * sd, -np.inf)
    return float(reach[shortlist].max(initial=-np.inf))


def _run(gains: Array, fits: npt.NDArray[np.bool_], members: Indices, most: int) -> tuple[float, list[int]]:
    """The trials of one kind that are worth most together per trial's time; greedily.

    Args:
        gains: (draws, candidates), what each may bring, drawn together; 0 where it may not be the answer.
        fits: (draws, candidates), whether it does not run out of memory, which ends a run: what is left to try has to
            start another one.
        members: The candidates of this kind, as places in the former two.
        most: How many trials there may be.

    Returns:
        Their worth, and their places in the same.
    """
    best, ends, gain, worth = np.zeros(len(gains)), np.zeros(len(gains), dtype=bool), 0.0, 0.0
    chosen: list[int] = []
    for _ in range(min(most, _MOST_IN_RUN, len(members))):
        together = np.maximum(gains[:, members], best[:, None]).mean(axis=0)
        times = _START * (1 + (ends[:, None] | ~fits[:, members]).mean(axis=0)) + len(chosen) + 1
        place = int(np.argmax(together / times))
        added = float(together[place]) - gain
        if added <= 0 or (chosen and added < _WORTH_JOINING * together[place] / times[place]):
            break
        gain, worth = float(together[place]), float(together[place] / times[place])
        chosen.append(int(members[place]))
        best, ends = np.maximum(best, gains[:, chosen[-1]]), ends | ~fits[:, chosen[-1]]
    return worth, chosen
