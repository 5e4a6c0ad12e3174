"""The experiment trackers, and what they share: a study as trackers take it, its place there, and errors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from ...errors import AutotuneError, RunError, UsageError
from ...report.record import Point, Report

TRACKERS: Mapping[str, str] = {"mlflow": "MLflow", "wandb": "Weights & Biases", "tensorboard": "TensorBoard"}
"""Each a module of this package with a function ``send``, and an extra of the distribution; with its full name."""


@dataclass(frozen=True)
class Sent:
    """The place of a study in a tracker, the command that shows it, and the number of trials that were sent now."""

    where: str
    look: str
    new: int


def send(study: TrackedStudy, to: str, *, folder: Path, bundle: Path | None) -> Sent:
    """Send a study to one of ``TRACKERS``; a study that is sent again is there once, as it stands by then.

    Trackers that are files write them to ``folder``; those that keep files get the ``bundle``. UsageError where the
    tracker's package is not installed, RunError where the tracker cannot be reached or refuses.
    """
    try:
        module = import_module(f"{__package__}.{to}")
    except ImportError as error:
        raise UsageError(
            f"{TRACKERS[to]} cannot be used here: {error}", hint=f"pip install 'autotune-memory[{to}]'"
        ) from None
    try:
        return cast("Sent", module.send(study, folder=folder, bundle=bundle))
    except AutotuneError:
        raise
    except Exception as error:  # a tracker's client may raise anything: its own, its transport's, the disk's
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise RunError(f"{TRACKERS[to]} did not take the study: {lines[0]}", hint=module.NEXT) from error


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


def tracked(report: Report) -> TrackedStudy:
    """Read a study's report; trials that still run are left to the next sending."""
    study, verdict, environment = report.study, report.verdict, report.environment
    settings = report.settings
    figures: dict[str, float | None] = {}
    for which, setting in (("baseline", report.baseline), ("winner", report.winner)):
        if setting is not None:
            figures[f"{which}_samples_per_s"] = setting.samples_per_s
            figures[f"{which}_peak_bytes"] = setting.peak_bytes
    if report.gain is not None:
        figures[f"gain_{report.gain.quantity}"] = report.gain.factor
    return TrackedStudy(
        identity=hashlib.sha256(f"{study.name}\0{study.created_at}".encode()).hexdigest()[:16],
        name=study.name,
        created_at=study.created_at,
        params=_texts(
            script=study.script,
            engine=settings.engine,
            objective=settings.objective.goal,
            memory_limit_bytes=report.limit_bytes,
            device=None if environment is None else environment.device_name,
            num_devices=None if environment is None else environment.num_devices,
            torch=None if environment is None else environment.torch,
            autotune=study.autotune,
        ),
        metrics=_numbers(**figures),
        tags=_tags(
            answer=None if verdict is None else verdict.answer,
            reason=None if verdict is None else verdict.sentences,
            confirmed=None if verdict is None else str(verdict.is_confirmed).lower(),
            winner=None if report.winner is None else report.winner.text,
        ),
        runs=tuple(_run(point, point.took_s) for point in report.points if point.took_s is not None),
    )


def _run(point: Point, took_s: float) -> TrackedRun:
    standing = {
        "baseline": point.is_baseline,
        "winner": point.is_winner,
        "on front": point.on_front,
        "fits": point.fits,
    }
    return TrackedRun(
        name=f"trial-{point.number}",
        params=_texts(
            configuration=point.configuration,
            engine=point.engine,
            batch_size=point.batch_size,
            level=point.level,
            plans=" ".join(point.plans) or "none",
        ),
        metrics=_numbers(
            samples_per_s=point.samples_per_s,
            samples_per_s_low=None if point.figures is None else point.figures.samples_per_s_low,
            samples_per_s_high=None if point.figures is None else point.figures.samples_per_s_high,
            peak_bytes=point.peak_bytes,
            needed_bytes=point.needed_bytes,
            took_s=took_s,
        ),
        tags=_tags(
            outcome=point.outcome,
            cause=point.cause,
            notes="; ".join(point.notes),
            standing=", ".join(name for name, holds in standing.items() if holds),
        ),
        started_at=point.started_at,
        ended_at=point.started_at + took_s,
        failed=point.outcome != "measured",
    )


def _texts(**values: str | int | None) -> dict[str, str | int]:
    return {
        name: value[:_LONGEST] if isinstance(value, str) else value
        for name, value in values.items()
        if value is not None
    }


def _tags(**values: str | None) -> dict[str, str]:
    return {name: value[:_LONGEST] for name, value in values.items() if value}


def _numbers(**values: float | None) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if value is not None}
