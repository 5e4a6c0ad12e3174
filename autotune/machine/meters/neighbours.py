"""Whose the processes on a GPU are, and how long those of others keep its multiprocessors busy."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

# The longest period between two samples of the driver. Source: the NVML API reference, nvmlDeviceGetProcessUtilization.
_LONGEST_PERIOD_S = 1.0


@dataclass(frozen=True)
class Whose:
    """Pids by owner: the run's, other programs', and ``unsure``: new ones, too many of them to be all the run's."""

    run: frozenset[int]
    others: frozenset[int]
    unsure: frozenset[int]


class Owners:
    """Tells the run's processes from others among the pids that NVML shows.

    A pid that was there ``before`` the run is a stranger's. NVML may show the host's pids to a container, which has
    numbers of its own for the same processes: until one of the run's is seen among the new ones (``sees_own_pids``),
    new ones are taken for the run's, unless there are more of them than the run has processes.
    """

    def __init__(self, before: Collection[int]) -> None:
        self._before = frozenset(before)
        self.sees_own_pids = False
        self._run: frozenset[int] = frozenset()

    def of(self, pids: Collection[int], own: Collection[int]) -> Whose:
        """Tell whose these pids are; ``own`` are those of the run, as this process sees them."""
        new = frozenset(pids) - self._before
        strangers = frozenset(pids) & self._before
        self.sees_own_pids = self.sees_own_pids or not new.isdisjoint(own)
        if self.sees_own_pids:
            # One that has just ended may still be shown.
            self._run |= new & frozenset(own)
            run = new & self._run
            return Whose(run, strangers | (new - run), frozenset())
        if len(new) <= len(own):
            return Whose(new, strangers, frozenset())
        return Whose(frozenset(), strangers, new)


class ProcessUse:
    """The time that each process had work on a GPU's multiprocessors, by the driver's samples a few times a second.

    Slices of a card have multiprocessors of their own, and the driver samples none of theirs. Some drivers and
    containers sample nothing at all. In both cases no process is seen.

    ``since_s`` is a time by ``clock``; nothing of the latest reading was before it. The driver has a clock of its own,
    and shows each sample at once. So each sample is younger than the last reading that had not shown it yet.
    """

    def __init__(self, nvml: Any, handle: Any, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = nvml
        self._handle = handle
        self._clock = clock
        self._seen_us = 0
        # When the newest sample that was seen had certainly not been taken yet, and when it was last looked.
        self._seen_after_s = self._looked_s = 0.0
        self.since_s = 0.0

    def read(self) -> dict[int, float]:
        """Return seconds of use by pid since the reading before; empty where there is nothing new, or nothing is known.

        A reading stands for no more time than lies between two of the driver's samples: processes without any work are
        in none, so that nothing new may as well mean that nobody worked.
        """
        before_s, self._looked_s = self._looked_s, self._clock()
        fresh = [sample for sample in self._samples() if sample.timeStamp > self._seen_us]
        if not fresh:
            return {}
        newest_us = max(sample.timeStamp for sample in fresh)
        period_s = min(_LONGEST_PERIOD_S, (newest_us - self._seen_us) / 1e6)
        self._seen_us = newest_us
        self.since_s = max(self._seen_after_s, before_s - _LONGEST_PERIOD_S)
        self._seen_after_s = before_s
        # Some drivers leave entries of the list as they were, with any number in them.
        shares = {int(sample.pid): sample.smUtil / 100 for sample in fresh if sample.pid and sample.smUtil <= 100}
        return {pid: share * period_s for pid, share in shares.items()}

    def _samples(self) -> list[Any]:
        nvml = self._nvml
        # Drivers have the older call, the newer one, or both.
        for read in (nvml.nvmlDeviceGetProcessUtilization, nvml.nvmlDeviceGetProcessesUtilizationInfo):
            try:
                return list(read(self._handle, self._seen_us))
            except nvml.NVMLError as error:
                # pynvml raises "success" where there are no samples to make room for.
                if getattr(error, "value", None) in (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_SUCCESS):
                    return []
        return []


def seconds_of_others(use: Mapping[int, float], whose: Whose, *, num_own: int) -> float:
    """Return how long others have used the device at least, of a run of ``num_own`` processes.

    Of the unsure no more than that can be the run's, and they may be those that used it most. A pid that is not in
    ``whose`` has ended: nobody knows any more whose it was.
    """
    unsure = sorted(use.get(pid, 0.0) for pid in whose.unsure)
    known = sum(seconds for pid, seconds in use.items() if pid in whose.others)
    return known + sum(unsure[: max(0, len(unsure) - num_own)])
