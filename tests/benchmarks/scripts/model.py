"""Train one of the benchmarks' models on random data: `model.py convnet --layers 6`."""

import argparse
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models import MODELS

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model", choices=MODELS)
parser.add_argument("--steps", type=int, default=1_000_000)
parser.add_argument("--samples", type=int, default=256, help="in an epoch")
parser.add_argument("--batch-size", type=int, default=8)
options, sizes = parser.parse_known_args()
sizes = {name.lstrip("-"): int(value) for name, value in zip(sizes[::2], sizes[1::2], strict=True)}

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
built = MODELS[options.model](**sizes)
inputs = built.inputs(options.samples)
model = built.module.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
loader = DataLoader(TensorDataset(*inputs), options.batch_size, shuffle=True, drop_last=True)

step = 0
while step < options.steps:
    for batch in loader:
        optimizer.zero_grad()
        built.loss(model, tuple(part.to(device) for part in batch)).backward()
        optimizer.step()
        step += 1
        if step == options.steps:
            break
