"""The scripts of the reference studies, run as they are: they train on this machine's CPU, unaware of autotune."""

from __future__ import annotations

import math
import re
import runpy
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow  # guards benchmarks, and nothing that is shipped

TRIALS = Path(__file__).resolve().parents[2] / "trials"
# Less of the text that some of them read, which takes a while to be prepared.
LESS = {
    "charlm": ("--max-chars", "30000"),
    "bert": ("--max-chars", "30000"),
    "snippets": ("--modules", "4"),
}
CASES = runpy.run_path(str(TRIALS / "run.py"))["cases"]


@pytest.fixture
def script(monkeypatch, capsys):
    """``script(case, "--steps", "2")`` runs the script of a case as ``python train.py`` does; gives what it printed."""

    def run(case, *more):
        path = TRIALS / case.workload / "train.py"
        if "transformers" in path.read_text():
            pytest.importorskip("transformers")
        monkeypatch.setattr("sys.argv", [str(path), *case.arguments, *more])
        state = torch.random.get_rng_state()
        try:
            runpy.run_path(str(path), run_name="__main__")
        finally:
            torch.random.set_rng_state(state)
        return capsys.readouterr().out

    return run


@pytest.mark.skipif(torch.cuda.is_available(), reason="the scripts would take the GPU")
@pytest.mark.parametrize("case", CASES("cpu"), ids=lambda case: case.name)
def test_every_script_trains_some_steps_on_a_cpu(case, script):
    # No worker is forked from the tests' process, which has threads.
    workers = ("--workers", "0") if "--workers" in case.arguments else ()
    printed = script(case, "--steps", "2", *workers, *LESS.get(case.workload, ()))
    (loss,) = re.findall(r"^step +2 +loss ([\w.]+)", printed, re.MULTILINE)
    assert math.isfinite(float(loss))


@pytest.mark.parametrize("case", CASES("cuda"), ids=lambda case: case.name)
def test_every_script_has_the_arguments_of_its_studies(case, script):
    # argparse refuses what comes before it first.
    with pytest.raises(SystemExit) as ended:
        script(case, "--help")
    assert ended.value.code == 0
