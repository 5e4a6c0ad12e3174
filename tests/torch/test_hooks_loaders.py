"""Which DataLoaders feed training, and how many samples each call takes from them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from autotune.records.arrivals import Arrivals, Arrived
from autotune.records.facts import BatchControl
from autotune.worker.hooks.loaders import LoaderHooks
from autotune.worker.hooks.look_ahead import BatchReader
from tests.fakes.hooked import restored_torch


@pytest.fixture(autouse=True)
def _restored_torch() -> Iterator[None]:
    with restored_torch():
        yield


def installed(batch_size: int | None = None, control: BatchControl | None = None) -> LoaderHooks:
    hooks = LoaderHooks(batch_size, control or BatchControl("none"), notes.append)
    notes.clear()
    hooks.install()
    return hooks


notes: list[str] = []


def rows(count: int) -> TensorDataset:
    return TensorDataset(torch.arange(count))


def packed(items: list[Any]) -> torch.Tensor:
    """A collation that hides how many samples there are."""
    return torch.cat([item[0].reshape(1) for item in items]).repeat(7)


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.arange(10))


def trained(hooks: LoaderHooks) -> list[int]:
    return [loader.ordinal for loader in hooks.training_loaders()]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_call_takes_the_batch_that_was_handed_out_whatever_was_prefetched(workers: int) -> None:
    hooks = installed()
    loader = DataLoader(rows(10), batch_size=4, num_workers=workers, collate_fn=packed)
    taken = [(len(batch), hooks.training_call()) for batch in loader]
    assert taken == [(28, 4), (28, 4), (14, 2)]
    assert notes == []


def test_an_epoch_that_was_left_early_leaves_no_sizes_behind_for_the_next() -> None:
    hooks = installed()
    loader = DataLoader(rows(10), batch_size=4, num_workers=2, persistent_workers=True)
    for _ in loader:
        hooks.training_call()
        break
    assert [hooks.training_call() for _ in loader] == [4, 4, 2]
    assert [hooks.training_call() for _ in loader] == [4, 4, 2]


def test_a_batch_is_drawn_once_however_often_the_model_is_called_on_it() -> None:
    hooks = installed()
    taken = [(hooks.training_call(), hooks.training_call()) for _ in DataLoader(rows(6), batch_size=3)]
    assert taken == [(3, 0), (3, 0)]


def test_batches_drawn_for_one_call_are_taken_one_by_one() -> None:
    hooks = installed()
    iterator = iter(DataLoader(rows(8), batch_size=4))
    next(iterator)
    next(iterator)
    assert [hooks.training_call() for _ in range(3)] == [4, 4, 0]


def test_two_loaders_drawn_together_feed_the_same_call() -> None:
    hooks = installed()
    labelled, unlabelled = DataLoader(rows(6), batch_size=2), DataLoader(rows(12), batch_size=4)
    assert [hooks.training_call() for _ in zip(labelled, unlabelled, strict=True)] == [6, 6, 6]
    assert trained(hooks) == [0, 1]


def test_evaluation_in_between_takes_no_training_batch() -> None:
    hooks = installed()
    training, evaluation = DataLoader(rows(8), batch_size=2), DataLoader(rows(9), batch_size=3)
    taken = []
    for _ in range(2):
        for step, _ in enumerate(training):
            taken.append(hooks.training_call())
            if step == 1:
                for _ in evaluation:
                    hooks.evaluation_call()
    assert taken == [2] * 8
    assert trained(hooks) == [0]


def test_evaluation_before_any_training_leaves_its_batches_to_nobody() -> None:
    hooks = installed()
    evaluation, training = DataLoader(rows(9), batch_size=3), DataLoader(rows(8), batch_size=2)
    held = iter(evaluation)
    for _ in held:
        hooks.evaluation_call()
    assert [hooks.training_call() for _ in training] == [2] * 4
    assert trained(hooks) == [1]


def test_a_frozen_module_called_first_does_not_make_its_batch_one_of_evaluation() -> None:
    hooks = installed()
    taken = []
    for _ in DataLoader(rows(8), batch_size=2):
        hooks.evaluation_call()
        taken.append(hooks.training_call())
    assert taken == [2] * 4
    assert trained(hooks) == [0]


def test_batches_are_taken_by_the_step_where_no_call_can_be_seen() -> None:
    hooks = installed()
    iterator = iter(DataLoader(rows(8), batch_size=2))
    next(iterator)
    next(iterator)
    assert hooks.take_drawn() == 4
    assert hooks.take_drawn() == 0
    assert trained(hooks) == [0]


def test_batches_without_index_lists_are_counted_by_their_first_tensor() -> None:
    hooks = installed()
    stream = DataLoader(Stream(), batch_size=4)
    assert [hooks.training_call() for _ in stream] == [4, 4, 2]
    ready_made = DataLoader(
        [{"name": "a", "x": torch.zeros(5, 2)}, {"name": "b", "x": torch.zeros(3, 2)}], batch_size=None
    )
    assert [hooks.training_call() for _ in ready_made] == [5, 3]


def test_an_iterator_that_is_gone_is_forgotten() -> None:
    hooks = installed()
    iterator = iter(DataLoader(rows(8), batch_size=2))
    next(iterator)
    assert len(hooks._open) == 1
    del iterator
    assert hooks._open == {}
    assert hooks.training_call() == 0


def sizes(loader: DataLoader) -> list[int]:
    return [len(batch[0]) for batch in loader]


def test_the_chosen_loaders_are_resized_and_no_others() -> None:
    hooks = installed(6, BatchControl("loaders", loaders=(0, 2)))
    first = DataLoader(rows(12), 4)
    second = DataLoader(rows(12), batch_size=4)
    third = DataLoader(rows(12), batch_sampler=BatchSampler(SequentialSampler(range(12)), 4, drop_last=False))
    assert (sizes(first), sizes(second), sizes(third)) == ([6, 6], [4, 4, 4], [6, 6])
    assert first.batch_size == 6
    assert [loader.batch_size for loader in hooks.loaders] == [6, 4, 6]


_MADE_BEFORE = {**vars(DataLoader(rows(1)))}
_MADE_BEFORE.pop("_DataLoader__initialized")
TORCHDATA = "torchdata.stateful_dataloader.stateful_dataloader"


def own_class() -> type[Any]:
    """Make a class that constructs and begins by itself what torch's would, as torchdata's does."""

    class StatefulDataLoader(DataLoader[Any]):
        __module__ = TORCHDATA

        def __init__(
            self, dataset: Any, batch_size: int = 1, shuffle: Any = None, sampler: Any = None, batch_sampler: Any = None
        ) -> None:
            assert not any((shuffle, sampler, batch_sampler))
            vars(self).update(_MADE_BEFORE)
            self.dataset, self.batch_size, self.sampler = dataset, batch_size, SequentialSampler(dataset)
            self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last=False)
            self._DataLoader__initialized = True

        def __iter__(self) -> Any:
            self._iterator = _SingleProcessDataLoaderIter(self)
            return self._iterator

    return StatefulDataLoader


def calling_class() -> type[Any]:
    """Make a class that leaves to torch's what it can."""

    class StatefulDataLoader(DataLoader[Any]):
        __module__ = TORCHDATA

        def __init__(
            self, dataset: Any, batch_size: int = 1, shuffle: Any = None, sampler: Any = None, batch_sampler: Any = None
        ) -> None:
            super().__init__(dataset, batch_size, shuffle, sampler, batch_sampler)

    return StatefulDataLoader


@pytest.mark.parametrize("is_late", [False, True], ids=["made before", "made late"])
@pytest.mark.parametrize("make", [own_class, calling_class])
def test_torchdatas_loaders_are_followed_and_resized(
    make: Callable[[], type[Any]], is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torchdata = ModuleType(TORCHDATA)  # without the class it is under way: it was the first to import torch
    monkeypatch.setitem(sys.modules, TORCHDATA, torchdata)
    if not is_late:
        vars(torchdata)["StatefulDataLoader"] = make()
    hooks = installed(6, BatchControl("loaders", loaders=(0, 1)))
    made_as = make() if is_late else vars(torchdata)["StatefulDataLoader"]
    first, second = made_as(rows(12), 4), DataLoader(rows(12), 4)
    assert [hooks.training_call() for _ in first] == [6, 6]
    assert [loader.batch_size for loader in hooks.loaders] == [6, 6]
    assert (first.batch_size, second.batch_size) == (6, 6)
    assert trained(hooks) == [0]
    assert len(hooks.loaders[0].starts_s) == 1
    assert hooks._epochs[hooks.loaders[0].site] == 1
    assert notes == []


def test_a_loader_of_torchdatas_that_was_only_looked_at_feeds_no_training() -> None:
    hooks = installed()
    made_as = own_class()
    looked_at, train = made_as(rows(12), 5), made_as(rows(12), 4)
    next(iter(looked_at))
    assert [hooks.training_call() for _ in train] == [4, 4, 4]
    assert trained(hooks) == [1]


def test_loaders_made_at_a_chosen_place_are_resized_each_time() -> None:
    sites: tuple[str, ...] = ()
    made = []
    for size, epochs in ((None, 3), (6, 2)):
        with restored_torch():
            hooks = installed(size, BatchControl("loaders", sites=sites))
            for _ in range(epochs):
                loader = DataLoader(rows(12), batch_size=4)
                made.append([hooks.training_call() for _ in loader])
            assert DataLoader(rows(12), batch_size=4).batch_size == 4
            sites = sites or hooks.training_sites()
    assert len(sites) == 1
    assert made == [[4, 4, 4]] * 3 + [[6, 6]] * 2


@pytest.mark.parametrize(("draws", "epoch"), [(12, 12), (36, 36), (10**10, None)])
def test_a_sampler_that_never_ends_makes_no_epoch(draws: int, epoch: int | None) -> None:
    hooks = installed()
    loader = DataLoader(rows(12), 4, sampler=RandomSampler(range(12), replacement=True, num_samples=draws))
    for _ in loader:
        hooks.training_call()
        break
    found = hooks.epoch(4)
    assert (None if found is None else found.samples) == epoch


class LateSampler(SequentialSampler):
    """Takes long to begin."""

    def __iter__(self) -> Iterator[int]:
        time.sleep(0.2)
        return super().__iter__()


def begins_late(worker: int) -> None:
    del worker
    time.sleep(0.2)


@pytest.mark.parametrize(
    ("how", "least_s", "most_s"),
    [
        ({"sampler": LateSampler(range(12))}, 0.15, 5),
        ({"num_workers": 1, "worker_init_fn": begins_late}, 0.15, 5),
        ({"num_workers": 1, "worker_init_fn": begins_late, "persistent_workers": True}, 0, 0.15),
        ({}, 0, 0.1),
    ],
)
def test_the_wait_for_an_epochs_first_batch_is_the_loaders_own(
    how: dict[str, Any], least_s: float, most_s: float
) -> None:
    hooks = installed()
    loader = DataLoader(rows(12), 2, **how)
    for epoch in range(3):
        batches = iter(loader)
        if not loader.num_workers:  # which would begin meanwhile
            time.sleep(0.3)  # the script does something else
        for _ in batches:
            hooks.training_call()
        assert (hooks.epoch_wait_s() is None) == (epoch == 0), "the first says nothing of the others"
    (made,) = hooks.loaders
    assert (len(made.starts_s), len(made.waits_s)) == (3, 15)
    wait_s = hooks.epoch_wait_s()
    assert wait_s is not None
    assert least_s <= wait_s < most_s


def test_loaders_made_anew_each_epoch_wait_as_one() -> None:
    hooks = installed()
    for _ in range(3):
        for _ in DataLoader(rows(12), 2, sampler=LateSampler(range(12))):
            hooks.training_call()
    wait_s = hooks.epoch_wait_s()
    assert wait_s is not None
    assert wait_s > 0.15


class Buckets:
    """A batch sampler of the script's own, without a batch size."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[0, 1, 2], [3, 4]])

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize("kind", ["its own sampler", "a list of batches", "ready-made batches"])
def test_what_cannot_be_resized_is_left_alone_and_says_why(kind: str) -> None:
    hooks = installed(6, BatchControl("loaders", loaders=(0,)))
    if kind == "its own sampler":
        loader = DataLoader(rows(5), batch_sampler=Buckets())
        assert [hooks.training_call() for _ in loader] == [3, 2]
        assert "Buckets has no batch_size" in hooks.loaders[0].reason
    elif kind == "a list of batches":
        loader = DataLoader(rows(5), batch_sampler=[[0, 2], [1, 3, 4]])
        assert [hooks.training_call() for _ in loader] == [2, 3]
        assert "list has no batch_size" in hooks.loaders[0].reason
    else:
        loader = DataLoader([torch.zeros(4)], batch_size=None)
        assert [hooks.training_call() for _ in loader] == [4]
        assert "batch_size=None" in hooks.loaders[0].reason
    assert hooks.loaders[0].reason


def test_a_loader_is_made_with_what_the_script_said() -> None:
    installed()
    generator = torch.Generator()
    loader: DataLoader = DataLoader(
        rows(9), 4, False, None, None, 0, default_collate, drop_last=True, generator=generator
    )
    assert loader.drop_last
    assert loader.generator is generator
    assert isinstance(loader.sampler, SequentialSampler)
    assert isinstance(DataLoader(rows(9), shuffle=True).sampler, RandomSampler)
    with pytest.raises(ValueError, match="batch_size"):
        DataLoader(rows(9), batch_size=0)
    assert notes == []


def test_a_subclass_and_a_failing_hook_do_not_stop_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(DataLoader):
        def __init__(self, dataset: Dataset, **keywords: Any) -> None:
            super().__init__(dataset, batch_size=3, **keywords)

    hooks = installed()
    assert sizes(Own(rows(6))) == [3, 3]
    assert len(hooks.loaders) == 1
    monkeypatch.setattr(hooks, "_register", lambda *_: 1 / 0)
    assert sizes(Own(rows(6))) == [3, 3]
    assert any("could not be followed" in note for note in notes)


def test_who_rests_follows_no_batches_and_resizes_loaders_still() -> None:
    hooks = installed(4, BatchControl("loaders", loaders=(0, 1)))
    first = DataLoader(rows(64), batch_size=8)
    under_way = iter(first)
    next(under_way)
    hooks.rest()
    sizes = [len(batch) for (batch,) in (*under_way, *DataLoader(rows(16), batch_size=8))]
    assert sizes == [4] * 19
    assert hooks.training_call() == 0
    assert all(not draws.sizes for draws in hooks._open.values()), "nothing piles up that nobody takes"


@pytest.mark.parametrize(("is_stale", "sizes"), [(True, [4, 4, 4]), (False, [4, 8, 8])])
def test_loaders_made_anew_are_resized_where_the_lines_of_a_stale_script_have_moved(
    is_stale: bool, sizes: list[int]
) -> None:
    control = BatchControl("loaders", loaders=(0,), sites=("where it was",))
    hooks = LoaderHooks(4, control, notes.append, is_stale=is_stale)
    hooks.install()
    made = [DataLoader(rows(8), batch_size=8) for _ in range(3)]
    other = DataLoader(rows(8), batch_size=8)
    assert [len(next(iter(one))[0]) for one in made] == sizes
    assert other.batch_size == 8


def test_a_sampler_that_several_loaders_share_is_resized_once() -> None:
    """Guards scripts that make a loader anew each epoch, with one sampler: its part of the batch would grow."""
    arrivals = Arrivals(8, (Arrived("Net 0", 8.0, usual=8),))
    hooks = installed(32, BatchControl("loaders", loaders=(0, 1, 2), arrivals=arrivals))
    sampler = BatchSampler(SequentialSampler(range(100)), 4, drop_last=False)
    sizes = [len(next(iter(DataLoader(rows(100), batch_sampler=sampler)))[0]) for _ in range(3)]
    assert sizes == [16, 16, 16], "half of the batch, as before"
    assert hooks.loaders[-1].batch_size == 16


@pytest.mark.parametrize("inner", [1, 3])
def test_a_sampler_inside_of_another_that_has_its_own_size_keeps_it(inner: int) -> None:
    installed(2, BatchControl("loaders", loaders=(0,)))
    made_of = BatchSampler(SequentialSampler(range(12)), inner, drop_last=False)
    outer = BatchSampler(SequentialSampler(range(12)), 8, drop_last=False)
    outer.batch_sampler = made_of  # type: ignore[attr-defined]
    loader = DataLoader(rows(12), batch_sampler=outer)
    assert (sizes(loader)[0], made_of.batch_size) == (2, inner)


def test_a_sampler_that_names_itself_is_resized_once() -> None:
    installed(2, BatchControl("loaders", loaders=(0,)))
    sampler = BatchSampler(SequentialSampler(range(12)), 8, drop_last=False)
    sampler.batch_sampler = sampler  # type: ignore[attr-defined]
    assert sizes(DataLoader(rows(12), batch_sampler=sampler)) == [2] * 6


def test_a_size_that_the_script_gives_its_sampler_later_is_the_loaders() -> None:
    hooks = installed()
    sampler = BatchSampler(SequentialSampler(range(12)), 4, drop_last=False)
    DataLoader(rows(12), batch_sampler=sampler)
    sampler.batch_size = 6
    DataLoader(rows(12), batch_sampler=sampler)
    assert [each.batch_size for each in hooks.loaders] == [4, 6]


@pytest.mark.parametrize("is_split", [False, True], ids=["each its own", "one split"])
def test_batches_that_a_library_shares_among_processes_have_the_size_in_each(*, is_split: bool) -> None:
    """Guards Accelerate and the Trainer on it under torchrun: a sampler inside of theirs makes the batches."""
    pytest.importorskip("accelerate")
    from accelerate.data_loader import BatchSamplerShard

    hooks = installed(6, BatchControl("loaders", loaders=(1,)))
    own = DataLoader(rows(48), batch_size=4)
    shared = BatchSamplerShard(own.batch_sampler, num_processes=2, process_index=1, split_batches=is_split)
    loader = DataLoader(rows(48), batch_sampler=shared)
    assert sizes(loader) == [6] * 4
    assert len(loader) == 4
    assert [each.batch_size for each in hooks.loaders] == [4, 6]
    assert notes == []


@pytest.mark.parametrize(
    ("loader", "shuffles"),
    [
        (lambda: DataLoader(rows(4), 2), False),
        (lambda: DataLoader(rows(4), 2, shuffle=True), True),
        (lambda: DataLoader(rows(4), batch_sampler=[[0, 1], [2, 3]]), False),
    ],
    ids=["in order", "shuffled", "a list"],
)
def test_a_reader_knows_whether_epochs_have_another_order(loader: Callable[[], DataLoader], shuffles: bool) -> None:
    hooks, readers = installed(), list[BatchReader]()

    def make_reader() -> BatchReader:
        readers.append(BatchReader(9, 60.0))
        return readers[-1]

    hooks.make_reader = make_reader
    assert len(list(loader())) == 2
    assert [one.shuffles for one in readers] == [shuffles]
