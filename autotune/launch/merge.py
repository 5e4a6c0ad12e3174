"""One outcome of a configuration out of those that several training processes (ranks) wrote."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ..records.measurement import Measurement, Peaks
from ..records.outcome import Measured, Outcome


def merge(outcomes: Mapping[int, Outcome], devices: Mapping[int, str] = MappingProxyType({})) -> Outcome:
    """The trial's outcome from those of its ranks: all measurements as one, or the failure.

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
    """A step lasts as long as on its slowest rank and takes the samples of all.

    Ranks may measure a different number of steps, and only those that all of them have count. The allocators' peaks
    are those of the fullest device; of ranks that share one they are added up, which is the most that the device can
    have held at once. The resident set is the sum, because the host is shared. ``on_device`` are the ranks of each
    device.
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
    """Say so where the allocators' peaks are a bound."""
    most = max(map(len, on_device))
    return [] if most == 1 else [f"{most} ranks share a GPU: torch's peaks there are added up, an upper bound"]


def _highest(figures: Iterable[int | None]) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return max(known, default=None)


def _total(figures: Iterable[int | None]) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None
