"""Reading ahead in an iterator: which batches it hands out, what it notes of them, and when it stops."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from autotune.records.look_ahead import Dimension, SeenBatch
from autotune.worker.hooks.epoch_sample import EpochSample, copied, weights_of
from autotune.worker.hooks.look_ahead import BatchReader, tensors_in
from autotune.worker.measuring.cycles import BatchCycles, Place


def reader_of(most: int, deadline_s: float = 60.0) -> BatchReader:
    return BatchReader(most, deadline_s)


def drawing(batches: Iterable[Any]) -> Callable[[], tuple[Any, int]]:
    iterator = iter(batches)
    return lambda: (next(iterator), 4)


def of_lengths(*lengths: int) -> Callable[[], tuple[Any, int]]:
    return drawing(torch.zeros(4, length) for length in lengths)


def handed_out(reader: BatchReader, draw: Callable[[], tuple[Any, int]], number: int, per_step: int = 1) -> list[int]:
    """The lengths of the next batches; the first one comes before it is known how many a step takes."""
    return [reader.next(draw, per_step if place else 0)[1][0].shape[1] for place in range(number)]


def test_after_the_first_step_each_size_comes_once_and_then_the_first_two_again() -> None:
    reader = reader_of(100)
    assert handed_out(reader, of_lengths(5, 3, 7, 6, 7, 9, 2), 10) == [5, 3, 7, 6, 9, 3, 7, 2, 2, 2]
    found = reader.found([])
    assert found is not None
    assert (found.elements, found.is_whole, found.differ) == ((20, 12, 28, 24, 28, 36, 8), True, True)
    assert (found.smallest.number, found.largest.number, reader.last.number) == (7, 6, 7)


def test_a_step_of_several_batches_gets_each_as_often() -> None:
    """Guards libraries that have drawn the first batch of the next step: that step is filled up."""
    reader, draw = reader_of(100), of_lengths(5, 4, 7, 6, 9)
    lengths = [reader.next(draw, per_step)[1][0].shape[1] for per_step in (0, 0, *[2] * 10)]
    assert lengths == [5, 4, 7, 7, 6, 6, 7, 7, 6, 6, 9, 9]
    reader, draw = reader_of(100), of_lengths(5, 4, 3, 7, 6, 9)
    lengths = [reader.next(draw, per_step)[1][0].shape[1] for per_step in (0, 0, 0, *[2] * 7)]
    assert lengths == [5, 4, 3, 7, 7, 7, 6, 6, 7, 7]


class GpuMemory:
    """The memory of a GPU: storages are recorded in the order in which they were made, but for those made aside."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.made: list[torch.Tensor] = []
        self.is_aside = False

    @property
    def num_storages(self) -> int:
        return len(self.numbers)

    def make(self, *shape: int) -> torch.Tensor:
        made = torch.zeros(shape, device="meta")
        if not self.is_aside:
            self.numbers[made.untyped_storage()._cdata] = len(self.numbers)
            self.made.append(made)
        return made

    def number_of(self, tensor: torch.Tensor) -> int | None:
        return self.numbers.get(tensor.untyped_storage()._cdata)

    def bytes_since(self, number: int) -> int:
        return sum(made.nbytes for made in self.made[number:])

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        before, self.is_aside = self.is_aside, True
        yield
        self.is_aside = before


def test_batches_on_a_gpu_are_cloned_but_for_what_they_share() -> None:
    """Guards what is recorded: batches that are kept hold nothing, and are made when the script comes to them."""
    memory = GpuMemory()
    shared = memory.make(7)
    reader = BatchReader(100, 60.0, memory)
    drawn: list[torch.Tensor] = []

    def draw() -> tuple[Any, int]:
        if len(drawn) == 6:
            raise StopIteration
        drawn.append(memory.make(4, 3 + len(drawn)))
        return {"x": drawn[-1], "shared": shared, "cpu": torch.zeros(4)}, 4

    given = [reader.next(draw, per_step)[1][0] for per_step in (0, *[1] * 6)]
    assert given[0]["x"] is drawn[0], "it was drawn for the script"
    assert memory.num_storages == 2, "reading makes nothing that is recorded"
    assert all(one["shared"] is shared for one in given)
    assert [one["x"].shape[1] for one in given] == [3, 4, 5, 6, 7, 4, 5]
    assert not [one for one in given[1:] if any(one["x"] is each for each in drawn)]
    assert all(kept["x"] is not drawn[0] for (kept, _) in reader._kept.values())


@pytest.mark.parametrize(("more", "reads"), [(2**17, True), (2**19, False)])
def test_nothing_is_read_ahead_where_more_is_made_on_the_gpu_than_the_batches(more: int, reads: bool) -> None:
    """Guards collate functions that compute there, and data sets that keep what they have loaded there."""
    memory = GpuMemory()
    reader = BatchReader(100, 60.0, memory)
    kept = []

    def draw() -> tuple[Any, int]:
        kept.append(memory.make(more))
        return memory.make(4, 3 + len(kept)), 4

    for per_step in (0, 1):
        reader.next(draw, per_step)
    assert (reader.has_read, reader.refusal) == (reads, "" if reads else "its loader computes on the GPU")


def test_views_in_a_batch_stay_views_of_all_that_they_are_a_part_of() -> None:
    memory = GpuMemory()
    reader = BatchReader(100, 60.0, memory)
    sizes = iter(range(5, 9))

    def draw() -> tuple[Any, int]:
        block = memory.make(4, 3 + next(sizes))
        return {"part": block[:, :2], "other": block[1:], "wide": block[:1].expand(9, -1)}, 4

    reader.next(draw, 0)
    for _ in range(3):
        _, (batch, _) = reader.next(draw, 1)
        (storage,) = {one.untyped_storage()._cdata: one.untyped_storage() for one in batch.values()}.values()
        length = batch["other"].shape[1]
        assert storage.nbytes() == 4 * 4 * length
        assert (batch["other"].storage_offset(), batch["wide"].stride()) == (length, (0, 1))
        assert [tuple(one.shape) for one in batch.values()] == [(4, 2), (3, length), (9, length)]


def test_the_largest_comes_again_if_it_was_the_first() -> None:
    """Guards its step: an optimizer's first one is like no other."""
    assert handed_out(reader_of(100), of_lengths(9, 7, 3), 7) == [9, 9, 7, 9, 7, 3, 3]


def test_a_batch_of_fewer_but_longer_samples_is_handed_out_too() -> None:
    """Guards batches of so many tokens: attention takes the square of the longest sample."""
    batches = [torch.zeros(8, 10), torch.zeros(2, 39), torch.zeros(4, 18), torch.zeros(8, 11)]
    reader = reader_of(100)
    assert handed_out(reader, drawing(batches), 6) == [10, 39, 18, 39, 18, 11]


@pytest.mark.parametrize("order", [1, -1])
def test_of_many_those_are_kept_that_differ_most(order: int) -> None:
    lengths = handed_out(reader_of(1000), of_lengths(*range(1, 1001)[::order]), 12)
    ascending = sorted({*lengths})
    assert (ascending[0], ascending[-1], len(ascending)) == (1, 1000, 9)
    assert lengths[1:8] == sorted(lengths[1:8])[::order]
    assert all(high <= 6 * low for low, high in itertools.pairwise(ascending))


def test_the_next_two_come_first() -> None:
    """Guards compilers: they compile for the first sizes that training has."""
    lengths = handed_out(reader_of(1000), of_lengths(500, 501, 502, *range(1, 1000)), 12)
    assert lengths[:3] == [500, 501, 502]
    assert lengths[-3:-1] == [501, 502]


def test_of_many_with_two_lengths_the_corners_are_kept() -> None:
    """Guards formulas in two sizes: they are not told by batches that grow in both together."""
    rng = random.Random(3)
    pairs = [(rng.randrange(10, 1000), rng.randrange(10, 1000)) for _ in range(300)]
    reader = reader_of(1000)
    draw = drawing({"a": torch.zeros(2, one), "b": torch.zeros(2, other)} for one, other in pairs)
    handed = [reader.next(draw, 1 if place else 0)[0].shapes for place in range(12)][1:]
    ratios = [shapes["a"][1] / shapes["b"][1] for shapes in handed]
    assert min(ratios) < 0.2
    assert max(ratios) > 5.0
    found = reader.found([])
    assert found is not None
    assert found.varying == ((Dimension("a", 1),), (Dimension("b", 1),))
    assert found.sizes == tuple(pairs)


def test_dimensions_that_are_equal_in_all_batches_are_told_together() -> None:
    reader = reader_of(100)
    sizes = [(5, 4), (7, 4), (6, 4), (9, 2)]
    draw = drawing(
        {"ids": torch.zeros(n, size), "mask": torch.zeros(n, size), "labels": torch.zeros(n)} for size, n in sizes
    )
    reader.next(draw, 0)
    reader.next(draw, 1)
    found = reader.found([])
    assert found is not None
    # The last one lacks samples.
    assert found.varying == ((Dimension("ids", 1), Dimension("mask", 1)),)
    assert found.sizes == ((5,), (7,), (6,))
    assert found.batch(2).shapes == {"ids": (4, 7), "mask": (4, 7), "labels": (4,)}


@pytest.mark.parametrize(
    ("most", "last"),
    [
        ([[torch.zeros(3, 8, 8), torch.zeros(3, 9, 9 + n)] for n in range(4)], [torch.zeros(3, 4, 4)]),
        ([torch.zeros(4, 3, 8, 8 + n) for n in range(4)], torch.zeros(3, 8, 9)),
        ([torch.zeros(4, 30 + n) for n in range(4)], torch.zeros(1, 90)),
    ],
    ids=["fewer images", "another rank", "one long text"],
)
def test_a_last_batch_that_lacks_samples_has_no_sizes(most: list[Any], last: Any) -> None:
    reader = reader_of(100)
    draw = drawing([*most, last])
    reader.next(draw, 0)
    reader.next(draw, 1)
    found = reader.found([])
    assert found is not None
    assert (len(found.elements), len(found.sizes), len(found.varying)) == (5, 4, 1)


def test_a_last_batch_whose_number_of_samples_varies_anyway_has_sizes() -> None:
    """Guards batches of so many tokens."""
    reader = reader_of(100)
    draw = drawing([torch.zeros(8, 10), torch.zeros(2, 39), torch.zeros(4, 18), torch.zeros(3, 11)])
    reader.next(draw, 0)
    reader.next(draw, 1)
    found = reader.found([])
    assert found is not None
    assert found.sizes == ((8, 10), (2, 39), (4, 18), (3, 11))


def test_batches_of_other_tensors_have_no_dimensions_in_common() -> None:
    reader = reader_of(100)
    draw = drawing([{"a": torch.zeros(2, 5)}, {"b": torch.zeros(2, 6)}, {"b": torch.zeros(2, 7)}])
    reader.next(draw, 0)
    reader.next(draw, 1)
    found = reader.found([])
    assert found is not None
    assert (found.varying, found.sizes) == ((), ((), (), ()))
    assert found.batch(3).sizes == "14 elements"


@pytest.mark.parametrize(
    ("most", "deadline_s", "ended_by"), [(3, 60.0, "3 were asked for"), (9, 0.0, "0 s had passed")]
)
def test_it_stops_at_a_number_of_batches_and_at_a_time(most: int, deadline_s: float, ended_by: str) -> None:
    reader = reader_of(most, deadline_s)
    handed_out(reader, of_lengths(*[5] * 100), 2)
    found = reader.found([])
    assert found is not None
    assert (found.ended_by, found.is_whole, found.was_read, found.differ) == (ended_by, False, True, False)


def test_what_the_iterator_raises_ends_the_reading() -> None:
    def batches() -> Iterable[torch.Tensor]:
        yield from (torch.zeros(4, 5), torch.zeros(4, 6))
        raise OSError("no such file")

    reader = reader_of(100)
    assert handed_out(reader, drawing(batches()), 3) == [5, 6, 6]
    found = reader.found([])
    assert found is not None
    assert found.ended_by == "batch 3 raises OSError: no such file"


def test_without_a_number_nothing_is_read_ahead() -> None:
    reader = reader_of(0)
    assert handed_out(reader, of_lengths(5, 3, 7), 3) == [5, 3, 7]
    found = reader.found([])
    assert found is not None
    assert (found.was_read, reader.has_read) == (False, False)


def test_an_epoch_s_last_batch_may_lack_samples() -> None:
    reader = reader_of(100)
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
    reader = reader_of(0)
    assert reader.next(drawing([batch]), 0)[0].shapes == shapes


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("ids", "ids 2x3"),
        ("0", "[0] 2x3"),
        ("0 (all)", "[0] (all) 2x3"),
        ("1.boxes", "[1].boxes 2x3"),
        ("images.0.12", "images[0][12] 2x3"),
        ("_store.x", "x 2x3"),
        ("_store.edge_index", "edge_index 2x3"),
        ("_x", "_x 2x3"),
        ("layer2.0", "layer2[0] 2x3"),
    ],
)
def test_sizes_are_shown_with_names_as_in_python(name: str, shown: str) -> None:
    assert SeenBatch(1, 6, {name: (2, 3)}).sizes == shown


def test_random_numbers_are_as_if_nothing_was_read() -> None:
    def batches() -> Iterable[torch.Tensor]:
        while True:
            yield torch.zeros(4, random.randrange(1, 9) + int(torch.randint(9, ())) + int(np.random.randint(9)))  # noqa: NPY002

    reader, draw = reader_of(50), drawing(batches())
    reader.next(draw, 0)
    states = random.getstate(), torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    reader.next(draw, 1)
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert np.random.get_state()[1].tolist() == states[2]  # noqa: NPY002


def test_the_epoch_ends_after_the_last_one_has_come_a_few_times() -> None:
    """Guards scripts that take no step with it, or collect an epoch in a list."""
    reader, draw = reader_of(100), of_lengths(5, 7, 9, 6)
    handed_out(reader, draw, 1)
    with pytest.raises(StopIteration):
        handed_out(reader, draw, 100, per_step=2)
    with pytest.raises(StopIteration):
        reader.next(draw, 2)


def test_the_largest_is_never_dropped_for_longer_ones() -> None:
    """Guards a large batch of short texts that many small ones of longer texts follow."""
    reader = reader_of(100)
    lengths = handed_out(
        reader, drawing([torch.zeros(4, 9), torch.zeros(400, 10), *(torch.zeros(2, 11 + n) for n in range(20))]), 11
    )
    assert lengths[:2] == [9, 10]
    assert lengths[-1] == 30


def test_batches_with_as_many_elements_in_other_forms_differ() -> None:
    reader = reader_of(100)
    handed_out(reader, drawing([torch.zeros(8, 4), torch.zeros(8, 4), torch.zeros(4, 8), torch.zeros(8, 4)]), 2)
    assert reader.differs


def test_a_last_batch_that_is_larger_differs() -> None:
    reader = reader_of(100)
    handed_out(reader, drawing([torch.zeros(4, 5), torch.zeros(4, 5), torch.zeros(2, 90)]), 2)
    assert reader.differs


def test_a_batch_has_containers_of_its_own_each_time() -> None:
    """Guards scripts that pop labels from a batch, or move it in place."""
    reader, batch = reader_of(100), {"ids": torch.zeros(4, 9), "labels": [torch.zeros(4)], "names": ["a"]}
    other = {"ids": torch.zeros(4, 3), "labels": [torch.zeros(4)], "names": ["a"]}
    draw = drawing([batch, other])
    ids = [batch["ids"], other["ids"]]
    first = reader.next(draw, 0)[1][0]
    first.pop("labels")
    for expected in (ids[0], *ids, ids[1]):
        again = reader.next(draw, 1)[1][0]
        assert again["ids"] is expected
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
    reader = reader_of(100)
    draw = drawing([batch] * 9)
    for per_step in (0, 1, 1):
        assert reader.next(draw, per_step)[1][0] == batch
    assert (reader.refusal, reader.has_read) == (refusal, False)


def test_without_a_number_no_batch_is_kept() -> None:
    """Guards the memory of scripts that were not asked to look ahead."""
    reader = reader_of(0)
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
        assert reader_of(9).next(drawing([batch]), 0)[0].shapes == shapes


def test_an_epoch_without_a_batch_ends() -> None:
    with pytest.raises(StopIteration):
        reader_of(9).next(drawing([]), 1)


def test_an_error_of_the_first_batch_is_the_script_s() -> None:
    def broken() -> tuple[Any, int]:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        reader_of(9).next(broken, 1)


# -- what stands for an epoch


def sample_of(*lengths: int, per_step: int = 1) -> EpochSample:
    return EpochSample(1000, of_lengths(*lengths), per_step=per_step)


def lengths_from(sample: EpochSample, number: int) -> list[int]:
    handed = [sample.next() for _ in range(number)]
    return [0 if one is None else one[1][0].shape[1] for one in handed]


def test_the_largest_comes_first_and_then_cycles_of_what_stands_for_the_epoch() -> None:
    sample = sample_of(1, 2, 3, 40, 5, 6, 7, 4, 1)
    assert lengths_from(sample, 2) == [40, 40]
    cycle = lengths_from(sample, len(sample.weights))
    assert lengths_from(sample, 2 * len(cycle)) == cycle * 2
    sample.begin()
    assert lengths_from(sample, 3) == [40, 40, cycle[0]]
    sample.stay_at_largest()
    assert lengths_from(sample, 5) == [40] * 5


def test_a_step_of_several_batches_gets_batches_of_one_size() -> None:
    lengths = lengths_from(sample_of(3, 5, 8, per_step=2), 8)
    assert lengths[:4] == [8, 8, 8, 8]
    assert lengths[4] == lengths[5] != lengths[6] == lengths[7]


def test_a_step_that_has_begun_gets_its_own_batches() -> None:
    """Guards libraries that draw ahead: all batches of a step are to be of one size."""
    sample = sample_of(3, 5, 8, per_step=3)
    sample.begin(drawn=1)
    assert lengths_from(sample, 5) == [0, 0, 8, 8, 8]
    sample.begin(drawn=3)
    assert lengths_from(sample, 4) == [8] * 4
    sample.begin_epoch(0)
    assert lengths_from(sample, 4) == [3, 3, 3, 5]
    sample.begin_epoch(2)
    assert lengths_from(sample, 4) == [0, 8, 8, 8]


EPOCHS = {
    "texts": [int(random.Random(place).lognormvariate(4.0, 0.7)) for place in range(300)],
    "one in twenty is long": [100] * 95 + [3000] * 5,
    "one in five is long": [100, 100, 100, 100, 3000] * 20,
    "a single long one": [*range(50, 90), 5000],
    "two sizes": [1, 2],
    "ascending": [*range(1, 1001)],
    "nearly alike": [100] * 50 + [101],
}


@pytest.mark.parametrize("epoch", EPOCHS)
def test_a_cycle_has_by_its_weights_the_mean_size_of_the_epoch(epoch: str) -> None:
    sizes = EPOCHS[epoch]
    sample = sample_of(*sizes, sizes[0])  # the last one of an epoch does not count
    own = [one.elements for one in sample.seen[:-1]]
    weighted = sum(sample.seen[number - 1].elements * weight for number, weight in sample.weights.items())
    assert weighted / len(sample.weights) == pytest.approx(sum(own) / len(own), rel=0.001 if len(own) > 2 else 0.5)
    assert sum(sample.weights.values()) == pytest.approx(len(sample.weights))
    assert all(weight > 0.0 for weight in sample.weights.values())


def test_no_batch_counts_negatively() -> None:
    """Guards sizes of which two are nearly alike, and a third far away."""
    assert weights_of(of_sizes(100, 101, 500), of_sizes(*[100] * 50, *[101] * 50, 500)) == {2: 1.0}


def of_sizes(*sizes: int) -> list[SeenBatch]:
    return [SeenBatch(size - 99 if size < 500 else 101, size, {"x": (1, size)}) for size in sizes]


def test_a_rare_and_long_batch_is_not_a_part_of_each_cycle() -> None:
    """Guards the time of a study: its cycle would take as long as that batch."""
    sample = sample_of(*EPOCHS["a single long one"])
    assert max(sample.seen[number - 1].elements for number in sample.weights) < 4 * 100


def test_equal_largest_batches_are_one() -> None:
    sample = sample_of(9, 3, 9, 4, 9, 5)
    handed = sample.next()
    assert handed is not None
    assert (sample.largest.number, handed[0].number) == (1, 1)
    found = sample.found()
    assert found is not None
    assert found.largest == sample.largest


def test_batches_of_one_size_are_kept_once() -> None:
    sample = sample_of(*[5] * 20)
    assert (len(sample.weights), sample.differs, len(sample._kept)) == (1, False, 1)


def test_after_the_reading_only_what_is_handed_out_is_kept() -> None:
    sample = sample_of(*range(1, 500))
    assert len(sample._kept) <= 5
    draw = of_lengths(*range(1, 500))
    assert len(EpochSample(1000, draw, per_step=1, keeps=True)._kept) == 24


def test_weights_are_of_what_is_kept() -> None:
    seen = [SeenBatch(number, 10 * number, {"x": (1, 10 * number)}) for number in range(1, 21)]
    weights = weights_of([seen[0], seen[9], seen[19]], seen)
    assert {*weights} <= {1, 10, 20}
    assert sum(10 * number * weight for number, weight in weights.items()) / len(weights) == pytest.approx(105)


@pytest.mark.parametrize(
    ("batch", "refusal"),
    [(["a text"], "its batches hold no tensors"), ([torch.zeros(2, device="meta")], "it has its batches on the GPU")],
)
def test_an_epoch_of_what_tells_nothing_is_refused(batch: Any, refusal: str) -> None:
    assert EpochSample(9, drawing([batch] * 3), per_step=1).refusal == refusal


def test_an_epoch_that_begins_with_an_error_or_has_no_batch_is_refused() -> None:
    def broken() -> tuple[Any, int]:
        raise OSError("gone")

    assert EpochSample(9, broken, per_step=1).refusal == "its first batch raises OSError: gone"
    assert EpochSample(9, drawing([]), per_step=1).refusal == "it brings no batch a second time"


class Holder:
    def __init__(self, x: torch.Tensor) -> None:
        self.x, self.name = x, "a"


@pytest.mark.parametrize(
    "batch",
    [
        torch.ones(2, 3),
        {"ids": torch.ones(2), "texts": [["a"], ["b"]], "inner": {"x": torch.ones(3)}},
        (torch.ones(2), [torch.ones(3)] * 20),
        (7, torch.ones(2), [None, torch.ones(3)]),
        UserDict(ids=torch.ones(2)),
        Holder(torch.ones(2)),
    ],
    ids=["tensor", "dict", "lists of images", "numbers beside them", "encoding", "object"],
)
def test_a_script_may_write_into_what_it_gets(batch: Any) -> None:
    """Guards values that a script scales in place, shapes that it changes, and labels that it pops."""
    before = [tensor.clone() for tensor in tensors_in(batch)]
    copy = copied(batch)
    assert type(copy) is type(batch)
    for tensor in list(tensors_in(copy)):
        tensor.mul_(7.0).unsqueeze_(0).requires_grad_(True)
    for container in (copy, *(copy.values() if isinstance(copy, dict) else ())):
        if isinstance(container, (dict, list)):
            container.clear()
    after = list(tensors_in(batch))
    assert all(map(torch.equal, after, before))
    assert not any(tensor.requires_grad for tensor in after)


def test_lists_of_numbers_take_no_time() -> None:
    tokens = [[1, 2, 3]] * 3
    copy = copied({"tokens": tokens, "x": torch.ones(1)})
    assert copy["tokens"] == tokens
    assert copy["tokens"][0] is not tokens[0]


class FakeLoaders:
    """Loaders of which a test says what each step took."""

    def __init__(self, *lengths: int) -> None:
        self.sample = sample_of(*lengths) if lengths else None
        self.taken: Sequence[SeenBatch | None] = ()

    def step_took(self) -> Sequence[SeenBatch | None]:
        return self.taken


def places(loaders: FakeLoaders, cycles: BatchCycles, *numbers: int) -> list[Place]:
    found = []
    for number in numbers:
        loaders.taken = () if loaders.sample is None or not number else (loaders.sample.seen[number - 1],)
        found.append(cycles.next())
    return found


def test_steps_before_the_cycles_are_one_round_and_then_each_cycle() -> None:
    loaders = FakeLoaders(2, 9, 4, 2)
    assert loaders.sample is not None
    cycle, cycles = [*loaders.sample.weights], BatchCycles(loaders)  # type: ignore[arg-type]
    lead = places(loaders, cycles, 0, 1, 2, 2)
    assert [(one.begins, one.completes) for one in lead] == [
        (True, False),
        (False, False),
        (False, False),
        (False, True),
    ]
    for _ in range(2):
        found = places(loaders, cycles, *cycle)
        assert [one.weight for one in found] == [*loaders.sample.weights.values()]
        assert [one.begins for one in found] == [True] + [False] * (len(cycle) - 1)
        assert [one.completes for one in found] == [False] * (len(cycle) - 1) + [True]


def test_a_cycle_that_something_else_interrupts_begins_anew() -> None:
    """Guards an evaluation that draws from the training loader in the middle of a cycle."""
    loaders = FakeLoaders(2, 9, 4, 2)
    assert loaders.sample is not None
    (first, *rest), cycles = [*loaders.sample.weights], BatchCycles(loaders)  # type: ignore[arg-type]
    places(loaders, cycles, 2, 2)
    assert places(loaders, cycles, first, first)[1].begins
    assert places(loaders, cycles, *rest)[-1].completes
    assert [one.completes for one in places(loaders, cycles, first, 0, *rest)] == [False] * (2 + len(rest))


def test_without_an_epoch_every_step_is_a_round() -> None:
    for loaders in (FakeLoaders(), FakeLoaders(5, 5, 5)):
        assert places(loaders, BatchCycles(loaders), 1, 1) == [Place()] * 2  # type: ignore[arg-type]


@pytest.mark.parametrize("lead", [(), (2, 2)], ids=["no largest batch", "no cycle"])
def test_a_script_that_leaves_batches_out_is_measured_as_it_comes(lead: tuple[int, ...]) -> None:
    loaders = FakeLoaders(2, 9, 4, 2)
    cycles = BatchCycles(loaders)  # type: ignore[arg-type]
    places(loaders, cycles, *lead)
    assert not any(one.completes for one in places(loaders, cycles, *[1] * 63))
    assert not cycles.has_given_up
    assert places(loaders, cycles, 1, 1, 1) == [Place()] * 3
    assert cycles.has_given_up
