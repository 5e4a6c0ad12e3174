"""The guide for Python, as the notebook that it is: every block of it runs, in its order, in a kernel."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from autotune.records.configuration import Configuration
from autotune.records.plan import parse_plans
from tests.docs.pages import DOCS
from tests.fakes.waiting import DEADLINE_S

from .conftest import MakeBundle
from .processes import SCRIPTS, variables

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

# Of a kernel's own packages.
pytestmark = pytest.mark.filterwarnings("ignore")

BLOCKS = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def here(tmp_path: Path, make_bundle: MakeBundle, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the page speaks of; studies in it are short."""
    for name, value in variables(
        {"IPYTHONDIR": f"{tmp_path}/ipython", "JUPYTER_RUNTIME_DIR": f"{tmp_path}/run"}
    ).items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "notebook"
    folder.mkdir()
    shutil.copy(SCRIPTS / "toy.py", folder)
    shutil.copy(SCRIPTS / "loader_loop.py", folder / "train.py")
    (folder / "autotune.toml").write_text("[run]\nengine = 'eager'\nmax-trials = 1\nrepetitions = 1\n")
    configuration = Configuration("aot", parse_plans(["gelu+:1:-1"]), batch_size=16)
    made = make_bundle(SCRIPTS / "loader_loop.py", configuration, name="made")
    made.rename(folder / "bundle")
    return folder


def text_of(cell: Any) -> str:
    """What a cell wrote, and what its last line shows, as plain text."""
    outputs = [one for one in cell.outputs if one.output_type != "error"]
    return "".join(one.get("text") or one.get("data", {}).get("text/plain", "") for one in outputs)


def page_of(cell: Any) -> str:
    """What a cell shows as HTML."""
    return "".join(one.get("data", {}).get("text/html", "") for one in cell.outputs)


@pytest.mark.slow
def test_every_example_of_the_guide_runs_in_a_notebook(here: Path) -> None:
    blocks = BLOCKS.findall((DOCS / "guides/python.md").read_text(encoding="utf-8"))
    cells = [nbformat.v4.new_code_cell(source) for language, source in blocks if language == "python"]
    shown = [source.splitlines() for language, source in blocks if language == "text"]
    notebook = nbformat.v4.new_notebook(cells=cells)

    # An error of any cell is raised here.
    nbclient.NotebookClient(
        notebook, timeout=int(DEADLINE_S), kernel_name="python3", resources={"metadata": {"path": str(here)}}
    ).execute()

    by_text = {cell.source.splitlines()[-1]: cell for cell in notebook.cells}
    _, tuning, reading, function, applying, training, around, single, rows, matrix, failing = notebook.cells
    assert len(by_text) > 5

    said = text_of(tuning)
    assert "Search ended: " in said  # progress
    assert "\x1b" not in said
    assert "Run it       autotune launch autotune-" in said
    assert page_of(reading).startswith('<iframe sandbox="allow-scripts"')
    assert (here / "report.html").read_text().startswith("<!doctype html>")

    assert "<iframe " in page_of(function)
    (script,) = (here / ".autotune/functions").iterdir()
    assert "class Block(nn.Module):" in script.read_text()
    assert "tuned" not in script.read_text()

    # The study that this bundle says it is from had a larger model.
    assert text_of(applying).splitlines()[0].replace("all 12", "all 4") == shown[1][0]
    assert text_of(training).strip() == "True"
    assert text_of(around).startswith("Net keeps ")
    assert "What is compiled is seen as a whole" in text_of(around)
    found = text_of(single).splitlines()
    assert found[:-2] == shown[2][:-2]  # below it the process's peak
    assert found[-1] == shown[2][-1]
    assert "<table>" in page_of(rows)
    assert "blocks.*.up " in text_of(rows)
    assert "phase: post_backward" in text_of(matrix)
    assert text_of(failing).strip() == shown[3][0]
