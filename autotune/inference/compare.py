"""Outputs held against those of other runs on the same inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..records.proof import GroupDifference

Outputs = dict[str, npt.NDArray[Any]]


def keep(directory: Path, step: int, outputs: Outputs) -> None:
    """Keep a step's outputs for later runs."""
    arrays: dict[str, Any] = {f"o{number}": _as_kept(one) for number, one in enumerate(outputs.values())}
    np.savez(directory / f"values-0-{step}.npz", **arrays)


def compare(directory: Path, steps: Sequence[Outputs]) -> GroupDifference:
    """Return how the outputs of these steps, from 1 on, differ from those that a run kept in its folder."""
    compared = differing = 0
    widest = GroupDifference("outputs")
    for number, outputs in enumerate(steps, start=1):
        with np.load(directory / f"values-0-{number}.npz", allow_pickle=False) as file:
            others = [file[f"o{place}"] for place in range(len(file.files))]
        for (name, output), other in zip(outputs.items(), others, strict=True):
            compared += 1
            own = _as_kept(output)
            if _is_equal(own, other):
                continue
            differing += 1
            absolute = _distance(own, other)
            largest = _largest(other)
            relative = None if absolute is None else absolute / largest if largest else None
            found = GroupDifference("outputs", name=name, step=number, absolute=absolute, relative=relative)
            if not widest.name or (widest.relative is not None and (relative is None or relative > widest.relative)):
                widest = found
    return GroupDifference("outputs", compared, differing, widest.name, widest.step, widest.absolute, widest.relative)


def furthest(pairs: Iterable[tuple[Sequence[npt.NDArray[Any]], Sequence[npt.NDArray[Any]]]]) -> float | None:
    """The largest difference between outputs, the model's own first, in units of the largest value of its own output.

    None where a difference has no size.
    """
    found = 0.0
    for outputs, others in pairs:
        for own, other in zip(outputs, others, strict=True):
            if _is_equal(own, other):
                continue
            distance, largest = _distance(own, other), _largest(own)
            if distance is None or (distance and not largest):
                return None
            found = max(found, distance / largest if largest else 0.0)
    return found


def _as_kept(one: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Strings come as objects, which no file holds without pickling them."""
    return one.astype(str) if one.dtype == object else one


def _is_equal(own: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    return own.dtype == other.dtype and own.shape == other.shape and own.tobytes() == other.tobytes()


def _largest(one: npt.NDArray[Any]) -> float:
    if one.dtype.kind not in "fiu" or not one.size:
        return 0.0
    return float(np.max(np.abs(one.astype(np.float64)), initial=0.0, where=np.isfinite(one)))


def _distance(own: npt.NDArray[Any], other: npt.NDArray[Any]) -> float | None:
    """The largest difference; None where it has no size."""
    if own.shape != other.shape or own.dtype.kind not in "fiu" or other.dtype.kind not in "fiu":
        return None
    distances = np.abs(own.astype(np.float64) - other.astype(np.float64))
    return float(distances.max(initial=0.0)) if np.isfinite(distances).all() else None
