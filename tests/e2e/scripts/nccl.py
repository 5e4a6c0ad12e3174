"""A script that torchrun starts on GPUs: NCCL, and DistributedDataParallel over the processes."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).cuda(rank)
model = nn.parallel.DistributedDataParallel(layers, device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(512, 64), torch.randint(0, 10, (512,)))
for x, y in DataLoader(data, 32, sampler=DistributedSampler(data)):
    loss = nn.functional.cross_entropy(model(x.cuda(rank)), y.cuda(rank))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
