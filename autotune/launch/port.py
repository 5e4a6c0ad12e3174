"""The seam between scheduling and running: what a launcher is asked and what it tells."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from ..files.changes import Changes
from ..records.allocations import Traced
from ..records.audit import Audit
from ..records.environment import Environment
from ..records.facts import Facts, Located
from ..records.outcome import Outcome, Phase
from ..records.proof import Differences, widest
from ..records.run import Compared, Request

EventKind = Literal["started", "step", "result", "describing", "ended"]


@dataclass(frozen=True)
class Event:
    """Something that happened in a run, for a progress display.

    ``index`` is the configuration under way, ``steps`` the optimizer steps since the run began, ``at_s`` the seconds
    since then. ``outcome`` is set for ``result`` only, and final: it may be stored at once. ``environment`` is where
    the run runs, as soon as that is known. Steps that follow each other faster than the launcher looks come as one.
    ``may_take_s`` is set for ``describing`` only, which begins a description: it may take that long.
    """

    kind: EventKind
    index: int
    steps: int
    phase: Phase
    outcome: Outcome | None
    at_s: float
    environment: Environment | None = None
    may_take_s: float | None = None


@dataclass(frozen=True)
class RunResult:
    """The outcomes and findings of a run.

    ``outcomes`` has one entry per configuration of the request, None for one that was not reached. ``failure`` says why
    a run failed while no configuration was under way, as in a discovery that died while describing the script.
    ``compared`` (one of each process), ``located``, ``traced`` and ``audit`` are what runs in modes ``verify``,
    ``locate``, ``trace`` and ``audit`` have found; the former three have no outcome but a failure. ``reason`` is the
    worker's own last word. ``trained_after_s`` is the time that the run's process took to its first training call, None
    where it came to none. ``is_forked``: that process came out of a fork server.
    """

    outcomes: tuple[Outcome | None, ...]
    environment: Environment | None
    facts: Facts | None
    directory: Path
    failure: Outcome | None = None
    compared: tuple[Compared, ...] = ()
    located: Located | None = None
    traced: Traced | None = None
    reason: str = ""
    trained_after_s: float | None = None
    is_forked: bool = False
    audit: Audit | None = None

    def differences(self, reference: int) -> Differences:
        """Return the differences of all processes together from one of the references."""
        alone = len(self.compared) == 1
        return widest(
            tuple(one if alone else replace(one, rank=process.rank) for one in process.differences[reference])
            for process in self.compared
        )


class Launcher(Protocol):
    """Measures the configurations of a request in one fresh process group."""

    @property
    def changes(self) -> Changes:
        """Return what the runs so far have changed on disk, and what became of it."""

    def run(
        self,
        request: Request,
        *,
        devices: tuple[int, ...],
        on_event: Callable[[Event], None],
        cancel: threading.Event,
        directory: Path | None = None,
    ) -> RunResult:
        """Run to the end, or until ``cancel`` is set; no process of the run is left when this returns or raises.

        ``devices`` are the indices of GPUs as the user sees them, none where the script chooses. ``directory`` is the
        run's own folder, which must be empty or absent; None makes a new one. A failed trial is an outcome; UsageError
        (a device, interpreter or folder that isn't there) and RunError (a full disk, say) mean that nothing was learned
        about the configurations.
        """
