"""Outputs held against those of other runs on the same inputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..records import GroupDifference

__all__ = ["compare", "keep"]

Outputs = dict[str, npt.NDArray[Any]]


def keep(directory: Path, step: int, outputs: Outputs) -> None:
    """Keep a step's outputs for later runs."""
    arrays: dict[str, Any] = {f"o{number}": one for number, one in enumerate(outputs.values())}
    np.savez(directory / f"values-0-{step}.npz", **arrays)


def compare(directory: Path, steps: Sequence[Outputs]) -> GroupDifference:
    """How the outputs of these steps, from 1 on, differ from those that a run kept in its folder."""
    compared = differing = 0
    widest = GroupDifference("outputs")
    for number, outputs in enumerate(steps, start=1):
        with np.load(directory / f"values-0-{number}.npz", allow_pickle=False) as file:
            others = [file[f"o{place}"] for place in range(len(file.files))]
        largest = max((_largest(one) for one in others), default=0.0)
        for (name, own), other in zip(outputs.items(), others, strict=True):
            compared += 1
            if own.dtype == other.dtype and own.shape == other.shape and own.tobytes() == other.tobytes():
                continue
            differing += 1
            absolute = _distance(own, other)
            relative = None if absolute is None else absolute / largest if largest else None
            found = GroupDifference("outputs", name=name, step=number, absolute=absolute, relative=relative)
            if not widest.name or (widest.relative is not None and (relative is None or relative > widest.relative)):
                widest = found
    return GroupDifference("outputs", compared, differing, widest.name, widest.step, widest.absolute, widest.relative)


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
