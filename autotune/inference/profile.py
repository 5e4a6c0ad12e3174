"""Where the time of a run goes, and its largest tensors, by ONNX Runtime's own profile."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from ..records import LargeTensor, OperatorTime, Session
from .feeds import Feed
from .session import Runner

__all__ = ["profile"]

# The first runs make patterns and fill caches; the last one is looked at.
_RUNS = 4
_MOST_TENSORS = 8
# An operator's event; others are told of fences around it.
_KERNEL = "_kernel_time"


def profile(path: Path, feed: Feed) -> tuple[tuple[OperatorTime, ...], tuple[LargeTensor, ...]]:
    """Run the model with its defaults under ONNX Runtime's profiler.

    Returns:
        The kinds of operators, the slowest first, and the largest tensors; both are empty where no profile was written.
    """
    with tempfile.TemporaryDirectory(prefix="autotune-profile-") as folder:
        runner = Runner(path, Session(), profile_prefix=str(Path(folder) / "run"))
        for _ in range(_RUNS):
            runner.run(feed)
        written = Path(runner.session.end_profiling())
        try:
            events: list[dict[str, Any]] = json.loads(written.read_text())
        except (OSError, ValueError):
            return (), ()
    runs = [one for one in events if one.get("name") == "model_run"]
    if not runs:
        return (), ()
    last = max(runs, key=lambda one: one["ts"])
    ends = last["ts"] + last["dur"]
    nodes = [
        one
        for one in events
        if one.get("cat") == "Node" and one["name"].endswith(_KERNEL) and last["ts"] <= one["ts"] <= ends
    ]
    kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for node in nodes:
        kinds[node["args"]["op_name"]].append(node)
    operators = [
        OperatorTime(kind, len(of_kind), sum(one["dur"] for one in of_kind) / 1e6, sum(map(_output_bytes, of_kind)))
        for kind, of_kind in kinds.items()
    ]
    tensors = [LargeTensor(node["name"].removesuffix(_KERNEL), _output_bytes(node)) for node in nodes]
    return (
        tuple(sorted(operators, key=lambda one: -one.time_s)),
        tuple(sorted(tensors, key=lambda one: -one.bytes)[:_MOST_TENSORS]),
    )


def _output_bytes(node: dict[str, Any]) -> int:
    return int(node["args"].get("output_size", 0))
