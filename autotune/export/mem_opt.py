"""``mem_opt.json``: the plans, in the file format of ONNX Runtime's Memory Optimizer."""

from __future__ import annotations

from ..records.plan import dump_mem_opt, parse_plans
from ..records.stack import Stack

MEM_OPT_NAME = "mem_opt.json"


def render_mem_opt(stack: Stack) -> str:
    """The file's contents: one plan a line, none twice."""
    return dump_mem_opt(parse_plans(stack.plans))
