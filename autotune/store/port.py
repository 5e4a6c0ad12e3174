"""Interfaces of a database for the rest of autotune: ``Study`` and ``Store``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from ..records.configuration import Configuration
from ..records.environment import Environment
from ..records.facts import Facts
from ..records.gate import PastGate
from ..records.outcome import Outcome
from ..records.study import Repeat, StudyRecord, StudySpec, Trial, Verdict

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy


Unstored = tuple[Outcome, Environment | None]
"""What a trial came to, and where, as long as it is not in the database."""


class Study(Protocol):
    """One study. Every writing method has committed when it returns.

    A trial is named by Optuna's number. The trials that a process began are its own until it finishes or releases
    them, or until it is dead.
    """

    @property
    def name(self) -> str:
        """The study's name, unique in its database."""

    @property
    def spec(self) -> StudySpec:
        """Return what the study was asked for, as last set."""

    @property
    def optuna(self) -> OptunaStudy:
        """Optuna's study of the same name: maximize ``samples_per_s``, minimize ``peak_bytes``."""

    def guard(self) -> AbstractContextManager[None]:
        """Turn the database failures that Optuna raises in the block into StorageError and RunError.

        The study's own methods do so by themselves; this is for code that calls ``optuna``.
        """

    def record(self) -> StudyRecord:
        """Read everything, trials in the order of their numbers."""

    def version(self) -> str:
        """A text that is another one whenever ``record`` is, and whenever ``is_running`` is; cheap."""

    def is_running(self) -> bool:
        """Return whether a live process works on it."""

    def set_spec(self, spec: StudySpec) -> None:
        """Replace the spec: the study goes on with another budget."""

    def set_facts(self, facts: Facts) -> None:
        """Store what discovery found, in place of earlier facts."""

    def set_verdict(self, verdict: Verdict) -> None:
        """Store the answer, in place of an earlier one."""

    def add_bundle(self, path: str) -> None:
        """Note that a bundle was written to ``path``."""

    def begin_final(self) -> int | None:
        """Number a new final, ours until ``end_final``; None while a live process measures one of this study."""

    def end_final(self, number: int) -> None:
        """Note that nothing more will be measured in a final of this process."""

    def add_repeat(self, repeat: Repeat) -> None:
        """Store one re-measured finalist or baseline, of a final of this process."""

    def begin(self, number: int, configuration: Configuration, run_directory: str) -> bool:
        """Claim a trial that Optuna has just given out.

        False: it was begun already; ask for another one. (Optuna can give one enqueued trial to two askers: on SQLite
        it has no row locks.)
        """

    def add_trial(
        self,
        number: int,
        configuration: Configuration,
        outcome: Outcome,
        environment: Environment | None,
        run_directory: str,
        *,
        took_s: float = 0.0,
    ) -> bool:
        """Store a trial that was measured before Optuna knew of it, finished and told: the baseline.

        ``took_s`` is how long it took. In one write, so that no crash leaves it half there. False: it is there already.
        """

    def heartbeat(self) -> None:
        """Say that this process lives, for all the trials it owns.

        Only other machines go by it; they take trials over whose owner was silent for the grace period.
        """

    def finish(self, number: int, outcome: Outcome, environment: Environment | None) -> bool:
        """Store the outcome of a trial of this process, before Optuna is told.

        False: the trial is no longer ours, or is finished. Another machine took it over for want of heartbeats and
        measures it again; nothing was stored, and Optuna must not be told.
        """

    def untold(self) -> tuple[Trial, ...]:
        """Give the trials that are finished here but still running in Optuna, left by this process or dead ones.

        They belong to the caller now: tell Optuna, then ``mark_told``. The trials of other live processes are not
        among them.
        """

    def mark_told(self, number: int) -> None:
        """Note that Optuna knows the outcome."""

    def release(self, number: int) -> None:
        """Give back a running trial of this process that was not reached: its configuration is enqueued again."""

    def recover(self, unstored: Callable[[Trial], Unstored | None] | None = None) -> tuple[Trial, ...]:
        """Fail the running trials whose owner is dead and enqueue their configurations again; give those trials.

        Those of which ``unstored`` knows the outcome, as its owner could not store it, are finished with that instead,
        and not listed.

        Exactly once for each trial, however many processes do this at the same time, and wherever an earlier attempt
        was cut off. Trials that Optuna gave out to a dead process which had not begun them are enqueued again too, and
        not listed: nothing is known of them here. Call this before the first ``ask``: it also announces this process.
        """


class Store(Protocol):
    """A database of studies; a context manager that closes it."""

    @property
    def url(self) -> str:
        """Return where it is, for people: without a password."""

    def create(self, name: str, spec: StudySpec) -> Study:
        """Create a study; StorageError if there is one of that name."""

    def open(self, name: str) -> Study:
        """Open a study; StorageError naming similar ones if there is none of that name."""

    def names(self) -> tuple[str, ...]:
        """The names of all studies, oldest first."""

    def __contains__(self, name: str) -> bool: ...

    def version(self) -> str:
        """A text that is another one whenever anything of a study or a gate is; cheap."""

    def add_gate(self, gate: PastGate) -> None:
        """Keep what a gate said."""

    def gates(self, script_name: str | None = None, configuration: str | None = None) -> tuple[PastGate, ...]:
        """Return what gates said, oldest first; of all, or of a setting (its key) on scripts of that name."""

    def close(self) -> None:
        """Close all connections."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
