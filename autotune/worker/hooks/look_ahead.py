"""Reading ahead in the loader that feeds training: the sizes of an epoch's batches, before the model has seen them."""

from __future__ import annotations

import contextlib
import copy
import math
import random
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch

from ...records.look_ahead import Dimension, LookAhead, SeenBatch, Shape
from .batch_parts import MOST_NAMED, MOST_VALUES, PLAIN, parts_of

Aside = Callable[[], contextlib.AbstractContextManager[None]]
# A batch and the number of its samples.
Drawn = tuple[Any, int]

_MOST_DEPTH, _MOST_NAMES = 5, 100
# Batches that are handed to the script in the place of later ones, and how often the last of them.
_MOST_HANDED, _FIRST_AGAIN, _LAST_HANDED = 9, 2, 8
# What may be made on the GPU for a batch, as a share of what it has there, and in bytes: a sampler has indices there.
_MOST_MADE, _NEARLY_NOTHING = 1.1, 1 << 20
# In the place of the number of a storage: it was made aside, or is not on the GPU.
_MADE_ASIDE, _ELSEWHERE = -1, -2


class RecordedMemory(Protocol):
    """The memory of a GPU whose storages are recorded, and have numbers."""

    @property
    def num_storages(self) -> int:
        """Return how many have been recorded."""

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """Return the number of a tensor's storage; None if it is not recorded."""

    def bytes_since(self, number: int) -> int:
        """Return the bytes of the storages from a number on."""

    def aside(self) -> contextlib.AbstractContextManager[None]:
        """Record nothing meanwhile."""


class EpochReading:
    """Holds the sizes of the batches of an epoch, as far as they were drawn.

    Reading ends after a number of batches, with the epoch, or at the first batch after a time in seconds.
    """

    def __init__(self, most: int, deadline_s: float) -> None:
        self.seen: list[SeenBatch] = []
        self.shuffles = False
        """Set where the loader has its samples in another order in each epoch."""
        self._most, self._deadline_s = most, deadline_s
        self._ended_by, self._is_whole = "", False

    @property
    def is_whole(self) -> bool:
        """Return whether the epoch was read to its end."""
        return self._is_whole

    @property
    def differs(self) -> bool:
        """Return whether batches differ in size; the last one of an epoch may lack samples."""
        return len({tuple(one.shapes.items()) for one in (self.seen[:-1] if self._may_lack() else self.seen)}) > 1

    def _may_lack(self) -> bool:
        return self._is_whole and len(self.seen) > 1 and self.seen[-1].elements <= self.seen[0].elements

    def _sizes(self) -> tuple[tuple[tuple[Dimension, ...], ...], tuple[Shape, ...], Shape]:
        """Return the dimensions in which batches differ, the sizes of each there, and those of one lacking samples."""
        *most, last = self.seen
        varying = _varying(most) if self._may_lack() else ()
        if varying and _differs_elsewhere(last, most[0], varying):
            full = most
        else:
            full, varying = self.seen, _varying(self.seen)
        of_all = [tuple(one.shapes[alike[0].tensor][alike[0].axis] for alike in varying) for one in full]
        lacks = varying and full is most and _ranks(last) == _ranks(most[0])
        of_last = tuple(last.shapes[alike[0].tensor][alike[0].axis] for alike in varying) if lacks else ()
        return varying, tuple(of_all), of_last

    def found(self, of_steps: Iterable[Iterable[SeenBatch]] = ()) -> LookAhead | None:
        """Return what was drawn, None if nothing was; ``of_steps`` are each step's batches."""
        if not self.seen:
            return None
        varying, sizes, lacking = self._sizes()
        return LookAhead(
            elements=tuple(one.elements for one in self.seen),
            smallest=min(self.seen, key=_size),
            largest=max(self.seen, key=_size),
            followed=tuple(map(tuple, of_steps)),
            differ=self.differs,
            is_whole=self._is_whole,
            ended_by=self._ended_by,
            varying=varying,
            sizes=sizes,
            shuffles=self.shuffles,
            lacking=lacking,
        )

    def see(self, batch: Any) -> SeenBatch:
        """Note the sizes of a batch."""
        self.seen.append(seen_batch(len(self.seen) + 1, batch))
        return self.seen[-1]

    def read(self, draw: Callable[[], object]) -> None:
        """Draw batches, each of which ``draw`` notes; random generators are put back.

        Raises:
            Exception: what the first batch of all raises; what a later one raises ends the reading.
        """
        end_s = time.monotonic() + self._deadline_s
        with _same_random_numbers():
            while not self._ended_by and not self._is_whole:
                if len(self.seen) >= self._most:
                    self._ended_by = f"{self._most} were asked for"
                elif time.monotonic() > end_s:
                    self._ended_by = f"{self._deadline_s:.0f} s had passed"
                else:
                    self._draw(draw)

    def _draw(self, draw: Callable[[], object]) -> None:
        try:
            draw()
        except StopIteration:
            self._is_whole = True
        except Exception as error:
            if not self.seen:
                raise
            # It is the script's own: training will meet it there.
            self._ended_by = f"batch {len(self.seen) + 1} raises {type(error).__name__}: {str(error)[:200]}"


class BatchReader(EpochReading):
    """Hands out the batches of an iterator, and draws ahead, up to a number of batches or a time in seconds.

    Once it has drawn ahead, it hands out the next two, and others with sizes as different as possible, in their order,
    the largest among them. Before the last, the first two come again. The last comes a few times, and then the epoch
    ends. Batches on a GPU are read ahead if its ``memory`` is given.
    """

    def __init__(self, most: int, deadline_s: float, memory: RecordedMemory | None = None) -> None:
        super().__init__(most, deadline_s)
        self._memory = memory
        self._kept: dict[int, Drawn] = {}
        self._waiting: list[int] | None = None
        self._next = range(0)  # the batches that come next in training
        self.refusal = ""
        """Why batches are not read ahead, as far as the batches tell."""

    def next(self, draw: Callable[[], Drawn], per_step: int) -> tuple[SeenBatch, Drawn]:
        """Return the sizes of the next batch for the script, and the batch.

        ``draw`` gives the iterator's next one. ``per_step`` is how many batches a step takes; 0 while that is not known
        or batches are to come as the iterator has them.

        Raises:
            StopIteration: the epoch has ended.
        """
        if self._waiting is None:
            if not (per_step and self._most) or self.refusal:
                begin = 0 if self._memory is None else self._memory.num_storages
                drawn = draw()
                return self._keep(drawn, begin), drawn
            self._waiting = self._read_on(draw, per_step)
        if not self._waiting:
            raise StopIteration
        number = self._waiting.pop(0)
        batch, samples = self._kept[number]
        # What was made aside is made anew, and so recorded.
        copied = _copied(batch, lambda one: self._number_of(one) == _MADE_ASIDE, self._aside)
        return self.seen[number - 1], (copied, samples)

    @property
    def has_read(self) -> bool:
        """Return whether it has drawn ahead."""
        return self._waiting is not None

    @property
    def last(self) -> SeenBatch:
        """Return the batch that it hands out last."""
        return self.seen[max(self._kept) - 1]

    def _read_on(self, draw: Callable[[], Drawn], per_step: int) -> list[int]:
        """Draw batches to the end; return the numbers of those to hand out, each as often as a step takes batches."""
        before = len(self.seen)
        self._next = range(before + 1, before + 1 + _FIRST_AGAIN)
        with self._aside():
            self.read(lambda: self._keep(draw()))
        if not self.seen:
            raise StopIteration
        # An optimizer's first step is like no other: the largest batch comes again if it was that one's.
        largest = max(self.seen, key=_size).number
        *new, last = [number for number in self._kept if number > before or number == largest]
        # A compiler works in the first steps: whether others of their sizes are alike shows later. A library may have
        # drawn a part of the next step already.
        order = [*new, *new[:_FIRST_AGAIN], *[last] * _LAST_HANDED]
        return [*order[:1] * (-before % per_step), *(number for number in order for _ in range(per_step))]

    def _aside(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._memory is None else self._memory.aside()

    def _number_of(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor's storage, or why it has none."""
        if self._memory is None or tensor.device.type == "cpu":
            return _ELSEWHERE
        number = self._memory.number_of(tensor)
        return _MADE_ASIDE if number is None else number

    def _why_more(self, batch: Any, begin: float) -> str:
        """Say so if more was made on the GPU than a batch has there, which reading ahead would not record."""
        if self._memory is None or math.isinf(begin):
            return ""
        sizes = (one.untyped_storage() for one in tensors_in(batch) if self._number_of(one) >= begin)
        has = sum({one._cdata: one.nbytes() for one in sizes}.values())
        made = self._memory.bytes_since(int(begin))
        return "its loader computes on the GPU" if made > _MOST_MADE * has + _NEARLY_NOTHING else ""

    def _keep(self, drawn: Drawn, begin: float = math.inf) -> SeenBatch:
        """Note a batch; keep a copy of it in the place of the one that others stand for best, if that is another.

        ``begin`` is the number of the first storage that was recorded for it; no storage has it where none was.
        """
        batch = self.see(drawn[0])
        if not self._most or self.refusal:
            return batch
        self.refusal = why_unreadable(batch, drawn[0], on_gpu=self._memory is not None) or self._why_more(
            drawn[0], begin
        )
        if self.refusal:
            return batch
        kept = [self.seen[number - 1] for number in self._kept]
        if any(one.shapes == batch.shapes for one in kept):
            return batch
        spare = _spare([*kept, batch], self._next) if len(kept) == _MOST_HANDED else None
        if spare is not batch:
            with self._aside():
                # Else what was recorded for the batch would be held while it is kept.
                copied = _copied(drawn[0], lambda one: self._number_of(one) >= begin, self._aside)
            self._kept[batch.number] = copied, drawn[1]
            if spare is not None:
                del self._kept[spare.number]
        return batch


def _spare(batches: Sequence[SeenBatch], staying: Collection[int]) -> SeenBatch:
    """Return the batch that lies closest between two others.

    The smallest, the largest, the longest and those with the numbers ``staying`` are never returned.
    """
    longest = max(batches, key=lambda one: one.longest)
    stay = {*staying, *(one.number for one in (min(batches, key=_size), max(batches, key=_size), longest))}

    def gap(batch: SeenBatch) -> float:
        return sum(sorted(_difference(batch, one) for one in batches if one is not batch)[:2])

    return min((one for one in batches if one.number not in stay), key=gap)


def _difference(one: SeenBatch, other: SeenBatch) -> float:
    """Return how many times the sizes of a batch are those of another, as logarithms."""
    if one.shapes.keys() != other.shapes.keys():
        return abs(math.log(max(1, one.elements) / max(1, other.elements)))
    pairs = [pair for name, shape in one.shapes.items() for pair in zip(shape, other.shapes[name], strict=False)]
    return max((abs(math.log(max(1, first) / max(1, second))) for first, second in pairs), default=0.0)


def _differs_elsewhere(batch: SeenBatch, other: SeenBatch, varying: Sequence[Sequence[Dimension]]) -> bool:
    """Return whether batches differ in a dimension that does not vary."""
    if _ranks(batch) != _ranks(other):
        return True
    free = {one for alike in varying for one in alike}
    return any(
        size != other.shapes[name][axis]
        for name, shape in batch.shapes.items()
        for axis, size in enumerate(shape)
        if Dimension(name, axis) not in free
    )


def _ranks(batch: SeenBatch) -> dict[str, int]:
    return {name: len(shape) for name, shape in batch.shapes.items()}


def _varying(batches: Sequence[SeenBatch]) -> tuple[tuple[Dimension, ...], ...]:
    """Return the dimensions in which batches differ, those together that are equal in all of them."""
    ranks = _ranks(batches[0])
    if any(_ranks(one) != ranks for one in batches):
        return ()
    alike: dict[tuple[int, ...], list[Dimension]] = {}
    for name, rank in ranks.items():
        for axis in range(rank):
            sizes = tuple(one.shapes[name][axis] for one in batches)
            if len({*sizes}) > 1:
                alike.setdefault(sizes, []).append(Dimension(name, axis))
    return tuple(map(tuple, alike.values()))


def _size(batch: SeenBatch) -> tuple[int, int]:
    return batch.size


def why_unreadable(seen: SeenBatch, batch: Any, *, on_gpu: bool = False) -> str:
    """Say why batches like this one are not read ahead; empty where they are, as those on the GPU may be."""
    if not seen.shapes:
        return "its batches hold no tensors"
    is_on_gpu = not on_gpu and any(one.device.type != "cpu" for one in tensors_in(batch))
    return "it has its batches on the GPU" if is_on_gpu else ""


def seen_batch(number: int, batch: Any) -> SeenBatch:
    """Return the sizes of a batch, the one of this ``number`` in its epoch."""
    shapes = _shapes_of(batch)
    return SeenBatch(number, sum(map(math.prod, shapes.values())), shapes)


def tensors_in(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Yield the tensors of a batch, as far as it can be looked through."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < _MOST_DEPTH:
        for _, one in parts_of(value):
            yield from tensors_in(one, depth + 1)


def _shapes_of(batch: Any) -> dict[str, Shape]:
    """Return the sizes of the tensors and arrays in a batch, by their names in it, as far as they can be looked at."""
    found: dict[str, Shape] = {}
    with contextlib.suppress(Exception):  # a script's objects may raise anything when looked at
        for name, shape in _shapes(batch, "", 0):
            found[name] = shape
            if len(found) == _MOST_NAMES:
                break
    return found


def _shapes(value: Any, name: str, depth: int) -> Iterator[tuple[str, Shape]]:
    if isinstance(value, torch.Tensor) and value.is_nested:
        yield name or "batch", (int(value.numel()),)
    elif isinstance(getattr(value, "shape", None), tuple):
        yield name or "batch", tuple(map(int, value.shape))
    elif isinstance(value, (list, tuple)) and len(value) > MOST_NAMED:
        listed = () if isinstance(value[0], PLAIN) else value[:MOST_VALUES]
        inner = [shape for one in listed for _, shape in _shapes(one, "", depth + 1)]
        if inner:
            yield f"{name} (all)".strip(), (sum(map(math.prod, inner)),)
    elif depth < _MOST_DEPTH:
        for key, one in parts_of(value):
            yield from _shapes(one, f"{name}.{key}".lstrip("."), depth + 1)


def _copied(batch: Any, is_cloned: Callable[[torch.Tensor], bool], aside: Aside) -> Any:
    """Return a batch with containers of its own, as a script may change them, and with some of its tensors cloned.

    What shares a storage does so in the copy, which has all of the storage.
    """
    wholes: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def cloned(one: torch.Tensor) -> torch.Tensor:
        storage = one.untyped_storage()
        key = storage._cdata, one.dtype
        if key not in wholes:
            with aside():
                whole = one.as_strided((storage.nbytes() // one.element_size(),), (1,), 0)
            wholes[key] = whole.clone()
        return wholes[key].as_strided(one.shape, one.stride(), one.storage_offset())

    try:
        with torch.no_grad():
            copies = {id(one): cloned(one) if is_cloned(one) else one for one in tensors_in(batch)}
        return copy.deepcopy(batch, copies)
    except Exception:
        return batch  # what cannot be copied is seldom changed


@contextlib.contextmanager
def _same_random_numbers() -> Iterator[None]:
    """Put back the random generators that a data set may draw from."""
    python, of_torch = random.getstate(), torch.get_rng_state()
    numpy: Any = sys.modules.get("numpy")
    of_numpy = None if numpy is None else numpy.random.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        torch.set_rng_state(of_torch)
        if numpy is not None:
            numpy.random.set_state(of_numpy)
