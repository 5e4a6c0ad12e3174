"""Every command line of README and guides does what the page says: run here, on a script that is a formula."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.cli import main
from autotune.launch.process import ProcessLauncher
from autotune.records.facts import AccumulationControl, OptimizerFacts, PrecisionFacts
from autotune.records.fingerprint import script_sha256
from tests.docs.pages import FILES, FOR_USERS, name, shown
from tests.fakes.landscape import ENVIRONMENT, Cluster, Landscape
from tests.fakes.launcher import FakeLauncher

LINES = {page: [one for one in shown(page, "autotune") if one.is_line] for page in FOR_USERS}
# Not run here, each with the reason; `tests/e2e/test_pages.py` runs those that look at the machine.
LEFT_OUT = {
    "autotune dashboard": "`tests/e2e/test_dashboard_command.py` starts it: it runs until Ctrl-C",
    "autotune dashboard --storage studies.db": "as above",
    "autotune dashboard --storage postgresql://me@host/studies": "as above",
    "autotune dashboard --host 0.0.0.0 --port 8421": "as above",
    "autotune run model.onnx": "`tests/e2e/test_model.py` runs models",
    "autotune run model.onnx --shape seq=128": "as above",
    "autotune run model.onnx --allow fp16,int8 --max-error 2%": "as above",
    "autotune doctor": "it looks at the machine",
    "autotune engines": "it looks at the machine",
    "autotune engines install ortmodule": "it fetches packages",
    "autotune run train.py --engine ortmodule --allow compute-optimizer,embedding-sparse-optimizer": "as above",
    "autotune run train.py --study first --storage postgresql://me@host/studies": "it needs a server",
    "autotune run train.py --devices 0,1": "it needs two GPUs",
    "autotune run --devices 0,1,2,3 --gpus-per-run 2 train.py": "as above",
    "autotune export STUDY --to mlflow": "`tests/unit/test_trackers.py` has the trackers",
    "autotune export STUDY --to wandb": "as above",
    "autotune export STUDY --as torch": "`tests/e2e/test_exporting.py` has a script with blocks",
    "autotune export STUDY --as transformers": "as above",
    "autotune audit train.py": "`tests/e2e/test_audit.py` has scripts that checkpoint",
    "autotune audit train.py -- --epochs 1": "as above",
    "autotune fit train.py --for a100-40g,8xh100-80g": "`tests/e2e/test_cards.py` has scripts for GPUs",
    "autotune fit train.py --for 2xa100-40g,4xa100-40g,8xa100-40g": "as above",
    "autotune fit train.py --for t4-16g,rtx4090-24g,a100-40g,h100-80g": "as above",
    "autotune fit train.py --for rtx3060-12g --look-ahead 1000": "`tests/e2e/test_look_ahead.py` has a script",
    "autotune fit train.py --for t4-16g --look-ahead 1000": "as above",
    "autotune explain train.py --changes": "`tests/e2e/test_explain.py` has a script for a GPU",
    "autotune explain train.py --for a100-40g": "as above",
    "autotune explain train.py --for a100-40g --changes": "as above",
    "autotune gate train.py --against main": "`tests/e2e/test_gate_growth.py` has a script in a repository",
    "autotune gate train.py --for a100-40g": "`tests/e2e/test_gate.py` has scripts and limits",
    "autotune gate train.py --limit 2GiB": "as above",
    "autotune gate BUNDLE train.py --for rtx4090-24g": "as above",
    "autotune gate train.py --for a100-40g --limit 30GiB": "as above",
    "autotune gate train.py --for rtx4090-24g,a100-40g": "as above",
    "autotune run -m package.train -- --epochs 1": "`tests/e2e/test_ways_in.py` runs a module",
    "autotune launch BUNDLE -m package.train -- --epochs 1": "as above",
    "autotune run --memory-limit 20GiB -- torchrun --standalone --nproc-per-node 2 train.py": "it runs a launcher too",
    "autotune run train.py --cluster ray://HOST:10001 --devices 0,1": "`tests/unit/test_launch_ray.py` has a cluster",
    "autotune run train.py --cluster ray://HOST:10001 --cluster-files shared": "as above",
    "autotune run train.py --cluster ray://HOST:10001 --cluster-resource accelerator_type:H100": "as above",
}


def is_left_out(line):
    return " ".join(line.words) in LEFT_OUT


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with what the pages speak of, and a launcher without processes."""
    monkeypatch.chdir(tmp_path)
    for name_of_file, text in FILES.items():
        (tmp_path / name_of_file).parent.mkdir(exist_ok=True)
        (tmp_path / name_of_file).write_text(text)
    # Small, and without a limit, so that every trial is a setting that can be exported.
    landscape = Landscape(clusters=(Cluster("gelu+", 1, 0.3, 0.01),), ceiling_bytes=None)
    facts = replace(
        landscape.facts,
        script_sha256=script_sha256(str(tmp_path / "train.py")),
        optimizers=(OptimizerFacts("AdamW", {"foreach": "None", "fused": "None"}),),
        precision=PrecisionFacts("float32"),
        accumulation_control=AccumulationControl("transformers", 4),
    )

    fake = FakeLauncher(landscape.measure, environment=ENVIRONMENT, facts=facts, root=tmp_path / "runs")
    monkeypatch.setattr(ProcessLauncher, "run", lambda _, request, **others: fake.run(request, **others))
    return tmp_path


@pytest.fixture
def typed(here, monkeypatch, capsys):
    """``typed("run", "train.py")`` runs the command line in this process; gives what it printed."""

    def execute(path, words, environment):
        raise SystemExit(f"started {words}" * (not Path(path).exists()) or 0)

    monkeypatch.setattr(os, "execve", execute)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["autotune", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert (ended.value.code or 0) == 0, f"autotune {' '.join(words)}\n{said.out}{said.err}"
        return said.out

    return run


@pytest.mark.parametrize("page", [page for page in FOR_USERS if LINES[page]], ids=name)
def test_what_a_page_shows_can_be_typed_in_its_order(page, typed, here):
    study = bundle = ""
    for line in LINES[page]:
        if is_left_out(line):
            continue
        words = line.words[1:]
        if not study and {"STUDY", "BUNDLE"} & set(words):
            typed("run", "train.py")
        if made := sorted(here.glob("autotune-*"), key=lambda path: path.stat().st_mtime):
            bundle, study = made[-1].name, json.loads((made[-1] / "stack.json").read_text())["study"]
        placeholders = {"STUDY": study, "BUNDLE": bundle}
        typed(*(placeholders.get(word, word) for word in words))


def test_nothing_is_left_out_that_no_page_shows():
    texts = {" ".join(line.words) for lines in LINES.values() for line in lines}
    assert LEFT_OUT.keys() <= texts
