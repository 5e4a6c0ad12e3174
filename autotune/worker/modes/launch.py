"""Running a script to its own end with a bundle applied."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import torch

from ...metering.trial_meter import Window
from ...records.fingerprint import Fingerprint
from ...records.look_ahead import SeenBatch
from ...records.outcome import Fallback, InvalidPlan
from ...records.shortage import larger_text
from ...records.stale import REFUSED_STATUS, Mismatch, MismatchKind, applied_text, mismatches, refusal_text
from ..describing.fingerprint import model_print
from ..refusal import note_once, tell_refusal
from .base import Mode


class LaunchMode(Mode):
    """Judges torch and the first step: refuses to train with anything but what a bundle says that may not be stale."""

    def __post_init__(self) -> None:
        self._is_stale = self._process.request.is_stale
        self._largest = self._process.request.measured_batch

    def installed(self) -> None:
        """Have batches noted, so that a step that runs out of memory is told with its batch."""
        self._script.loaders.names_batches = True
        self._script.loaders.on_batch = self._note_larger

    def script_begins(self) -> None:
        """Refuse to begin under another torch than the bundle's, where that matters."""
        request = self._process.request
        found = self._mismatches(Fingerprint(torch=str(torch.__version__)))
        serious = [one for one in found if not one.is_harmless]
        if serious and not request.allow_stale:
            self._refuse(serious)
        self._is_stale |= bool(serious)
        for one in found:
            note_once(f"autotune: note: {one.said}\n")

    def step(self, window: Window) -> None:
        """Refuse to go on, after the first step, if the bundle could not be applied."""
        if self._process.steps == 1:
            self._judge(window)
        # Nobody asks any more what the steps are like, and small ones would pay for it.
        self._script.roots.rest(passes=not self._applied.changes_calls)
        self._script.steps.rest()
        self._script.loaders.rest()

    def _note_larger(self, batch: SeenBatch, epoch: int) -> None:
        """Note a batch that is larger than those that were measured, and than those that were noted."""
        if self._largest is not None and batch.elements > self._largest.elements:
            note_once(larger_text(batch, epoch, measured=self._largest))
            self._largest = batch

    def _judge(self, window: Window) -> None:
        process, applied = self._process, self._applied
        now = applied.occurrences()
        models = tuple(map(model_print, self._script.roots.modules()))
        problems: dict[MismatchKind, Fallback | InvalidPlan | None] = {
            "setting": applied.problem(),
            "batch size": applied.batch_size_problem(window.batch_size),
            "accumulation": applied.accumulation_problem(window.micro_batches),
        }
        found = [
            *self._mismatches(Fingerprint(models=models, occurrences=now)),
            *(Mismatch(what, problem.cause) for what, problem in problems.items() if problem is not None),
        ]
        if not found and not self._is_stale:
            return
        if not process.request.allow_stale:
            self._refuse(found)
        if process.rank == 0:
            expected = process.request.expected or Fingerprint()
            applied_words = applied_text(found, process.configuration, expected.occurrences, now)
            sys.stderr.write(f"autotune: note: {applied_words}\n")
            sys.stderr.flush()

    def _mismatches(self, found: Fingerprint) -> tuple[Mismatch, ...]:
        process = self._process
        return mismatches(process.request.expected or Fingerprint(), found, engine=process.configuration.engine)

    def _refuse(self, found: Sequence[Mismatch]) -> NoReturn:
        tell_refusal(refusal_text(found))
        self._process.refuse(REFUSED_STATUS)
