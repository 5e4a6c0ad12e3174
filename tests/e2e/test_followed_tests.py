"""The mark ``peak_memory`` in a project of its own, in whole processes: what passes, what fails, and what is left."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from .processes import run_command

CONFTEST = """
import pytest
import torch
from torch import nn


@pytest.fixture
def model():
    return nn.Sequential(*(nn.Linear(512, 512) for _ in range(4))).cuda()
"""
TESTS = """
import pytest
import torch

pytestmark = [pytest.mark.peak_memory("40MiB", card="a100-40g"), pytest.mark.filterwarnings("error")]


def train(model, steps):
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(64, 512, device="cuda")).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("steps", [1, 2, 50])
def test_within(model, steps):
    train(model, steps)


@pytest.fixture
def trained(model):
    train(model, 5)
    return model


def test_after_training(trained):
    train(trained, 1)
    torch.empty(2**24, device="cuda")


@pytest.mark.peak_memory("30MiB", card="a100-40g")
def test_over(model):
    train(model, 2)


def test_wrong(model):
    train(model, 9)
    assert isinstance(model, str)


def test_without_training(model):
    pass
"""


def test_tests_that_train_are_held_to_their_limits(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_memory.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -n 2 --strict-markers -p no:cacheprovider\n")
    ended = run_command(sys.executable, "-m", "pytest", "--no-header", "-rf", folder=tmp_path)
    told = ended.output.decode()
    assert re.search(r"^=+ 4 failed, 3 passed in ", told, re.MULTILINE), told
    assert "FAILED test_memory.py::test_over - Failed: Over the limit of 30 MiB on a100-4" in told
    assert re.search(
        r"^The step at batch size 64 holds 3\d\.\d MiB of tensors at its peak, .*test_memory\.py:13", told, re.MULTILINE
    )
    assert "exited with status 1 after 9 training steps\n" in told
    assert re.search(
        r"^FAILED test_memory.py::test_after_training - Failed: Over the limit of 40 MiB", told, re.MULTILINE
    )
    assert "in the part after the backward, at test_memory.py:29.\n" in told
    assert "assert isinstance(model, str)" in told
    assert "the script cannot be followed without the GPU: no training step ran\n" in told
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == [
        *(".autotune", "conftest.py", "pytest.ini", "test_memory.py")
    ]
