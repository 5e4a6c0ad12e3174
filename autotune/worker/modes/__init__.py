"""What a run is for: one class for each mode of a request, driven by the session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import Mode
from .discovering import Discovering
from .launching import Launching
from .measuring import Measuring
from .verifying import Verifying

if TYPE_CHECKING:
    from ..session import Session

__all__ = ["Mode", "mode_of"]

_MODES: dict[str, type[Mode]] = {
    "discover": Discovering,
    "measure": Measuring,
    "verify": Verifying,
    "launch": Launching,
}


def mode_of(session: Session) -> Mode:
    """The mode that a session's request asks for."""
    return _MODES[session.request.mode](session)
