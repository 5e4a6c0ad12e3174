"""Plans against torch's ``activation_memory_budget``: peak and step time at its budgets, gradients under dropout.

Both run AOTAutograd's graphs with eager's kernels (torch's by backend ``aot_eager``). For each budget the plans are the
fastest found whose peak is not higher.

``python tests/benchmarks/memory_budget.py --json``
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import operator
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
import torch._functorch.config
from torch import nn

from autotune.records.configuration import Configuration
from autotune.records.plan import ALL, Plan
from autotune.worker.engines.plan_engine import AotEngine
from autotune.worker.plans.graph_pair import Pair
from tests.benchmarks.models import MODELS, WITHOUT_DROPOUT, Built
from tests.benchmarks.sidebyside import peak_bytes, ratio, times_s
from tests.fakes.planned import clean_torch

SIZES: dict[str, dict[str, int]] = {
    "llama": {"layers": 3, "width": 128, "length": 96},
    "convnet": {"layers": 3, "width": 24},
    "vit": {"layers": 3, "width": 128},
}
BATCH_SIZE = 8
BUDGETS = tuple(number / 10 for number in range(1, 10))
NOISE = 0.02
# Of the plans that hold a budget's peak, so many of the least expected recompute are timed.
TIMED = 3
DEPTHS = 6
DROPOUT_BUDGETS = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Figures:
    """One budget on one model; ``time_ratio`` is that of a step under our plans to one under the budget."""

    model: str
    budget: float
    budget_peak_bytes: int
    our_peak_bytes: int
    time_ratio: float
    plans: tuple[str, ...]

    @property
    def is_met(self) -> bool:
        """Whether the plans need no more memory and no more time."""
        return self.our_peak_bytes <= self.budget_peak_bytes and self.time_ratio <= 1 + NOISE


@dataclass(frozen=True)
class DropoutFigures:
    """How far the gradients of a model with dropout are from eager's, relative to the largest gradient."""

    model: str
    budget: float
    budget_gradient_error: float
    our_gradient_error: float


class Stepping:
    """Training steps of a model, without the optimizer, from the same seed."""

    def __init__(self, module: nn.Module, call: Callable[..., torch.Tensor], built: Built, inputs: tuple) -> None:
        self._module, self._call, self._built, self._inputs = module, call, built, inputs

    def __call__(self) -> list[torch.Tensor]:
        """Give the gradients of a step, and leave none."""
        torch.manual_seed(1)
        self._built.loss(self._call, self._inputs).backward()
        gradients = [parameter.grad for parameter in self._module.parameters() if parameter.grad is not None]
        self._module.zero_grad(set_to_none=True)
        return gradients


class Ours:
    """A model under engine ``aot``, switched between plans."""

    def __init__(self, built: Built, inputs: tuple) -> None:
        module = copy.deepcopy(built.module)
        self._engine = AotEngine()
        self._engine.use(Configuration("aot"))
        compiled = self._engine.compile_root(module)
        # Pairs that nobody holds would be partitioned anew at each switch.
        self._kept: list[Pair] = []

        def call(*given: torch.Tensor) -> torch.Tensor:
            self._engine.begin_call()
            return compiled(*given)

        self.step = Stepping(module, call, built, inputs)
        self._engine.profile(on=True)
        for _ in range(4):
            self.step()
        self._engine.profile(on=False)
        (self._graph,) = self._engine.graphs

    def use(self, plans: tuple[Plan, ...]) -> None:
        """Switch to plans."""
        refusal = self._engine.use(Configuration("aot", plans))
        assert refusal is None, refusal
        self._kept.append(self._graph.current)

    def recompute_time_s(self) -> float:
        """The measured time of what the current plans recompute."""
        return sum(self._graph.node_times_s.get(name, 0.0) for name in self._graph.current.recomputed)

    def candidates(self) -> Iterator[tuple[Plan, ...]]:
        """Plans: operators' clusters by time for each byte, at several depths, with none to all of the layers."""
        savings: dict[tuple[str, int], int] = {}
        nodes: dict[tuple[str, int], set[str]] = {}
        for each in self._graph.joint.occurrences:
            key = each.cluster_id, each.strategy
            savings[key] = savings.get(key, 0) + each.saving.value
            nodes.setdefault(key, set()).update(each.subgraph)
        times = {key: sum(self._graph.node_times_s.get(name, 0.0) for name in names) for key, names in nodes.items()}
        largest = max(savings.values())
        useful = [key for key in savings if savings[key] > largest / 100]
        ordered = [Plan(*key, ALL) for key in sorted(useful, key=lambda key: times[key] / savings[key])]
        layers = [layer.cluster_id for layer in self._graph.joint.layers]
        depths = sorted({round(len(ordered) * number / DEPTHS) for number in range(DEPTHS + 1)})
        # The last layer is needed at once: to recompute it as well takes time, and may free nothing at the peak.
        for count in range(max(map(layers.count, layers)) + 1):
            first = [Plan(layer, 1, min(count, layers.count(layer))) for layer in sorted(set(layers)) if count]
            for depth in depths:
                yield (*first, *ordered[:depth])


def compiled_by_torch(module: nn.Module, budget: float, built: Built, inputs: tuple) -> Stepping:
    """A model compiled under a memory budget."""

    def call(*given: torch.Tensor) -> torch.Tensor:
        return module(*given)

    # Dynamo keeps what it compiled with the code: for each of the copies its own.
    call.__code__ = call.__code__.replace(co_name=f"call_{id(module)}")
    step = Stepping(module, torch.compile(call, backend="aot_eager"), built, inputs)
    with torch._functorch.config.patch(activation_memory_budget=budget, enable_autograd_cache=False):
        step()
    return step


def examine(name: str, sizes: dict[str, int], repetitions: int) -> list[Figures]:
    """Compare at every budget on one model."""
    torch.manual_seed(0)
    built = MODELS[name](**sizes)
    inputs = built.inputs(BATCH_SIZE)
    ours = Ours(built, inputs)
    offers: list[tuple[float, int, tuple[Plan, ...]]] = []
    for plans in ours.candidates():
        ours.use(plans)
        offers.append((ours.recompute_time_s(), peak_bytes(ours.step), plans))
    offers.sort(key=operator.itemgetter(0))
    found = []
    for budget in BUDGETS:
        theirs = compiled_by_torch(copy.deepcopy(built.module), budget, built, inputs)
        peak = peak_bytes(theirs)
        # Where none holds the peak, the lowest shows by how much.
        fitting = [offer for offer in offers if offer[1] <= peak][:TIMED] or [min(offers, key=operator.itemgetter(1))]
        steps = {"budget": theirs} | {f"plans {number}": ours.step for number in range(len(fitting))}
        prepare = {f"plans {number}": functools.partial(ours.use, offer[2]) for number, offer in enumerate(fitting)}
        times = times_s(steps, repetitions, prepare)
        ratios = [ratio(times, each, "budget") for each in prepare]
        best = ratios.index(min(ratios))
        _, our_peak, plans = fitting[best]
        found.append(Figures(name, budget, peak, our_peak, round(ratios[best], 4), tuple(map(str, plans))))
        print(found[-1], file=sys.stderr, flush=True)
    return found


def examine_dropout(name: str) -> list[DropoutFigures]:
    """Compare gradients with eager's on a model with dropout."""
    torch.manual_seed(0)
    built = MODELS[name](layers=2)
    inputs = built.inputs(BATCH_SIZE)
    expected = Stepping(built.module, built.module, built, inputs)()
    expected = [gradient.clone() for gradient in expected]
    ours = Ours(built, inputs)
    *_, most = (plans for plans in ours.candidates() if len(plans) > 1)
    ours.use(most)
    our_error = gradient_error(ours.step(), expected)
    found = []
    for budget in DROPOUT_BUDGETS:
        theirs = compiled_by_torch(copy.deepcopy(built.module), budget, built, inputs)
        found.append(DropoutFigures(name, budget, gradient_error(theirs(), expected), our_error))
    return found


def gradient_error(gradients: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest difference, relative to the largest gradient."""
    largest = max(each.abs().max().item() for each in expected)
    return max((one - other).abs().max().item() for one, other in zip(gradients, expected, strict=True)) / largest


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=WITHOUT_DROPOUT, choices=WITHOUT_DROPOUT)
    parser.add_argument("--repetitions", type=int, default=8)
    parser.add_argument("--full", action="store_true", help="8 layers")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    began_s = time.perf_counter()
    budgets: list[Figures] = []
    dropout: list[DropoutFigures] = []
    for name in options.models:
        with clean_torch():
            budgets += examine(name, SIZES[name] | ({"layers": 8} if options.full else {}), options.repetitions)
    for name in sorted(set(MODELS) - set(WITHOUT_DROPOUT)):
        with clean_torch():
            dropout += examine_dropout(name)
    summary = {
        "budgets": len(budgets),
        "budgets_met": sum(one.is_met for one in budgets),
        "largest_peak_ratio": round(max(one.our_peak_bytes / one.budget_peak_bytes for one in budgets), 4),
        "largest_time_ratio": max(one.time_ratio for one in budgets),
        "budget_gradient_error_under_dropout": max(one.budget_gradient_error for one in dropout),
        "our_gradient_error_under_dropout": max(one.our_gradient_error for one in dropout),
        "elapsed_s": round(time.perf_counter() - began_s, 1),
    }
    report = {"budgets": [*map(asdict, budgets)], "dropout": [*map(asdict, dropout)], "summary": summary}
    print(json.dumps(report if options.json else summary, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
