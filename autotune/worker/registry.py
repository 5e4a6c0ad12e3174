"""The engines, and how each describes a script."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..records import Request
from .describe import GraphDescription
from .engines.aot import AotEngine
from .engines.inductor import InductorEngine
from .engines.ortmodule import OrtModuleEngine
from .engines.ortmodule_describe import OrtModuleDescription
from .engines.port import Engine
from .facts import Baseline, Description

if TYPE_CHECKING:
    from .session import Session

__all__ = ["description_of", "engine_of"]

_ENGINES: dict[str, tuple[type[Engine], Callable[[Session, Any, Baseline], Description]]] = {
    AotEngine.name: (AotEngine, GraphDescription),
    InductorEngine.name: (InductorEngine, GraphDescription),
    OrtModuleEngine.name: (OrtModuleEngine, OrtModuleDescription),
}


def engine_of(request: Request) -> Engine | None:
    """The one engine that a run may need beside the plain script, or None."""
    described = {request.describe_engine} if request.mode == "discover" else set()
    names = described | {configuration.engine for configuration in request.configurations} - {"eager"}
    assert len(names) <= 1, f"a run has one engine, not {names}"
    if not names:
        return None
    engine = _ENGINES[names.pop()][0]()
    engine.proves = request.mode == "verify"
    return engine


def description_of(session: Session, engine: Engine, baseline: Baseline) -> Description:
    """What fills the facts of a script under an engine."""
    return _ENGINES[engine.name][1](session, engine, baseline)
