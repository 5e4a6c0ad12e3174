"""Plans as ONNX Runtime reports them: those that there are, those that it planned, and what runs again.

None of this is public; all of it is in ONNX Runtime's last release. The runtime inspector lists what can be
recomputed, in a session that is made for the purpose. The inspector's own table marks a plan as on where the
configuration asks for it, whatever became of the plan. The planner of that session says which plans it means to apply.
The graph of the session that trains shows what became of them: nodes that run again bear ``_recompute`` in their names.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sympy

from ...ort_logs.log import read_opportunities
from ...ort_logs.table import clean
from ...records.plan import Plan, parse_plan


@dataclass(frozen=True)
class Opportunity:
    """A row of the inspector's table; several plans save this together, none of them alone.

    ``saving`` is in bytes, an expression of the sizes in ``Opportunities.sizes``.
    """

    plans: tuple[Plan, ...]
    frequency: int
    saving: sympy.Expr


@dataclass(frozen=True)
class Opportunities:
    """The plans that one graph offers, and those of them that are on; keys are (cluster id, strategy).

    ``sizes`` are the values of the symbols, which ORTModule names after a root's inputs: ``input_ids_dim0``.
    ``planned`` are the plans that ONNX Runtime meant to apply, ``recomputed`` the operators that run again.
    ``alternatives`` are keys of which some operator can have one only.
    """

    rows: tuple[Opportunity, ...] = ()
    sizes: dict[sympy.Symbol, int] = field(default_factory=dict)
    planned: frozenset[tuple[str, int]] = frozenset()
    recomputed: Counter[str] = field(default_factory=Counter)
    alternatives: tuple[frozenset[tuple[str, int]], ...] = ()

    @property
    def known(self) -> frozenset[tuple[str, int]]:
        """The keys of every plan that there is."""
        return frozenset((plan.cluster_id, plan.strategy) for row in self.rows for plan in row.plans)

    @property
    def frequencies(self) -> Counter[tuple[str, int]]:
        """Return how often each plan can be applied, as far as it saves something by itself."""
        single = (row for row in self.rows if len(row.plans) == 1)
        return Counter({(row.plans[0].cluster_id, row.plans[0].strategy): row.frequency for row in single})

    @property
    def applied(self) -> frozenset[tuple[str, int]]:
        """The keys of plans that were planned, and whose operators do run again."""
        return frozenset(key for key in self.planned if Counter(key[0].split("+")[:-1]) <= self.recomputed)


class Builds:
    """Watches an execution manager of ORTModule build its sessions; ``last`` is what the last one is like.

    With ``own_seeds`` every Dropout gets a seed of its own before the graph is optimized. ONNX Runtime does that for
    those which a plan runs again, and only for those, so that masks would depend on plans.
    """

    def __init__(self, manager: Any, *, own_seeds: bool = False) -> None:
        self.number = 0
        self.last: Opportunities | None = None
        self._manager = manager
        self._own_seeds = own_seeds
        self._planned: frozenset[tuple[str, int]] = frozenset()
        self._alternatives: tuple[frozenset[tuple[str, int]], ...] = ()
        self._path: Path | None = None
        self._find = manager._runtime_inspector.memory_ob.find_memory_optimization_opportunity
        self._configure = manager._get_session_config
        self._create = manager._create_execution_agent
        self._initialize = manager._initialize_graph_builder
        manager._runtime_inspector.memory_ob.find_memory_optimization_opportunity = self._find_opportunities
        manager._get_session_config = self._get_session_config
        manager._create_execution_agent = self._create_execution_agent
        manager._initialize_graph_builder = self._initialize_graph_builder

    def _initialize_graph_builder(self, exported: Any) -> None:
        """Before a graph is optimized and its gradient is built."""
        if self._own_seeds:
            _seed(exported._post_export_processed_model.graph)
        self._initialize(exported)

    def _find_opportunities(self, agent: Any, options: Any) -> None:
        """Once the plans of a level are in the configuration, ask what is planned by it."""
        self._find(agent, options)
        table, _ = agent.get_serialized_ortmodule_memory_stat(
            options.memory_optimizer_config_file_path, options.recompute_probe_config, True
        )
        tables = list(read_opportunities(clean(table.splitlines())))
        self._planned = frozenset(_key(plan) for found in tables for plan in found.on)
        groups = (group for found in tables for group in found.alternatives)
        self._alternatives = tuple(frozenset(map(_key, group)) for group in groups)

    def _get_session_config(self) -> Any:
        config = self._configure()
        config[0].optimized_model_filepath = str(self._path)
        return config

    def _create_execution_agent(self) -> None:
        """Have the graphs written down as they are built: the last one is that of the session that trains."""
        with tempfile.TemporaryDirectory(prefix="autotune-") as folder:
            self._path = Path(folder, "graph.onnx")
            self._create()
            self.last = Opportunities(
                self._rows(), self._sizes(), self._planned, _recomputed(self._path), self._alternatives
            )
        self.number += 1

    def _rows(self) -> tuple[Opportunity, ...]:
        found = self._manager._runtime_inspector.memory_ob.cluster_id_combination_to_saving_symbolics_map
        return tuple(
            Opportunity(
                tuple(parse_plan(text) for text in combination.split(",")),
                summary.freq,
                summary.simplified_symbolic_saving_expr,
            )
            for combination, summary in found.items()
        )

    def _sizes(self) -> dict[sympy.Symbol, int]:
        found = self._manager._runtime_inspector.memory_ob.symbolic_dim_name_to_value_map
        return {symbol: int(value) for symbol, value in found.items()}


def _key(plan: Plan) -> tuple[str, int]:
    return plan.cluster_id, plan.strategy


def _seed(graph: Any) -> None:
    """Give each Dropout of an exported graph a seed of its own, unless it has one."""
    for number, node in enumerate(graph.node):
        if node.op_type == "Dropout" and not any(one.name == "seed" for one in node.attribute):
            seed = node.attribute.add()
            seed.name, seed.type, seed.i = "seed", seed.INT, number + 1


def _recomputed(path: Path) -> Counter[str]:
    """The operators that run again in a graph: the file holds no weights, which are its inputs."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    return Counter(node.op_type for node in graph.node if "_recompute" in node.name)
