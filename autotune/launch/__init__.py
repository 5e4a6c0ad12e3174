"""The controller's side of a run: start it, watch it, measure its memory, end it, and say how it ended.

``port.py`` is the seam that scheduling sees; ``process.py`` is what stands behind it. No torch in here.
"""

from __future__ import annotations

from .logs import log_tail
from .port import Event, Launcher, RunResult
from .process import WORKER, ProcessLauncher, device_variables, worker_command
from .requests import (
    audit_request,
    can_fork,
    description_request,
    discovery_request,
    fill_arguments,
    graphs_request,
    has_placeholder,
    locate_request,
    round_request,
    trial_request,
    verify_request,
)

__all__ = [
    "WORKER",
    "Event",
    "Launcher",
    "ProcessLauncher",
    "RunResult",
    "audit_request",
    "can_fork",
    "description_request",
    "device_variables",
    "discovery_request",
    "fill_arguments",
    "graphs_request",
    "has_placeholder",
    "locate_request",
    "log_tail",
    "round_request",
    "trial_request",
    "verify_request",
    "worker_command",
]
