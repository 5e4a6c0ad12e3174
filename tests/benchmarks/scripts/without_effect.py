"""Train on as many rows a step as ever, whatever size a batch is asked to have: ``python without_effect.py KIND``.

Each kind is a way of scripts to make batches. ``KINDS`` lists them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler

import autotune

OWN, WIDTH = 8, 256


class Rows(Dataset[torch.Tensor]):
    """Rows, or so many of them at a time."""

    def __init__(self, at_a_time: int | None = None) -> None:
        self._at_a_time = at_a_time

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, number: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(number)
        return torch.randn(*(() if self._at_a_time is None else (self._at_a_time,)), WIDTH, generator=generator)


class Sequences(Dataset[torch.Tensor]):
    """Rows of varying number."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, number: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(number)
        length = int(torch.randint(3, 9, (), generator=generator))
        return torch.randn(length, WIDTH, generator=generator)


class OfOneSize(BatchSampler):
    """Has a batch size, and makes batches of another."""

    def __iter__(self) -> Iterator[list[int]]:
        yield from ([*range(first, first + OWN)] for first in range(0, 100_000 - OWN, OWN))


def loader(data: Dataset[Any], collate: Callable[[list[Any]], Any] | None = None, size: int = OWN) -> DataLoader[Any]:
    return DataLoader(data, batch_size=size, collate_fn=collate)


def packed(items: list[torch.Tensor]) -> torch.Tensor:
    """Lay sequences behind each other into four rows of sixteen, as pre-training does; the rest is left away."""
    rows = torch.cat(items)[: 4 * 16]
    return F.pad(rows, (0, 0, 0, 4 * 16 - len(rows))).view(4, 16, WIDTH)


def replayed() -> Iterable[torch.Tensor]:
    """Keep what arrives, and train on a draw of it."""
    kept = torch.zeros(1024, WIDTH)
    for number, rows in enumerate(loader(Rows())):
        for place, row in enumerate(rows):
            kept[(number * len(rows) + place) % len(kept)] = row
        yield kept[torch.randint(len(kept), (OWN,))]


def cut_anew() -> Iterable[torch.Tensor]:
    """Hand on batches in parts of a size of its own."""
    for rows in loader(Rows()):
        yield from rows.split(OWN)


def validated() -> Iterable[torch.Tensor]:
    """Train on tensors, and look at a batch of a loader now and then."""
    data = torch.randn(4096, WIDTH)
    for number in range(100_000):
        if number % 5 == 0:
            with torch.no_grad():
                model.eval()(next(iter(loader(Rows()))))
                model.train()
        yield data[torch.randint(len(data), (OWN,))]


def asked() -> Iterable[torch.Tensor]:
    """Ask for a size, and not take it."""
    autotune.batch_size(OWN)
    return loader(Rows())


def from_option() -> Iterable[torch.Tensor]:
    """Have an option that nothing reads."""
    data = torch.randn(4096, WIDTH)
    return (data[torch.randint(len(data), (OWN,))] for _ in range(100_000))


KINDS: dict[str, Callable[[], Iterable[torch.Tensor]]] = {
    "the first of stacked batches": lambda: loader(Rows(64), lambda items: items[0]),
    "batches joined and cut": lambda: loader(Rows(16), lambda items: torch.cat(items)[:16]),
    "as many rows as fit": lambda: loader(Sequences(), lambda items: torch.cat(items)[:20]),
    "as many items as allowed": lambda: loader(Rows(), lambda items: torch.stack(items[:OWN])),
    "packed rows": lambda: loader(Sequences(), packed, 16),
    "a sampler with a size of its own": lambda: DataLoader(
        Rows(), batch_sampler=OfOneSize(SequentialSampler(range(100_000)), OWN, drop_last=True)
    ),
    "a slice of each batch": lambda: (rows[:OWN] for rows in loader(Rows())),
    "a replay buffer": replayed,
    "batches cut anew": cut_anew,
    "a loader for validation": validated,
    "a size that is asked for": asked,
    "an option that nothing reads": from_option,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--bs", type=int, default=OWN)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch in KINDS[parser.parse_args().kind]():
        loss = F.mse_loss(model(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
