"""Outcomes of trials that could not be stored: kept in the folder of their run, and stored when the study goes on."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from ..records.codec import loads, to_json
from ..records.configuration import Configuration
from ..records.environment import Environment
from ..records.outcome import Outcome
from ..records.study import Trial
from ..store.port import Unstored


def keep(
    directory: Path, number: int, configuration: Configuration, outcome: Outcome, environment: Environment | None
) -> None:
    """Keep an outcome beside what its run has written. Where that fails too, the trial is measured again."""
    trial = Trial(number, configuration, "finished", outcome, environment, run_directory=str(directory))
    with suppress(OSError):
        _file(directory, number).write_text(json.dumps(to_json(trial)), encoding="utf-8")


def kept(trial: Trial) -> Unstored | None:
    """Return what was kept of a trial; None if nothing was, as where its owner died, or was on another machine."""
    try:
        text = _file(Path(trial.run_directory), trial.number).read_text(encoding="utf-8")
        found: Trial = loads(Trial, text, where="an outcome that was kept")
    except (OSError, ValueError):
        return None
    is_it = (found.number, found.configuration) == (trial.number, trial.configuration)
    return (found.outcome, found.environment) if is_it and found.outcome is not None else None


def _file(directory: Path, number: int) -> Path:
    return directory / f"unstored-{number}.json"
