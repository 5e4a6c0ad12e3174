"""Writes the synthetic landscapes beside it: ``python tests/benchmarks/landscapes/synthetic.py [FOLDER]``.

Each is a formula of a model on a GPU, worked out occurrence by occurrence. It does not share its form with the search's
cost model: savings overlap in pairs, recomputing needs room of its own, an allocator rounds and fragments, speed
saturates more or less sharply, kernels change at some batch size, and the plan table's times are off.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT))

from autotune.predict.prediction import Predictor  # noqa: E402
from autotune.records.codec import loads  # noqa: E402
from autotune.records.configuration import Configuration  # noqa: E402
from autotune.records.environment import Environment  # noqa: E402
from autotune.records.facts import BatchControl, ClusterFacts, Facts  # noqa: E402
from autotune.records.measurement import MemorySplit  # noqa: E402
from autotune.records.plan import ALL, Plan  # noqa: E402
from autotune.records.study import StudySpec  # noqa: E402
from autotune.search.space import build_space  # noqa: E402
from tests.benchmarks.landscapes.table import SCHEMA, Baseline, Cost, Entry, Landscape, save  # noqa: E402

MIB = 1 << 20
DEVICE = Environment("cuda", "a formula", 80 << 30, 1, 1, "here", "Linux", "3.11.0", "2.13.0", cuda="12.8")
_ROUNDED_TO = 2 * MIB


@dataclass(frozen=True)
class Part:
    """A cluster: what each occurrence stashes for a sample, and its recompute as a share of a sample's whole time."""

    name: str
    frequency: int
    stash_bytes: float
    cost: float
    counts: tuple[int, ...] = ()

    @property
    def tried(self) -> tuple[int, ...]:
        """The counts in the table."""
        return self.counts or (0, self.frequency)


@dataclass(frozen=True)
class Formula:
    """A model, a machine and a limit.

    ``layer`` recomputed frees all that its share of the parts stash, and more. Step time = ``optimizer_s`` + the
    ``sharpness``-norm of ``launch_s`` and what the samples take: 1 adds them up, more makes the one hide the other.
    ``overlap`` is the share of a saving that two clusters have in common. ``waves``: a batch is rounded up to multiples
    of it, half of the rest being wasted. From ``cliff_at`` on, another kernel is ``cliff`` times as slow.
    """

    name: str
    own: int
    sizes: tuple[int, ...]
    limit_bytes: int
    fixed_bytes: int
    kept_bytes: float
    parts: tuple[Part, ...]
    layer: Part | None = None
    per_sample_s: float = 0.001
    launch_s: float = 0.02
    optimizer_s: float = 0.004
    sharpness: float = 2.0
    overlap: float = 0.15
    waves: int = 1
    odd: float = 1.0
    cliff_at: int = 1 << 30
    cliff: float = 1.0
    fragmentation: float = 0.015
    table_error: float = 0.15
    noise_cv: float = 0.005
    levels: tuple[int, ...] = (0,)
    cost: Cost = field(default_factory=lambda: Cost(25.0, 5.0))

    @property
    def clusters(self) -> tuple[Part, ...]:
        """Layer and parts."""
        return (() if self.layer is None else (self.layer,)) + self.parts

    def landscape(self) -> Landscape:
        """Work out every line."""
        table = tuple(self._entries())
        return Landscape(
            schema=SCHEMA,
            name=self.name,
            memory_limit_bytes=self.limit_bytes,
            noise_cv=self.noise_cv,
            facts=self._facts(),
            cost=self.cost,
            baseline=Baseline(self.own),
            table=table,
        )

    def peak_bytes(self, batch_size: int, counts: Mapping[str, int]) -> int:
        """What a step holds at most, as the allocator has it reserved."""
        layers = 0 if self.layer is None else counts.get(self.layer.name, 0)
        left = {part.name: self._uncovered(part, counts.get(part.name, 0), layers) for part in self.parts}
        stashed = self.kept_bytes + sum(part.frequency * part.stash_bytes for part in self.parts)
        saved = sum(left[part.name] * part.stash_bytes for part in self.parts)
        saved -= self.overlap * sum(
            min(left[one.name], left[other.name]) * min(one.stash_bytes, other.stash_bytes)
            for one, other in itertools.combinations(self.parts, 2)
        )
        own_room = max((part.stash_bytes for part in self.parts if left[part.name]), default=0.0)
        if self.layer is not None:
            whole = sum(part.stash_bytes * part.frequency for part in self.parts) / self.layer.frequency
            stashed += self.layer.frequency * self.layer.stash_bytes
            saved += layers * (self.layer.stash_bytes + whole)
            own_room = max(own_room, (self.layer.stash_bytes + whole) if layers else 0.0)
        peak = self.fixed_bytes + batch_size * (stashed - saved + own_room)
        # What lies in recomputed layers changes nothing, so it does not scatter either.
        scatter = random.Random(f"{self.name} {batch_size} {layers} {sorted(left.items())}").random()
        peak *= 1 + self.fragmentation * (0.5 + scatter)
        return math.ceil(peak / _ROUNDED_TO) * _ROUNDED_TO

    def samples_per_s(self, batch_size: int, counts: Mapping[str, int]) -> float:
        """The true speed."""
        layers = 0 if self.layer is None else counts.get(self.layer.name, 0)
        recompute = 0.0 if self.layer is None else layers * self.layer.cost
        recompute += sum(self._uncovered(part, counts.get(part.name, 0), layers) * part.cost for part in self.parts)
        wasted = (math.ceil(batch_size / self.waves) * self.waves - batch_size) / 2
        busy = self.per_sample_s * (batch_size + wasted) * (1 + recompute)
        busy *= self.cliff if batch_size >= self.cliff_at else 1.0
        busy *= self.odd if batch_size % 8 else 1.0
        step_s = self.optimizer_s + (self.launch_s**self.sharpness + busy**self.sharpness) ** (1 / self.sharpness)
        return batch_size / step_s

    def _uncovered(self, part: Part, count: int, layers: int) -> float:
        """Occurrences recomputed that are in no recomputed layer; both go by the first ones."""
        covered = 0.0 if self.layer is None else layers * part.frequency / self.layer.frequency
        return max(0.0, count - covered)

    def _entries(self) -> Iterator[Entry]:
        # A level stands for all layers, and here has no plans of its own beside it.
        for batch_size, level in itertools.product(self.sizes, self.levels):
            chosen = self.clusters if level == 0 else ()
            for values in itertools.product(*(part.tried for part in chosen)):
                counts = {part.name: value for part, value in zip(chosen, values, strict=True) if value}
                plans = tuple(
                    sorted(
                        str(Plan(part.name, 1, ALL if counts[part.name] == part.frequency else counts[part.name]))
                        for part in chosen
                        if part.name in counts
                    )
                )
                true = counts
                if level and self.layer is not None:
                    true = {self.layer.name: self.layer.frequency}
                    if level > 1:
                        true |= {part.name: part.frequency for part in self.parts[:1]}
                peak = self.peak_bytes(batch_size, true)
                # Discovery measures the baseline without a limit.
                if peak > self.limit_bytes and (batch_size != self.own or plans or level):
                    yield Entry(batch_size, plans, level, "out_of_memory")
                else:
                    rate = float(f"{self.samples_per_s(batch_size, true):.6g}")
                    yield Entry(batch_size, plans, level, "measured", rate, peak)

    def _facts(self) -> Facts:
        chance = random.Random(f"facts of {self.name}")
        rows = []
        for part in self.clusters:
            is_layer = part is self.layer
            stash = part.stash_bytes
            if is_layer:
                stash += sum(one.stash_bytes * one.frequency for one in self.parts) / part.frequency
            rows.append(
                ClusterFacts(
                    cluster_id=part.name,
                    strategy=1,
                    frequency=part.frequency,
                    saving_bytes=int(stash * part.frequency * self.own),
                    saving_formula=f"{int(stash * part.frequency)}*batch",
                    recompute_time_s=part.cost
                    * part.frequency
                    * self.per_sample_s
                    * self.own
                    * math.exp(chance.gauss(0.0, self.table_error)),
                    is_layer=is_layer,
                )
            )
        activations = self.kept_bytes + sum(part.frequency * part.stash_bytes for part in self.clusters)
        quarter = self.fixed_bytes // 5
        return Facts(
            baseline=Configuration(batch_size=self.own),
            batch_size=self.own,
            batch_control=BatchControl("loaders" if len(self.sizes) > 1 else "none"),
            clusters=tuple(rows),
            dimensions={"batch": self.own},
            split=MemorySplit(quarter, quarter, 2 * quarter, 0, int(activations * self.own)),
            roots=(),
            optimizers=(),
            precision=None,
            environment=DEVICE,
            calls_per_step=1.0,
            script_sha256="0" * 64,
        )


def transformer(
    name: str, *, own: int, sizes: tuple[int, ...], fits: float, layers: int = 12, mib: float = 2.0, **more: object
) -> Formula:
    """A stack of blocks; ``mib`` is what a layer stashes for a sample, ``fits`` the batch that fits without plans."""
    parts = (
        Part("gelu+", layers, 0.20 * mib * MIB, 0.006 / layers),
        Part("_softmax+", layers, 0.26 * mib * MIB, 0.018 / layers),
        Part("native_layer_norm+", 2 * layers, 0.06 * mib * MIB, 0.010 / 2 / layers),
        Part("native_dropout+", 3 * layers, 0.03 * mib * MIB, 0.012 / 3 / layers),
    )
    quarters = tuple(round(layers * quarter / 4) for quarter in range(5))
    layer = Part("Block+", layers, 0.27 * mib * MIB, 0.29 / layers, quarters)
    formula = Formula(name, own, sizes, 0, int(900 * MIB), 1.2 * mib * MIB, parts, layer)
    return limited(replace(formula, **more), fits)  # type: ignore[arg-type]


def convolutional(name: str, *, own: int, sizes: tuple[int, ...], fits: float, **more: object) -> Formula:
    """No layers to recompute; a few clusters of very different use."""
    parts = (
        Part("relu+", 17, 0.30 * MIB, 0.010 / 17, (0, 8, 17)),
        Part("native_batch_norm+", 20, 0.30 * MIB, 0.055 / 20, (0, 10, 20)),
        Part("max_pool2d+", 1, 1.5 * MIB, 0.004),
        Part("convolution+native_batch_norm+", 20, 0.25 * MIB, 0.30 / 20, (0, 10, 20)),
        Part("add+", 8, 0.25 * MIB, 0.009 / 8),
    )
    formula = Formula(name, own, sizes, 0, int(600 * MIB), 6.0 * MIB, parts)
    return limited(replace(formula, **more), fits)  # type: ignore[arg-type]


def vocabulary(name: str, *, own: int, sizes: tuple[int, ...], fits: float, **more: object) -> Formula:
    """A small model under a large vocabulary: one cluster, cheap to recompute, holds most of what is stashed."""
    parts = (
        Part("_log_softmax+", 1, 24 * MIB, 0.015),
        Part("_to_copy+", 3, 4 * MIB, 0.008),
        Part("silu+mul+", 8, 0.9 * MIB, 0.012),
        Part("native_layer_norm+", 17, 0.2 * MIB, 0.012),
        Part("cat+", 8, 0.3 * MIB, 0.005),
    )
    layer = Part("DecoderLayer+", 8, 0.9 * MIB, 0.16 / 8, (0, 2, 4, 6, 8))
    formula = Formula(name, own, sizes, 0, int(2400 * MIB), 5 * MIB, parts, layer)
    return limited(replace(formula, **more), fits)  # type: ignore[arg-type]


def halved(formula: Formula) -> Formula:
    """The same with half of each cluster's occurrences to try as well."""
    parts = tuple(replace(part, counts=(0, part.frequency // 2, part.frequency)) for part in formula.parts)
    return replace(formula, parts=parts)


def limited(formula: Formula, fits: float) -> Formula:
    """Put the limit where a batch of this size just fits without plans."""
    low, high = math.floor(fits), math.ceil(fits)
    peaks = [formula.peak_bytes(size, {}) for size in (low, high)]
    return replace(formula, limit_bytes=int(peaks[0] + (fits - low) * (peaks[1] - peaks[0])) + MIB)


def around(own: int, *, down: int = 1, up: int = 4) -> tuple[int, ...]:
    """Batch sizes as the search would try them: doublings, and the steps of 1.5 between them."""
    sizes = {int(own * 2.0**octave * factor) for octave in range(-down, up) for factor in (1.0, 1.5)}
    return tuple(sorted({size for size in sizes if size >= max(1, own * 2.0**-down)} | {own * 2**up}))


def formulas() -> list[Formula]:
    """All of them: the names say what is hard about each."""
    big = around(16)
    return [
        transformer("launch-bound", own=16, sizes=big, fits=52, launch_s=0.045),
        transformer("saturates-softly", own=8, sizes=around(8), fits=30, launch_s=0.012, sharpness=1.0),
        transformer("saturates-sharply", own=16, sizes=big, fits=40, launch_s=0.05, sharpness=6.0),
        transformer("saturated-already", own=32, sizes=around(32), fits=200, launch_s=0.004, optimizer_s=0.0005),
        transformer("no-recompute-pays", own=16, sizes=big, fits=110, launch_s=0.012, optimizer_s=0.001),
        convolutional(
            "convolutions-compute-bound", own=32, sizes=around(32), fits=300, launch_s=0.006, optimizer_s=0.0
        ),
        transformer("only-recompute-fits", own=16, sizes=big, fits=11, launch_s=0.02, optimizer_s=0.02),
        transformer("only-layers-fit", own=8, sizes=around(8, up=3), fits=2.6, launch_s=0.01, optimizer_s=0.02),
        convolutional("only-recompute-fits-convolutions", own=64, sizes=around(64, down=2, up=2), fits=40),
        transformer("batch-fixed-over-the-limit", own=24, sizes=(24,), fits=15, cost=Cost(30.0, 4.0)),
        transformer("batch-fixed-and-fits", own=24, sizes=(24,), fits=60, cost=Cost(30.0, 4.0)),
        transformer("kernel-cliff", own=16, sizes=big, fits=60, launch_s=0.03, cliff_at=64, cliff=1.12),
        transformer("kernel-gain", own=16, sizes=big, fits=50, launch_s=0.03, cliff_at=96, cliff=0.88),
        transformer("waves", own=12, sizes=around(12), fits=44, launch_s=0.02, waves=16, odd=1.04),
        vocabulary("large-vocabulary", own=8, sizes=around(8), fits=22, launch_s=0.03, optimizer_s=0.012),
        vocabulary("optimizer-bound", own=4, sizes=around(4, down=1, up=5), fits=9, optimizer_s=0.03, launch_s=0.006),
        transformer("noisy", own=16, sizes=big, fits=52, launch_s=0.03, noise_cv=0.027),
        transformer("table-is-wrong", own=16, sizes=big, fits=48, launch_s=0.03, table_error=0.6, overlap=0.35),
        transformer("fragmented", own=16, sizes=big, fits=48, launch_s=0.03, fragmentation=0.05, noise_cv=0.01),
        transformer(
            "levels", own=16, sizes=big, fits=40, launch_s=0.03, levels=(0, 1, 2), noise_cv=0.01, cost=Cost(40.0, 6.0)
        ),
        convolutional("convolutions-launch-bound", own=32, sizes=around(32), fits=120, launch_s=0.06, noise_cv=0.01),
        halved(transformer("many-plans", own=16, sizes=(8, 16, 32, 64, 96, 128, 192), fits=45, launch_s=0.025)),
        transformer("deep", own=4, sizes=around(4), fits=10, layers=48, mib=6.0, launch_s=0.02, per_sample_s=0.012),
    ]


@dataclass(frozen=True)
class OnGpu:
    """A script that was discovered, as it might run on a GPU: its own graph, the memory and the speed of a formula.

    A process holds ``offset_bytes`` besides the graph, and an allocator reserves ``slope`` times what is asked of it,
    scattered. A step launches for ``launch_s`` and computes for ``busy_s`` at the script's own batch size; what is
    recomputed takes as large a part of that as of all nodes' times in discovery, give or take. ``fits`` is the share of
    the table that is under the limit.
    """

    name: str
    discovered: str
    offset_bytes: int
    slope: float
    launch_s: float
    busy_s: float
    fits: float
    up: int = 4

    def landscape(self) -> Landscape:
        """Work out every line."""
        facts: Facts = loads(Facts, (HERE / "facts" / f"{self.discovered}.json").read_text())
        predictor, own = Predictor(facts), facts.batch_size or 1
        whole_s = sum(graph.calls * sum(graph.times_ns) for graph in facts.graphs) / 1e9
        # Discovery on that GPU would have found its times.
        faster = self.busy_s / whole_s
        clusters = [replace(row, recompute_time_s=row.recompute_time_s * faster) for row in facts.clusters]
        space = build_space(facts, StudySpec(script="train.py"))
        kept = [row for row in space.clusters if row.is_layer][:1]
        kept += [row for row in space.clusters if not row.is_layer][:4]
        counts = [
            tuple(sorted({0, row.frequency // 2, row.frequency})) if row.is_layer else (0, row.frequency)
            for row in kept
        ]
        rows = []
        for batch_size, *values in itertools.product(around(own, up=self.up), *counts):
            plans = tuple(
                sorted(
                    Plan(row.cluster_id, row.strategy, ALL if count == row.frequency else count)
                    for row, count in zip(kept, values, strict=True)
                    if count
                )
            )
            configuration = Configuration("aot", plans, 0, batch_size)
            found = predictor.predict(configuration)
            num_recomputed = sum(len(one.recomputed) for one in predictor.kept(configuration))
            scatter = random.Random(f"{self.name} {batch_size} {found.saved_bytes}").gauss(0.0, 0.01)
            peak = self.offset_bytes + self.slope * found.peak_bytes * (1 + scatter)
            share = found.recompute_time_s / whole_s
            share *= math.exp(random.Random(f"{self.name} {num_recomputed}").gauss(0.0, 0.1))
            busy_s = self.busy_s * batch_size / own * (1 + share)
            rate = float(f"{batch_size / math.hypot(self.launch_s, busy_s):.6g}")
            rows.append((batch_size, tuple(map(str, plans)), math.ceil(peak / _ROUNDED_TO) * _ROUNDED_TO, rate))
        peaks = sorted(peak for _, _, peak, _ in rows)
        limit = peaks[int(self.fits * len(peaks))]
        table = tuple(
            Entry(size, plans, 0, "measured", rate, peak)
            if peak <= limit or (size == own and not plans)
            else Entry(size, plans, 0, "out_of_memory")
            for size, plans, peak, rate in rows
        )
        # Found on a CPU, where peaks are those of the resident set.
        there = replace(
            facts, clusters=tuple(clusters), environment=replace(facts.environment, device_kind=DEVICE.device_kind)
        )
        return Landscape(SCHEMA, self.name, limit, 0.005, there, Cost(25.0, 5.0), Baseline(own), table)


def on_gpus() -> list[OnGpu]:
    """Discovered scripts on imagined GPUs."""
    return [
        OnGpu("graph-charlm", "charlm", 600 * MIB, 1.06, 0.02, 0.012, 0.6),
        OnGpu("graph-charlm-over-the-limit", "charlm", 400 * MIB, 1.03, 0.008, 0.012, 0.12, up=3),
        OnGpu("graph-bert", "bert", 100 * MIB, 1.1, 0.03, 0.01, 0.7),
    ]


def main() -> None:
    """Write them."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for formula in formulas():
        save(formula.landscape(), folder)
    for imagined in on_gpus():
        save(imagined.landscape(), folder)


if __name__ == "__main__":
    main()
