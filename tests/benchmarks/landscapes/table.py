"""A landscape: every configuration of a space with what comes of it, as one JSON file.

``{"schema": 1, "name", "memory_limit_bytes", "noise_cv", "facts", "cost", "baseline", "table"}``. ``facts`` are what
discovery found (with the activation graph or without), ``cost`` the seconds of a run's start and of each of its trials.
``engine`` is ``aot`` unless the file says another. The table is the whole space; under an engine that compiles it has
the script compiled without plans, and ``baseline`` the figures of the script itself. Speeds are true ones; who measures
gets them with noise. Peaks repeat themselves.

``fused-*`` are scripts discovered under Inductor, on imagined GPUs. A copy of Inductor's scheduler, which was within
0.2 % of measured peaks on CPU, worked out theirs before it was taken out of autotune: what is simulated there is off as
it is in real life.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from autotune.records.codec import from_json, to_json
from autotune.records.configuration import Configuration
from autotune.records.engines import SWITCHING_ENGINES, Engine
from autotune.records.facts import Facts
from autotune.records.measurement import Measurement, Peaks
from autotune.records.outcome import Measured, Outcome, OutOfMemory, ScriptError
from autotune.records.plan import ALL, parse_plans
from autotune.records.study import Objective
from autotune.search.space import BATCH_SIZE, LEVEL, Space
from autotune.verdict.aim import Aim

__all__ = ["SCHEMA", "Cost", "Entry", "Landscape", "NoiseKind", "Process", "Table", "load", "save"]

NoiseKind = Literal["even", "tails", "drift", "modes"]
"""How measured speeds scatter: ``even`` is normal, ``tails`` has outliers. With ``drift`` the machine is slower and
faster by turns over many runs; with ``modes`` one process in five is slow from its beginning to its end."""

SCHEMA = 1
# What is slower than may be by less than this is not held against a search: trials cannot tell.
_ALMOST = 0.995
_STEPS = 5
# One process in five, as was seen on GPUs whose clocks or whose host's cores differ from start to start.
_SLOW_SHARE, _SLOWER_BY = 0.2, 0.07
_DRIFT, _DRIFT_PERIOD = 0.02, 30


@dataclass(frozen=True)
class Entry:
    """What comes of one configuration; speed and peak where it was measured."""

    batch_size: int
    plans: tuple[str, ...]
    level: int
    outcome: str
    samples_per_s: float | None = None
    peak_memory_bytes: int | None = None


@dataclass(frozen=True)
class Cost:
    """Device seconds: of starting a run, and of each trial in it."""

    run_start_s: float
    trial_s: float


@dataclass(frozen=True)
class Baseline:
    """The script as it stands; with its figures, where its place in the table is that of the compiled script."""

    batch_size: int
    plans: tuple[str, ...] = ()
    level: int = 0
    samples_per_s: float | None = None
    peak_memory_bytes: int | None = None


@dataclass(frozen=True)
class Landscape:
    """The file's contents.

    ``between`` are batch sizes of the table that lie between the listed ones: a finer grid.
    """

    schema: int
    name: str
    memory_limit_bytes: int
    noise_cv: float
    facts: Facts
    cost: Cost
    baseline: Baseline
    table: tuple[Entry, ...]
    engine: Engine = "aot"
    noise_kind: NoiseKind = "even"
    between: tuple[int, ...] = ()


class Process:
    """What all measurements of one process have in common.

    Args:
        landscape: how its speeds scatter.
        chance: what draws.
        number: of the process, in the order of a study.
    """

    def __init__(self, landscape: Landscape, chance: random.Random, number: int) -> None:
        self._landscape, self._chance = landscape, chance
        kind = landscape.noise_kind
        self._shift = 0.0
        if kind == "modes" and chance.random() < _SLOW_SHARE:
            self._shift = -_SLOWER_BY
        elif kind == "drift":
            self._shift = _DRIFT * math.sin(2 * math.pi * number / _DRIFT_PERIOD)

    def seen(self, rate: float) -> float:
        """A speed as it is measured once."""
        chance, cv = self._chance, self._landscape.noise_cv
        shift = chance.gauss(0.0, cv)
        if self._landscape.noise_kind == "tails":  # Student's t with three degrees of freedom
            shift /= math.sqrt(sum(chance.gauss(0.0, 1.0) ** 2 for _ in range(3)) / 3)
        return rate * math.exp(self._shift + shift)


class Table:
    """A landscape to be searched.

    Attributes:
        space: what a search may choose from: the table's configurations and no others.
        objective: what it is to find.
        best: what the best is worth, by ``worth``; 0.0 where nothing fits.
    """

    def __init__(self, landscape: Landscape, *, switches: bool = True, objective: Objective | None = None) -> None:
        self.objective = objective or Objective()
        self.landscape = landscape
        self.name = landscape.name
        self.facts = landscape.facts
        self.limit_bytes = landscape.memory_limit_bytes
        self.space = _space(landscape, switches=switches)
        own = landscape.baseline
        self._untouched = Entry(own.batch_size, (), 0, "measured", own.samples_per_s, own.peak_memory_bytes)
        entries: dict[tuple[int, ...], Entry] = {}
        for entry in landscape.table:
            entries.setdefault(_values(self.space, entry), entry)
        self._entries = entries
        self.aim = Aim(self.objective, self.limit_bytes)
        fastest = max((self.speed(one) for one in self.space.configurations()), default=0.0)
        self._least_speed = _ALMOST * self.aim.slowest * (self.speed(self.facts.baseline) or fastest)
        self.best = max(self.worth(one) for one in (self.facts.baseline, *self.space.configurations()))

    @property
    def best_of_listed(self) -> float:
        """What the best is worth at the listed batch sizes, without those between them."""
        own, between = self.facts.baseline, self.landscape.between
        return max(self.worth(one) for one in (own, *self.configurations) if one.batch_size not in between)

    @property
    def best_without_plans(self) -> float:
        """What the best is worth where nothing is recomputed."""
        return max(self.worth(one) for one in (self.facts.baseline, *self.configurations) if not one.recomputed)

    @cached_property
    def configurations(self) -> tuple[Configuration, ...]:
        """The whole space."""
        return tuple(self.space.configurations())

    def entry(self, configuration: Configuration) -> Entry:
        """The table's line of a configuration."""
        if self.space.plain_engine != "eager" and configuration.is_untouched:
            return self._untouched
        point = self.space.point(configuration)
        assert point is not None
        return self._entries[tuple(point.values())]

    def speed(self, configuration: Configuration) -> float:
        """True samples/s; 0.0 where it fails or does not fit."""
        entry = self.entry(configuration)
        fits = entry.peak_memory_bytes is not None and entry.peak_memory_bytes <= self.limit_bytes
        return (entry.samples_per_s or 0.0) if entry.outcome == "measured" and fits else 0.0

    def worth(self, configuration: Configuration) -> float:
        """What a configuration is worth by the objective, and by true figures; 0.0 where it may not be the answer."""
        speed = self.speed(configuration)
        allowed = speed > 0 and speed >= self._least_speed
        return self.aim.merit(speed, self.entry(configuration).peak_memory_bytes) if allowed else 0.0

    def measure(self, configuration: Configuration, process: Process) -> Outcome:
        """What a trial in a process would tell, its speed with noise."""
        entry = self.entry(configuration)
        if entry.outcome == "out_of_memory":
            return OutOfMemory("out of memory", limit_bytes=self.limit_bytes)
        if entry.outcome != "measured" or not entry.samples_per_s or entry.peak_memory_bytes is None:
            return ScriptError(f"the table says {entry.outcome!r}")
        rate = process.seen(entry.samples_per_s)
        batch_size = configuration.batch_size or 1
        return Measured(
            Measurement(
                step_times_s=(batch_size / rate,) * _STEPS,
                samples_per_step=(batch_size,) * _STEPS,
                peaks=Peaks(reserved=entry.peak_memory_bytes, non_torch=0),
                warmup_steps=2,
                warmup_s=0.0,
                batch_size=batch_size,
                calls_per_step=1.0,
            )
        )

    def all_alike(self, noise_cv: float, noise_kind: NoiseKind = "even") -> Table:
        """Return this table with the baseline's speed everywhere, and with this noise: each win is an accident."""
        own = self.entry(self.facts.baseline)
        table = tuple(
            replace(entry, samples_per_s=own.samples_per_s) if entry.outcome == "measured" else entry
            for entry in self.landscape.table
        )
        landscape = replace(self.landscape, noise_cv=noise_cv, noise_kind=noise_kind, table=table)
        return Table(landscape, switches=self.space.switches)


def load(folder: Path) -> Iterator[Landscape]:
    """Read every landscape of a folder, in the order of their names."""
    for path in sorted(folder.glob("*.json")):
        landscape: Landscape = from_json(Landscape, json.loads(path.read_text()), where=path.name)
        if landscape.schema != SCHEMA:
            raise SystemExit(f"{path}: schema {landscape.schema!r}, and this reads {SCHEMA}")
        yield landscape


def save(landscape: Landscape, folder: Path) -> Path:
    """Write a landscape, one line for each configuration."""
    document = to_json(landscape)
    table = document.pop("table")
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in table)
    head = json.dumps(document, separators=(",", ":"))
    path = folder / f"{landscape.name}.json"
    path.write_text(f'{head[:-1]},"table":[\n{lines}\n]}}\n')
    return path


def _space(landscape: Landscape, *, switches: bool) -> Space:
    """The space that the table is: its values are the parameters', and its lines all that may be tried."""
    facts, table = landscape.facts, landscape.table
    counts: dict[str, set[int]] = {}
    rows = {(row.cluster_id, row.strategy): row for row in facts.clusters}
    used = {}
    for plan in (plan for entry in table for plan in parse_plans(entry.plans)):
        row = rows.get((plan.cluster_id, plan.strategy))
        if row is None or used.setdefault(plan.cluster_id, row) is not row:
            raise SystemExit(f"{landscape.name}: plan {plan} has no row of its own in the facts")
        counts.setdefault(plan.cluster_id, {0, row.frequency}).add(plan.applies_to(row.frequency))
    clusters = tuple(row for row in facts.clusters if used.get(row.cluster_id) is row)
    sizes = {entry.batch_size for entry in table}
    space = Space(
        baseline=facts.baseline,
        batch_sizes=tuple(sorted(sizes)) if len(sizes) > 1 else (),
        between=landscape.between,
        counts={row.cluster_id: tuple(sorted(counts[row.cluster_id])) for row in clusters},
        clusters=clusters,
        engine=landscape.engine,
        switches=switches and landscape.engine in SWITCHING_ENGINES,
        levels=tuple(sorted({0} | {entry.level for entry in table})),
    )
    members = frozenset(_values(space, entry) for entry in table)
    return space if len(members) == space.num_configurations else replace(space, members=members)


def _values(space: Space, entry: Entry) -> tuple[int, ...]:
    plans = {plan.cluster_id: plan for plan in parse_plans(entry.plans)}
    values = []
    for name in space.parameters:
        if name == BATCH_SIZE:
            values.append(entry.batch_size)
        elif name == LEVEL:
            values.append(entry.level)
        else:
            plan = plans.get(name)
            values.append(0 if plan is None else plan.applies_to(space.rows[name].frequency))
    return tuple(values)


def plans_of(space: Space, configuration: Configuration) -> tuple[str, ...]:
    """A configuration's plans as the file spells them."""
    assert all(plan.count == ALL or plan.count < space.rows[plan.cluster_id].frequency for plan in configuration.plans)
    return tuple(map(str, configuration.plans))
