"""A script for a GPU whose batches are as long as their longest text, in ways that scripts have."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

parser = argparse.ArgumentParser()
parser.add_argument("--texts", type=int, default=300)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--broken-at", type=int, default=-1, help="the text that cannot be read")
parser.add_argument("--of-one-length", action="store_true")
parser.add_argument("--endless", action="store_true")
parser.add_argument("--loader-per-step", action="store_true")
parser.add_argument("--without-loader", action="store_true")
options = parser.parse_args()

lengths = [64 if options.of_one_length else 8 + 37 * number % 200 for number in range(options.texts)]
if not options.of_one_length:
    lengths[200] = 3000


def text(number):
    if number == options.broken_at:
        raise ValueError("the file is broken")
    return torch.full((lengths[number],), 1 + number % 50)


class Texts(Dataset):
    def __len__(self):
        return len(lengths)

    def __getitem__(self, number):
        return text(number)


class Endless(IterableDataset):
    def __iter__(self):
        number = 0
        while True:
            yield text(number % len(lengths))
            number += 1


def pad(texts):
    return {"ids": nn.utils.rnn.pad_sequence(texts, batch_first=True), "names": ["some"] * len(texts)}


def loader():
    data = Endless() if options.endless else Texts()
    return DataLoader(data, 4, collate_fn=pad, num_workers=options.workers)


def batches():
    while True:
        if options.without_loader:
            yield pad([text(number) for number in range(4)])
        elif options.loader_per_step:
            yield next(iter(loader()))
        else:
            yield from loader()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, 128)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128)) for _ in range(3))

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = x + block(x)
        return x


model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step, batch in enumerate(batches()):
    loss = model(batch["ids"].cuda()).square().mean() / options.accumulate
    loss.backward()
    if (step + 1) % options.accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
