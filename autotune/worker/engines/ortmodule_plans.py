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
    """A row of the inspector's table: plans that save ``saving`` bytes, an expression of sizes, only together."""

    plans: tuple[Plan, ...]
    frequency: int
    saving: sympy.Expr


@dataclass(frozen=True)
class Opportunities:
    """The plans that one graph offers, and those of them that are on; keys are those of ``key_of``.

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
        """Return the keys of every plan that there is."""
        return frozenset(key_of(plan) for row in self.rows for plan in row.plans)

    @property
    def frequencies(self) -> Counter[tuple[str, int]]:
        """Return how often each plan can be applied, as far as it saves something by itself."""
        return Counter({key_of(row.plans[0]): row.frequency for row in self.rows if len(row.plans) == 1})

    @property
    def applied(self) -> frozenset[tuple[str, int]]:
        """Return the keys of plans that were planned, and whose operators do run again."""
        return frozenset(key for key in self.planned if Counter(key[0].split("+")[:-1]) <= self.recomputed)


class Builds:
    """Watches an execution manager of ORTModule build its sessions; ``last`` is what the last one is like.

    With ``own_seeds`` every Dropout gets a seed of its own before the graph is optimized. ONNX Runtime does that for
    those which a plan runs again, and only for those, so that masks would depend on plans.
    """

    def __init__(self, manager: Any, *, own_seeds: bool = False) -> None:
        self.number = 0
        self.last: Opportunities | None = None
        self._own_seeds = own_seeds
        self._planned: frozenset[tuple[str, int]] = frozenset()
        self._alternatives: tuple[frozenset[tuple[str, int]], ...] = ()
        self._path: Path | None = None
        self._observer = manager._runtime_inspector.memory_ob
        self._find = self._observer.find_memory_optimization_opportunity
        self._configure = manager._get_session_config
        self._create = manager._create_execution_agent
        self._initialize = manager._initialize_graph_builder
        self._observer.find_memory_optimization_opportunity = self._find_opportunities
        manager._get_session_config = self._get_session_config
        manager._create_execution_agent = self._create_execution_agent
        manager._initialize_graph_builder = self._initialize_graph_builder

    def _initialize_graph_builder(self, exported: Any) -> None:
        """Seed the Dropouts of a graph before it is optimized and its gradient is built."""
        if self._own_seeds:
            for number, node in enumerate(exported._post_export_processed_model.graph.node, 1):
                if node.op_type == "Dropout" and not any(one.name == "seed" for one in node.attribute):
                    seed = node.attribute.add()
                    seed.name, seed.type, seed.i = "seed", seed.INT, number
        self._initialize(exported)

    def _find_opportunities(self, agent: Any, options: Any) -> None:
        """Once the plans of a level are in the configuration, ask what is planned by it."""
        self._find(agent, options)
        table, _ = agent.get_serialized_ortmodule_memory_stat(
            options.memory_optimizer_config_file_path, options.recompute_probe_config, True
        )
        tables = list(read_opportunities(clean(table.splitlines())))
        self._planned = frozenset(key_of(plan) for found in tables for plan in found.on)
        groups = (group for found in tables for group in found.alternatives)
        self._alternatives = tuple(frozenset(map(key_of, group)) for group in groups)

    def _get_session_config(self) -> Any:
        config = self._configure()
        config[0].optimized_model_filepath = str(self._path)
        return config

    def _create_execution_agent(self) -> None:
        """Have the graphs written down as they are built: the last one is that of the session that trains."""
        with tempfile.TemporaryDirectory(prefix="autotune-") as folder:
            self._path = Path(folder, "graph.onnx")
            self._create()
            savings = self._observer.cluster_id_combination_to_saving_symbolics_map
            rows = tuple(
                Opportunity(
                    tuple(map(parse_plan, combination.split(","))), one.freq, one.simplified_symbolic_saving_expr
                )
                for combination, one in savings.items()
            )
            sizes = {symbol: int(value) for symbol, value in self._observer.symbolic_dim_name_to_value_map.items()}
            self.last = Opportunities(rows, sizes, self._planned, _recomputed(self._path), self._alternatives)
        self.number += 1


def key_of(plan: Plan) -> tuple[str, int]:
    """Return a plan's cluster id and strategy."""
    return plan.cluster_id, plan.strategy


def _recomputed(path: Path) -> Counter[str]:
    import onnx

    # The file holds no weights, which are the graph's inputs.
    graph = onnx.load(str(path), load_external_data=False).graph
    return Counter(node.op_type for node in graph.node if "_recompute" in node.name)
