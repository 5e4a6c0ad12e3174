"""What every stage of a study needs: the study itself, who runs and who watches, the facts and the limit."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..launch import Launcher, RunResult, host_memory_limit
from ..records import Environment, Facts, Request, StudySpec
from ..search import Aim
from ..store import Study
from .budget import Budget, Interruption
from .watcher import Watcher

__all__ = ["Context", "devices_of", "memory_limit", "memory_of", "unused"]


@dataclass(frozen=True)
class Context:
    """A study at work. ``runs`` is where its runs' folders are made.

    ``limit_bytes`` is what runs may use. ``baseline_fits`` says whether the script as it stands stays below what the
    answer may peak at, so that it may be the answer itself.
    """

    study: Study
    launcher: Launcher
    watcher: Watcher
    interruption: Interruption
    budget: Budget
    runs: Path
    facts: Facts
    limit_bytes: int
    baseline_fits: bool

    @property
    def aim(self) -> Aim:
        """What the study looks for."""
        return Aim(self.study.spec.objective, self.limit_bytes)

    @property
    def rounds(self) -> int:
        """How often a finalist is measured again; its trial was the first round where there is nothing to beat."""
        rounds = self.study.spec.finalist_rounds
        return rounds if self.baseline_fits else max(1, rounds - 1)

    def run_one(self, request: Request, name: str) -> RunResult | None:
        """Run one configuration on the first device, in a folder of that name; None if it was interrupted."""
        if self.interruption.finish.is_set():
            return None
        device = devices_of(self.study.spec)[0]
        (configuration,) = request.configurations
        self.watcher.run_began(device, (configuration,))
        result = self.launcher.run(
            request,
            device=device,
            on_event=lambda event: self.watcher.event(device, event),
            cancel=self.interruption.cancel,
            directory=unused(self.runs / name),
        )
        outcome = result.outcomes[0]
        return None if outcome and self.interruption.explains(outcome) else result


def memory_limit(asked_bytes: int | None, facts: Facts) -> int:
    """The limit that configurations are held against: as asked, at most what the device has or the host has left."""
    has = memory_of(facts.environment)
    return has if asked_bytes is None else min(asked_bytes, has)


def memory_of(environment: Environment) -> int:
    """What the device has; on the CPU, what the host has left of that."""
    has = environment.device_memory_bytes
    return min(has, host_memory_limit()) if environment.device_kind == "cpu" else has


def devices_of(spec: StudySpec) -> tuple[int | None, ...]:
    """The devices that a study may use; None stands for what the script takes by itself."""
    return spec.devices or (None,)


def unused(directory: Path) -> Path:
    """Make the folder, or one beside it if another process or an earlier study of the same name made it."""
    candidate, number = directory, 1
    with suppress(OSError):  # the launcher, which writes into it, says what is wrong
        while True:
            try:
                candidate.mkdir(parents=True)
                break
            except FileExistsError:
                number += 1
                candidate = directory.with_name(f"{directory.name}-{number}")
    return candidate
