"""The lines that the training processes of a run have written so far, by configuration, all ranks merged."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ..records.allocations import Traced
from ..records.audit import Audit
from ..records.environment import Environment
from ..records.facts import Facts, Located
from ..records.measurement import Measurement, Peaks
from ..records.outcome import Measured, Outcome
from ..records.run import STARTER_RANK, Audited, Compared, Described, Ended, Line, Result
from .ranks import with_rank


def merge(outcomes: Mapping[int, Outcome], devices: Mapping[int, str] = MappingProxyType({})) -> Outcome:
    """Make the trial's outcome of those of its ranks: all measurements as one, or the failure.

    Of several failures the first in the order of ``outcomes``, which is that of their being written: when one rank is
    out of memory, the others fail because it does not answer any more. ``devices`` are the UUIDs of the ranks' GPUs.
    """
    failure = next((outcome for outcome in outcomes.values() if not isinstance(outcome, Measured)), None)
    if failure is not None:
        return failure
    ranked = {rank: outcomes[rank] for rank in sorted(outcomes)}
    measurements = {rank: found.measurement for rank, found in ranked.items() if isinstance(found, Measured)}
    on_device: dict[str, list[Measurement]] = {}
    for rank, measurement in measurements.items():
        on_device.setdefault(devices.get(rank) or f"rank {rank}'s own", []).append(measurement)
    return Measured(_merge(list(measurements.values()), list(on_device.values())))


def _merge(ranks: list[Measurement], on_device: list[list[Measurement]]) -> Measurement:
    """Merge the ranks' measurements; ``on_device`` are those of each device.

    Only steps that all ranks have measured count. A step lasts as long as on its slowest rank. The allocators' peaks
    are those of the fullest device; of ranks that share one they are added up, an upper bound.
    """
    first = ranks[0]
    if len(ranks) == 1:
        return first
    return dataclasses.replace(
        first,
        step_times_s=tuple(max(times) for times in zip(*(rank.step_times_s for rank in ranks), strict=False)),
        samples_per_step=tuple(sum(counts) for counts in zip(*(rank.samples_per_step for rank in ranks), strict=False)),
        peaks=Peaks(
            allocated=_highest(_total(rank.peaks.allocated for rank in sharing) for sharing in on_device),
            reserved=_highest(_total(rank.peaks.reserved for rank in sharing) for sharing in on_device),
            resident=_total(rank.peaks.resident for rank in ranks),
        ),
        rank_peaks=tuple(rank.peaks for rank in ranks),
        warmup_steps=max(rank.warmup_steps for rank in ranks),
        warmup_s=max(rank.warmup_s for rank in ranks),
        compile_s=max(rank.compile_s for rank in ranks),
        num_processes=len(ranks),
        samples_are_guessed=any(rank.samples_are_guessed for rank in ranks),
        nonfinite_loss=any(rank.nonfinite_loss for rank in ranks),
        allocator_retries=sum(rank.allocator_retries for rank in ranks),
        contended=any(rank.contended for rank in ranks),
        kernels_searched=all(rank.kernels_searched for rank in ranks),
        waited_share=max(rank.waited_share for rank in ranks),
        saved_bytes=_highest(rank.saved_bytes for rank in ranks),
        notes=tuple(dict.fromkeys([*(note for rank in ranks for note in rank.notes), *_sharing(on_device)])),
    )


def _sharing(on_device: list[list[Measurement]]) -> list[str]:
    most = max(map(len, on_device))
    return [] if most == 1 else [f"{most} ranks share a GPU: torch's peaks there are added up, an upper bound"]


def _highest(figures: Iterable[int | None]) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return max(known, default=None)


def _total(figures: Iterable[int | None]) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


class ResultLog:
    """Collects the lines of ``results.jsonl``.

    A configuration's outcome is complete when every rank has written its own. ``num_processes`` and ``devices``, the
    UUIDs of the ranks' GPUs, are for whoever reads the progress files to put in. ``facts`` are the latest, and the last
    ones once ``is_described``; until then ``may_take_s`` is what the description may take.
    ``starter_failure`` is what the process that started the ranks ended with, which has a rank of its own.
    """

    def __init__(self) -> None:
        self.num_processes = 1
        self.devices: dict[int, str] = {}
        self.facts: Facts | None = None
        self.is_described = False
        self.may_take_s: float | None = None
        self.audit: Audit | None = None
        self._compared: dict[int, Compared] = {}
        self.located: Located | None = None
        self.traced: Traced | None = None
        self.reason = ""
        self.starter_failure: Outcome | None = None
        self._outcomes: dict[int, dict[int, Outcome]] = {}
        self._environment: tuple[int, Environment] | None = None
        self.ended_ranks: set[int] = set()

    def heard(self, index: int) -> set[int]:
        """Return the ranks that have written how a configuration ended for them, or their last line."""
        return self.ended_ranks.union(self._outcomes.get(index, ()))

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
        elif isinstance(line, Audited):
            self.audit = self.audit or line.audit
        elif isinstance(line, Compared):
            self._compared.setdefault(line.rank, line)
        elif isinstance(line, Located):
            self.located = self.located or line
        elif isinstance(line, Traced):
            self.traced = self.traced or line
        elif isinstance(line, Ended):
            self.ended_ranks.add(line.rank)
            self.reason = self.reason or line.reason

    @property
    def environment(self) -> Environment | None:
        """Return the environment that the lowest rank saw."""
        return None if self._environment is None else self._environment[1]

    @property
    def compared(self) -> tuple[Compared, ...]:
        """Return what every rank has compared; empty until all have."""
        ranks = tuple(self._compared[rank] for rank in sorted(self._compared))
        return ranks if len(ranks) >= self.num_processes else ()

    @property
    def ended(self) -> bool:
        """Return whether every rank has written its last line."""
        return len(self.ended_ranks - {STARTER_RANK}) >= self.num_processes

    def outcome(self, index: int) -> Outcome | None:
        """Merge the outcome of a configuration once all ranks have written theirs."""
        ranks = self._outcomes.get(index, {})
        return merge(self._named(ranks), self.devices) if ranks and len(ranks) >= self.num_processes else None

    def failure(self, index: int) -> Outcome | None:
        """Return the failure that some rank has written for a configuration, whether or not the others are done."""
        merged = merge(self._named(ranks)) if (ranks := self._outcomes.get(index)) else None
        return None if isinstance(merged, Measured) else merged

    def _named(self, ranks: Mapping[int, Outcome]) -> dict[int, Outcome]:
        return {rank: with_rank(outcome, rank, self.num_processes) for rank, outcome in ranks.items()}

    def has(self, index: int) -> bool:
        """Return whether some rank has written an outcome for a configuration."""
        return index in self._outcomes
