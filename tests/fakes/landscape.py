"""A script that is a formula: a configuration gives an outcome, as a real run would, in no time.

What makes real landscapes hard is in it: savings that overlap, speed that saturates with the batch size, recompute that
costs time, a memory limit, and noise.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from autotune.records.arrivals import Arrivals
from autotune.records.configuration import Configuration
from autotune.records.environment import DeviceKind, Environment
from autotune.records.facts import BatchControl, ClusterFacts, Facts
from autotune.records.matrix import PhaseMemory
from autotune.records.measurement import Measurement, MemorySplit, Peaks
from autotune.records.outcome import Measured, Outcome, OutOfMemory

MIB = 1 << 20

ENVIRONMENT = Environment(
    device_kind="cuda",
    device_name="Formula 1",
    device_memory_bytes=1 << 40,
    num_devices=1,
    num_threads=1,
    hostname="here",
    platform="Linux",
    python="3.11.0",
    torch="2.13.0",
)


@dataclass(frozen=True)
class Cluster:
    """``share`` of the activations that recomputing all occurrences frees, at ``cost`` as a share of a step's time."""

    name: str
    frequency: int
    share: float
    cost: float
    is_layer: bool = False


CLUSTERS = (
    Cluster("Block+", 12, 0.85, 0.30, is_layer=True),
    Cluster("gelu+", 12, 0.16, 0.010),
    Cluster("_softmax+", 12, 0.22, 0.025),
    Cluster("mul+add+", 24, 0.08, 0.012),
    Cluster("native_dropout+", 3, 0.05, 0.004),
)


@dataclass(frozen=True)
class Landscape:
    """Step time = overhead + batch * (per sample + recompute); peak = fixed + batch * (activations left + workspace).

    ``ceiling_bytes`` is what a run can't pass; ``nonfinite_from`` and ``thrashing_above_bytes`` mark measurements. Of
    the peak, ``idle_share`` is in no tensor, unless the allocator's segments grow, or on a ``cpu`` the heap is another.
    There nothing of what plans free leaves the heap that keeps it.
    """

    clusters: tuple[Cluster, ...] = CLUSTERS
    own_batch_size: int = 16
    fixed_bytes: int = 800 * MIB
    activations_bytes: int = 40 * MIB
    overhead_s: float = 0.020
    per_sample_s: float = 0.001
    ceiling_bytes: int | None = 2400 * MIB
    noise_cv: float = 0.005
    how: str = "loaders"
    compiled_speedup: float = 1.5
    nonfinite_from: int | None = None
    thrashing_above_bytes: int | None = None
    idle_share: float = 0.0
    device_kind: DeviceKind = "cuda"
    heap_libraries: tuple[str, ...] = ()
    arrivals: Arrivals | None = None
    chance: random.Random = field(default_factory=lambda: random.Random(0), repr=False)

    @property
    def baseline(self) -> Configuration:
        return Configuration(batch_size=self.own_batch_size)

    @property
    def limit_bytes(self) -> int:
        return self.ceiling_bytes or ENVIRONMENT.device_memory_bytes

    @property
    def environment(self) -> Environment:
        if self.device_kind == "cuda":
            return ENVIRONMENT
        platform = "Linux-with-glibc2.36"
        return replace(ENVIRONMENT, device_kind="cpu", platform=platform, heap_libraries=self.heap_libraries)

    @property
    def _memory_matrix(self) -> tuple[PhaseMemory, ...]:
        if self.device_kind == "cuda":
            return ()
        needed = int(self.peak_bytes(self.baseline) * (1 - self.idle_share))
        return (PhaseMemory("post_backward", 1, needed, needed, needed, None, None, None),)

    @property
    def facts(self) -> Facts:
        own = self.own_batch_size
        activations = self.activations_bytes * own
        return Facts(
            baseline=self.baseline,
            batch_size=own,
            batch_control=BatchControl(self.how, arrivals=self.arrivals),
            clusters=tuple(
                ClusterFacts(
                    cluster_id=cluster.name,
                    strategy=1,
                    frequency=cluster.frequency,
                    saving_bytes=int(cluster.share * activations),
                    saving_formula=f"{int(cluster.share * self.activations_bytes)}*batch",
                    recompute_time_s=cluster.cost * self.per_sample_s * own,
                    is_layer=cluster.is_layer,
                )
                for cluster in self.clusters
            ),
            dimensions={"batch": own},
            split=MemorySplit(self.fixed_bytes // 4, self.fixed_bytes // 4, self.fixed_bytes // 2, 0, activations),
            roots=(),
            optimizers=(),
            precision=None,
            environment=self.environment,
            calls_per_step=1.0,
            memory_matrix=self._memory_matrix,
            script_sha256="0" * 64,
        )

    def peak_bytes(self, configuration: Configuration) -> int:
        left, keeps_all = 1.0, self.device_kind == "cpu" and bool(self._idle_share(configuration))
        for cluster, share in self._uncovered(configuration):
            left *= 1 - cluster.share * share * (not keeps_all)
        # What is being recomputed has to be somewhere while backward runs.
        workspace = 0.03 if configuration.plans else 0.0
        needed = self.fixed_bytes + self.activations_bytes * configuration.batch_size * (left + workspace)
        return int(needed / (1 - self._idle_share(configuration)))

    def _idle_share(self, configuration: Configuration) -> float:
        gives_back = "expandable-segments" if self.device_kind == "cuda" else "tcmalloc"
        return 0.0 if configuration.makes(gives_back) else self.idle_share

    def samples_per_s(self, configuration: Configuration) -> float:
        """The true rate, without noise."""
        batch = configuration.batch_size
        recompute = sum(cluster.cost * share for cluster, share in self._uncovered(configuration))
        speedup = self.compiled_speedup if configuration.engine == "inductor" else 1.0
        return speedup * batch / (self.overhead_s + batch * self.per_sample_s * (1 + recompute))

    def fits(self, configuration: Configuration) -> bool:
        return self.peak_bytes(configuration) <= self.limit_bytes

    def best(self, configurations: Iterable[Configuration]) -> float:
        """The highest true rate among the configurations that fit."""
        return max((self.samples_per_s(c) for c in configurations if self.fits(c)), default=0.0)

    def measure(self, configuration: Configuration) -> Outcome:
        peak, batch, on_gpu = self.peak_bytes(configuration), configuration.batch_size, self.device_kind == "cuda"
        if self.ceiling_bytes is not None and peak > self.ceiling_bytes:
            return OutOfMemory(
                "out of memory in forward",
                phase="forward",
                limit_bytes=self.ceiling_bytes,
                idle_bytes=int(self._idle_share(configuration) * self.ceiling_bytes) if on_gpu else None,
            )
        rate = self.samples_per_s(configuration) * math.exp(self.chance.gauss(0.0, self.noise_cv))
        thrashes = self.thrashing_above_bytes is not None and peak > self.thrashing_above_bytes
        outcome = measured(
            rate,
            batch,
            peak,
            nonfinite_loss=self.nonfinite_from is not None and batch >= self.nonfinite_from,
            allocator_retries=3 if thrashes else 0,
            idle_bytes=int(peak * self._idle_share(configuration)),
        )
        if on_gpu:
            return outcome
        return Measured(replace(outcome.measurement, peaks=Peaks(resident=peak)))

    def _uncovered(self, configuration: Configuration) -> list[tuple[Cluster, float]]:
        """The shares recomputed; what lies in recomputed layers changes nothing."""
        rows = {cluster.name: cluster for cluster in self.clusters}
        plans = [(rows[plan.cluster_id], plan) for plan in configuration.plans]
        shares = [(cluster, plan.applies_to(cluster.frequency) / cluster.frequency) for cluster, plan in plans]
        covered = max((share for cluster, share in shares if cluster.is_layer), default=0.0)
        return [(cluster, share if cluster.is_layer else share * (1 - covered)) for cluster, share in shares]


def measured(
    rate: float,
    batch: int,
    peak: int,
    *,
    nonfinite_loss: bool = False,
    allocator_retries: int = 0,
    idle_bytes: int = 0,
) -> Measured:
    """A measurement with this rate and this peak."""
    return Measured(
        Measurement(
            step_times_s=(batch / rate if rate else 1.0,) * 5,
            samples_per_step=(batch if rate else 0,) * 5,
            peaks=Peaks(allocated=peak - idle_bytes, reserved=peak, non_torch=0),
            warmup_steps=2,
            warmup_s=0.1,
            batch_size=batch,
            calls_per_step=1.0,
            nonfinite_loss=nonfinite_loss,
            allocator_retries=allocator_retries,
        )
    )


def random_landscape(seed: int) -> Landscape:
    """One of many: some bound by memory, some by speed, some with a cheap plan, some without any."""
    chance = random.Random(seed)
    names = itertools.islice(("gelu+", "_softmax+", "mul+add+", "native_dropout+", "relu+"), chance.randint(1, 5))
    layer = Cluster("Block+", chance.choice([4, 12, 24]), chance.uniform(0.6, 0.9), chance.uniform(0.2, 0.35), True)
    others = [
        Cluster(name, chance.choice([1, 4, 12]), chance.uniform(0.02, 0.3), chance.uniform(0.002, 0.08))
        for name in names
    ]
    own = chance.choice([4, 8, 16, 32])
    activations = chance.randint(4, 60) * MIB
    fixed = chance.randint(200, 2000) * MIB
    return Landscape(
        clusters=(layer, *others),
        own_batch_size=own,
        fixed_bytes=fixed,
        activations_bytes=activations,
        overhead_s=chance.uniform(0.0, 40.0) * 0.001,
        ceiling_bytes=int(fixed + activations * own * chance.uniform(1.1, 8.0)),
        noise_cv=0.005,
        chance=chance,
    )
