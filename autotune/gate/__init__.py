"""The gate: a setting held against what it was, with an answer that CI can act on.

``judge_loss`` is the test, ``weigh`` what rounds show of speed and memory, ``decide_gate`` the answer in sentences.
``baseline.py`` says what the setting came to before, and what to compare with on this device. Each other file writes
the answer in one form. ``graphs.py`` decides without any rounds. Nothing here starts a run.
"""

from .baseline import (
    LEAST_ROUNDS,
    baseline_of_bundle,
    differences,
    is_same_device,
    new_baseline,
    read_baseline,
    reference_for,
    why_no_baseline,
    write_baseline,
)
from .benchmark_json import render_benchmark_action, render_bmf
from .decision import decide_gate, not_comparable
from .graphs import decide_by_graphs, graphs_failed
from .junit import render_junit
from .markdown import render_markdown
from .rule import LEAST_ALLOWED, Loss, judge_loss
from .sarif import render_sarif
from .weighing import Allowed, GateRound, is_told, weigh

__all__ = [
    "LEAST_ALLOWED",
    "LEAST_ROUNDS",
    "Allowed",
    "GateRound",
    "Loss",
    "baseline_of_bundle",
    "decide_by_graphs",
    "decide_gate",
    "differences",
    "graphs_failed",
    "is_same_device",
    "is_told",
    "judge_loss",
    "new_baseline",
    "not_comparable",
    "read_baseline",
    "reference_for",
    "render_benchmark_action",
    "render_bmf",
    "render_junit",
    "render_markdown",
    "render_sarif",
    "weigh",
    "why_no_baseline",
    "write_baseline",
]
