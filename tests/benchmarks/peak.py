"""Are simulated peaks true? Against peaks measured in the same process, at batch sizes other than the calibrated ones.

Each model is traced and calibrated once, as discovery does it. Then it is compiled anew for other batch sizes, and its
training step runs under many plans: the bytes handed from forward to backward must be those simulated, and the highest
point of a step's allocations, as torch's profiler counts them, must be near. ``python tests/benchmarks/peak.py --json``

With ``--engine inductor`` each set of plans is compiled anew, which takes some ten seconds, so at fewer batch sizes.
There the simulated peaks are also brought to scale by two measured ones of each model, as trials would bring them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch._dynamo
import torch.fx.experimental._config

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/benchmarks")]

from models import MODELS, Built  # noqa: E402

from autotune.predict import Simulated, Simulation  # noqa: E402
from autotune.records import ALL, ActivationGraph, Configuration, Plan, dumps, loads  # noqa: E402
from autotune.worker.allocations import Allocations  # noqa: E402
from autotune.worker.calibration import Calibrator  # noqa: E402
from autotune.worker.describe import dimension_symbols  # noqa: E402
from autotune.worker.engines.aot import AotEngine  # noqa: E402
from autotune.worker.engines.engine import PlanEngine  # noqa: E402
from autotune.worker.engines.inductor import InductorEngine  # noqa: E402
from autotune.worker.meters import MemoryWatch, release_memory  # noqa: E402

CALIBRATED = 8
OTHERS = {"aot": (5, 12, 24), "inductor": (5, 20)}
COUNT = 6
DTYPES = {"aot": ["fp32", "bf16"], "inductor": ["fp32", "bf16"]}
LARGEST_ERROR = {"aot": {"fp32": 0.01, "bf16": 0.03}, "inductor": {"fp32": 0.10, "bf16": 0.10}}
LARGEST_SCALED_ERROR = 0.03
# The first configurations of a model.
_TRIALS = 2
ENGINES: dict[str, type[PlanEngine]] = {"aot": AotEngine, "inductor": InductorEngine}
SLOWEST_S = 0.010


@dataclass(frozen=True)
class Row:
    """One configuration: what was simulated and what was measured, in bytes; the simulation's seconds."""

    model: str
    dtype: str
    batch_size: int
    configuration: str
    saved: int
    simulated_saved: int
    peak: int
    simulated_peak: int
    resident: int
    simulation_s: float
    peak_at: str

    @property
    def error(self) -> float:
        """The simulated peak against the measured one."""
        return self.simulated_peak / self.peak - 1


class Step:
    """A model's training step under an engine and plans."""

    def __init__(self, built: Built, dtype: str, engine: PlanEngine, plans: tuple[Plan, ...] = ()) -> None:
        self._built = built
        self._autocast = dtype == "bf16"
        self.engine = engine
        engine.use(Configuration(engine.name, plans))
        self._call = engine.compile_root(built.module)

    def __call__(self, inputs: tuple[torch.Tensor, ...]) -> None:
        """Forward, loss and backward, from empty gradients."""
        self.empty_gradients()
        self.engine.begin_call()
        with torch.autocast("cpu", torch.bfloat16) if self._autocast else contextlib.nullcontext():
            loss = self._built.loss(self._call, inputs)
        observer = self.engine.observer
        if isinstance(observer, Calibrator):
            observer.script_backward_begins()
        loss.backward()
        if isinstance(observer, Calibrator):
            observer.step_ended()

    def empty_gradients(self) -> None:
        """Free the gradients, so that a step's own are counted."""
        self._built.module.zero_grad(set_to_none=True)


def calibrated(built: Built, dtype: str, engine: PlanEngine) -> tuple[ActivationGraph, float]:
    """The graph as the controller gets it, and the self-check's error."""
    torch._dynamo.reset()
    engine.describe()
    step, inputs = Step(built, dtype, engine), built.inputs(CALIBRATED)
    with torch.fx.experimental._config.patch(use_duck_shape=False):
        for tensor in inputs:
            torch._dynamo.maybe_mark_dynamic(tensor, 0)
        step(inputs)
    symbols = dimension_symbols(step.engine.graphs, {(CALIBRATED, 0): "batch"})
    step.engine.observer = calibrator = Calibrator(symbols[0])
    step(inputs)
    if calibrator.reason:
        raise SystemExit(calibrator.reason)
    (graph,) = calibrator.graphs.values()
    assert calibrator.error is not None
    return loads(ActivationGraph, dumps(graph)), calibrator.error


def configurations(graph: ActivationGraph, count: int, draw: random.Random) -> Iterator[tuple[Plan, ...]]:
    """No plans, all layers, each layer stack to its half, everything, and random sets with random counts."""
    layers: dict[str, int] = {}
    for layer in graph.layers:
        layers[layer.cluster_id] = layers.get(layer.cluster_id, 0) + 1
    clusters: dict[str, int] = {}
    for occurrence in graph.occurrences:
        clusters.setdefault(occurrence.cluster_id, occurrence.strategy)
    everything = tuple(Plan(cluster_id, strategy, ALL) for cluster_id, strategy in clusters.items())
    yield ()
    yield tuple(Plan(cluster_id, 1, ALL) for cluster_id in layers)
    yield tuple(Plan(cluster_id, 1, number // 2) for cluster_id, number in layers.items())
    yield everything
    known = [*everything, *(Plan(cluster_id, 1, ALL) for cluster_id in layers)]
    for _ in range(count - 4):
        chosen = draw.sample(known, draw.randint(1, max(1, len(known) // 2)))
        yield tuple(replace(plan, count=draw.choice((ALL, 1, 2, 3))) for plan in chosen)


def measured(step: Step, inputs: tuple[torch.Tensor, ...]) -> tuple[int, int, int]:
    """Saved bytes, the peak of a step's allocations, and how far the resident set rose in it."""
    step(inputs)  # what is allocated once
    step.empty_gradients()
    with Allocations() as allocations:
        allocations.mark()
        step(inputs)
        allocations.mark()
    step.empty_gradients()
    release_memory()
    watch = MemoryWatch()
    watch.begin()
    before = resident()
    step(inputs)
    rise = (watch.peaks().resident or 0) - before
    saved = step.engine.saved_bytes()
    assert saved is not None
    return saved, allocations.stretches[-1].peak, rise


def resident() -> int:
    """The resident set now, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def steps(
    built: Built, dtype: str, engine: str, inputs: tuple[torch.Tensor, ...], sets: Iterable[tuple[Plan, ...]]
) -> Iterator[tuple[tuple[Plan, ...], Step]]:
    """Each set of plans with a step that runs under it, at the batch size of the inputs."""
    step: Step | None = None
    for plans in sets:
        if step is None or engine == "inductor":
            torch._dynamo.reset()
            step = Step(built, dtype, ENGINES[engine](), plans)
            with torch._dynamo.config.patch(assume_static_by_default=True, automatic_dynamic_shapes=False):
                step(inputs)
            problem = step.engine.problem()
            if problem is not None:
                raise SystemExit(problem.cause)
        else:
            refusal = step.engine.use(Configuration(step.engine.name, plans))
            if refusal is not None:
                raise SystemExit(f"the model cannot be switched to {plans}: {refusal}")
        yield plans, step


def rows(model: str, dtype: str, engine: str, count: int) -> Iterator[Row]:
    """Simulate and measure one model."""
    torch.manual_seed(0)
    built = MODELS[model]()
    graph, error = calibrated(built, dtype, ENGINES[engine]())
    simulation = Simulation([graph])
    print(f"{model} {dtype}: self-check within {error:.2%}, {len(dumps(graph)):,} bytes of JSON", file=sys.stderr)
    draw = random.Random(f"{model} {dtype}")
    for batch_size in OTHERS[engine]:
        inputs = built.inputs(batch_size)
        for plans, step in steps(built, dtype, engine, inputs, list(configurations(graph, count, draw))):
            simulated, simulation_s = timed(simulation, plans, batch_size)
            saved, peak, rise = measured(step, inputs)
            yield Row(
                model=model,
                dtype=dtype,
                batch_size=batch_size,
                configuration=" ".join(map(str, plans)) or "no plans",
                saved=saved,
                simulated_saved=simulated.saved_bytes,
                peak=peak,
                simulated_peak=simulated.peak_bytes,
                resident=rise,
                simulation_s=simulation_s,
                peak_at=simulated.peak_at,
            )


def timed(simulation: Simulation, plans: tuple[Plan, ...], batch_size: int) -> tuple[Simulated, float]:
    """A simulation and its seconds of processor time, the least of three."""
    times = []
    for _ in range(3):
        began_s = time.thread_time()
        simulated = simulation.run(plans, dimensions={"batch": batch_size})
        times.append(time.thread_time() - began_s)
    return simulated, min(times)


def scaled_errors(found: list[Row]) -> list[float]:
    """The errors that are left of a model's rows when two of them are measured and the others scaled by those.

    The two are what a search would measure: no plans and all layers, at the smallest batch size.
    """
    errors = []
    for model, dtype in dict.fromkeys((row.model, row.dtype) for row in found):
        own = [row for row in found if (row.model, row.dtype) == (model, dtype)]
        trials = own[:_TRIALS]
        line = statistics.linear_regression([row.simulated_peak for row in trials], [row.peak for row in trials])
        errors += [(line.intercept + line.slope * row.simulated_peak) / row.peak - 1 for row in own[_TRIALS:]]
    return errors


def summary(found: list[Row], engine: str) -> dict[str, object]:
    """A number per claim."""
    scaled = max(map(abs, scaled_errors(found)), default=0.0)
    dtypes = sorted({row.dtype for row in found})
    worst = {dtype: max(abs(row.error) for row in found if row.dtype == dtype) for dtype in dtypes}
    return {
        "configurations": len(found),
        "saved_bytes_exact": sum(row.saved == row.simulated_saved for row in found),
        "worst_error": {dtype: round(error, 5) for dtype, error in worst.items()},
        "worst_error_scaled": round(scaled, 5),
        "median_error": round(statistics.median(abs(row.error) for row in found), 6),
        "slowest_simulation_ms": round(1e3 * max(row.simulation_s for row in found), 2),
        "median_resident_over_simulated": round(statistics.median(r.resident / r.simulated_peak for r in found), 3),
        "holds": all(row.saved == row.simulated_saved for row in found)
        and all(worst[dtype] <= LARGEST_ERROR[engine][dtype] for dtype in dtypes)
        and (engine == "aot" or scaled <= LARGEST_SCALED_ERROR)
        and max(row.simulation_s for row in found) <= SLOWEST_S,
    }


def main() -> int:
    """Run the benchmark; exit status 1 where a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", choices=sorted(MODELS), default=sorted(MODELS))
    parser.add_argument("--engine", choices=sorted(ENGINES), default="aot")
    parser.add_argument("--dtypes", nargs="*", choices=["fp32", "bf16"])
    parser.add_argument("--count", type=int, help="configurations for each model, type and batch size")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for model in options.models:
        for dtype in options.dtypes or DTYPES[options.engine]:
            for row in rows(model, dtype, options.engine, options.count or COUNT):
                found.append(row)
                exact = "exact" if row.saved == row.simulated_saved else f"{row.simulated_saved:,} for {row.saved:,}"
                print(
                    f"{row.model} {row.dtype} batch {row.batch_size}: saved {exact}, peak {row.peak:,} "
                    f"({row.error:+.3%}, at {row.peak_at}), resident {row.resident:,}: {row.configuration}",
                    file=sys.stderr,
                )
    result = summary(found, options.engine)
    if options.json:
        print(json.dumps({"rows": [vars(row) | {"error": row.error} for row in found], "summary": result}, indent=2))
    else:
        print(json.dumps(result, indent=2))
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
