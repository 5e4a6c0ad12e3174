"""Reading ahead in an iterator: which batches it hands out, what it notes of them, and when it stops."""

from __future__ import annotations

import random
from collections import UserDict
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from autotune.worker.hooks.look_ahead import BatchReader


def drawing(batches: Iterable[Any]) -> Callable[[], tuple[Any, int]]:
    iterator = iter(batches)
    return lambda: (next(iterator), 4)


def of_lengths(*lengths: int) -> Callable[[], tuple[Any, int]]:
    return drawing(torch.zeros(4, length) for length in lengths)


def handed_out(reader: BatchReader, draw: Callable[[], tuple[Any, int]], number: int, per_step: int = 1) -> list[int]:
    """The lengths of the next batches; the first one comes before it is known how many a step takes."""
    return [reader.next(draw, per_step if place else 0)[1][0].shape[1] for place in range(number)]


def test_after_the_first_step_each_batch_exceeds_all_before_it_and_the_last_comes_again() -> None:
    reader = BatchReader(100, 60.0)
    assert handed_out(reader, of_lengths(5, 3, 7, 6, 7, 9, 2), 5) == [5, 7, 9, 9, 9]
    found = reader.found([])
    assert found is not None
    assert (found.elements, found.is_whole, found.differ) == ((20, 12, 28, 24, 28, 36, 8), True, True)
    assert (found.smallest.number, found.largest.number, reader.last.number) == (7, 6, 6)


def test_a_step_of_several_batches_gets_each_as_often() -> None:
    assert handed_out(BatchReader(100, 60.0), of_lengths(5, 7, 6, 9), 7, per_step=2) == [5, 7, 7, 9, 9, 9, 9]


def test_the_largest_may_be_the_first() -> None:
    reader = BatchReader(100, 60.0)
    assert handed_out(reader, of_lengths(9, 7, 3), 3) == [9, 9, 9]
    assert reader.last.number == 1


def test_a_batch_of_fewer_but_longer_samples_is_handed_out_too() -> None:
    """Guards batches of so many tokens: attention takes the square of the longest sample."""
    batches = [torch.zeros(8, 10), torch.zeros(2, 39), torch.zeros(4, 18), torch.zeros(8, 11)]
    reader = BatchReader(100, 60.0)
    assert handed_out(reader, drawing(batches), 4) == [10, 39, 11, 11]


def test_of_many_the_last_few_are_kept() -> None:
    reader = BatchReader(1000, 60.0)
    assert handed_out(reader, of_lengths(*range(1, 101)), 4) == [1, 93, 94, 95]
    assert reader.last.number == 100


@pytest.mark.parametrize(
    ("most", "deadline_s", "ended_by"), [(3, 60.0, "3 were asked for"), (9, 0.0, "0 s had passed")]
)
def test_it_stops_at_a_number_of_batches_and_at_a_time(most: int, deadline_s: float, ended_by: str) -> None:
    reader = BatchReader(most, deadline_s)
    handed_out(reader, of_lengths(*[5] * 100), 2)
    found = reader.found([])
    assert found is not None
    assert (found.ended_by, found.is_whole, found.was_read, found.differ) == (ended_by, False, True, False)


def test_what_the_iterator_raises_ends_the_reading() -> None:
    def batches() -> Iterable[torch.Tensor]:
        yield from (torch.zeros(4, 5), torch.zeros(4, 6))
        raise OSError("no such file")

    reader = BatchReader(100, 60.0)
    assert handed_out(reader, drawing(batches()), 3) == [5, 6, 6]
    found = reader.found([])
    assert found is not None
    assert found.ended_by == "batch 3 raises OSError: no such file"


def test_without_a_number_nothing_is_read_ahead() -> None:
    reader = BatchReader(0, 60.0)
    assert handed_out(reader, of_lengths(5, 3, 7), 3) == [5, 3, 7]
    found = reader.found([])
    assert found is not None
    assert (found.was_read, reader.has_read) == (False, False)


def test_an_epoch_s_last_batch_may_lack_samples() -> None:
    reader = BatchReader(100, 60.0)
    handed_out(reader, drawing([torch.zeros(4, 5), torch.zeros(4, 5), torch.zeros(1, 5)]), 2)
    assert not reader.differs


@pytest.mark.parametrize(
    ("batch", "shapes"),
    [
        ([torch.zeros(2, 3), torch.zeros(2)], {"0": (2, 3), "1": (2,)}),
        (UserDict(ids=torch.zeros(2, 3), name="a"), {"ids": (2, 3)}),
        ({"inputs": {"pixels": np.zeros((2, 3, 4))}}, {"inputs.pixels": (2, 3, 4)}),
        ([[torch.zeros(3, 5, 4)] * 9, [{"boxes": torch.zeros(2, 4)}] * 9], {"0 (all)": (540,), "1 (all)": (72,)}),
        (
            SimpleNamespace(_store={"x": torch.zeros(7, 2), "edges": torch.zeros(2, 9)}),
            {"_store.x": (7, 2), "_store.edges": (2, 9)},
        ),
        (["a"] * 20, {}),
        (3, {}),
    ],
    ids=["pair", "encoding", "nested", "lists of images", "graph", "texts", "number"],
)
def test_sizes_have_the_names_that_batches_give_them(batch: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    reader = BatchReader(0, 60.0)
    assert reader.next(drawing([batch]), 0)[0].shapes == shapes


def test_random_numbers_are_as_if_nothing_was_read() -> None:
    def batches() -> Iterable[torch.Tensor]:
        while True:
            yield torch.zeros(4, random.randrange(1, 9) + int(torch.randint(9, ())) + int(np.random.randint(9)))  # noqa: NPY002

    reader, draw = BatchReader(50, 60.0), drawing(batches())
    reader.next(draw, 0)
    states = random.getstate(), torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    reader.next(draw, 1)
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert np.random.get_state()[1].tolist() == states[2]  # noqa: NPY002


def test_the_epoch_ends_after_the_last_one_has_come_a_few_times() -> None:
    """Guards scripts that take no step with it, or collect an epoch in a list."""
    reader, draw = BatchReader(100, 60.0), of_lengths(5, 7, 9, 6)
    handed_out(reader, draw, 1)
    with pytest.raises(StopIteration):
        handed_out(reader, draw, 100, per_step=2)
    with pytest.raises(StopIteration):
        reader.next(draw, 2)


def test_the_largest_is_never_dropped_for_longer_ones() -> None:
    """Guards a large batch of short texts that many small ones of longer texts follow."""
    reader = BatchReader(100, 60.0)
    lengths = handed_out(
        reader, drawing([torch.zeros(4, 9), torch.zeros(400, 10), *(torch.zeros(2, 11 + n) for n in range(20))]), 9
    )
    assert lengths[:2] == [9, 10]
    assert lengths[-1] == 30


def test_batches_with_as_many_elements_in_other_forms_differ() -> None:
    reader = BatchReader(100, 60.0)
    handed_out(reader, drawing([torch.zeros(8, 4), torch.zeros(8, 4), torch.zeros(4, 8), torch.zeros(8, 4)]), 2)
    assert reader.differs


def test_a_last_batch_that_is_larger_differs() -> None:
    reader = BatchReader(100, 60.0)
    handed_out(reader, drawing([torch.zeros(4, 5), torch.zeros(4, 5), torch.zeros(2, 90)]), 2)
    assert reader.differs


def test_a_batch_has_containers_of_its_own_each_time() -> None:
    """Guards scripts that pop labels from a batch, or move it in place."""
    reader, batch = BatchReader(100, 60.0), {"ids": torch.zeros(4, 9), "labels": [torch.zeros(4)], "names": ["a"]}
    draw = drawing([batch, {"ids": torch.zeros(4, 3), "labels": [torch.zeros(4)], "names": ["a"]}])
    first = reader.next(draw, 0)[1][0]
    first.pop("labels")
    for _ in range(3):
        again = reader.next(draw, 1)[1][0]
        assert again["ids"] is batch["ids"]
        again.pop("labels").clear()


@pytest.mark.parametrize(
    ("batch", "refusal"),
    [
        (["a text", "another"], "its batches hold no tensors"),
        ([{"ids": [1, 2, 3]}], "its batches hold no tensors"),
        ({"ids": torch.zeros(2, device="meta")}, "it has its batches on the GPU"),
    ],
)
def test_what_tells_nothing_is_not_read(batch: Any, refusal: str) -> None:
    reader = BatchReader(100, 60.0)
    draw = drawing([batch] * 9)
    for per_step in (0, 1, 1):
        assert reader.next(draw, per_step)[1][0] == batch
    assert (reader.refusal, reader.has_read) == (refusal, False)


def test_without_a_number_no_batch_is_kept() -> None:
    """Guards the memory of scripts that were not asked to look ahead."""
    reader = BatchReader(0, 60.0)
    handed_out(reader, of_lengths(1, 2, 3), 3)
    assert not reader._kept


class Unreadable:
    @property
    def shape(self) -> tuple[int, ...]:
        raise OSError("gone")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_cannot_be_looked_at_has_no_size() -> None:
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    for batch, shapes in (
        ({"a": torch.zeros(2), "b": Unreadable()}, {"a": (2,)}),
        ([nested], {"0": (5,)}),
        (torch, {}),
    ):
        assert BatchReader(9, 60.0).next(drawing([batch]), 0)[0].shapes == shapes


def test_an_epoch_without_a_batch_ends() -> None:
    with pytest.raises(StopIteration):
        BatchReader(9, 60.0).next(drawing([]), 1)


def test_an_error_of_the_first_batch_is_the_script_s() -> None:
    def broken() -> tuple[Any, int]:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        BatchReader(9, 60.0).next(broken, 1)
