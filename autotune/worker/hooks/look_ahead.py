"""Reading ahead in the loader that feeds training: the sizes of an epoch's batches, before the model has seen them."""

from __future__ import annotations

import contextlib
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from ...records.look_ahead import LookAhead, SeenBatch, Shape

# A batch and the number of its samples.
Drawn = tuple[Any, int]

_MOST_DEPTH = 5
# Elements of a list that have names of their own; longer ones have one name for all, as the images of a batch.
_MOST_NAMED = 8
# Batches that are handed to the script after those of its first step.
_MOST_HANDED = 8


class BatchReader:
    """Hands out the batches of an iterator, and draws ahead, up to a number of batches or a time in seconds.

    Once it has drawn ahead, it hands out the batches that exceed all before them, in their order: memory grows there in
    an epoch. The last of them is handed out again and again.
    """

    def __init__(self, most: int, deadline_s: float) -> None:
        self._most, self._deadline_s = most, deadline_s
        self._seen: list[SeenBatch] = []
        self._records: dict[int, Drawn] = {}
        self._largest = (-1, -1)
        self._waiting: list[int] | None = None
        self._ended_by, self._is_whole = "", False

    def next(self, draw: Callable[[], Drawn], per_step: int | None) -> tuple[SeenBatch, Drawn]:
        """Return the sizes of the next batch for the script, and the batch.

        ``draw`` gives the iterator's next one. ``per_step`` is how many batches a step takes; None until that is known,
        and while it is, batches come as the iterator has them.
        """
        if self._waiting is None:
            if not (per_step and self._most):
                drawn = draw()
                self._see(drawn)
                return self._seen[-1], drawn
            self._waiting = self._read(draw, per_step)
        number = self._waiting.pop(0) if len(self._waiting) > 1 else self._waiting[0]
        return self._seen[number - 1], self._records[number]

    @property
    def has_read(self) -> bool:
        """Return whether it has drawn ahead."""
        return self._waiting is not None

    @property
    def varies(self) -> bool:
        """Return whether batches differ in size."""
        found = self.found(())
        return found is not None and found.varies

    @property
    def last(self) -> SeenBatch:
        """Return the batch that it hands out last."""
        return self._seen[max(self._records) - 1]

    def found(self, of_steps: Iterable[Iterable[SeenBatch]]) -> LookAhead | None:
        """Return what was drawn, None if nothing was; ``of_steps`` are each step's batches."""
        if not self._seen:
            return None
        return LookAhead(
            elements=tuple(one.elements for one in self._seen),
            smallest=min(self._seen, key=_elements),
            largest=max(self._seen, key=_elements),
            followed=tuple(max(step, key=_elements, default=None) for step in of_steps),
            is_whole=self._is_whole,
            ended_by=self._ended_by,
        )

    def _read(self, draw: Callable[[], Drawn], per_step: int) -> list[int]:
        """Draw batches to the end; return the numbers of those to hand out, each as often as a step takes batches."""
        end_s, before = time.monotonic() + self._deadline_s, len(self._seen)
        with _same_random_numbers():
            while not self._ended_by and not self._is_whole:
                if len(self._seen) >= self._most:
                    self._ended_by = f"{self._most} were asked for"
                elif time.monotonic() > end_s:
                    self._ended_by = f"{self._deadline_s:.0f} s had passed"
                else:
                    self._draw(draw)
        new = [number for number in self._records if number > before] or [self.last.number]
        return [number for number in new for _ in range(per_step)]

    def _draw(self, draw: Callable[[], Drawn]) -> None:
        try:
            drawn = draw()
        except StopIteration:
            self._is_whole = True
        except Exception as error:
            # It is the script's own: training will meet it there.
            self._ended_by = f"batch {len(self._seen) + 1} raises {type(error).__name__}: {str(error)[:200]}"
        else:
            self._see(drawn)

    def _see(self, drawn: Drawn) -> None:
        """Note a batch, and keep it if it exceeds all before it, in all or in what its largest sample has."""
        shapes = dict(_shapes(drawn[0], "", 0))
        batch = SeenBatch(len(self._seen) + 1, sum(map(math.prod, shapes.values())), shapes)
        self._seen.append(batch)
        per_sample = max((math.prod(shape[1:]) for shape in shapes.values() if shape), default=0)
        if batch.elements > self._largest[0] or per_sample > self._largest[1]:
            self._largest = max(batch.elements, self._largest[0]), max(per_sample, self._largest[1])
            self._records[batch.number] = drawn
            if len(self._records) > _MOST_HANDED:
                del self._records[min(self._records)]


def _elements(batch: SeenBatch) -> int:
    return batch.elements


def _shapes(value: Any, name: str, depth: int) -> Iterator[tuple[str, Shape]]:
    """List the sizes of the tensors and arrays in a batch, by their names in it."""
    if isinstance(getattr(value, "shape", None), tuple):
        yield name or "batch", tuple(map(int, value.shape))
        return
    if depth == _MOST_DEPTH or isinstance(value, type):
        return
    if isinstance(value, (list, tuple)) and len(value) > _MOST_NAMED:
        inner = [shape for one in value for _, shape in _shapes(one, "", depth + 1)]
        if inner:
            yield f"{name} (all)".strip(), (sum(map(math.prod, inner)),)
        return
    if isinstance(value, Mapping):
        parts: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, (list, tuple)):
        parts = enumerate(value)
    else:
        parts = list(getattr(value, "__dict__", {}).items())
    for key, one in parts:
        yield from _shapes(one, f"{name}.{key}".lstrip("."), depth + 1)


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
