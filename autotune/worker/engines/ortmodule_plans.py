"""What ONNX Runtime says about plans: those that there are, from its runtime inspector, and those that are on.

The inspector's table marks a plan as on where the configuration asks for it. Whether it was applied, and how often, is
told by the session that runs, in the layout that training logs have, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import sympy

from ...formats import clean, read_opportunities
from ...records import Plan, parse_plan

__all__ = ["Opportunities", "Opportunity", "read_session"]


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
    """What one graph offers, and what of it is on.

    ``sizes`` are the values of the symbols, which ORTModule names after a root's inputs: ``input_ids_dim0``.
    ``applied`` are (cluster id, strategy) of the plans that were applied at least once.
    """

    rows: tuple[Opportunity, ...] = ()
    sizes: dict[sympy.Symbol, int] = field(default_factory=dict)
    applied: frozenset[tuple[str, int]] = frozenset()

    @property
    def known(self) -> frozenset[tuple[str, int]]:
        """(Cluster id, strategy) of every plan that there is."""
        return frozenset((plan.cluster_id, plan.strategy) for row in self.rows for plan in row.plans)


def read_session(manager: Any) -> Opportunities:
    """Ask the session that an execution manager of ORTModule has built."""
    options = manager._runtime_options
    observer = manager._runtime_inspector.memory_ob
    rows = tuple(
        Opportunity(
            tuple(parse_plan(text) for text in combination.split(",")),
            summary.freq,
            summary.simplified_symbolic_saving_expr,
        )
        for combination, summary in observer.cluster_id_combination_to_saving_symbolics_map.items()
    )
    table, _ = manager._execution_agent.get_serialized_ortmodule_memory_stat(
        options.memory_optimizer_config_file_path, options.recompute_probe_config, True
    )
    on = (plan for found in read_opportunities(clean(table.splitlines())) for plan in found.on)
    sizes = {symbol: int(value) for symbol, value in observer.symbolic_dim_name_to_value_map.items()}
    return Opportunities(rows, sizes, frozenset((plan.cluster_id, plan.strategy) for plan in on))
