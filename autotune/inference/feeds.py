"""The inputs that a model is fed: drawn once for each shape, with a fixed seed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .model import Input, Model, ModelError

__all__ = ["Feed", "Shapes", "make_feeds", "read_shapes"]

Feed = dict[str, npt.NDArray[np.generic]]

_SEED = 0
# A mix is taken as a round of so many runs at most, in which each shape has its share.
_LONGEST_ROUND = 20
_ENTRY = re.compile(r"(?P<size>[1-9]\d{0,8})(?::(?P<weight>\d*\.?\d+))?")


@dataclass(frozen=True)
class Shapes:
    """What was asked of the model's dimensions: sizes by name, each with its weight, and a file with inputs."""

    sizes: dict[str, tuple[tuple[int, float], ...]]
    file: str = ""


def read_shapes(arguments: Sequence[str]) -> Shapes:
    """Read ``--shape name=value``, ``--shape name=value:weight,value:weight`` and ``--inputs FILE``, in any order.

    ModelError for anything else.
    """
    sizes: dict[str, tuple[tuple[int, float], ...]] = {}
    file = ""
    words = [part for word in arguments for part in (word.split("=", 1) if word.startswith("--") else [word])]
    for option, value in zip(words[::2], [*words[1::2], ""], strict=False):
        if option == "--inputs" and value:
            file = value
        elif option == "--shape" and "=" in value:
            name, _, entries = value.partition("=")
            found = [_ENTRY.fullmatch(entry) for entry in entries.split(",")]
            if not all(found):
                raise ModelError(
                    f"--shape {value}: not a size, nor sizes with weights", "write it as in --shape seq=128:0.8,512:0.2"
                )
            sizes[name] = tuple((int(one["size"]), float(one["weight"] or 1)) for one in found if one)
        else:
            raise ModelError(
                f"a model takes --shape NAME=SIZE and --inputs FILE, not {option!r}", "put them behind `--`"
            )
    return Shapes(sizes, file)


def make_feeds(model: Model, shapes: Shapes, batch_size: int) -> tuple[Feed, ...]:
    """The inputs of one step: one feed, or of a mix of shapes a round of them, spread evenly.

    Args:
        model: the model.
        shapes: the sizes of its dimensions.
        batch_size: of every feed; 0 leaves what the model has.

    Raises:
        ModelError: a size is missing or does not belong to the model, or the file does not fit it.
    """
    unknown = [name for name in shapes.sizes if name not in model.symbols and name != model.batch]
    if unknown:
        named = ", ".join(model.symbols) or "none"
        raise ModelError(f"the model has no dimension {unknown[0]!r}", f"those that have a name are: {named}")
    if shapes.file:
        return (_from_file(model, Path(shapes.file), batch_size),)
    missing = [name for name in model.symbols if name not in shapes.sizes]
    if missing:
        wanted = " ".join(f"--shape {name}=SIZE" for name in missing)
        raise ModelError(f"the size of the model's dimension {missing[0]!r} is not known", f"add `-- {wanted}`")
    generator = np.random.default_rng(_SEED)
    rounds = list(_round(shapes))
    drawn = {key: _draw(model, dict(key), batch_size, generator) for key in dict.fromkeys(rounds)}
    return tuple(drawn[key] for key in rounds)


def _round(shapes: Shapes) -> Iterable[tuple[tuple[str, int], ...]]:
    """The shapes of a round of runs; those of several dimensions are paired as they come."""
    several = {name: sizes for name, sizes in shapes.sizes.items() if len(sizes) > 1}
    fixed = [(name, sizes[0][0]) for name, sizes in shapes.sizes.items() if len(sizes) == 1]
    if not several:
        return [tuple(fixed)]
    length = _LONGEST_ROUND
    columns = {name: _spread(sizes, length) for name, sizes in several.items()}
    return [(*fixed, *((name, column[run]) for name, column in columns.items())) for run in range(length)]


def _spread(sizes: tuple[tuple[int, float], ...], length: int) -> list[int]:
    """Sizes in a fixed order in which each comes as often as its weight says, and evenly."""
    whole = sum(weight for _, weight in sizes)
    owed = [0.0] * len(sizes)
    order = []
    for _ in range(length):
        owed = [debt + weight / whole for debt, (_, weight) in zip(owed, sizes, strict=True)]
        largest = max(range(len(sizes)), key=owed.__getitem__)
        owed[largest] -= 1
        order.append(sizes[largest][0])
    return order


def _draw(model: Model, sizes: dict[str, int], batch_size: int, generator: np.random.Generator) -> Feed:
    own = {**sizes, **({model.batch: batch_size or 1} if model.batch else {})}
    return {one.name: _values(one, [_size(size, own) for size in one.shape], generator) for one in model.inputs}


def _size(size: int | str | None, own: dict[str, int]) -> int:
    return size if isinstance(size, int) else own.get(size or "", 1)


def _values(one: Input, shape: list[int], generator: np.random.Generator) -> npt.NDArray[np.generic]:
    """Indices within what they pick from, masks that let everything through, and normally distributed numbers."""
    dtype = np.dtype(one.dtype)
    if dtype.kind in "iu":
        if one.below is not None:
            return generator.integers(0, one.below, shape).astype(dtype)
        return np.ones(shape, dtype)
    if dtype.kind == "b":
        return np.ones(shape, dtype)
    return generator.standard_normal(shape, dtype=np.float32).astype(dtype)


def _from_file(model: Model, path: Path, batch_size: int) -> Feed:
    """Inputs from a file, its samples repeated or cut to the batch size."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: np.asarray(file[name]) for name in file.files}
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(
            f"--inputs {path}: {error}", "give a file that numpy.savez wrote, an array per input"
        ) from error
    feed: Feed = {}
    for one in model.inputs:
        if one.name not in found:
            raise ModelError(f"--inputs {path} has no array {one.name!r}", "save one for each input of the model")
        array = found[one.name]
        if array.dtype != np.dtype(one.dtype) or array.ndim != len(one.shape):
            raise ModelError(
                f"--inputs {path}: {one.name!r} is {array.dtype} of {array.ndim} dimensions, not {one.dtype} of "
                f"{len(one.shape)}",
                "save it with the type and the dimensions of the model's input",
            )
        if batch_size and one.shape and one.shape[0] == model.batch and len(array):
            array = np.resize(array, (batch_size, *array.shape[1:]))
        feed[one.name] = array
    return feed
