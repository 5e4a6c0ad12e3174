"""Mode ``locate``: what it sees in the blocks of a model."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from autotune.worker.modes.locate import LocateMode


class Block(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm, self.linear = norm, nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(self.norm(x))


def located(model, x):
    """What the mode writes after a training call of the model."""
    written = []
    process = SimpleNamespace(write=written.append, rank=0, has_result=False, end=lambda: None)
    roots = SimpleNamespace(modules=lambda: [model])
    mode = LocateMode(process, SimpleNamespace(roots=roots), SimpleNamespace(seen_chains=dict))
    mode.ready()
    model(x)
    mode.step(None)
    (found,) = written
    return found


@pytest.mark.parametrize(
    ("norm", "has_statistics"),
    [
        (nn.BatchNorm1d(2), True),
        (nn.InstanceNorm1d(2, track_running_stats=True), True),
        (nn.InstanceNorm1d(2), False),
        (nn.LayerNorm(4), False),
    ],
    ids=["batch", "instance, tracked", "instance", "layer"],
)
def test_norms_with_running_statistics_are_seen(norm, has_statistics):
    model = nn.Sequential(*(Block(norm) for _ in range(3)))
    (blocks,) = located(model, torch.randn(3, 2, 4)).blocks
    assert (blocks.class_name, blocks.number, blocks.called) == ("Block", 3, (0, 1, 2))
    assert blocks.has_statistics == has_statistics
