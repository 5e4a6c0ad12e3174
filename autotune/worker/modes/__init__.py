"""Modes of a run, which say what the run is for: one class for each mode of a request, driven by the conductor."""

from __future__ import annotations

from ..applied import AppliedConfiguration
from ..hooks.hooked_script import HookedScript
from ..process import TrainingProcess
from .audit import AuditMode
from .base import Mode
from .discover import DiscoverMode
from .launch import LaunchMode
from .locate import LocateMode
from .measure import MeasureMode
from .verify import VerifyMode

_MODES: dict[str, type[Mode]] = {
    "audit": AuditMode,
    "discover": DiscoverMode,
    "measure": MeasureMode,
    "verify": VerifyMode,
    "launch": LaunchMode,
    "locate": LocateMode,
}


def mode_of(process: TrainingProcess, script: HookedScript, applied: AppliedConfiguration) -> Mode:
    """The mode that the request asks for."""
    return _MODES[process.request.mode](process, script, applied)
