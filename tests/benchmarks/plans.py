"""Are plans exact? Random sets of them over six models, in fp32 and under autocast, dropout on.

For each set: the bytes that the partitioner predicts against those that autograd keeps, and gradients, buffers and
random state against the same engine without plans, bit by bit. Against the model without any compiler they are equal
too, or differ as torch's own ``aot_eager`` does.

``python tests/benchmarks/plans.py --json``
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import nn

from autotune.records.plan import ALL, COMPROMISED, Plan
from tests.benchmarks.models import MODELS, Built
from tests.fakes.planned import Planned, clean_torch

BATCH_SIZE = 4
LARGER = {"gpt": {"layers": 12, "width": 256}, "bert": {"layers": 12, "width": 256}}


@dataclass(frozen=True)
class SetFigures:
    """One set of plans on one model."""

    model: str
    autocast: bool
    level: int
    plans: tuple[str, ...]
    without_plans_bytes: int
    predicted_bytes: int
    actual_bytes: int
    equal_to_the_engine: bool
    equal_to_eager: bool


@dataclass(frozen=True)
class ModelFigures:
    """The engine without plans and torch's ``aot_eager`` against the model as it is."""

    model: str
    autocast: bool
    clusters: int
    compromised_clusters: int
    equal_to_stock: bool
    difference_from_eager: float
    stock_difference_from_eager: float


class Whole(nn.Module):
    """A model with its loss, under autocast or not, as one root."""

    def __init__(self, built: Built, *, autocast: bool) -> None:
        super().__init__()
        self.module, self._loss, self._autocast = built.module, built.loss, autocast

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast(inputs[0].device.type, torch.bfloat16, enabled=self._autocast):
            return self._loss(self.module, inputs)


def planned(build: Callable[..., Built], sizes: dict[str, int], *, autocast: bool) -> Planned:
    """A model with its loss under engine ``aot``."""
    torch.manual_seed(0)
    built = build(**sizes)
    return Planned(lambda: Whole(built, autocast=autocast), lambda: built.inputs(BATCH_SIZE))


def random_set(model: Planned, chance: random.Random) -> tuple[list[Plan], int]:
    """Choose plans with random counts, and a level; neither may stand alone."""
    frequencies = occurrences(model)
    chosen = chance.sample(sorted(frequencies), chance.randint(1, min(5, len(frequencies))))
    by_id = dict(chosen)
    plans = [
        Plan(cluster_id, strategy, chance.choice((ALL, chance.randint(1, frequencies[cluster_id, strategy]))))
        for cluster_id, strategy in by_id.items()
    ]
    return plans, chance.choice((0, 0, 0, 1, 2))


def occurrences(model: Planned) -> Counter[tuple[str, int]]:
    """How often each cluster occurs, with the strategy that a plan for it names."""
    found: Counter[tuple[str, int]] = Counter()
    for graph in model.engine.slots():
        known = graph.joint.clusters()
        found.update(each for layer in graph.joint.layers if (each := (layer.cluster_id, 1)) in known)
        found.update(each for one in graph.joint.occurrences if (each := (one.cluster_id, one.strategy)) in known)
    return found


def examine(
    name: str, sizes: dict[str, int], *, autocast: bool, sets: int, seed: int
) -> tuple[ModelFigures, list[SetFigures]]:
    """Compare random sets of plans on one model."""
    chance = random.Random(f"{seed} {name} {autocast}")
    with clean_torch():
        stock_model = planned(MODELS[name], sizes, autocast=autocast)
        stock = stock_model.traced(torch.compile(stock_model.model, backend="aot_eager"))
    with clean_torch():
        model = planned(MODELS[name], sizes, autocast=autocast)
        eager, engine = model.plain(), model.step()
        without_bytes = model.saved_bytes()
        clusters = occurrences(model)
        figures = ModelFigures(
            name,
            autocast,
            len(clusters),
            sum(strategy == COMPROMISED for _, strategy in clusters),
            engine == stock,
            engine.difference(eager),
            stock.difference(eager),
        )
        found = []
        for _ in range(sets):
            plans, level = random_set(model, chance)
            trace = model.step(*plans, level=level)
            problem = model.engine.problem()
            if problem is not None or model.refusal is not None:
                raise SystemExit(f"{name}: {', '.join(map(str, plans))}: {problem or model.refusal}")
            predicted = model.saved_bytes()
            found.append(
                SetFigures(
                    name,
                    autocast,
                    level,
                    tuple(map(str, plans)),
                    without_bytes,
                    predicted,
                    model.measured_bytes(*plans, level=level),
                    trace == engine,
                    trace == eager,
                )
            )
    return figures, found


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=[*MODELS], choices=[*MODELS])
    parser.add_argument("--sets", type=int, default=6, help="sets of plans for each model and precision")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--full", action="store_true", help="five times the sets, and larger models")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    began_s = time.perf_counter()
    models: list[ModelFigures] = []
    sets: list[SetFigures] = []
    for name in options.models:
        for autocast in (False, True):
            with contextlib.redirect_stdout(sys.stderr):
                one, found = examine(
                    name,
                    LARGER.get(name, {}) if options.full else {},
                    autocast=autocast,
                    sets=options.sets * (5 if options.full else 1),
                    seed=options.seed,
                )
            models.append(one)
            sets += found
            if not options.json:
                print(told(one, found), flush=True)
    summary = {
        "sets": len(sets),
        "models": len(options.models),
        "sets_with_exact_bytes": sum(one.predicted_bytes == one.actual_bytes for one in sets),
        "sets_with_equal_gradients": sum(one.equal_to_the_engine for one in sets),
        "models_equal_to_eager_or_as_stock": sum(one.equal_to_stock or one.difference_from_eager == 0 for one in models)
        / len(models),
        "largest_difference_from_eager": max(one.difference_from_eager for one in models),
        "largest_stock_difference_from_eager": max(one.stock_difference_from_eager for one in models),
        "elapsed_s": round(time.perf_counter() - began_s, 1),
    }
    if options.json:
        print(
            json.dumps({"models": [*map(asdict, models)], "sets": [*map(asdict, sets)], "summary": summary}, indent=2)
        )
    else:
        print(json.dumps(summary, indent=2))
    return int(not summary["sets"] == summary["sets_with_exact_bytes"] == summary["sets_with_equal_gradients"])


def told(one: ModelFigures, found: list[SetFigures]) -> str:
    """A line for people."""
    exact = sum(each.predicted_bytes == each.actual_bytes for each in found)
    equal = sum(each.equal_to_the_engine for each in found)
    return (
        f"{one.model:16}{'autocast' if one.autocast else 'fp32':9} {one.clusters:3} clusters: bytes exact {exact} of "
        f"{len(found)}, gradients equal {equal} of {len(found)}, from eager {one.difference_from_eager:.1e} "
        f"(stock {one.stock_difference_from_eager:.1e})"
    )


if __name__ == "__main__":
    sys.exit(main())
