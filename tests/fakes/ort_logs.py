"""Training logs as ONNX Runtime's releases print them, from the rows that they are to tell."""

from __future__ import annotations

from autotune.ort_logs.table import LoggedPlan, PlanTable
from autotune.records.plan import COMPROMISED

# ORTModule on a GPT of four layers: the figures are one real table's.
COLUMNS = """\
Memory Optimizer     :  ON   :  Memory Optimization Level: [USER_SPECIFIED], Optimization Config: [mem_opt.json]
                                Configs                               Freq  Max Saving(Bytes)  Saving Symbolic(Bytes)
 - Plan 1            :  ON   :  FusedMatMul+Add+:1:-1                 4     16,777,216         16384.0*ids_dim0*ids_dim1
 - Plan 2            :  ON   :  Gelu+:1:-1                            4     16,777,216         16384.0*ids_dim0*ids_dim1
 - Plan 3            :  OFF  :  LayerNormalization+:1:-1,Reshape+:1:-1  1   4,096              4.0*ids_dim0*ids_dim1
TritonOp Enabled     :  OFF  :  ORT will switch to Triton for executing some ops to further accelerate training.

Note 3: [Memory Optimizer] Memory saving is calculated based on the 1st batch symbolic dim values:
  ids_dim0=8,  ids_dim1=128,

"""

# A BERT in 2022, as Open MPI tags it, a tag inside of a word.
SUMMARY = """\
[1,0]<stderr>:2022-10-12 14:47:39 [W:onnxruntime:, memory_alleviation.cc:595 PrintSummary]
[1,0]<stderr>:MemoryAlleviation Summary:
[1,0]<stderr>:\tUser config:
[1,0]<stderr>:\tBiasGelu+:1
[1,0]<stderr>:\t=================================
[1,0]<stderr>:\tSubgraph: BiasGelu+
[1,0]<stderr>:\t\tAlleviationType: Recompute
[1,0]<stderr>:\t\tPatterns:\x20
[1,0]<stderr>:\t\t\tPatternShape:input_ids_dim0 x input_ids_dim1 x 4,096 x \tFrequency:24
[1,0]<stderr>:\t--------------------------------
[1,0]<stderr>:\tSubgraph: Reshape[1,0]<stderr>:+
[1,0]<stderr>:\t\tAlleviationType: Disabled
[1,0]<stderr>:\t\tPatterns:\x20
[1,0]<stderr>:\t\t\tPatternShape:labels_dim0 x \tFrequency:1
[1,0]<stderr>:\t--------------------------------
[1,0]<stderr>:\t=================================
"""

OPPORTUNITIES = """\
MemoryInsight Summary - User config file path: not provided
=======================================================================================
|Freq   | Memory Optimization Opportunities (Clustered by node-level activation patterns) |
|_ _ _ _|_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ |
|8      |For each row options are mutually exclusive, only one of them can be enabled.    |
|       |                                                                                 |
|       |>>Option 1     : Recompute subgraph FusedMatMul+Add+                             |
|       |  Status       : Disabled.                                                       |
|       |  Stashed Activations:                                                           |
|       |   - ReuseFreq :  Output 0(4),                                                   |
|       |   - Output 0  : [((ids_dim0)*(4)*(ids_dim1)*(64))], byte/elem: 4, 100% saved    |
|_ _ _ _|_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ |
|4      |For each row options are mutually exclusive, only one of them can be enabled.    |
|       |                                                                                 |
|       |>>Option 1     : Recompute subgraph FusedMatMul+Add+                             |
|       |  Status       : Enabled, requested count=-1, actual applied count=4             |
|       |  Stashed Activations:                                                           |
|       |   - Output 0  : [((ids_dim0)*(4)*(64)*(ids_dim1))], byte/elem: 4, 100% saved    |
|       |                                                                                 |
|       |>>Option 2     : RecomputeWithCompromise subgraph Cast+                          |
|       |  Status       : Disabled. Enable with export ORTMODULE_MEMORY_OPT_CONFIG=Cast+:2:-1 |
|       |  Stashed Activations:                                                           |
|       |   - Output 0  : [((ids_dim0)*(1)*(1)*(ids_dim1))], byte/elem: 4, 50% saved      |
|_ _ _ _|_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ |
"""

MATRIX = (
    "2024-02-27 07:18:55,283 orttraining.rank-0 [INFO] - rank-0 step 1 memory (MiB) | phase: pre_forward"
    " | allocated: 5331 | max allocated: 9039 | cached: 9382 | max cached: 9382 | inactive: 219 | max inactive: 816"
    " | param: 5314 | grad: 0 | buffer: 8\n"
)


def columns(table: PlanTable, *, formulas: bool = True) -> str:
    """A table of layout ``columns``, as ORTModule's PTable sets it: columns as wide as their widest cell."""
    rows = [["", "", "", "", "Configs", "Freq", "Max Saving(Bytes)", "Saving Symbolic(Bytes)"]]
    for number, row in enumerate(table.rows, start=1):
        state = "ON" if row.is_on else "OFF"
        saving = row.saving_formula if row.saving_bytes is None else f"{row.saving_bytes:,}"
        rows.append([f" - Plan {number}", ":", state, ":", row.entry, str(row.frequency), saving, row.saving_formula])
    kept = [row if formulas else row[:-1] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*kept, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in kept]
    config = ",".join(map(str, table.config))
    asked = f"Memory Optimization Level: [{table.level}], Optimization Config: [{config}]"
    sizes = "  ".join(f"{name}={value}," for name, value in table.dimensions.items())
    return "\n".join(
        [
            f"Memory Optimizer     :  ON   :  {asked}",
            *lines,
            "",
            "Note 3: [Memory Optimizer] Memory saving is calculated based on the 1st batch symbolic dim values:",
            f"  {sizes}",
        ]
    )


def summary(rows: list[LoggedPlan]) -> str:
    """A table of layout ``summary``, as releases 1.14 to 1.16 print it."""
    lines = ["MemoryOptimizer Summary:", "\tUser config:", "\t", "\t================================="]
    for compromised, title in ((False, "Recompute"), (True, "RecomputeWithCompromise")):
        lines.append(f"\t########{title}########")
        for row in rows:
            (plan,) = row.plans
            if (plan.strategy == COMPROMISED) is compromised:
                state = "Recompute (requested_count=-1, actual applied_count=1)" if row.is_on else "Disabled"
                lines += [f"\tSubgraph: {plan.cluster_id}", f"\t\tOptimizationType: {state}", "\t\tPatterns: "]
                lines += [f"\t\tPatternShape:{shape} x   Frequency:1" for shape in row.shapes]
                lines.append("\t--------------------------------")
        lines.append("\t=================================")
    return "\n".join(lines)
