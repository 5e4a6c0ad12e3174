"""``mem_opt.json``: the plans, in the file format of ONNX Runtime's Memory Optimizer."""

from __future__ import annotations

from ..records import Stack, dump_mem_opt, parse_plans

__all__ = ["MEM_OPT_NAME", "render_mem_opt"]

MEM_OPT_NAME = "mem_opt.json"


def render_mem_opt(stack: Stack) -> str:
    """The file's contents: one plan a line, none twice."""
    return dump_mem_opt(parse_plans(stack.plans))
