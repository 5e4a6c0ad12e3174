"""Learning rate schedulers of the script, and the steps that they were made for."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from torch.optim.lr_scheduler import LRScheduler, OneCycleLR, SequentialLR

from ...records.measurement import Schedule

# Attributes of those of torch's schedulers that are made for a whole training, and not for its warm-up.
_LENGTHS = {"OneCycleLR": "total_steps", "CosineAnnealingLR": "T_max", "PolynomialLR": "total_iters"}
# Names that a schedule's function may have for the length of the training.
_LENGTH_NAME = re.compile(r"(?i)^(?!.*(per|warm|decay|stable|accum|log|eval|save)).*(total|max|train).*(steps|iters?)$")
# A scheduler that makes fewer steps than this per optimizer step is stepped once per epoch.
_LEAST_PER_STEP = 0.75


class ScheduleHooks:
    """Remembers each scheduler that the script makes, with optimizer steps and its own when it was seen first."""

    def __init__(self) -> None:
        self._seen: weakref.WeakKeyDictionary[LRScheduler, tuple[int, int] | None] = weakref.WeakKeyDictionary()

    def install(self) -> None:
        """Wrap the constructor that torch's schedulers call, and that of the one that does not; once per process."""
        for owner in (LRScheduler, SequentialLR):
            owner.__init__ = self._watched(owner.__init__)  # type: ignore[method-assign]

    def _watched(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def construct(scheduler: LRScheduler, *arguments: Any, **keywords: Any) -> None:
            original(scheduler, *arguments, **keywords)
            with suppress(TypeError):  # a class of the script's own that cannot be hashed
                self._seen[scheduler] = None

        return construct

    def schedules(self, steps: int) -> tuple[Schedule, ...]:
        """Return the schedules of known length that follow optimizer steps, after so many of these.

        Steps are counted from an earlier call on: a script may go on where it stopped, or step in another order.
        """
        found = dict[Schedule, None]()
        inner = {id(one) for each in self._seen if isinstance(each, SequentialLR) for one in each._schedulers}
        for scheduler, first in list(self._seen.items()):
            with suppress(Exception):  # it is the script's, and may be of any kind
                if first is None:
                    self._seen[scheduler] = steps, scheduler.last_epoch
                elif id(scheduler) not in inner and (one := _schedule(scheduler, steps - first[0], first[1])):
                    found[one] = None
        return tuple(found)


def _schedule(scheduler: LRScheduler, steps: int, before: int) -> Schedule | None:
    length = _length(scheduler)
    per_step = (scheduler.last_epoch - before) / steps if steps > 1 else 0.0
    if length is None or per_step < _LEAST_PER_STEP:
        return None
    # Accelerate makes a step for each process, and none beyond the end.
    raises = isinstance(scheduler, OneCycleLR) and "accelerate.scheduler" not in sys.modules
    return Schedule(type(scheduler).__name__, round(length / round(per_step)), raises)


def _length(scheduler: LRScheduler) -> int | None:
    if isinstance(scheduler, SequentialLR):
        last = _length(scheduler._schedulers[-1])
        return None if last is None else (scheduler._milestones or [0])[-1] + last
    attribute = next((_LENGTHS[one.__name__] for one in type(scheduler).__mro__ if one.__name__ in _LENGTHS), "")
    named = [one for each in getattr(scheduler, "lr_lambdas", ()) for one in _named_lengths(each)]
    lengths = [getattr(scheduler, attribute, None), max(named, default=None)]
    return next((one for one in lengths if type(one) is int and one > 1), None)


def _named_lengths(function: Callable[..., Any]) -> Iterator[int]:
    """Go through the numbers that a schedule's function is given by keyword, or finds by name."""
    values: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        values |= function.keywords
        function = function.func
    if inspect.isfunction(function):
        found = inspect.getclosurevars(function)
        values |= {**found.globals, **found.nonlocals}
    yield from (value for name, value in values.items() if type(value) is int and _LENGTH_NAME.match(name))
