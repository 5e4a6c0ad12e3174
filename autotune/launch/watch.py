"""The controller's view of a run from outside: its results file, its progress files, its deadlines."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Literal

from ..records.codec import loads
from ..records.progress import Progress
from ..records.run import Line


class ResultsFile:
    """Reads ``results.jsonl`` as it grows; a last line that is not finished yet waits for the next reading."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._line = 0

    def read(self) -> tuple[Line, ...]:
        """Return the lines finished since the last reading; FormatError if one is not what the protocol says."""
        lines: list[Line] = []
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            file.seek(self._offset)
            for text in file:
                if not text.endswith(b"\n"):
                    break
                self._offset += len(text)
                self._line += 1
                if text.strip():
                    lines.append(loads(Line, text, where=f"{self._path.name} line {self._line}"))
        return tuple(lines)


def read_progress(directory: Path) -> tuple[Progress, ...]:
    """Read where each training process of a run is, from its file ``progress-<pid>``.

    One that calls a model before it starts the others (``mp.spawn``) has a file too, and stays in the phase ``start``:
    it is left out as soon as others train.
    """
    seen = []
    for path in directory.glob("progress-*"):
        with contextlib.suppress(FileNotFoundError):
            if (progress := Progress.from_bytes(path.read_bytes())) is not None:
                seen.append(progress)
    return tuple([progress for progress in seen if progress.trains] or seen)


class Deadlines:
    """The start timeout until the first step of the run, from then on the trial timeout for each trial.

    A description, after the trials, has a time of its own. All times are ``time.monotonic()``.
    """

    def __init__(self, *, start_timeout_s: float, trial_timeout_s: float, now_s: float) -> None:
        self._start_timeout_s = start_timeout_s
        self._trial_timeout_s = trial_timeout_s
        self._since_s = now_s
        self._stepped = False
        self._trial: object = None
        self._describing_s: float | None = None

    def advance(self, *, trial: object, stepped: bool, now_s: float, describing_s: float | None = None) -> None:
        """Note where the run is.

        ``trial`` is anything that differs from trial to trial, and from the trials to a description. ``stepped``: a
        training step has ended. ``describing_s`` is what a description may take in all; None where none is under way.
        """
        self._describing_s = describing_s
        if not stepped and not self._stepped:
            return
        if not self._stepped or trial != self._trial:
            self._since_s = now_s
        self._stepped = True
        self._trial = trial

    def passed(self, now_s: float) -> Literal["start_timeout", "trial_timeout", "describing_timeout"] | None:
        """Return the deadline that has passed, if one has."""
        elapsed_s = now_s - self._since_s
        if self._describing_s is not None:
            return "describing_timeout" if elapsed_s > self._describing_s else None
        if self._stepped:
            return "trial_timeout" if elapsed_s > self._trial_timeout_s else None
        return "start_timeout" if elapsed_s > self._start_timeout_s else None
