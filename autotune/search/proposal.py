"""The next run by the cost model: a batch size, and the plans that are worth switching through there.

A run is worth the expected gain of its trials over the best per second that it takes. Trials of one run are drawn
together, so that one more is worth what it adds to the others. A gain is a share of the best's samples/s more, or of
its memory less. The rules below are judgements held against ``tests/benchmarks/search.py``.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..records.configuration import Configuration
from ..records.engines import ENGINES
from .acquisition import Acquisition
from .candidates import Indices
from .cost.features import Array
from .knowledge import Knowledge
from .space import BATCH_SIZE

# The most trials that one run has.
_MOST_IN_RUN = 6
# A trial joins a run if it adds this share of what the run is worth a trial; else it may wait for what the run shows.
_WORTH_JOINING = 0.6
# So many candidates of each kind of run, and of all, are looked at closely, with so many draws: it takes time.
_SHORTLIST, _CLOSE_LOOKS, _DRAWN = 12, 100, 256
# For the sentence at the end: so many standard deviations, of candidates with this chance of being allowed.
_LIKELY, _LIKELY_ALLOWED = 1.0, 0.5


@dataclass(frozen=True)
class Proposal:
    """A run to make, or the reason to stop."""

    configurations: tuple[Configuration, ...]
    reason: str = ""


def plans_first(knowledge: Knowledge) -> tuple[Configuration, ...]:
    """Return the untried plans that somebody brought along, at the script's own batch size or the nearest."""
    space = knowledge.space
    rows, sizes, own = space.rows, space.parameters.get(BATCH_SIZE, ()), space.own_batch_size or 1
    size = {BATCH_SIZE: min(sizes, key=lambda one: abs(math.log(one / own)))} if sizes else {}
    points = (
        {plan.cluster_id: plan.applies_to(rows[plan.cluster_id].frequency) for plan in plans}
        for plans in space.given.sets
    )
    wanted = [space.configuration(space.plain_with_heap | size | point) for point in points]
    return knowledge.model.in_order([one for one in wanted if knowledge.is_open(one)])


def propose(knowledge: Knowledge, *, most: int, start: float, seed: int) -> Proposal:
    """Choose the next run, from least to most memory; starting one takes as long as ``start`` trials."""
    proposal = Proposal(())
    usual = ~knowledge.context.candidates.between
    # Batch sizes between the usual ones come last: most of the way is known by then.
    stages = (usual,) if usual.all() else (usual, np.ones_like(usual))
    for acquisition, among in itertools.product(knowledge.acquisitions, stages):
        proposal = _proposed(knowledge, acquisition, among & knowledge.open, most=most, start=start, seed=seed)
        if proposal.configurations:
            break
    return proposal


def _proposed(
    knowledge: Knowledge, acquisition: Acquisition, among: npt.NDArray[np.bool_], *, most: int, start: float, seed: int
) -> Proposal:
    candidates = knowledge.context.candidates
    for _ in range(2):  # what is looked at closely is simulated, and that may change what is worth a close look
        shortlist = _shortlist(knowledge, acquisition, among)
        if not len(shortlist):
            return Proposal((), _why_nothing(acquisition, among))
        knowledge.model.peaks.together(shortlist)
    worth = _worth(acquisition, among)[shortlist]
    own, kinds = ENGINES[knowledge.space.engine], candidates.kinds[shortlist]
    engines = {
        kind: candidates.configuration(int(shortlist[np.argmax(kinds == kind)])).engine for kind in {*kinds.tolist()}
    }
    # What has no memory ends its run, and the next one has to start; what is compiled first takes longer. The time for
    # that counts. What is weighed is what a trial is expected to bring: an upper bound would have everything tried that
    # is like the best.
    longer = np.array([ENGINES[engines[kind]].runs_take / own.runs_take for kind in kinds.tolist()])
    times = longer * (1 + (1 - knowledge.model.fits()[shortlist]) * start / (start + 1))
    if acquisition.best is not None and (worth / times).max() <= own.least_gain:
        return Proposal((), acquisition.stop_reason(_reach(acquisition, shortlist)))
    gains, allowed, fits = acquisition.drawn(shortlist, _DRAWN, np.random.default_rng(seed))
    gains = gains * allowed * (worth > 0) / longer
    runs = [
        _run(gains, fits, np.flatnonzero(kinds == kind), most if knowledge.space.shares_runs(engine) else 1, start)
        for kind, engine in sorted(engines.items())
    ]
    # Where no draw shows a gain, the best by expectation.
    chosen = max(runs, key=lambda run: run[0])[1] or [int(np.argmax(worth / times))]
    configurations = [candidates.configuration(int(shortlist[number])) for number in chosen]
    return Proposal(knowledge.model.in_order(configurations))


def _why_nothing(acquisition: Acquisition, among: npt.NDArray[np.bool_]) -> str:
    """Return why none is tried: none is left that should fit, or none should be better."""
    left = np.flatnonzero(among & acquisition.likely_allowed())
    if acquisition.best is None or not len(left):
        return acquisition.exhausted_reason()
    return acquisition.stop_reason(_reach(acquisition, left))


def _reach(acquisition: Acquisition, indices: Indices) -> float:
    """Return the gain that one of these candidates may have at the most, as a difference of logarithms."""
    gain, sd = acquisition.gains()
    reach = np.where(acquisition.allowed() >= _LIKELY_ALLOWED, gain + _LIKELY * sd, -np.inf)
    return float(reach[indices].max(initial=-np.inf))


def _worth(acquisition: Acquisition, among: npt.NDArray[np.bool_]) -> Array:
    """Return the expected gains, 0 where a candidate is not ``among`` those asked for or not likely allowed, (n,)."""
    return np.where(among & acquisition.likely_allowed(), acquisition.expected_gains(), 0.0)


def _shortlist(knowledge: Knowledge, acquisition: Acquisition, among: npt.NDArray[np.bool_]) -> Indices:
    """Return the candidates of each kind of run that are expected to bring most."""
    kinds, worth = knowledge.context.candidates.kinds, _worth(acquisition, among)
    chosen = []
    for kind in np.unique(kinds):
        there = np.flatnonzero((kinds == kind) & (worth > 0))
        chosen.append(there[np.argsort(-worth[there], kind="stable")[:_SHORTLIST]])
    indices = np.concatenate(chosen) if chosen else np.zeros(0, dtype=np.intp)
    return indices[np.argsort(-worth[indices], kind="stable")[:_CLOSE_LOOKS]]


def _run(
    gains: Array, fits: npt.NDArray[np.bool_], members: Indices, most: int, start: float
) -> tuple[float, list[int]]:
    """Choose greedily the trials of one kind that are worth most per trial's time; return their worth and places.

    ``gains`` and ``fits`` are (draws, candidates). A trial that does not fit ends its run, and the next one has to
    start, which takes ``start`` trials.
    """
    best, ends, gain, worth = np.zeros(len(gains)), np.zeros(len(gains), dtype=bool), 0.0, 0.0
    chosen: list[int] = []
    for _ in range(min(most, _MOST_IN_RUN, len(members))):
        together = np.maximum(gains[:, members], best[:, None]).mean(axis=0)
        times = start * (1 + (ends[:, None] | ~fits[:, members]).mean(axis=0)) + len(chosen) + 1
        place = int(np.argmax(together / times))
        added = float(together[place]) - gain
        if added <= 0 or (chosen and added < _WORTH_JOINING * together[place] / times[place]):
            break
        gain, worth = float(together[place]), float(together[place] / times[place])
        chosen.append(int(members[place]))
        best, ends = np.maximum(best, gains[:, chosen[-1]]), ends | ~fits[:, chosen[-1]]
    return worth, chosen
