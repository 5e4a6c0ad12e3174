"""The events and results of a run on a cluster, over as many attempts as the run takes to tell all of them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

from ..records.environment import Environment
from ..records.outcome import Measured, Outcome
from ..records.run import Request
from .node import Left
from .port import Event, RunResult


class ClusterResults:
    """The events and outcomes of a run so far. An outcome that was told is final, whatever a later attempt says of it.

    ``on_event`` receives each event, counted as the request's; an event that several attempts tell comes once.
    ``check`` raises where a run is not where it should be.
    """

    def __init__(
        self, request: Request, on_event: Callable[[Event], None], check: Callable[[Environment | None], None]
    ) -> None:
        self._request = request
        self._on_event = on_event
        self._check = check
        self._outcomes: list[Outcome | None] = [None] * len(request.configurations)
        self._environment: Environment | None = None
        self._began_s = time.monotonic()
        self._first = 0
        self._steps, self._steps_before = 0, 0
        self._announced = -1
        self._is_ended = False

    @property
    def outcomes(self) -> tuple[Outcome | None, ...]:
        """Return one for each configuration, None for those that have none."""
        return tuple(self._outcomes)

    @property
    def is_complete(self) -> bool:
        """Return whether a run has no more to say than was told."""
        failed = any(one is not None and not isinstance(one, Measured) for one in self._outcomes)
        return self._request.mode == "measure" and (failed or None not in self._outcomes)

    def rest(self) -> Request:
        """Make the request of the next attempt; a discovery is repeated as a whole, as facts come last."""
        self._steps_before = self._steps
        if self._request.mode == "measure":
            self._first = self._outcomes.index(None)
        return dataclasses.replace(self._request, configurations=self._request.configurations[self._first :])

    def tell(self, event: Event) -> None:
        """Pass an event on, counted as the request's; once what was told before."""
        self._check(event.environment)
        self._environment = event.environment or self._environment
        index = self._first + event.index
        self._steps = self._steps_before + event.steps
        if event.kind == "started":
            if index <= self._announced:
                return
            self._announced = index
        elif event.kind == "result":
            if self._outcomes[index] is not None:
                return
            self._outcomes[index] = event.outcome
        elif event.kind == "ended":
            self._is_ended = True
        at_s = time.monotonic() - self._began_s
        self._on_event(dataclasses.replace(event, index=index, steps=self._steps, at_s=at_s))

    def conclude(self, left: Left | None, directory: Path) -> RunResult:
        """Return what the attempts come to; ``left`` is the last message, None where there was none."""
        if left is not None and left.error is not None:
            raise left.error
        if left is None or left.result is None:
            if not self._is_ended and self.is_complete:
                index = len(self._outcomes) - 1
                at_s = time.monotonic() - self._began_s
                self._on_event(Event("ended", index, self._steps, "optimizer", None, at_s, self._environment))
            return RunResult(self.outcomes, self._environment, None, directory)
        result = left.result
        self._check(result.environment)
        later = (*self._outcomes[: self._first], *result.outcomes)
        outcomes = tuple(told or last for told, last in zip(self._outcomes, later, strict=True))
        return dataclasses.replace(result, outcomes=outcomes, directory=directory)
