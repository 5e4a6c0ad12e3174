"""The engines that can run scripts here, and the parts that other engines are missing, for `autotune engines`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import get_args

from ..errors import AutotuneError, UsageError
from ..records.choices import choices_of, refused_choices
from ..records.engines import ENGINES, Engine
from .environments import OWN_ENGINE, REQUIREMENTS, TORCH, environment_folder, environment_python
from .host import find_cxx_compiler
from .install import find_python
from .interpreter import ask_interpreter, check_has


@dataclass(frozen=True)
class EngineState:
    """An engine: ``does`` is what it is for, ``found`` what was found of it; ``next_step`` is empty where it is usable.

    ``python`` is the interpreter that runs it, empty where there is none yet. ``choices`` are what `run --allow` takes,
    by name, with what they do, ``settings`` those that need no leave, ``refused`` those that cannot be had, with the
    reason.
    """

    name: Engine
    does: str
    usable: bool
    found: str
    next_step: str = ""
    python: str = ""
    choices: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def list_engines(python: str) -> tuple[EngineState, ...]:
    """Look at every engine; ``python`` is the interpreter of those that have none of their own."""
    states = (_own() if engine == OWN_ENGINE else _plain(engine, python) for engine in get_args(Engine))
    return tuple(map(_with_choices, states))


def _with_choices(state: EngineState) -> EngineState:
    known = choices_of(state.name)
    return replace(
        state,
        choices={name: choice.does for name, choice in known.items() if not choice.is_free},
        settings={name: choice.does for name, choice in known.items() if choice.is_free},
        refused={name: choice.refusal for name, choice in refused_choices(state.name).items()},
    )


def _plain(engine: Engine, python: str) -> EngineState:
    needs = ENGINES[engine].needs
    state = EngineState(engine, ENGINES[engine].does, usable=True, found="", python=python)
    try:
        if needs:
            check_has(python, *needs, hint=f"{python} -m pip install {' '.join(needs)}")
            return replace(state, found=" and ".join(needs) + " are there")
        torch = ask_interpreter(python).torch
    except UsageError as error:
        return replace(state, usable=False, found=str(error), next_step=error.hint)
    if torch is None:
        next_step = "install torch there, or choose another interpreter with --python"
        return replace(state, usable=False, found=f"{python} has no torch", next_step=next_step)
    found = f"torch {torch}"
    if ENGINES[engine].needs_compiler and find_cxx_compiler() is None:
        found += "; no C++ compiler: on GPUs only"
    return replace(state, found=found)


def _own() -> EngineState:
    engine, does = OWN_ENGINE, ENGINES[OWN_ENGINE].does
    python = environment_python()
    if python is not None:
        found = f"{REQUIREMENTS[0]}, {TORCH}, in {environment_folder()}"
        return EngineState(engine, does, usable=True, found=found, python=str(python))
    try:
        base = find_python(None)
    except AutotuneError as error:
        return EngineState(engine, does, usable=False, found=str(error), next_step=error.hint)
    found = f"not installed; {base} will do for it"
    return EngineState(engine, does, usable=False, found=found, next_step=f"autotune engines install {engine}")
