"""Train an encoder like BERT on random tokens."""

import argparse
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models import bert

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=1_000_000)
parser.add_argument("--samples", type=int, default=64, help="in an epoch")
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--length", type=int, default=64)
parser.add_argument("--lr", type=float, default=1e-3)
options = parser.parse_args()

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
built = bert(layers=options.layers, width=options.width, length=options.length)
(tokens,) = built.inputs(options.samples)
model = built.module.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
loader = DataLoader(TensorDataset(tokens), options.batch_size, shuffle=True, drop_last=True)

step = 0
while step < options.steps:
    for (batch,) in loader:
        optimizer.zero_grad()
        built.loss(model, (batch.to(device),)).backward()
        optimizer.step()
        step += 1
        if step == options.steps:
            break
