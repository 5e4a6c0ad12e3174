"""Hooks are put in at the moment the script has imported torch, and nothing of that is left to see."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import autotune
from autotune.records.codec import dumps
from autotune.records.configuration import Configuration
from autotune.records.plan import parse_plans
from autotune.records.run import Request

pytestmark = pytest.mark.process

_TORCH_IMPORT = Path(autotune.__file__).parent / "worker" / "torch_import.py"

_INJECT = _TORCH_IMPORT.parent / "inject"

_HOST = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("_torch_import", {str(_TORCH_IMPORT)!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
before = list(sys.meta_path)
module.when_imported(lambda: print("torch is here:", "torch" in sys.modules, hasattr(sys.modules["torch"], "done")))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a small torch of its own: what matters is how it is imported."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(
        "print('torch begins')\nfrom . import nn\ndone = True\nprint('torch ends')\n".replace("\\\n", "\n")
    )
    (package / "nn.py").write_text("import torch\n")
    return tmp_path


def run(folder: Path, source: str) -> list[str]:
    code = _HOST + textwrap.dedent(source)
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def test_the_action_runs_once_when_torch_is_whole(folder: Path) -> None:
    lines = run(folder, "import torch\nimport torch.nn\nimport torch\nprint('script')")
    assert lines == ["torch begins", "torch ends", "torch is here: True True", "script"]


def test_a_submodule_first_is_the_same(folder: Path) -> None:
    lines = run(folder, "from torch.nn import torch\nprint('script')")
    assert lines == ["torch begins", "torch ends", "torch is here: True True", "script"]


def test_nothing_happens_as_long_as_torch_is_not_imported(folder: Path) -> None:
    assert run(folder, "import json\nprint('script')") == ["script"]


def test_the_action_runs_at_once_where_torch_is_there_already(folder: Path) -> None:
    lines = run(folder, "sys.meta_path[:] = before\nimport torch\nmodule.when_imported(lambda: print('at once'))")
    assert lines == ["torch begins", "torch ends", "at once"]


def test_no_trace_is_left_on_the_import_system(folder: Path) -> None:
    lines = run(
        folder,
        """
        import torch
        print(sys.meta_path == before, "exec_module" in vars(torch.__loader__), type(torch.__spec__.loader).__name__)
        """,
    )
    assert lines[-1] == "True False SourceFileLoader"


def test_an_import_that_fails_is_the_scripts_own_error(folder: Path) -> None:
    (folder / "torch" / "__init__.py").write_text("raise ImportError('libcudart is missing')\n")
    lines = run(
        folder,
        """
        for _ in range(2):
            try:
                import torch
            except ImportError as error:
                print(error)
        """,
    )
    assert lines == ["libcudart is missing"] * 2


def test_an_installation_without_torch_says_so(tmp_path: Path) -> None:
    source = """
        import importlib.util
        sys.path[:] = [entry for entry in sys.path if "site-packages" not in entry]
        try:
            import torch
        except ModuleNotFoundError as error:
            print(error)
        """
    assert run(tmp_path, source) == ["No module named 'torch'"]


def test_looking_for_torch_is_not_importing_it(folder: Path) -> None:
    lines = run(folder, "print(importlib.util.find_spec('torch') is not None)\nimport torch\nprint('script')")
    assert lines == ["True", "torch begins", "torch ends", "torch is here: True True", "script"]


def test_a_process_that_only_imports_torch_imports_no_compiler(tmp_path: Path) -> None:
    """Guards workers of DataLoaders and of Inductor, each of which gets the hooks: Dynamo alone takes a second."""
    request = Request("measure", str(tmp_path / "train.py"), (), (Configuration("aot", parse_plans(["gelu+:1:-1"])),))
    variables = {"PYTHONPATH": str(_INJECT), "AUTOTUNE_RUN": str(tmp_path), "AUTOTUNE_REQUEST": dumps(request)}
    code = "import torch, sys; print('_autotune.worker.conductor' in sys.modules, 'torch._dynamo' in sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=240, check=False
    )
    assert process.stdout.split() == ["True", "False"], process.stderr
