"""Discovery under engine ``ortmodule``: ONNX Runtime's own table of opportunities, as a plan table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import sympy
from torch import nn

from ...records.facts import ClusterFacts
from ..engines.ortmodule import OrtModuleEngine
from ..engines.ortmodule_plans import Opportunities
from ..hooks.samples import tensors_of
from .description import Description, PlanTable
from .root_inputs import RootCall

# ORTModule's name for a size of an input: the input, and which dimension.
_SIZE = re.compile(r".*_dim(\d+)$")


@dataclass(eq=False)
class OrtModuleDescription(Description):
    """One step tells everything: ONNX Runtime finds the plans as it builds its graph."""

    engine: OrtModuleEngine

    def __post_init__(self) -> None:
        self._names: dict[tuple[int, int], str] = {}

    def see_call(self, call: RootCall) -> None:
        """Note what the sizes of a root's inputs mean."""
        dimension = call.dimension
        for tensor in tensors_of((call.arguments, call.keywords)):
            if tensor.dim() > dimension:
                self._names.setdefault((dimension, tensor.shape[dimension]), "batch")
            if tensor.dim() == 2 and not tensor.is_floating_point():
                self._names.setdefault((1 - dimension, tensor.shape[1 - dimension]), "seq_len")

    def step_done(self) -> bool:
        """Note that the first step under the engine is the last."""
        return True

    def plan_table(self, modules: list[nn.Module], batch: int | None) -> PlanTable:
        """Return what ONNX Runtime can recompute, of all roots."""
        del modules
        found = self.engine.opportunities
        sizes = {symbol: value for one in found for symbol, value in one.sizes.items()}
        names, values = size_names(sizes, self._names)
        if batch is not None and "batch" in values:
            # The first batch may have been an epoch's smaller last one; the table is for the usual one.
            values["batch"] = batch
        rows, notes = plan_rows(found, names, values)
        return PlanTable(rows if self.engine.problem() is None else (), values, notes=notes)


def size_names(
    sizes: dict[sympy.Symbol, int], known: dict[tuple[int, int], str]
) -> tuple[dict[sympy.Symbol, sympy.Symbol], dict[str, int]]:
    """Return ORTModule's symbols under the names that people know, and their values.

    ``known`` are names by (which dimension, size) of the script's tensors.
    """
    names: dict[sympy.Symbol, sympy.Symbol] = {}
    values: dict[str, int] = {}
    for symbol, value in sizes.items():
        match = _SIZE.match(str(symbol))
        name = known.get((int(match[1]), value), str(symbol)) if match else str(symbol)
        names[symbol] = sympy.Symbol(name)
        values[name] = value
    return names, values


def plan_rows(
    found: Iterable[Opportunities], names: dict[sympy.Symbol, sympy.Symbol], values: dict[str, int]
) -> tuple[tuple[ClusterFacts, ...], tuple[str, ...]]:
    """Return the rows by what they save, and what to know about them; clusters of several graphs are one row.

    A row that only several plans save together is told in a note: each of the plans has its own row, or saves nothing.
    """
    found = list(found)
    savings: dict[tuple[str, int], sympy.Expr] = {}
    frequencies: Counter[tuple[str, int]] = Counter()
    together: list[str] = []
    for one in found:
        for row in one.rows:
            if len(row.plans) > 1:
                together.append(" with ".join(plan.cluster_id for plan in row.plans))
                continue
            key = row.plans[0].cluster_id, row.plans[0].strategy
            savings[key] = savings.get(key, sympy.Integer(0)) + row.saving.subs(names)
            frequencies[key] += row.frequency
    rows = []
    for (cluster_id, strategy), saving in savings.items():
        amount = saving.subs(values)
        if not amount.is_number or amount <= 0:
            continue
        # Some operator of these clusters cannot be of this one too.
        excluded = [group for one in found for group in one.alternatives if (cluster_id, strategy) in group]
        rows.append(
            ClusterFacts(
                cluster_id=cluster_id,
                strategy=strategy,
                frequency=frequencies[cluster_id, strategy],
                saving_bytes=int(amount),
                saving_formula=str(sympy.nsimplify(saving)),
                recompute_time_s=0.0,
                is_indivisible=True,
                excludes=tuple(sorted({name for group in excluded for name, _ in group} - {cluster_id})),
                note="not timed",
            )
        )
    notes = ["plans under engine ortmodule: ONNX Runtime tells what they save, not what they cost"] if rows else []
    if together:
        notes.append(f"these save more together: {'; '.join(dict.fromkeys(together))}")
    return tuple(sorted(rows, key=lambda row: -row.saving_bytes)), tuple(notes)
