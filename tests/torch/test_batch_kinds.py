"""What counts as a sample, by the kind of batches that a script makes, and whether another batch size took effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler

from autotune.records.configuration import Configuration
from autotune.records.facts import BatchControl
from autotune.records.outcome import Measured, NoEffect, Outcome
from autotune.worker.describing.arriving import ArrivingData
from autotune.worker.describing.root_inputs import RootCall
from tests.fakes.hooked import restored_torch
from tests.fakes.planned import clean_torch
from tests.fakes.training_process import TrainingProcess

pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
]
OWN, LARGER, FEATURES = 4, 16, 3
# Enough to be measured, and too few for a description.
STEPS = 5
ADJACENCY = torch.randn(200, 200)


class Items(Dataset[Any]):
    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make = make

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, number: int) -> Any:
        return self._make(number)


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return (torch.randn(FEATURES) for _ in range(1000))


class TokenBatches(BatchSampler):
    """Batches of as many sequences as have so many tokens: it has no batch size."""

    def __init__(self) -> None:
        pass

    def __iter__(self) -> Iterator[list[int]]:
        yield from ([number, number + 1] for number in range(0, 1000, 2))

    def __len__(self) -> int:
        return 500


class Graphs:
    """Several graphs as one, as in libraries for graphs: no tuple and no dict."""

    def __init__(self, items: list[torch.Tensor]) -> None:
        self.store = {"x": torch.cat(items), "edge_index": torch.zeros(2, 3 * sum(map(len, items)), dtype=torch.long)}


class Anything(nn.Module):
    """Trains on whatever tensors it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, *arguments: Any, **keywords: Any) -> torch.Tensor:
        return self.weight * sum(map(_mean, _tensors([arguments, keywords])))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Graphs):
        yield from _tensors(value.store)
    elif isinstance(value, (dict, list, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _tensors(each)


def _mean(tensor: torch.Tensor) -> torch.Tensor:
    return torch.stack([each.float().mean() for each in (tensor.unbind() if tensor.is_nested else [tensor])]).mean()


def _row(_: int) -> torch.Tensor:
    return torch.randn(FEATURES)


def _sequence(number: int) -> torch.Tensor:
    return torch.randn(5 + 7 * number % 11, FEATURES)


def _image(number: int) -> torch.Tensor:
    return torch.randn(3, 8 + number % 5, 8)


def _whole_batch(_: int) -> torch.Tensor:
    return torch.randn(64, FEATURES)


def _loader(size: int, make: Callable[[int], Any] = _row, **keywords: Any) -> DataLoader[Any]:
    return DataLoader(Items(make), batch_size=size, **keywords)


def _padded(items: list[torch.Tensor]) -> torch.Tensor:
    return nn.utils.rnn.pad_sequence(items, batch_first=True)


def _packed(items: list[torch.Tensor]) -> Any:
    return nn.utils.rnn.pack_sequence(items, enforce_sorted=False)


def _in_one_row(items: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat(items)[None]


def _in_dimension_1(items: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(items, 1)


def _nested(items: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.nested_tensor(items)


Feeding = Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]]


def _as_it_is(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (batch,), {}


@dataclass(frozen=True)
class Kind:
    """Batches of a kind: the loaders at a size, what the model is given, in how many parts, and the samples of a step.

    ``samples`` are those at the script's own size and at the larger one; None where that has no effect, or not all.
    """

    name: str
    loaders: Callable[[int], list[DataLoader[Any]]]
    samples: tuple[int, int | None] = (OWN, LARGER)
    feed: Feeding = _as_it_is
    parts: int = 1
    can_set: bool = True


def _of_items(name: str, make: Callable[[int], Any] = _row, collate: Any = None, **keywords: Any) -> Kind:
    return Kind(name, lambda size: [_loader(size, make, collate_fn=collate)], **keywords)


KINDS = [
    _of_items("tensors"),
    _of_items("dicts", lambda _: {"x": torch.randn(FEATURES), "y": 1}, feed=lambda batch: ((), batch)),
    _of_items("samples in dimension 1", lambda _: torch.randn(6, FEATURES), _in_dimension_1),
    _of_items("lists of images", _image, list),
    _of_items(
        "lists of images with their boxes",
        lambda number: (_image(number), {"boxes": torch.zeros(1 + number % 3, 4)}),
        list,
        feed=lambda batch: (([image for image, _ in batch], [target for _, target in batch]), {}),
    ),
    _of_items("padded sequences", _sequence, _padded),
    _of_items("sequences in one row", _sequence, _in_one_row),
    _of_items("packed sequences", _sequence, _packed),
    _of_items("nested tensors", _sequence, _nested),
    _of_items("graphs", _sequence, Graphs),
    _of_items("a matrix of all samples beside the batch", feed=lambda batch: ((batch, ADJACENCY), {})),
    _of_items("batches that only the loss takes", feed=lambda _: ((ADJACENCY,), {})),
    _of_items("batches that are cut into parts", parts=2),
    Kind("a stream", lambda size: [DataLoader(Stream(), batch_size=size)]),
    Kind(
        "a batch sampler",
        lambda size: [
            DataLoader(Items(_row), batch_sampler=BatchSampler(SequentialSampler(range(1000)), size, drop_last=False))
        ],
    ),
    Kind(
        "two loaders at a time",
        lambda size: [_loader(size), _loader(size)],
        (2 * OWN, 2 * LARGER),
        lambda batch: (tuple(batch), {}),
    ),
    Kind(
        "a batch sampler without a size",
        lambda _: [DataLoader(Items(_row), batch_sampler=TokenBatches())],
        (2, None),
        can_set=False,
    ),
    Kind(
        "a data set of batches that its loader passes on",
        lambda _: [DataLoader(Items(_whole_batch), batch_size=None)],
        (64, None),
        can_set=False,
    ),
    _of_items("items that are batches, stacked", _whole_batch),
    _of_items("items that are batches, joined", _whole_batch, torch.cat),
    _of_items(
        "items that are batches, of which one is kept", _whole_batch, lambda items: items[0], samples=(OWN, None)
    ),
    _of_items("as many graphs as fit", _sequence, lambda items: Graphs(items[:4]), samples=(OWN, None)),
    _of_items("a collate function with a limit", _row, lambda items: torch.stack(items[:6]), samples=(OWN, None)),
    _of_items("as many tokens as fit", _sequence, lambda items: torch.cat(items)[:20][None], samples=(OWN, None)),
]


def train(kind: Kind) -> None:
    """Train as a script does whose loaders have its own size."""
    model = Anything()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loaders = kind.loaders(OWN)
    for _, batch in zip(range(STEPS), loaders[0] if len(loaders) == 1 else zip(*loaders, strict=True), strict=False):
        arguments, keywords = kind.feed(batch)
        for part in arguments[0].chunk(kind.parts) if kind.parts > 1 else [None]:
            model(*(arguments if part is None else [part]), **keywords).backward()
        optimizer.step()
        optimizer.zero_grad()


def outcome_at(folder: Path, kind: Kind, batch_size: int, control: BatchControl) -> Outcome:
    folder.mkdir()
    with clean_torch(), restored_torch():
        process = TrainingProcess(folder, Configuration(batch_size=batch_size), batch_control=control)
        process.run(lambda: train(kind))
    (outcome,) = process.outcomes()
    return outcome


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_samples_are_counted_and_a_size_without_effect_is_no_answer(kind: Kind, tmp_path: Path) -> None:
    """Guards against samples that are claimed and never trained on."""
    with clean_torch(), restored_torch():
        process = TrainingProcess(tmp_path, mode="discover")
        process.run(lambda: train(kind))
    (outcome,) = process.outcomes()
    assert isinstance(outcome, Measured), outcome
    own, larger = kind.samples
    assert set(outcome.measurement.samples_per_step) == {own}
    control = process.described()[-1].facts.batch_control
    assert control.can_set == kind.can_set
    if not kind.can_set:
        return

    found = outcome_at(tmp_path / "larger", kind, LARGER * own // OWN, control)
    if larger is None:
        assert isinstance(found, NoEffect), found
        assert "was asked for, but a batch brings" in found.cause
        rows = 64 if "items that are batches" in kind.name else OWN
        assert f"{{batch_size:{rows}}}" in found.advice
    else:
        assert isinstance(found, Measured), found
        assert set(found.measurement.samples_per_step) == {larger}


@pytest.mark.parametrize(
    "collate",
    [lambda items: items[0], lambda items: (items[0], torch.zeros(3, 64), torch.zeros(7))],
    ids=["a tensor", "indices beside it"],
)
def test_where_the_user_names_the_number_the_rows_of_that_number_are_the_samples(collate: Any, tmp_path: Path) -> None:
    """Guards scripts whose data sets make whole batches: their loaders say that a batch holds one sample."""
    kind = _of_items("items that are batches", _whole_batch, collate)
    control = BatchControl("arguments")
    found = outcome_at(tmp_path / "named", kind, 64, control)
    assert isinstance(found, Measured), found
    assert set(found.measurement.samples_per_step) == {64}
    other = outcome_at(tmp_path / "not-taken", kind, 128, control)
    assert isinstance(other, NoEffect), other


def test_a_batch_that_may_go_on_and_calls_without_a_loader_are_not_counted() -> None:
    """Guards windows of long batches, of which a trial may see a part, and agents that act between two batches."""
    data, root = ArrivingData(), Anything()
    for batch in range(3):
        for _ in range(20):
            data.see(RootCall(root, (torch.zeros(4, 3),), {}, 0, 4, batch))
    data.see(RootCall(root, (torch.zeros(4, 3),), {}, 0, 4, 3))
    data.see(RootCall(root, (torch.zeros(1, 3),), {}, 0, 1, None))
    (arrived,) = data.arrived()
    assert (arrived.usual, arrived.error) == (20 * 12, 0.0)


def test_whole_numbers_of_so_many_samples_are_tokens_where_a_model_embeds_them() -> None:
    ids, labels, image = torch.ones(4, 7, dtype=torch.long), torch.ones(4, dtype=torch.long), torch.ones(4, 7)
    told = {}
    tables = nn.ModuleList(nn.Embedding(9, 3) for _ in range(7))
    for root in (nn.Sequential(nn.Embedding(9, 3)), nn.Sequential(nn.Linear(7, 3)), nn.Sequential(tables)):
        data = ArrivingData()
        for batch in range(3):
            data.see(RootCall(root, (labels.clone(), image.clone(), ids.clone()), {}, 0, 4, batch))
        told[type(root[0])] = [one.name for one in data.arrived() if one.is_tokens]
    assert told == {nn.Embedding: ["Sequential 2"], nn.Linear: [], nn.ModuleList: []}


def test_an_argument_that_holds_too_much_is_not_counted() -> None:
    data, root = ArrivingData(), Anything()
    for batch in range(3):
        data.see(RootCall(root, ([[torch.zeros(1)] for _ in range(2000)], torch.zeros(4)), {}, 0, 4, batch))
    assert [one.name for one in data.arrived()] == ["Anything 1"]
