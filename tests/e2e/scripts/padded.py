"""A script for a GPU whose batches are as long as their longest text, in ways that scripts have."""

import argparse
import time
from contextlib import nullcontext
from itertools import islice

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

parser = argparse.ArgumentParser()
parser.add_argument("--texts", type=int, default=300)
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--broken-at", type=int, default=-1, help="the text that cannot be read")
parser.add_argument("--of-one-length", action="store_true")
parser.add_argument("--endless", action="store_true")
parser.add_argument("--loader-per-step", action="store_true")
parser.add_argument("--without-loader", action="store_true")
parser.add_argument("--print", action="store_true")
parser.add_argument("--no-room-for", type=int, default=10**9, help="the length of a batch that memory is short for")
parser.add_argument("--evaluate", choices=("train", "other", "same-line"), default="")
parser.add_argument("--slow", type=float, default=0.0, help="seconds for each text")
parser.add_argument("--steps", type=int, default=10**9)
parser.add_argument("--anew", action="store_true", help="a loader for each epoch")
parser.add_argument("--leave-after", type=int, default=10**9, help="batches, in each epoch")
parser.add_argument("--skip-longer", type=int, default=10**9, help="batches of this length")
parser.add_argument("--read-once", action="store_true", help="the data set is its own iterator")
parser.add_argument("--no-room-to-evaluate", action="store_true")
parser.add_argument("--drawn-ahead", action="store_true")
parser.add_argument("--epochs-first", type=int, default=0, help="epochs before memory is short")
parser.add_argument("--twice", action="store_true", help="call the model with a part of each batch as well")
parser.add_argument("--count", action="store_true", help="the operators of each step")
parser.add_argument("--shuffle", action="store_true")
parser.add_argument("--own-batches", action="store_true", help="a list of them, and no batch size")
parser.add_argument("--on-gpu", action="store_true", help="batches are there, with a table that all share")
parser.add_argument("--losses", action="store_true", help="print them")
parser.add_argument("--device", default="cuda")
parser.add_argument("--longest", type=int, default=3000)
options = parser.parse_args()

lengths = [64 if options.of_one_length else 8 + 37 * number % 200 for number in range(options.texts)]

if not options.of_one_length:
    lengths[200] = options.longest
epochs = []
table = torch.ones(2**20, device=options.device) if options.on_gpu else None


def text(number):
    if number == options.broken_at:
        raise ValueError("the file is broken")
    time.sleep(options.slow)
    return torch.full((lengths[number],), 1 + number % 50)


class Texts(Dataset):
    def __init__(self, number):
        self.number = number

    def __len__(self):
        return self.number

    def __getitem__(self, number):
        return text(number)


class Endless(IterableDataset):
    def __iter__(self):
        number = 0
        while True:
            yield text(number % len(lengths))
            number += 1


class ReadOnce(IterableDataset):
    def __init__(self):
        self.texts = map(text, range(len(lengths)))

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.texts)


def pad(texts):
    if options.on_gpu:
        return {"ids": nn.utils.rnn.pad_sequence(texts, batch_first=True).to(options.device), "table": table}
    return {"ids": nn.utils.rnn.pad_sequence(texts, batch_first=True), "names": ["some"] * len(texts)}


def loader(evaluates=False):
    data = Endless() if options.endless else ReadOnce() if options.read_once else Texts(12 if evaluates else len(lengths))
    workers = {"num_workers": options.workers, "persistent_workers": options.workers > 1}
    if options.own_batches:
        of = [range(first, first + 4) for first in range(0, options.texts, 4)]
        return DataLoader(data, batch_sampler=of, collate_fn=pad, **workers)
    return DataLoader(data, options.batch_size, collate_fn=pad, shuffle=options.shuffle, **workers)


def drawn_ahead(made):
    """Draw each batch while the one before is trained with, as Accelerate does."""
    made = iter(made)
    after = next(made)
    while after is not None:
        batch, after = after, next(made, None)
        yield batch


def batches():
    while True:
        epochs.append(1)
        if options.without_loader:
            yield pad([text(number) for number in range(4)])
        elif options.loader_per_step:
            yield next(iter(loader()))
        else:
            made = loader() if options.anew else of_training
            yield from islice(drawn_ahead(made) if options.drawn_ahead else made, options.leave_after)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, 128)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128)) for _ in range(3))

    def forward(self, ids):
        if ids.shape[1] >= options.no_room_for and len(epochs) > options.epochs_first:
            torch.empty(2**50)
        x = self.embed(ids)
        for block in self.blocks:
            x = x + block(x)
        return x


torch.manual_seed(0)
model = Net().to(options.device)
optimizer = torch.optim.AdamW(model.parameters())
of_training, of_evaluation = (loader(evaluates) for evaluates in (False, True))


def evaluate():
    made = {"train": of_training, "other": loader(evaluates=True), "same-line": of_evaluation}[options.evaluate]
    model.eval()
    with torch.no_grad():
        for each in made:
            assert made is of_training or each["ids"].shape[1] < 208, "a batch of the training"
            if options.print:
                print("evaluated", "x".join(map(str, each["ids"].shape)), flush=True)
            if options.no_room_to_evaluate:
                torch.empty(2**50)
            model(each["ids"].to(options.device))
    model.train()


for step, batch in enumerate(batches()):
    if options.print:
        print("ids", "x".join(map(str, batch["ids"].shape)), flush=True)
    if batch["ids"].shape[1] > options.skip_longer:
        continue
    with torch.profiler.profile() if options.count else nullcontext() as counted:
        ids = batch["ids"].to(options.device)
        made = [model(ids), model(ids[:, :100])] if options.twice else [model(ids)]
        loss = sum(one.square().mean() for one in made) / options.accumulate
        loss.backward()
    if options.count:
        print("gelus", sum(event.name == "aten::gelu" for event in counted.events()), *ids.shape, flush=True)
    if options.losses:
        print("loss", loss.item(), flush=True)
    if (step + 1) % options.accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
    if options.evaluate and step % 5 == 4:
        evaluate()
    if step + 1 == options.steps:
        break
