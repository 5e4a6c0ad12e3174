"""What a run is for: one class for each mode of a request, driven by the session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import Mode
from .discovering import DiscoverMode
from .launching import LaunchMode
from .measuring import MeasureMode
from .verifying import VerifyMode

if TYPE_CHECKING:
    from ..session import Session

__all__ = ["Mode", "mode_of"]

_MODES: dict[str, type[Mode]] = {
    "discover": DiscoverMode,
    "measure": MeasureMode,
    "verify": VerifyMode,
    "launch": LaunchMode,
}


def mode_of(session: Session) -> Mode:
    """The mode that a session's request asks for."""
    return _MODES[session.request.mode](session)
