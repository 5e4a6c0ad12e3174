"""The engines, and how each describes a script."""

from __future__ import annotations

from collections.abc import Callable

from ..records.run import Request
from .describing.description import Baseline, Description
from .describing.graph_description import GraphDescription
from .describing.ortmodule_description import OrtModuleDescription
from .describing.root_inputs import RootInputs
from .engines.inductor import InductorEngine
from .engines.ortmodule import OrtModuleEngine
from .engines.plan_engine import AotEngine
from .engines.port import Engine
from .hooks.hooked_script import HookedScript
from .process import TrainingProcess

_ENGINES: dict[str, tuple[type[Engine], Callable[..., Description]]] = {
    AotEngine.name: (AotEngine, GraphDescription),
    InductorEngine.name: (InductorEngine, GraphDescription),
    OrtModuleEngine.name: (OrtModuleEngine, OrtModuleDescription),
}


def engine_of(request: Request) -> Engine | None:
    """Return the one engine that a run may need beside the plain script, or None."""
    described = {request.describe_engine} if request.mode == "discover" else set()
    names = described | {configuration.engine for configuration in request.configurations} - {"eager"}
    assert len(names) <= 1, f"a run has one engine, not {names}"
    engine = engine_named(names.pop()) if names else None
    if engine is not None:
        engine.proves = request.mode == "verify"
    return engine


def engine_named(name: str) -> Engine | None:
    """Return a new engine of that name, or None for ``eager``."""
    return None if name == "eager" else _ENGINES[name][0]()


def description_of(
    process: TrainingProcess, script: HookedScript, engine: Engine, baseline: Baseline, inputs: RootInputs
) -> Description:
    """Return what fills the facts of a script under an engine."""
    return _ENGINES[engine.name][1](process, script, engine, baseline, inputs)
