"""What was measured, for services that keep figures over time: Bencher and github-action-benchmark."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

from ..records.gate import Gate


def render_bmf(gate: Gate, script: str) -> str:
    """Write Bencher's metric format: medians of the rounds, with the least and the most; ``{}`` without any.

    Args:
        gate: the answer.
        script: the script's path, which names the benchmark.
    """
    reading = gate.reading
    if reading is None:
        return "{}\n"
    # Bencher makes a measure that it does not know; it has one for operations per second.
    measures = {"throughput": _measure(reading.samples_per_s), "peak-memory": _measure(reading.peak_bytes)}
    return json.dumps({script: measures}, indent=2) + "\n"


def render_benchmark_action(gate: Gate, script: str) -> str:
    """Write what ``benchmark-action/github-action-benchmark`` reads as ``customSmallerIsBetter``.

    Both figures have to be better where they are smaller, so the speed is told as time per sample.

    Args:
        gate: the answer.
        script: the script's path, which names the benchmarks.
    """
    reading = gate.reading
    if reading is None:
        return "[]\n"
    figures = (
        ("time per sample", "ms", [1e3 / rate for rate in reading.samples_per_s]),
        ("peak memory", "MiB", [size / 2**20 for size in reading.peak_bytes]),
    )
    rows: list[dict[str, Any]] = [
        {
            "name": f"{script}: {name}",
            "unit": unit,
            "value": statistics.median(values),
            "range": f"{min(values):.4g} to {max(values):.4g}",
            "extra": gate.sentences[0],
        }
        for name, unit, values in figures
    ]
    return json.dumps(rows, indent=2) + "\n"


def _measure(values: Sequence[float]) -> dict[str, float]:
    return {"value": statistics.median(values), "lower_value": min(values), "upper_value": max(values)}
