"""Configurations as numbers: what the cost model explains memory and step time by, one row for each configuration."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ...records.choices import choices_of
from ...records.configuration import Configuration
from ...records.engines import ENGINES, PLAIN_ENGINES, SWITCHING_ENGINES
from ...records.facts import ClusterFacts, Facts
from ...records.plan import COMPROMISED
from ..space import BATCH_SIZE, LEVEL, Space
from .prior_values import PlanTable

Array = npt.NDArray[np.float64]
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Features:
    """The features of n configurations and k kinds of recompute; each (n,) unless it says otherwise.

    What lies in layers that are recomputed anyway frees and costs nothing more; all of a cluster is taken to lie there.

    Attributes:
        scale: The batch size in units of the script's own.
        octaves: Its logarithm to the base of two.
        planned: 1 where an engine runs the model, 0 where it is left as it is.
        compiled: 1 where a choice has another engine compile the model.
        chosen: (n, c), for each value of each choice but the engine's own, the choice's doubt where it is made so.
        saved_bytes: (n, k), the bytes that each kind frees by itself.
        freed_bytes: The bytes that all kinds free together, considering overlap and room.
        overlap_bytes: How far what they free may overlap.
        room_bytes: The bytes that recomputing may need.
        recompute_s: (n, k), seconds in a step, by the plan table.
        simulated_bytes: The peak by simulation; no number where there is none.
    """

    scale: Array
    octaves: Array
    planned: Array
    compiled: Array
    chosen: Array
    saved_bytes: Array
    freed_bytes: Array
    overlap_bytes: Array
    room_bytes: Array
    recompute_s: Array
    simulated_bytes: Array

    def __len__(self) -> int:
        return len(self.scale)

    def __getitem__(self, index: npt.NDArray[np.intp] | slice) -> Features:
        return Features(**{field.name: getattr(self, field.name)[index] for field in fields(self)})


def kept(compute: Callable[[Any, Features], _Result]) -> Callable[[Any, Features], _Result]:
    """Keep a method's result for features in its owner's ``_kept``; neither features nor results may change."""

    @functools.wraps(compute)
    def again(owner: Any, features: Features) -> _Result:
        key = compute, id(features)
        if key not in owner._kept:
            # With the features, so that no others get their id.
            owner._kept[key] = features, compute(owner, features)
        result: _Result = owner._kept[key][1]
        return result

    return again


@dataclass(frozen=True)
class _Kind:
    """A way to recompute: all of a plan table's row, or what a level adds."""

    saving_share: float
    recompute_s: float
    is_layer: bool
    frequency: int


class Featuring:
    """Makes features of a space's configurations.

    Attributes:
        stashed_bytes: Saved activations at the script's own batch size, by the engine or by the plan table; one byte
            where nothing is known of them.
        knows_stashed: Whether something is known of them.
    """

    def __init__(self, space: Space, facts: Facts, step_time_s: float) -> None:
        self._space = space
        self.stashed_bytes = _stashed_bytes(facts)
        differ = facts.ahead is not None and facts.ahead.has_larger
        # Of the batches of an epoch, the largest first; none where all are alike.
        self._elements = np.sort(facts.ahead.elements)[::-1] if facts.ahead is not None and differ else np.zeros(0)
        self.knows_stashed = self.stashed_bytes > 1
        kinds = [self._kind(row, step_time_s) for row in space.clusters]
        self._has_layers = any(kind.is_layer for kind in kinds)
        if LEVEL in space.parameters:
            share, compromised_s = PlanTable.COMPROMISED_SAVING, PlanTable.COMPROMISED_COST * step_time_s
            if rows := [row for row in facts.clusters if row.strategy == COMPROMISED]:
                share = min(sum(row.saving_bytes for row in rows) / self.stashed_bytes, 1.0)
                compromised_s = sum(self._kind(row, step_time_s).recompute_s for row in rows)
            layerwise_s = PlanTable.LAYERWISE_COST * step_time_s
            # As often as whatever is there most often.
            frequency = max((row.frequency for row in facts.clusters), default=1)
            kinds.append(_Kind(PlanTable.LAYERWISE_SAVING, layerwise_s, is_layer=True, frequency=frequency))
            kinds.append(_Kind(share, compromised_s, is_layer=False, frequency=frequency))
        self._saving_share = np.array([kind.saving_share for kind in kinds])
        self._recompute_s = np.array([kind.recompute_s for kind in kinds])
        self._frequencies = np.array([kind.frequency for kind in kinds], dtype=float)
        self._is_layer = np.array([kind.is_layer for kind in kinds], dtype=bool)
        # What a level compromises on top of its layers lies in none of them.
        self._is_apart = self._is_layer.copy()
        self._is_apart[len(space.counts) :] = True

    def of(self, configurations: Sequence[Configuration]) -> Features:
        """Return features of configurations that have a point in the space; sizes and counts need not be its own."""
        names = list(self._space.parameters)
        values = np.zeros((len(configurations), len(names)), dtype=np.int64)
        for row, configuration in enumerate(configurations):
            point = self._space.point(configuration)
            assert point is not None, f"{configuration} is not in the space"
            values[row] = [point[name] for name in names]
        planned = [one.engine not in PLAIN_ENGINES for one in configurations]
        return self.of_values(values, np.array(planned, dtype=float))

    def of_values(self, values: npt.NDArray[np.int64], planned: Array | None = None) -> Features:
        """Return features of values (n, parameters), in the order of the space's parameters."""
        names = list(self._space.parameters)
        frequencies = [self._space.rows[name].frequency for name in self._space.counts]
        columns = [names.index(name) for name in self._space.counts]
        # Which share of each kind is recomputed, (n, k).
        shares = values[:, columns] / np.array(frequencies, dtype=float)
        levels = values[:, names.index(LEVEL)] if LEVEL in names else np.zeros(len(values), dtype=np.int64)
        compiled = (values[:, [names.index(name) for name in self._space.other_engines]] > 0).any(axis=1)
        if self._space.plain_engine not in PLAIN_ENGINES and planned is None:
            planned = np.ones(len(values))
        if planned is None:
            planned = ((shares > 0).any(axis=1) | (levels > 0) | compiled).astype(float)
        if LEVEL in names:
            layerwise = (levels >= 1).astype(float)[:, None]
            rows = self._is_layer[: len(columns)]
            shares[:, rows] = np.maximum(shares[:, rows], layerwise)
            # A level stands for the layers that the table has; where it has none, for some.
            shares = np.hstack([shares, layerwise * (not self._has_layers), (levels >= 2).astype(float)[:, None]])
        scale = np.ones(len(values))
        if BATCH_SIZE in names:
            scale = values[:, names.index(BATCH_SIZE)] / (self._space.own_batch_size or 1)
        apart = self._is_apart
        covered = self._covered(shares[:, self._is_layer])
        inside = np.where(apart, 0.0, shares * covered[:, None])
        shares = shares - inside
        # Of all that is stashed: what each kind frees by itself, (n, k), and all of them together, (n,), at least, as
        # independent parts of one whole do (1 less the product of what each leaves), and at most, if none overlap.
        alone = shares * self._saving_share
        of_layers = 1 - (1 - alone[:, apart]).prod(axis=1)
        outside = np.where(covered < 1, 1 - covered, 1.0)[:, None]
        kept = (1 - alone[:, ~apart] / outside).prod(axis=1)
        least = 1 - (1 - of_layers) * (1 - (1 - covered) * (1 - kept))
        most = np.minimum(of_layers + alone[:, ~apart].sum(axis=1), 1.0)
        overlap = np.maximum(most - least, 0.0)
        last = (shares + inside >= 1) & (shares > 0)
        # Spread evenly, the last of n lies n/(n + 1) of the way to the end.
        room = (last * self._saving_share / (self._frequencies + 1)).sum(axis=1)
        stashed = self.stashed_bytes * scale
        freed = np.maximum(least + (1 - PlanTable.OVERLAP) * overlap - PlanTable.ROOM * room, 0.0)
        recompute_s = self._recompute_s * np.where(compiled, PlanTable.FUSED, 1.0)[:, None]
        return Features(
            scale=scale,
            octaves=np.log2(scale),
            planned=planned,
            compiled=compiled.astype(float),
            chosen=self._chosen(values, names),
            saved_bytes=alone * stashed[:, None],
            freed_bytes=freed * stashed,
            overlap_bytes=overlap * stashed,
            room_bytes=room * stashed,
            recompute_s=shares * recompute_s * (scale * self._of_largest(freed))[:, None],
            simulated_bytes=np.full(len(values), np.nan),
        )

    def _of_largest(self, freed: Array) -> Array:
        """Return how much a step of the epoch recomputes on average, as a share of a step with the largest batch, (n,).

        The plan table is of the largest batch. Under an engine that switches plans, a batch that saves less than the
        largest has left recomputes nothing; ``freed`` is the share that plans free.
        """
        if not len(self._elements):
            return np.ones(len(freed))
        sums = np.concatenate([[0], np.cumsum(self._elements)]) / (self._elements[0] * len(self._elements))
        if self._space.engine not in SWITCHING_ENGINES:
            return np.full(len(freed), sums[-1])
        number = np.searchsorted(-self._elements, -(1 - freed) * self._elements[0], side="left")
        return np.asarray(sums[number])

    def _kind(self, row: ClusterFacts, step_time_s: float) -> _Kind:
        share = min(row.saving_bytes / self.stashed_bytes, 1.0)
        recompute_s = row.recompute_time_s * (PlanTable.FUSED if ENGINES[self._space.engine].fuses else 1.0)
        # An engine that does not tell what its plans cost gives no time; nothing that is recomputed takes none.
        cost, saving = PlanTable.LAYERWISE_COST, PlanTable.LAYERWISE_SAVING
        return _Kind(share, recompute_s or share * cost / saving * step_time_s, row.is_layer, row.frequency)

    def _chosen(self, values: npt.NDArray[np.int64], names: list[str]) -> Array:
        plain, choices = self._space.plain_point, self._space.choices
        known_choices = choices_of(self._space.engine)
        columns = [
            known_choices[name].doubt * (values[:, names.index(name)] == value)
            for name, tried in choices.items()
            for value in tried
            if value != plain[name]
        ]
        return np.array(columns, dtype=float).reshape(len(columns), len(values)).T

    def _covered(self, shares: Array) -> Array:
        """Return the share of the other clusters that lies in recomputed layers, (n,).

        Two kinds of layers that together hold no more than there is stand side by side, as encoder and decoder do, and
        each covers its part. Others are taken to lie within each other.
        """
        saving = self._saving_share[self._is_layer]
        if 0 < saving.sum() <= PlanTable.MOST_SIDE_BY_SIDE:
            return np.asarray(shares @ (saving / saving.sum()))
        return np.asarray(shares.max(axis=1, initial=0.0))


def _stashed_bytes(facts: Facts) -> float:
    if facts.split is not None and facts.split.activations:
        return float(facts.split.activations)
    layers = max((row.saving_bytes for row in facts.clusters if row.is_layer), default=0)
    return float(max(layers, sum(row.saving_bytes for row in facts.clusters if not row.is_layer), 1))
