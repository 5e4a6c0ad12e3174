"""A study as experiment trackers know things: a run for each trial, with parameters and metrics."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["TrackedRun", "TrackedStudy", "tracked"]

# Where trackers stop reading: MLflow takes 6,000 characters of a parameter, 500 in earlier versions.
_LONGEST = 500


@dataclass(frozen=True)
class TrackedRun:
    """A trial that has ended: times are seconds since the epoch, bytes and samples/s stand in the metrics' names."""

    name: str
    params: Mapping[str, str | int]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    started_at: float
    ended_at: float
    failed: bool


@dataclass(frozen=True)
class TrackedStudy:
    """A study: ``identity`` is the same at each sending, and no other study's."""

    identity: str
    name: str
    created_at: float
    params: Mapping[str, str | int]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    runs: tuple[TrackedRun, ...]


def tracked(document: Mapping[str, Any]) -> TrackedStudy:
    """Read a report's document (``report.build_document``); trials that still run are left to the next sending."""
    study, verdict, environment = document["study"], document["verdict"] or {}, document["environment"] or {}
    settings = document["settings"]
    figures = {
        f"{which}_{name}": (document[which] or {}).get(name)
        for which in ("baseline", "winner")
        for name in ("samples_per_s", "peak_bytes")
    }
    gain = document["gain"] or {}
    return TrackedStudy(
        identity=hashlib.sha256(f"{study['name']}\0{study['created_at']}".encode()).hexdigest()[:16],
        name=study["name"],
        created_at=study["created_at"],
        params=_texts(
            script=study["script"],
            engine=settings["engine"],
            objective=settings["objective"]["goal"],
            memory_limit_bytes=document["limit_bytes"],
            device=environment.get("device_name"),
            num_devices=environment.get("num_devices"),
            torch=environment.get("torch"),
            autotune=study["autotune"],
        ),
        metrics=_numbers(**figures, **({f"gain_{gain['quantity']}": gain["factor"]} if gain else {})),
        tags={
            name: str(value)
            for name, value in _texts(
                answer=verdict.get("answer"),
                reason=verdict.get("reason"),
                confirmed=str(verdict["is_confirmed"]).lower() if verdict else None,
                winner=(document["winner"] or {}).get("text"),
            ).items()
        },
        runs=tuple(_run(point) for point in document["points"] if point["took_s"] is not None),
    )


def _run(point: Mapping[str, Any]) -> TrackedRun:
    notes = (name for name in ("is_baseline", "is_winner", "on_front", "fits") if point[name])
    return TrackedRun(
        name=f"trial-{point['number']}",
        params=_texts(
            configuration=point["configuration"],
            engine=point["engine"],
            batch_size=point["batch_size"],
            level=point["level"],
            plans=" ".join(point["plans"]) or "none",
        ),
        metrics=_numbers(
            samples_per_s=point["samples_per_s"],
            samples_per_s_low=point["low"],
            samples_per_s_high=point["high"],
            peak_bytes=point["peak_bytes"],
            needed_bytes=point["needed_bytes"],
            took_s=point["took_s"],
        ),
        tags={
            name: str(value)
            for name, value in _texts(
                outcome=point["outcome"],
                cause=point["cause"] or None,
                notes="; ".join(point["notes"]) or None,
                standing=", ".join(name.removeprefix("is_").replace("_", " ") for name in notes) or None,
            ).items()
        },
        started_at=point["started_at"],
        ended_at=point["started_at"] + point["took_s"],
        failed=point["outcome"] != "measured",
    )


def _texts(**values: str | int | None) -> dict[str, str | int]:
    return {
        name: value[:_LONGEST] if isinstance(value, str) else value
        for name, value in values.items()
        if value is not None
    }


def _numbers(**values: float | None) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if value is not None}
