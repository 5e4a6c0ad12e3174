"""Plans for smaller batches: what they may save without them, where the largest batch sets the peak."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy

from ...predict.simulation import Simulation
from ...records.configuration import Shapes, SizedPlans
from ...records.graph import ActivationGraph
from ...records.look_ahead import SeenBatch
from ...records.measuring import MOST_SIZED
from ...records.plan import Plan
from ..engines.graphs import Graph, Observer
from ..engines.plan_engine import PlanEngine
from ..hooks.loaders import LoaderHooks
from ..hooks.samples import shapes_of
from ..plans.activation_graph import activation_graph, obstacle
from ..plans.joint import outputs_of, parameter_storages, sizes_of, unique_bytes

# What smaller batches may recompute, as shares of what the largest does.
_SHARES = [number / MOST_SIZED for number in range(MOST_SIZED)]
# What a script holds of its loss beside the model's outputs: logarithms, their gradient, and one more.
_LOSS_TENSORS = 3


@dataclass
class Call:
    """A training call: the shapes of its tensors, and the graphs that it ran, each with the sizes that vary in it."""

    shapes: Shapes
    runs: list[tuple[Graph, dict[sympy.Symbol, int]]] = field(default_factory=list)


class SmallerBatches(Observer):
    """Finds plans for the smaller batches of an epoch, for one configuration after the other.

    A trial begins under the configuration's plans. It runs the batches that stand for the epoch, and then those between
    them up to which lighter plans should need no more than the largest batch does. Then it begins again.
    """

    def __init__(self, engine: PlanEngine, loaders: LoaderHooks) -> None:
        self._engine = engine
        self._loaders = loaders
        self._is_settled = False
        self._has_chosen = False
        self._overlap = False
        self._wanted: set[int] = set()
        self._calls: dict[int, Call] = {}  # by the number of the batch, the last of each
        self._seen: dict[int, SeenBatch] = {}
        self._last: Call | None = None
        self._simulated = SimulatedCalls()

    def begin_trial(self) -> None:
        """Begin a configuration's trial, whose batches have not come yet."""
        engine, sample = self._engine, self._loaders.sample
        setting = engine.configuration
        recomputes = engine.active and (setting.plans or setting.level)
        if sample is None or not recomputes or setting.sized or engine.is_compiled:
            self.stop()
            return
        self._is_settled = self._has_chosen = False
        self._wanted = {sample.largest.number, *sample.weights}
        engine.observer = self

    def call_begins(self, inputs: Any) -> None:
        """Begin a call of the model."""
        if not self._is_settled:
            # Then a step holds more than the largest of its calls, and it is not known what it holds meanwhile.
            self._overlap |= any(graph.is_under_way for graph in self._engine.graphs)
            self._last = Call(shapes_of(inputs))

    def forward_begins(self, graph: Graph, arguments: Sequence[Any]) -> None:
        """Note the sizes that a graph runs with."""
        if self._last is not None:
            self._last.runs.append((graph, sizes_of(graph.current.forward, arguments)))

    def stop(self) -> None:
        """Go on with the plans that there are."""
        self._is_settled, self._engine.observer, self._last = True, None, None

    def step_done(self, taken: Sequence[SeenBatch | None]) -> bool:
        """Note which batches a step has taken; return whether the trial begins again, with plans for smaller ones."""
        if self._is_settled:
            return False
        numbers = {0 if one is None else one.number for one in taken}
        if len(numbers) == 1 and self._last is not None and taken[0] is not None:
            self._seen[taken[0].number], self._calls[taken[0].number] = taken[0], self._last
        if not self._wanted <= self._calls.keys():
            return False
        if not self._has_chosen:
            self._has_chosen = True
            self._wanted |= self._promising()
            self._loaders.hand_next(sorted(self._wanted - self._calls.keys()))
            if not self._wanted <= self._calls.keys():
                return False
        found = self._found()
        self.stop()
        if found:
            self._engine.use_sized(tuple(found.values()))
            self._loaders.begin_sample(then=[*found])
        return bool(found)

    def _promising(self) -> set[int]:
        """Return the batches that come next: up to them, each of the lighter plans should need no more memory.

        Between two calls the need grows with the elements, or faster (attention): a straight line is never too low.
        """
        sample, most = self._loaders.sample, self._most()
        if sample is None:
            return set()
        found = set()
        for plans in self._lighter():
            points = sorted((self._seen[number].elements, self._need(number, plans)) for number in self._calls)
            batch = sample.largest_up_to(_highest(points, most))
            found |= set() if batch is None else {batch.number}
        return found

    def _found(self) -> dict[int, SizedPlans]:
        """Find for each of the lighter plans the largest batch that needs no more than the largest of all does.

        None where the graphs cannot be simulated, and where the shapes of the model's inputs do not tell sizes apart.
        """
        most, largest = self._most(), self._calls[max(self._calls, key=self._elements)]
        found: dict[int, SizedPlans] = {}
        for plans in self._lighter():
            fitting = [number for number in self._calls if self._need(number, plans) <= most]
            number = max(fitting, key=self._elements, default=0)
            one = SizedPlans(self._calls[number].shapes, plans) if number else None
            if one is not None and number not in found and not one.hold_for(largest.shapes):
                found[number] = one
        return {} if self._overlap else found

    def _elements(self, number: int) -> int:
        return self._seen[number].elements

    def _lighter(self) -> list[tuple[Plan, ...]]:
        return [self._engine.plans_of_share(share) for share in _SHARES]

    def _need(self, number: int, plans: tuple[Plan, ...]) -> float:
        return self._simulated.need(self._calls[number], plans)

    def _most(self) -> float:
        """Return what the largest batch needs under the configuration's plans."""
        setting, number = self._engine.configuration, max(self._calls, key=self._elements)
        return self._simulated.need(self._calls[number], setting.plans, setting.level)


class SimulatedCalls:
    """Simulates the memory of training calls; every graph is written down once."""

    def __init__(self) -> None:
        self._written: dict[tuple[int, int], ActivationGraph | None] = {}
        self._simulations: dict[tuple[int, ...], Simulation | None] = {}

    def need(self, call: Call, plans: tuple[Plan, ...], level: int = 0) -> float:
        """Return the bytes of activations at the peak of a call and its backward; NaN where that is not known.

        The loss is outside of the graphs: it is taken to hold so many tensors of the size of what they return.
        """
        numbers = tuple(id(graph) for graph, _ in call.runs)
        if numbers not in self._simulations:
            written = [self._graph(graph, place, found) for place, (graph, found) in enumerate(call.runs)]
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
        forward, number = graph.current.forward, graph.joint.num_forward_outputs
        returned = unique_bytes(outputs_of(forward, number), parameter_storages(forward.graph))
        result_bytes = returned.value_at({str(symbol): size for symbol, size in found.items()})
        return max(simulated.peak_bytes, simulated.saved_bytes + _LOSS_TENSORS * result_bytes)

    def _graph(self, graph: Graph, place: int, symbols: Iterable[sympy.Symbol]) -> ActivationGraph | None:
        key = id(graph), place
        if key not in self._written:
            names = {symbol: _named(symbol, place) for symbol in symbols}
            is_known = obstacle(graph.joint) is None
            if is_known:
                written = activation_graph(graph.joint, names, node_times_s={}, calls=1, continues=graph.continues)
            self._written[key] = written if is_known else None
        return self._written[key]


def _named(symbol: sympy.Symbol, place: int) -> sympy.Symbol:
    # Graphs of several frames use one name for different sizes.
    return sympy.Symbol(f"{symbol}_of_{place}")


def _highest(points: Sequence[tuple[int, float]], most: float) -> float:
    """Return the elements up to which lines between points of (elements, need) stay at or below ``most``."""
    (highest, need), *rest = points
    if not need <= most:
        return 0.0
    for elements, above in rest:
        if not above <= most:
            return highest + (elements - highest) * max(0.0, most - need) / (above - need) if above > need else highest
        highest, need = elements, above
    return highest
