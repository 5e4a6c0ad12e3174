"""A model with its weights, and what it computes, in another type, and how far its outputs are from the model's own.

It is made in a process of its own, as what that takes would be in the peak of whoever runs the model. It stays in a
folder for later runs of the same study, which a bundle is made from.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..metering.host import die_with_parent
from ..records.codec import from_json
from ..records.inference import Conversion, Converted
from ..records.proof import GroupDifference, difference_of, widest
from ..records.session import CONVERTED_JSON_NAME, CONVERTED_MODEL_NAME, Session
from .feeds import Feed, Shapes, samples
from .model import Model, ModelError
from .session import Runner

Outputs = dict[str, npt.NDArray[Any]]


def keep(directory: Path, step: int, outputs: Outputs) -> None:
    """Keep a step's outputs for later runs."""
    arrays: dict[str, Any] = {f"o{number}": _as_kept(one) for number, one in enumerate(outputs.values())}
    np.savez(directory / f"values-0-{step}.npz", **arrays)


def compare(directory: Path, steps: Sequence[Outputs]) -> GroupDifference:
    """Return how the outputs of these steps, from 1 on, differ from those that a run kept in its folder."""
    found = []
    for number, outputs in enumerate(steps, start=1):
        with np.load(directory / f"values-0-{number}.npz", allow_pickle=False) as file:
            others = [file[f"o{place}"] for place in range(len(file.files))]
        pairs = zip(outputs.items(), others, strict=True)
        found.append(tuple(_difference(_as_kept(output), other, name, number) for (name, output), other in pairs))
    return difference_of(widest(found), "outputs")


def furthest(pairs: Iterable[tuple[Sequence[npt.NDArray[Any]], Sequence[npt.NDArray[Any]]]]) -> float | None:
    """Return the largest difference between outputs, the model's own first, relative to its own output's largest value.

    None where a difference has no size.
    """
    found = 0.0
    for outputs, others in pairs:
        for own, other in zip(outputs, others, strict=True):
            one = _difference(other, own)
            if one.differing and one.absolute != 0 and one.relative is None:
                return None
            found = max(found, one.relative or 0.0)
    return found


def _as_kept(one: npt.NDArray[Any]) -> npt.NDArray[Any]:
    # Strings come as objects, which no file holds without pickling them.
    return one.astype(str) if one.dtype == object else one


def _difference(own: npt.NDArray[Any], other: npt.NDArray[Any], name: str = "", step: int = 0) -> GroupDifference:
    """Return how one output differs from another; the relative difference is over the other's largest value."""
    if own.dtype == other.dtype and own.shape == other.shape and own.tobytes() == other.tobytes():
        return GroupDifference("outputs", 1)
    absolute = relative = None
    if own.shape == other.shape and own.dtype.kind in "fiu" and other.dtype.kind in "fiu":
        reference = other.astype(np.float64)
        distances = np.abs(own.astype(np.float64) - reference)
        if np.isfinite(distances).all():
            absolute = float(distances.max(initial=0.0))
            relative = absolute / largest if (largest := float(np.abs(reference).max(initial=0.0))) else None
    return GroupDifference("outputs", 1, 1, name, step, absolute, relative)


def convert(
    path: Path, model: Model, conversion: Conversion, shapes: Shapes, folder: Path, *, key: str
) -> tuple[Path, Converted]:
    """Convert a model, unless that was done before; return the converted model's file, and what it came to.

    Outputs are compared on inputs of these ``shapes``. What has to be calibrated is calibrated on the first half of a
    file's samples, and compared on the second. ``folder`` gets a folder with the conversion's name. ``key`` says what
    is converted; what was kept of anything else is made anew.

    Raises:
        ModelError: it cannot be converted.
    """
    target = folder / conversion
    if (found := _kept(target, key)) is not None:
        return target / CONVERTED_MODEL_NAME, found
    if conversion == "int8-static" and not shapes.file:
        raise ModelError("int8-static is calibrated on inputs, and none were given", "give them with --inputs FILE")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{conversion}-", dir=folder) as made:
        # ONNX Runtime has made no threads yet, so a fork is a process like any other, and needs no second start.
        context = multiprocessing.get_context("fork")
        told, tell = context.Pipe(duplex=False)
        process = context.Process(target=_make, args=(path, conversion, Path(made), samples(model, shapes), key, tell))
        process.start()
        tell.close()
        try:
            refusal = told.recv()
        except EOFError:
            refusal = "the process that made it ended without a word, as it does where memory runs out"
        process.join()
        if refusal:
            raise ModelError(f"it cannot be converted to {conversion}: {refusal}", f"leave {conversion} out of --allow")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target)
    kept = _kept(target, key)
    assert kept is not None, "it was made a moment ago"
    return target / CONVERTED_MODEL_NAME, kept


def _kept(folder: Path, key: str) -> Converted | None:
    try:
        document = json.loads((folder / CONVERTED_JSON_NAME).read_text())
        return from_json(Converted, document["converted"]) if document["key"] == key else None
    except (OSError, ValueError, KeyError):
        return None


def _make(path: Path, conversion: Conversion, folder: Path, feeds: list[Feed], key: str, tell: Any) -> None:
    """Convert and compare in the other process; tell why that failed, or nothing."""
    die_with_parent()
    logging.disable(logging.WARNING)  # advice to whoever calls these tools
    try:
        half = len(feeds) // 2 if conversion == "int8-static" else 0
        calibrated_on, compared_on = feeds[:half] or feeds, feeds[half:]
        # Its import takes memory, which must not be in the peak of whoever runs the model.
        from .quantize import WAYS

        WAYS[conversion](path, folder / CONVERTED_MODEL_NAME, calibrated_on)
        own, other = Runner(path, Session()), Runner(folder / CONVERTED_MODEL_NAME, Session())
        error = furthest((own.run(feed), other.run(feed)) for feed in compared_on)
        if error is None:
            raise ModelError("outputs that were finite are not any more, or are not zero any more", "")
        size = sum(one.stat().st_size for one in folder.iterdir())
        document = {"key": key, "converted": asdict(Converted(conversion, size, error))}
        (folder / CONVERTED_JSON_NAME).write_text(json.dumps(document))
        tell.send("")
    except Exception as failure:  # libraries raise what they like
        tell.send(" ".join(str(failure).split())[:300] or type(failure).__name__)
