"""Learning rate schedulers of the script, and the steps that they were made for."""

from __future__ import annotations

import functools
import inspect
import re
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from torch.optim.lr_scheduler import LRScheduler, OneCycleLR, SequentialLR

from ...records.measurement import Schedule

# Attributes of torch's schedulers that say how long they are.
_LENGTHS = ("total_steps", "T_max", "total_iters")
# Names that a schedule's function may have for its length; a warm-up is a part of it.
_LENGTH_NAME = re.compile(r"^(?!.*warm).*(steps|iter)", re.IGNORECASE)
# A scheduler that makes fewer steps than this per optimizer step is stepped once per epoch.
_LEAST_PER_STEP = 0.75


class ScheduleHooks:
    """Remembers each scheduler that the script makes."""

    def __init__(self) -> None:
        self._made: list[weakref.ref[LRScheduler]] = []

    def install(self) -> None:
        """Wrap the constructor that torch's schedulers call, and that of the one that does not; once per process."""
        for owner in (LRScheduler, SequentialLR):
            owner.__init__ = self._watched(owner.__init__)  # type: ignore[method-assign]

    def _watched(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def construct(scheduler: LRScheduler, *arguments: Any, **keywords: Any) -> None:
            original(scheduler, *arguments, **keywords)
            self._made.append(weakref.ref(scheduler))

        return construct

    def schedules(self, steps: int) -> tuple[Schedule, ...]:
        """Return the schedules of known length that follow optimizer steps, after so many of these."""
        alive = [one for made in self._made if (one := made()) is not None]
        inner = {id(one) for each in alive if isinstance(each, SequentialLR) for one in each._schedulers}
        found = [_schedule(one, steps) for one in alive if id(one) not in inner]
        return tuple(dict.fromkeys(one for one in found if one is not None))


def _schedule(scheduler: LRScheduler, steps: int) -> Schedule | None:
    length = _length(scheduler)
    # The latest optimizer step may not have been followed yet.
    per_step = scheduler.last_epoch / (steps - 1) if steps > 1 else 0.0
    if length is None or per_step < _LEAST_PER_STEP:
        return None
    # Accelerate makes a step for each process.
    return Schedule(type(scheduler).__name__, round(length / round(per_step)), isinstance(scheduler, OneCycleLR))


def _length(scheduler: LRScheduler) -> int | None:
    if isinstance(scheduler, SequentialLR):
        last = _length(scheduler._schedulers[-1])
        return None if last is None else scheduler._milestones[-1] + last
    known = (getattr(scheduler, name, None) for name in _LENGTHS)
    named = [one for each in getattr(scheduler, "lr_lambdas", ()) for one in _named_lengths(each)]
    return next((one for one in [*known, max(named, default=None)] if type(one) is int and one > 1), None)


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
