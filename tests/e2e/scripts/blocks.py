"""A model whose parts the arguments choose. It trains by itself, or in the ranks that `torchrun` starts."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

parser = argparse.ArgumentParser()
parser.add_argument("--blocks", type=int, default=3)
parser.add_argument("--relu", action="store_true")
options = parser.parse_args()
is_rank = "RANK" in os.environ
if is_rank:
    dist.init_process_group("gloo")
torch.manual_seed(0)
model = ToyNet(num_blocks=options.blocks)
if options.relu:
    for block in model.blocks:
        block.activation = nn.ReLU()
trained = DistributedDataParallel(model) if is_rank else model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8)

for epoch in range(2):
    for x, y in loader:
        loss = F.mse_loss(trained(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not is_rank or dist.get_rank() == 0:
            report(loss)
if is_rank:
    dist.barrier()
    dist.destroy_process_group()
