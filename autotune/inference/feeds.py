"""The inputs that a model is fed: drawn once for each shape, with a fixed seed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .model import Input, Model, ModelError

Feed = dict[str, npt.NDArray[np.generic]]

_SEED = 0
# A mix is taken as a pass of runs, in which each size has its share: of ranges so many runs, of weights as many
# as they need, at most so many.
_RANGE_RUNS, _LONGEST_PASS = 10, 20
_ENTRY = re.compile(r"(?P<low>[1-9]\d{0,8})(?:-(?P<high>[1-9]\d{0,8}))?(?::(?P<weight>\d*\.?\d+))?")
_MOST_SAMPLES = 100
# Multiples of these, without what is before the point, are spread evenly, and those of one unlike those of another.
_STEPS = ((5**0.5 - 1) / 2, 2**0.5 - 1, 3**0.5 - 1, 7**0.5 - 2)


@dataclass(frozen=True)
class Share:
    """Sizes from ``low`` to ``high``, all equally frequent; ``weight`` is relative to other shares."""

    low: int
    high: int
    weight: float

    def nth(self, number: int, step: float) -> int:
        """Return the n-th of sizes spread over the range; the largest comes first, as it needs the most memory."""
        return self.high - math.floor(number * step % 1 * (self.high - self.low + 1))


@dataclass(frozen=True)
class Shapes:
    """The requested sizes of the model's dimensions by name, and a file with inputs."""

    sizes: dict[str, tuple[Share, ...]]
    file: str = ""

    @property
    def several(self) -> dict[str, tuple[Share, ...]]:
        """Return the dimensions that have more than one size."""
        return {name: one for name, one in self.sizes.items() if len(one) > 1 or one[0].low < one[0].high}

    @property
    def fixed(self) -> dict[str, int]:
        """Return the dimensions that have one size."""
        return {name: one[0].low for name, one in self.sizes.items() if name not in self.several}


def read_shapes(arguments: Sequence[str]) -> Shapes:
    """Read ``--shape NAME=SIZES`` and ``--inputs FILE``, in any order; ModelError for anything else.

    Sizes are a number, a range as in ``16-512``, or several of these with weights, as in ``128:0.8,512:0.2``.
    """
    sizes: dict[str, tuple[Share, ...]] = {}
    file = ""
    words = [part for word in arguments for part in (word.split("=", 1) if word.startswith("--") else [word])]
    for option, value in zip(words[::2], [*words[1::2], ""], strict=False):
        if option == "--inputs" and value:
            file = value
        elif option == "--shape" and "=" in value:
            name, _, entries = value.partition("=")
            found = [_ENTRY.fullmatch(entry) for entry in entries.split(",")]
            shares = tuple(
                Share(int(one["low"]), int(one["high"] or one["low"]), float(one["weight"] or 1))
                for one in found
                if one
            )
            if not all(found) or any(one.low > one.high for one in shares) or not any(one.weight for one in shares):
                raise ModelError(
                    f"--shape {value}: not a size, a range, nor several with weights",
                    "write it as in --shape seq=128, --shape seq=16-512 or --shape seq=128:0.8,512:0.2",
                )
            sizes[name] = shares
        else:
            raise ModelError(
                f"a model takes --shape NAME=SIZES and --inputs FILE, not {option!r}", "leave the rest out"
            )
    return Shapes(sizes, file)


def make_feeds(model: Model, shapes: Shapes, batch_size: int) -> tuple[Feed, ...]:
    """Make the inputs of one step: one feed, or of a mix of shapes a pass of feeds, spread evenly.

    ``batch_size`` is that of every feed; 0 leaves what the model has.

    Raises:
        ModelError: a size is missing or does not belong to the model, or the file does not fit it.
    """
    unknown = [name for name in shapes.sizes if name not in model.symbols and name != model.batch]
    if unknown:
        named = ", ".join(model.symbols) or "none"
        raise ModelError(f"the model has no dimension {unknown[0]!r}", f"those that have a name are: {named}")
    if model.batch in shapes.several:
        raise ModelError(f"the batch {model.batch!r} is one number", "the search varies it: give where it begins")
    if shapes.file:
        return (_from_file(model, Path(shapes.file), batch_size),)
    missing = [name for name in model.symbols if name not in shapes.sizes]
    if missing:
        wanted = " ".join(f"--shape {name}=SIZE" for name in missing)
        raise ModelError(f"the size of the model's dimension {missing[0]!r} is not known", f"add `{wanted}`")
    generator = np.random.default_rng(_SEED)
    shown = _one_pass(shapes)
    drawn = {key: _draw(model, dict(key), batch_size, generator) for key in dict.fromkeys(shown)}
    return tuple(drawn[key] for key in shown)


def samples(model: Model, shapes: Shapes) -> list[Feed]:
    """Return up to ``_MOST_SAMPLES`` single samples of a file with inputs; without a file, the feeds of one step."""
    feeds = make_feeds(model, shapes, 0)
    if not shapes.file or not model.batch:
        return list(feeds)
    (whole,) = feeds
    batched = [one.name for one in model.inputs if one.shape and one.shape[0] == model.batch]
    number = min([_MOST_SAMPLES, *(len(whole[name]) for name in batched)])
    return [
        {name: array[place : place + 1] if name in batched else array for name, array in whole.items()}
        for place in range(number)
    ]


def other_feeds(model: Model, shapes: Shapes, batch_size: int) -> Iterator[Feed]:
    """Draw inputs of a mix by the weights, without an end; none where there is one shape."""
    generator = np.random.default_rng(_SEED + 1)
    while shapes.several and not shapes.file:
        sizes = {}
        for name, shares in shapes.several.items():
            weights = np.array([one.weight for one in shares])
            share = shares[generator.choice(len(shares), p=weights / weights.sum())]
            sizes[name] = int(generator.integers(share.low, share.high + 1))
        yield _draw(model, {**shapes.fixed, **sizes}, batch_size, generator)


def _one_pass(shapes: Shapes) -> list[tuple[tuple[str, int], ...]]:
    """Return the shapes of a pass of runs; the sizes of several dimensions are paired as they come."""
    fixed = tuple(shapes.fixed.items())
    if not shapes.several:
        return [fixed]
    length = max(map(_length, shapes.several.values()))
    columns = {
        name: _spread(shares, length, _STEPS[place % len(_STEPS)])
        for place, (name, shares) in enumerate(shapes.several.items())
    }
    return [(*fixed, *((name, column[run]) for name, column in columns.items())) for run in range(length)]


def _length(shares: tuple[Share, ...]) -> int:
    """Return the fewest runs in which each share comes as often as its weight says, or almost."""
    if any(one.low < one.high for one in shares):
        return _RANGE_RUNS
    parts = [one.weight / sum(other.weight for other in shares) for one in shares]
    for runs in range(len(shares), _LONGEST_PASS):
        if all(abs(runs * part - round(runs * part)) < 0.05 for part in parts):
            return runs
    return _LONGEST_PASS


def _spread(shares: tuple[Share, ...], length: int, step: float) -> list[int]:
    """Return sizes in a fixed order in which each share comes as often as its weight says, and evenly."""
    whole = sum(one.weight for one in shares)
    owed, taken = [0.0] * len(shares), [0] * len(shares)
    order = []
    for _ in range(length):
        owed = [debt + one.weight / whole for debt, one in zip(owed, shares, strict=True)]
        largest = max(range(len(shares)), key=owed.__getitem__)
        owed[largest] -= 1
        order.append(shares[largest].nth(taken[largest], step))
        taken[largest] += 1
    return order


def _draw(model: Model, sizes: dict[str, int], batch_size: int, generator: np.random.Generator) -> Feed:
    own = {**sizes, **({model.batch: batch_size or 1} if model.batch else {})}
    feed: Feed = {}
    for one in model.inputs:
        shape = [size if isinstance(size, int) else own.get(size or "", 1) for size in one.shape]
        feed[one.name] = _values(one, shape, generator)
    return feed


def _values(one: Input, shape: list[int], generator: np.random.Generator) -> npt.NDArray[np.generic]:
    """Return indices within what they pick from, masks that let everything through, or normally distributed numbers."""
    dtype = np.dtype(one.dtype)
    if dtype.kind in "iu" and one.below is not None:
        return generator.integers(0, one.below, shape).astype(dtype)
    if dtype.kind in "iub":
        return np.ones(shape, dtype)
    return generator.standard_normal(shape, dtype=np.float32).astype(dtype)


def _from_file(model: Model, path: Path, batch_size: int) -> Feed:
    """Read inputs from a file, its samples repeated or cut to the batch size."""
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
        for place, (size, own) in enumerate(zip(array.shape, one.shape, strict=True)):
            if isinstance(own, int) and size != own:
                has, takes = (
                    " x ".join("?" if n is None else str(n) for n in shape) for shape in (array.shape, one.shape)
                )
                raise ModelError(
                    f"--inputs {path}: {one.name!r} is {has}, and the model takes {takes}",
                    f"save it with {own} in dimension {place}",
                )
        if batch_size and one.shape and one.shape[0] == model.batch and len(array):
            array = np.resize(array, (batch_size, *array.shape[1:]))
        feed[one.name] = array
    return feed
