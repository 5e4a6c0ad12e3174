"""The lines that the training processes of a run have written so far, by configuration and rank."""

from __future__ import annotations

from ..records.audit import Audit
from ..records.environment import Environment
from ..records.facts import Facts
from ..records.located import Located
from ..records.outcome import Measured, Outcome
from ..records.run import STARTER_RANK, Audited, Compared, Described, DescriptionPace, Ended, Line, Result
from .merge import merge


class Ledger:
    """Collects the lines of ``results.jsonl``.

    A configuration's outcome is complete when every rank has written its own. ``num_processes`` and ``devices``, the
    UUIDs of the ranks' GPUs, are for whoever reads the progress files to put in: there the training processes say how
    many they are, and where. ``facts`` are the latest, ``is_described`` tells whether they are the last ones; until
    then ``may_take_s`` and ``pace`` are what the latest line says of the description. ``starter_failure`` is what the
    process that started them ended with. ``audit`` is what a run in mode ``audit`` has seen. ``located`` is the first
    that says where blocks are.
    """

    def __init__(self) -> None:
        self.num_processes = 1
        self.devices: dict[int, str] = {}
        self.facts: Facts | None = None
        self.is_described = False
        self.may_take_s: float | None = None
        self.pace: DescriptionPace | None = None
        self.audit: Audit | None = None
        self._compared: dict[int, Compared] = {}
        self.located: Located | None = None
        self.reason = ""
        self.starter_failure: Outcome | None = None
        self._outcomes: dict[int, dict[int, Outcome]] = {}
        self._environment: tuple[int, Environment] | None = None
        self._ended: set[int] = set()

    def add(self, line: Line) -> None:
        """Take in a line; of two results of one rank for one configuration the first counts."""
        if isinstance(line, Result) and line.rank == STARTER_RANK:
            self.starter_failure = self.starter_failure or line.outcome
        elif isinstance(line, Result):
            self._outcomes.setdefault(line.index, {}).setdefault(line.rank, line.outcome)
            if line.environment is not None and (self._environment is None or line.rank < self._environment[0]):
                self._environment = (line.rank, line.environment)
        elif isinstance(line, Described):
            if not self.is_described:
                self.facts, self.may_take_s, self.is_described = line.facts, line.may_take_s, line.may_take_s is None
                self.pace = line.pace
        elif isinstance(line, Audited):
            self.audit = self.audit or line.audit
        elif isinstance(line, Compared):
            self._compared.setdefault(line.rank, line)
        elif isinstance(line, Located):
            self.located = self.located or line
        elif isinstance(line, Ended):
            self._ended.add(line.rank)
            self.reason = self.reason or line.reason

    @property
    def environment(self) -> Environment | None:
        """The environment that the lowest rank saw."""
        return None if self._environment is None else self._environment[1]

    @property
    def compared(self) -> tuple[Compared, ...]:
        """Return what every rank has compared; empty until all have."""
        ranks = tuple(self._compared[rank] for rank in sorted(self._compared))
        return ranks if len(ranks) >= self.num_processes else ()

    @property
    def ended(self) -> bool:
        """Return whether every rank has written its last line."""
        return len(self._ended - {STARTER_RANK}) >= self.num_processes

    @property
    def any_ended(self) -> bool:
        """Return whether some rank has written its last line."""
        return bool(self._ended)

    def outcome(self, index: int) -> Outcome | None:
        """The merged outcome of a configuration once all ranks have written theirs."""
        ranks = self._outcomes.get(index, {})
        return merge(ranks, self.devices) if ranks and len(ranks) >= self.num_processes else None

    def failure(self, index: int) -> Outcome | None:
        """The failure that some rank has written for a configuration, whether or not the others are done."""
        merged = merge(ranks) if (ranks := self._outcomes.get(index)) else None
        return None if isinstance(merged, Measured) else merged

    def has(self, index: int) -> bool:
        """Return whether some rank has written an outcome for a configuration."""
        return index in self._outcomes
