"""A training process from its first step to its last line: what it writes, and what it never does to the script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from autotune.records import Measured, Measurement, Measuring
from tests.fakes.hooked import restored_torch
from tests.fakes.planned import clean_torch
from tests.fakes.training_process import TrainingProcess, train


@pytest.fixture(autouse=True)
def _clean_torch() -> Iterator[None]:
    with clean_torch(), restored_torch():
        yield


def measurement(process: TrainingProcess) -> Measurement:
    (outcome,) = process.outcomes()
    assert isinstance(outcome, Measured), outcome
    return outcome.measurement


def test_a_script_that_ends_early_is_described_by_what_it_had(tmp_path: Path) -> None:
    """Guards short scripts with a main(): models and optimizers are held weakly, and are gone at the script's end."""
    process = TrainingProcess(tmp_path, mode="discover", measuring=Measuring(max_warmup_steps=2, min_steps=50))
    process.run(lambda: train(steps=8, optimizer=torch.optim.Adam))
    split = measurement(process).split
    assert split is not None
    assert split.parameters == 4 * (6 + 2)
    assert split.optimizer_state >= 2 * split.parameters
    (described,) = process.described()
    assert described.facts.split == split
    assert [optimizer.name for optimizer in described.facts.optimizers] == ["Adam"]
