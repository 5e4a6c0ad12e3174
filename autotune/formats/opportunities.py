"""The table of opportunities: what the graph transformer prints from DEVINFO on, since release 1.17.

::

    MemoryInsight Summary - User config: Gelu+:1:-1
    |Freq   | Memory Optimization Opportunities (Clustered by node-level activation patterns)     |
    |4      |For each row options are mutually exclusive, only one of them can be enabled.        |
    |       |>>Option 1     : Recompute subgraph Gelu+                                            |
    |       |  Status       : Enabled, requested count=-1, actual applied count=4                 |
    |       |  Stashed Activations:                                                               |
    |       |   - Output 0  : [((ids_dim0)*(ids_dim1)*(1024))], byte/elem: 4, 100% saved          |

Source: orttraining/core/optimizer/memory_optimizer/memory_insight.cc. Rows are nodes of one pattern: several may have
the same subgraph, which are one row here; of the options of one node, one can be on. What they save together is not the
sum of the outputs (some are shared), so savings are left to the plan table, which such a log has as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..records.plan import ALL, COMPROMISED, RECOMPUTE, Plan
from .lines import Line
from .table import LoggedPlan, PlanTable, asked_plans, listed_plans

_TITLE = re.compile(r"MemoryInsight Summary - User config(?:: (.*)| file path: .*)")
_NODES = re.compile(r"\|\s*(\S*)\s*\|For each row options are mutually exclusive")
_OPTION = re.compile(r">>Option \d+\s*: (\w+) subgraph (\S*)")
_STATUS = re.compile(r"\|\s*Status\s*:\s*(.*?)\s*\|?$")
_OUTPUT = re.compile(r"- Output \d+\s*:\s*\[(.*)\], byte/elem: (\d+), (\d+)% saved")
_STRATEGIES = {"Recompute": RECOMPUTE, "RecomputeWithCompromise": COMPROMISED}


def read_opportunities(lines: Iterable[Line]) -> Iterator[PlanTable]:
    """Read every table of this layout; FormatError names the line that breaks off one."""
    rows: list[LoggedPlan] = []
    groups: list[list[Plan]] = []
    config: tuple[Plan, ...] = ()
    frequency: int | None = None
    is_open = False  # the last row waits for its status
    for line in lines:
        if title := _TITLE.search(line.text):
            yield from _tables(rows, groups, config)
            rows, groups, frequency, config = [], [], None, _config(line, title[1] or "")
        elif nodes := _NODES.search(line.text):
            if not nodes[1].isdecimal():
                raise line.malformed(f"the frequency is no whole number: {nodes[1]!r}")
            frequency = int(nodes[1])
            groups.append([])
        elif option := _OPTION.search(line.text):
            if frequency is None:
                raise line.malformed("no frequency stands before this option")
            rows.append(LoggedPlan(line.number, _plans(line, option[1], option[2]), is_on=False, frequency=frequency))
            groups[-1] += rows[-1].plans
            is_open = True
        elif status := _STATUS.search(line.text):
            if not is_open:
                raise line.malformed("no option stands before this status")
            if not status[1].startswith(("Enabled", "Disabled")):
                raise line.malformed(f"expected Enabled or Disabled, got {status[1]!r}")
            rows[-1] = replace(rows[-1], is_on=status[1].startswith("Enabled"))
            is_open = False
        elif (output := _OUTPUT.search(line.text)) and rows:
            shape = f"{output[1]}, {output[2]} bytes each, {output[3]}% saved"
            rows[-1] = replace(rows[-1], shapes=(*rows[-1].shapes, shape))
    yield from _tables(rows, groups, config)


def _tables(rows: list[LoggedPlan], groups: list[list[Plan]], config: tuple[Plan, ...]) -> Iterator[PlanTable]:
    merged: dict[tuple[Plan, ...], LoggedPlan] = {}
    for row in rows:
        before = merged.get(row.plans, replace(row, frequency=0, shapes=(), is_on=False))
        merged[row.plans] = replace(
            before,
            is_on=before.is_on or row.is_on,
            frequency=(before.frequency or 0) + (row.frequency or 0),
            shapes=tuple(dict.fromkeys((*before.shapes, *row.shapes))),
        )
    if merged:
        alternatives = dict.fromkeys(tuple(group) for group in groups if len(group) > 1)
        yield PlanTable(
            "opportunities", rows[0].line, tuple(merged.values()), config=config, alternatives=tuple(alternatives)
        )


def _plans(line: Line, name: str, cluster_id: str) -> tuple[Plan, ...]:
    if name not in _STRATEGIES:
        raise line.malformed(f"expected Recompute or RecomputeWithCompromise, got {name!r}")
    return listed_plans(line, f"{cluster_id}:{_STRATEGIES[name]}:{ALL}")


def _config(line: Line, text: str) -> tuple[Plan, ...]:
    return () if text.strip() in ("", "not provided") else asked_plans(line, text)
