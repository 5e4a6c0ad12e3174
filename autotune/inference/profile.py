"""Profile of a run by ONNX Runtime's own profiler: operator times, the largest tensors, settings without effect."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..records.inference import Idle, LargeTensor, OperatorTime
from ..records.session import Session
from ..records.session_settings import setting_named
from .feeds import Feed
from .model import Model
from .session import Runner

# The first runs make patterns and fill caches; the last one is looked at.
_RUNS = 4
_MOST_TENSORS = 8
# An operator's event; others are told of fences around it.
_KERNEL = "_kernel_time"
# Settings that change which operators run, or their order, or nothing at all.
_LOOKED_AT = ("optimization", "order")
# Settings of what is done with weights, each with the value that changes something where there are weights.
_OF_WEIGHTS = (("prepacking", 0), ("weights-outside-arena", 1))


def profile(
    path: Path, feed: Feed, *, on_gpu: bool = False
) -> tuple[tuple[OperatorTime, ...], tuple[LargeTensor, ...]]:
    """Run the model with its defaults under ONNX Runtime's profiler.

    Returns the kinds of operators, the slowest first, and the largest tensors. Both are empty where no profile was
    written.
    """
    nodes = _nodes(path, Session(), feed, _RUNS, on_gpu=on_gpu)
    kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for node in nodes:
        kinds[node["args"]["op_name"]].append(node)
    operators = [
        OperatorTime(kind, len(of_kind), sum(one["dur"] for one in of_kind) / 1e6, sum(map(_output_bytes, of_kind)))
        for kind, of_kind in kinds.items()
    ]
    tensors = [LargeTensor(node["name"].removesuffix(_KERNEL), _output_bytes(node)) for node in nodes]
    operators.sort(key=lambda one: -one.time_s)
    tensors.sort(key=lambda one: -one.bytes)
    return tuple(operators), tuple(tensors[:_MOST_TENSORS])


def idle_settings(
    path: Path, model: Model, feed: Feed, *, on_gpu: bool = False, has_one_shape: bool = True
) -> tuple[Idle, ...]:
    """Return the settings that change nothing in how the model runs.

    Some follow from what is in the model. For others the model is profiled with each value: values under which the same
    operators run in the same order are alike. ``has_one_shape``: the model is fed the same shapes in all runs.
    """
    found = []
    if on_gpu and not any("Conv" in kind for kind in model.operators):
        found.append(Idle("conv-search", (1, 2), "it has no convolutions"))
    if on_gpu and (model.chooses or not has_one_shape):
        why = "which operators run depends on its inputs" if model.chooses else "its shapes change from run to run"
        found.append(Idle("cuda-graph", (1,), why))
    if not model.branches and not on_gpu:
        found.append(Idle("parallel", (1,), "each of the model's operators needs the one before"))
    if not model.weight_bytes:
        found += [Idle(name, (value,), "it has no weights") for name, value in _OF_WEIGHTS]
    for name in () if model.chooses else _LOOKED_AT:
        setting = setting_named(name)
        seen: dict[tuple[tuple[str, ...], ...], int] = {}
        idle: dict[int, list[int]] = defaultdict(list)
        # The one that ONNX Runtime takes by itself first, so that others are held against it.
        for value in sorted(range(len(setting.texts)), key=lambda one: (one != setting.default, -one)):
            made = Session(options={setting.key: setting.texts[value]})
            ran = _ran(_nodes(path, made, feed, 1, on_gpu=on_gpu))
            if ran and ran in seen:
                idle[seen[ran]].append(value)
            seen.setdefault(ran, value)
        for same, values in idle.items():
            found.append(Idle(name, tuple(sorted(values)), f"the same operators run as with {name}={same}"))
    return tuple(found)


def _nodes(path: Path, settings: Session, feed: Feed, runs: int, *, on_gpu: bool = False) -> list[dict[str, Any]]:
    """Return the profile's events of operators in the last of so many runs, by their start; empty without a profile."""
    with tempfile.TemporaryDirectory(prefix="autotune-profile-") as folder:
        runner = Runner(path, settings, on_gpu=on_gpu, profile_prefix=str(Path(folder) / "run"))
        for _ in range(runs):
            runner.run(feed)
        written = Path(runner.session.end_profiling())
        try:
            events: list[dict[str, Any]] = json.loads(written.read_text())
        except (OSError, ValueError):
            return []
    runs_seen = (one for one in events if one.get("name") == "model_run")
    last = max(runs_seen, key=lambda one: one["ts"], default=None)
    if last is None:
        return []
    ends = last["ts"] + last["dur"]
    nodes = [
        one
        for one in events
        if one.get("cat") == "Node" and one["name"].endswith(_KERNEL) and last["ts"] <= one["ts"] <= ends
    ]
    return sorted(nodes, key=lambda one: one["ts"])


def _ran(nodes: Sequence[dict[str, Any]]) -> tuple[tuple[str, ...], ...]:
    """Return what tells one graph from another: each operator with the shapes that it took and gave."""
    # Not its name: ONNX Runtime names the operators that it puts in now this way and now that.
    told = ("op_name", "input_type_shape", "output_type_shape", "parameter_size")
    return tuple(tuple(str(node["args"].get(name)) for name in told) for node in nodes)


def _output_bytes(node: dict[str, Any]) -> int:
    return int(node["args"].get("output_size", 0))
