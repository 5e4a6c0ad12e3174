"""Which sizes of a root's inputs are the batch, and which grow with it without being it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from autotune.worker.describing.root_inputs import RootCall, RootInputs


class Root(nn.Module):
    def forward(self, x: Any, edges: Any = None, mask: Any = None) -> None: ...


ROOT = Root()


def seen(*calls: tuple[int, tuple[Any, ...]]) -> RootInputs:
    """After calls with so many samples each."""
    inputs = RootInputs()
    for samples, arguments in calls:
        call = RootCall(ROOT, arguments, {}, 0, samples)
        inputs.see(call)
        inputs.mark(call)
    return inputs


def test_the_dimension_with_as_many_entries_as_there_are_samples_is_the_batch() -> None:
    inputs = seen((4, (torch.ones(4, 4),)), (3, (torch.ones(3, 4),)))
    assert inputs.names[4, 0] == inputs.names[3, 0] == "batch"
    assert inputs.names[4, 1] == "x_dim1"
    assert inputs.per_sample == {}
    assert inputs.usual("batch", 3, 4) == 4


def test_rows_that_change_in_number_grow_with_the_batch() -> None:
    inputs = seen(
        (4, (torch.ones(20, 8), torch.zeros(2, 60, dtype=torch.long))),
        (4, (torch.ones(28, 8), torch.zeros(2, 40, dtype=torch.long))),
    )
    assert inputs.per_sample == {"x_dim0": 7.0, "edges_dim1": 15.0}
    assert inputs.usual("x_dim0", 20, 4) == 28
    assert inputs.usual("x_dim0", 20, 8) == 56


def test_rows_that_are_always_the_same_number_for_each_sample_grow_too() -> None:
    inputs = seen((32, (torch.ones(1984, 64),)), (32, (torch.ones(1984, 64),)))
    assert inputs.per_sample == {"x_dim0": 62.0}


def test_a_tensor_that_the_script_passes_again_and_again_does_not_come_with_the_batch() -> None:
    table = torch.ones(64, 8)
    inputs = seen((4, (torch.ones(4, 8), table)), (4, (torch.ones(4, 8), table)))
    assert inputs.per_sample == {}


def test_a_sequence_beside_the_batch_does_not_grow_with_it() -> None:
    ids = [torch.zeros(4, length, dtype=torch.long) for length in (8, 12)]
    inputs = seen(*((4, (each,)) for each in ids))
    assert inputs.names[8, 1] == "seq_len"
    assert inputs.per_sample == {}


def test_names_in_formulas_are_identifiers_whatever_the_arguments_are_called() -> None:
    inputs = seen((2, ({"edge index": [torch.ones(5), torch.ones(6)]},)), (2, ({"edge index": [torch.ones(7)]},)))
    assert inputs.per_sample == {"x_edge_index_0_dim0": 3.5, "x_edge_index_1_dim0": 3.0}
