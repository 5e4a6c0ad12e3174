"""The public surface: it is what it says, it is typed, and importing it loads nothing."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import autotune

FOLDER = Path(autotune.__file__).parent


def test_all_is_what_there_is() -> None:
    own = {
        name
        for name, value in vars(autotune).items()
        if inspect.isfunction(value) and value.__module__ == autotune.__name__
    }
    assert sorted([*own, "__version__"]) == autotune.__all__ == sorted(autotune.__all__)


@pytest.mark.parametrize("name", [name for name in autotune.__all__ if name != "__version__"])
def test_every_function_is_documented_and_typed(name: str) -> None:
    function = getattr(autotune, name)
    text = inspect.getdoc(function) or ""
    assert len(text) > 80
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(one.annotation is not inspect.Parameter.empty for one in signature.parameters.values())
    for parameter in signature.parameters.values():
        assert len(signature.parameters) == 1 or f"    {parameter.name}:" in text, parameter.name


def test_a_type_checker_may_read_the_package() -> None:
    assert (FOLDER / "py.typed").exists()


@pytest.mark.process
def test_importing_it_loads_nothing_heavy() -> None:
    heavy = ("torch", "optuna", "typer", "rich", "sqlalchemy", "numpy", "jinja2", "IPython")
    text = f"""
import sys, autotune
print(*sorted(set({heavy!r}) & set(sys.modules)), *[name for name in sys.modules if name.startswith("autotune")])
"""
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=FOLDER.parent, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["autotune"]
