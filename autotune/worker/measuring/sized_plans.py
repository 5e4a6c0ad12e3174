"""Plans for smaller batches: what they may save without them, where the largest batch sets the peak."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
from torch import fx

from ...predict.simulation import Simulation
from ...records.configuration import InputSize, SizedPlans
from ...records.graph import ActivationGraph
from ...records.measuring import MOST_SIZED
from ...records.plan import Plan
from ..engines.graphs import Graph, Observer
from ..engines.plan_engine import PlanEngine
from ..engines.port import Engine
from ..hooks.loaders import LoaderHooks
from ..hooks.samples import size_of
from ..plans.activation_graph import activation_graph, obstacle
from ..plans.joint import has_storage, is_single_symbol, parameter_storages, sizes_of, unique_bytes, value_of

# What smaller batches may recompute, as shares of what the largest does.
_SHARES = [number / MOST_SIZED for number in range(MOST_SIZED)]
# Plans between nothing and all are worth it for batches that are larger by this factor.
_MUCH_LARGER = 1.1
# What a script holds of its loss beside the model's outputs: logarithms, their gradient, and one more.
_LOSS_TENSORS = 3


@dataclass
class _Call:
    """A training call: the size of its inputs, and the graphs that it ran, each with the sizes that vary in it."""

    size: InputSize
    runs: list[tuple[Graph, dict[sympy.Symbol, int]]] = field(default_factory=list)


class SmallerBatches(Observer):
    """Finds plans for the smaller batches of an epoch, for one configuration after the other.

    In a trial, a cycle of the batches that stand for the epoch runs under the configuration's plans first, and tells
    what graphs save for each of them.
    """

    def __init__(self, engine: Engine, loaders: LoaderHooks) -> None:
        self._engine = engine
        self._loaders = loaders
        self._is_settled = False
        self._calls: dict[int, _Call] = {}  # the last of each number of elements
        self._last: _Call | None = None
        self._simulated = _SimulatedCalls()

    def begin_trial(self) -> None:
        """Begin a configuration's trial, whose batches have not come yet; use what earlier trials have told."""
        engine = self._engine
        self._is_settled = not (
            isinstance(engine, PlanEngine)
            and engine.active
            and not engine.is_compiled
            and (engine.configuration.plans or engine.configuration.level)
        )
        if isinstance(engine, PlanEngine) and not self._is_settled and not self.apply():
            self._is_settled = bool(self._calls)
            engine.observer = None if self._is_settled else self

    def call_begins(self, inputs: Any) -> None:
        """Begin a call of the model."""
        if not self._is_settled:
            size = size_of(inputs)
            self._last = self._calls[size.elements] = _Call(size)

    def forward_begins(self, graph: Graph, arguments: Sequence[Any]) -> None:
        """Note the sizes that a graph runs with."""
        if self._last is not None and not self._is_settled:
            self._last.runs.append((graph, sizes_of(graph.current.forward, arguments)))

    def stop(self) -> None:
        """Go on with the plans of the configuration alone."""
        self._is_settled = True
        if isinstance(self._engine, PlanEngine):
            self._engine.observer = None

    def apply(self) -> bool:
        """Run smaller batches under plans of their own from here on, and hand out batches from the largest on.

        Behind the largest batch comes the largest for each of these plans. Returns False where there are none.
        """
        engine, sample = self._engine, self._loaders.sample
        if self._is_settled or not self._calls or sample is None or not isinstance(engine, PlanEngine):
            return False
        self.stop()
        whole, of_whole = sample.largest, self._calls[max(self._calls)].size
        # What the model gets of a batch: all of its elements, or a part of them, or more.
        elements = of_whole.elements / max(1, whole.elements)
        length = of_whole.longest / max(1, whole.longest)
        tested: dict[int, SizedPlans] = {}
        for one in engine.configuration.sized or (self._found(engine) if elements else ()):
            batch = sample.largest_up_to(one.up_to / elements)
            if batch is not None:
                # What was tried is known to fit.
                sizes = math.ceil(batch.elements * elements), math.ceil(batch.longest * length)
                tested.setdefault(batch.number, SizedPlans(*sizes, one.plans))
        engine.use_sized(engine.configuration.sized or tuple(tested.values()))
        self._loaders.begin_sample(then=[*tested])
        return bool(tested)

    def _found(self, engine: PlanEngine) -> list[SizedPlans]:
        """Find plans under which smaller batches need no more than the largest does under the configuration's.

        None where the graphs cannot be simulated, where no smaller batch can do with less recompute, or where more
        elements do not mean more memory.
        """
        calls = [self._calls[elements] for elements in sorted(self._calls) if self._calls[elements].runs]
        own = [self._simulated.need(one, engine.configuration.plans, engine.configuration.level) for one in calls]
        found: list[SizedPlans] = []
        for share in _SHARES:
            plans = engine.plans_of_share(share)
            needs = [self._simulated.need(one, plans) for one in calls]
            if not (_ascends(own) and _ascends(needs) and needs[-1] > own[-1]):
                continue
            up_to = _highest([one.size.elements for one in calls], needs, own[-1])
            if up_to and (not found or up_to >= _MUCH_LARGER * found[-1].up_to):
                found.append(SizedPlans(up_to, calls[-1].size.longest, plans))
        return found


class _SimulatedCalls:
    """Simulates the memory of training calls; every graph is written down once."""

    def __init__(self) -> None:
        self._written: dict[tuple[int, int], ActivationGraph | None] = {}
        self._simulations: dict[tuple[int, ...], Simulation | None] = {}

    def need(self, call: _Call, plans: tuple[Plan, ...], level: int = 0) -> float:
        """Return the bytes of activations at the peak of a call and its backward; NaN where that is not known.

        The loss is outside of the graphs: it is taken to hold so many tensors of the size of what they return.
        """
        numbers = tuple(id(graph) for graph, _ in call.runs)
        if numbers not in self._simulations:
            written = [self._graph(graph, place) for place, (graph, _) in enumerate(call.runs)]
            known = [one for one in written if one is not None]
            # Plans count the occurrences of a graph once, however often it runs.
            is_known = len(known) == len(numbers) == len({*numbers})
            self._simulations[numbers] = Simulation(known) if is_known else None
        simulation = self._simulations[numbers]
        if simulation is None:
            return math.nan
        sizes = {
            str(_named(symbol, place)): size
            for place, (_, found) in enumerate(call.runs)
            for symbol, size in found.items()
        }
        simulated = simulation.run(plans, level, dimensions=sizes)
        graph, found = call.runs[-1]
        returned = unique_bytes(
            [one for one in graph.joint.outputs[: graph.joint.num_forward_outputs] if isinstance(one, fx.Node)],
            parameter_storages(graph.current.forward.graph),
        )
        result_bytes = returned.value_at({str(symbol): size for symbol, size in found.items()})
        return max(simulated.peak_bytes, simulated.saved_bytes + _LOSS_TENSORS * result_bytes)

    def _graph(self, graph: Graph, place: int) -> ActivationGraph | None:
        key = id(graph), place
        if key not in self._written:
            names = {symbol: _named(symbol, place) for symbol in _symbols(graph)}
            is_known = obstacle(graph.joint) is None
            self._written[key] = activation_graph(graph.joint, names, node_times_s={}, calls=1) if is_known else None
        return self._written[key]


def _named(symbol: sympy.Symbol, place: int) -> sympy.Symbol:
    # Graphs of several frames use one name for different sizes.
    return sympy.Symbol(f"{symbol}_of_{place}")


def _symbols(graph: Graph) -> set[sympy.Symbol]:
    inputs = (value_of(node) for node in graph.joint.nodes.values() if node.op == "placeholder")
    sizes = (size for value in inputs for size in (value.shape if has_storage(value) else [value]))
    return {size.node.expr for size in sizes if is_single_symbol(size)}


def _ascends(values: Sequence[float]) -> bool:
    """Return whether values are known, and each is at least as large as the one before."""
    return len(values) > 1 and all(low <= high for low, high in itertools.pairwise(values))


def _highest(elements: Sequence[int], needs: Sequence[float], most: float) -> int:
    """Return the elements up to which a call needs no more than ``most``, by lines between the calls; 0 for none.

    The need grows with the elements, or faster (attention), so that a line between two calls is never too low.
    """
    if needs[0] > most:
        return 0
    above = next(place for place, one in enumerate(needs) if one > most)
    low, high = above - 1, above
    share = (most - needs[low]) / (needs[high] - needs[low])
    return elements[low] + int(share * (elements[high] - elements[low]))
