"""The memory of a trial, from before its session is made, phase by phase: resident, or what is held of a GPU."""

from __future__ import annotations

from ..metering.resident import ResidentMemory, reset_resident_peak, resident_bytes, resident_peak
from ..records.inference import InferenceMoment, InferencePhase
from ..records.measurement import Peaks
from .gpu import Gpu


class PhasedMemory(ResidentMemory):
    """Peaks of everything since the first ``begin``; ``end`` ends a phase.

    Args:
        gpu: what the model runs on; None for the CPU.
        free_before: bytes that the GPU had free before this process began; None where nobody told.
    """

    def __init__(self, gpu: Gpu | None = None, free_before: int | None = None) -> None:
        super().__init__()
        self._gpu = gpu
        self._free_before = free_before
        self._highest = 0
        self.moments: list[InferenceMoment] = []

    def begin(self) -> None:
        """Begin, once: what measures the steps does it again."""
        if not self.moments:
            super().begin()
            self.end("before")

    def held(self) -> int:
        """Bytes that are held now: of the GPU where the model runs on one, else of the resident set."""
        if self._gpu is None:
            return resident_bytes()
        free = self._gpu.free_bytes()
        before = self._gpu.memory_bytes if self._free_before is None else self._free_before
        return 0 if free is None else max(0, before - free)

    def end(self, phase: InferencePhase) -> None:
        """Note what is held now, and what was the most since the phase before; of a GPU both are what is held."""
        held = self.held()
        # The kernel counts the peak a little later than what is held.
        peak = held if self._gpu is not None else max(held, resident_peak())
        self._highest = max(self._highest, peak)
        self.moments.append(InferenceMoment(phase, held, peak))
        # Where the system refuses, peaks are those since the start; the first refusal is among the notes.
        reset_resident_peak()

    def peaks(self) -> Peaks:
        """The highest of all phases.

        Nothing of a GPU is in torch's allocator, so all is outside of it: the controller, which looks between phases as
        well, puts its own figure there.
        """
        if self._gpu is not None:
            return Peaks(reserved=0, non_torch=max(self._highest, self.held()), resident=resident_peak())
        return Peaks(resident=max(self._highest, resident_peak()))
