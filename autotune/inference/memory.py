"""The resident set of a trial, from before its session is made, phase by phase."""

from __future__ import annotations

from ..metering.resident import ResidentMemory, reset_resident_peak, resident_bytes, resident_peak
from ..records import InferenceMoment, InferencePhase, Peaks

__all__ = ["PhasedMemory"]


class PhasedMemory(ResidentMemory):
    """Peaks of everything since the first ``begin``; ``end`` ends a phase."""

    def __init__(self) -> None:
        super().__init__()
        self._highest = 0
        self.moments: list[InferenceMoment] = []

    def begin(self) -> None:
        """Begin, once: what measures the steps does it again."""
        if not self.moments:
            super().begin()
            self.end("before")

    def end(self, phase: InferencePhase) -> None:
        """Note what is held now, and what was the most since the phase before."""
        held = resident_bytes()
        peak = max(held, resident_peak())  # the kernel counts the one a little later than the other
        self._highest = max(self._highest, peak)
        self.moments.append(InferenceMoment(phase, held, peak))
        # Where the system refuses, peaks are those since the start; the first refusal is among the notes.
        reset_resident_peak()

    def peaks(self) -> Peaks:
        """The highest of all phases."""
        return Peaks(resident=max(self._highest, resident_peak()))
