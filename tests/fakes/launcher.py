"""A launcher without processes: what each configuration comes to is a function."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autotune.files.changes import Changes
from autotune.launch.port import Event, RunResult
from autotune.records.configuration import Configuration
from autotune.records.environment import Environment
from autotune.records.facts import Facts
from autotune.records.outcome import Measured, Outcome
from autotune.records.proof import GroupDifference, widest
from autotune.records.run import Compared, Request


@dataclass(frozen=True)
class Run:
    """A run that was asked for."""

    request: Request
    devices: tuple[int, ...]


class FakeLauncher:
    """Gives ``outcome_of(configuration)`` for each configuration; like the real one it ends with the first failure.

    ``before`` is called with the number of the run, from 0, before anything else: it may raise, or set ``cancel``.
    ``runs`` remembers what was asked. In mode ``verify`` the gradients of a configuration that is not ``is_exact``
    differ from those of every other run.
    """

    def __init__(
        self,
        outcome_of: Callable[[Configuration], Outcome],
        *,
        environment: Environment | None = None,
        facts: Facts | None = None,
        root: Path = Path("runs"),
        before: Callable[[int], None] = lambda run: None,
        is_exact: Callable[[Configuration], bool] = lambda configuration: True,
    ) -> None:
        self.runs: list[Run] = []
        self.changes = Changes()
        self._outcome_of = outcome_of
        self.environment = environment
        self._facts = facts
        self._root = root
        self._before = before
        self._is_exact = is_exact
        self._exact: dict[str, bool] = {}
        self._lock = threading.Lock()

    @property
    def configurations(self) -> list[Configuration]:
        """All configurations asked for so far, run by run."""
        return [configuration for run in self.runs for configuration in run.request.configurations]

    def run(
        self,
        request: Request,
        *,
        devices: tuple[int, ...],
        on_event: Callable[[Event], None],
        cancel: threading.Event,
        directory: Path | None = None,
    ) -> RunResult:
        with self._lock:
            number = len(self.runs)
            self.runs.append(Run(request, devices))
        self._before(number)
        if request.mode == "verify":
            return self._verified(request, directory or self._root / f"run-{number}", cancelled=cancel.is_set())
        outcomes: list[Outcome | None] = [None] * len(request.configurations)
        steps = 0
        last = 0
        for index, configuration in enumerate(request.configurations):
            if cancel.is_set():
                break
            last = index
            on_event(Event("started", index, steps, "start", None, float(steps)))
            # What discovery runs is the baseline, which nobody knows by then.
            is_known = request.mode != "discover" or self._facts is None
            outcome = self._outcome_of(configuration if is_known else self._facts.baseline)
            if isinstance(outcome, Measured):
                steps += outcome.measurement.warmup_steps + len(outcome.measurement.step_times_s)
                on_event(Event("step", index, steps, "optimizer", None, float(steps)))
            outcomes[index] = outcome
            on_event(Event("result", index, steps, "optimizer", outcome, float(steps), self.environment))
            if not isinstance(outcome, Measured):
                break
        on_event(Event("ended", last, steps, "optimizer", None, float(steps)))
        described = request.mode == "discover" and isinstance(outcomes[0], Measured)
        return RunResult(
            outcomes=tuple(outcomes),
            environment=self.environment,
            facts=self._facts if described else None,
            directory=directory or self._root / f"run-{number}",
        )

    def _verified(self, request: Request, directory: Path, *, cancelled: bool) -> RunResult:
        (configuration,) = request.configurations
        exact = self._exact[str(directory)] = self._is_exact(configuration)
        differing = [int(not (exact and self._exact[reference])) for reference in request.verifying.references]
        differences = tuple(
            widest([(GroupDifference("gradients", 4, one, "weight" * one, one, 0.1, 0.5),)]) for one in differing
        )
        outcome = self._outcome_of(configuration)
        failed = not isinstance(outcome, Measured)
        compared = () if cancelled or failed else (Compared(request.verifying.steps, differences, process=1),)
        return RunResult((outcome if failed else None,), self.environment, None, directory, compared=compared)
