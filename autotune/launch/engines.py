"""Which engines can run scripts here, and what those that cannot are missing, for `autotune engines`."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field, replace

from ..errors import AutotuneError
from ..records import ENGINES, Engine
from .environments import RECIPES, environment_folder, environment_python
from .install import find_python

__all__ = ["EngineState", "list_engines"]

# The metadata of a package takes a thousandth of the time that importing it takes.
_ASK_TORCH = "from importlib.metadata import version; print(version('torch'))"
_ASK_S = 60.0


@dataclass(frozen=True)
class EngineState:
    """An engine: ``does`` is what it is for, ``found`` what was found of it; ``next_step`` is empty where it is usable.

    ``python`` is the interpreter that runs it, empty where there is none yet. ``choices`` are what `run --allow` takes,
    by name, with what they do; ``refused`` those that cannot be had, with the reason.
    """

    name: Engine
    does: str
    usable: bool
    found: str
    next_step: str = ""
    python: str = ""
    choices: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def list_engines(python: str) -> tuple[EngineState, ...]:
    """Look at every engine; ``python`` is the interpreter of those that have none of their own."""
    torch = _torch_of(python)
    if torch is None:
        found, next_step = f"{python} has no torch", "install torch there, or choose another interpreter with --python"
    else:
        found, next_step = f"torch {torch}", ""
    plain = (torch is not None, found, next_step, python)
    compiler = any(map(shutil.which, ("c++", "g++", "clang++")))
    inductor = plain if compiler or torch is None else (True, f"{found}; no C++ compiler: on GPUs only", "", python)
    states = (
        EngineState("aot", ENGINES["aot"].does, *plain),
        EngineState("inductor", ENGINES["inductor"].does, *inductor),
        _own("ortmodule", ENGINES["ortmodule"].does),
        EngineState("eager", ENGINES["eager"].does, *plain),
    )
    return tuple(map(_with_choices, states))


def _with_choices(state: EngineState) -> EngineState:
    known = ENGINES[state.name].choices
    return replace(
        state,
        choices={name: choice.does for name, choice in known.items() if not choice.refusal},
        refused={name: choice.refusal for name, choice in known.items() if choice.refusal},
    )


def _torch_of(python: str) -> str | None:
    try:
        done = subprocess.run(
            (python, "-c", _ASK_TORCH),
            capture_output=True,
            text=True,
            timeout=_ASK_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _own(engine: Engine, does: str) -> EngineState:
    """An engine with an environment of its own."""
    recipe = RECIPES[engine]
    python = environment_python(engine)
    if python is not None:
        found = f"{recipe.requirements[0]}, {recipe.torch}, in {environment_folder(engine)}"
        return EngineState(engine, does, usable=True, found=found, python=str(python))
    try:
        base = find_python(recipe, None)
    except AutotuneError as error:
        return EngineState(engine, does, usable=False, found=str(error), next_step=error.hint)
    found = f"not installed; {base} will do for it"
    return EngineState(engine, does, usable=False, found=found, next_step=f"autotune engines install {engine}")
