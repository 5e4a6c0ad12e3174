"""DistributedDataParallel on gloo in two processes, with all that makes it more than a wrapper.

Many small buckets, parameters that not every step uses, accumulation without synchronization, BatchNorm's buffers sent
to the other process, and gradients that are views of the buckets.
"""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from ddp import free_port, start, stop
from toy import FEATURES, ToyNet, report, toy_data


class Branched(nn.Module):
    """Its second head is used in every other call only."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(FEATURES)
        self.body = ToyNet(width=256)
        self.heads = nn.ModuleList(nn.Sequential(nn.Linear(FEATURES, 16), nn.GELU(), nn.Linear(16, 1)) for _ in range(2))

    def forward(self, x, head):
        x = self.norm(x)
        return self.body(x) + self.heads[head](x)


def train(rank, world_size, port):
    start(rank, world_size, port)
    train_model(rank)
    stop()


def train_model(rank):
    torch.manual_seed(0)
    model = DistributedDataParallel(
        Branched(), bucket_cap_mb=1, find_unused_parameters=True, gradient_as_bucket_view=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = toy_data()
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=True, seed=0))
    for _ in range(4):
        for number, (x, y) in enumerate(loader):
            if number % 2 == 0:
                with model.no_sync():
                    F.mse_loss(model(x, 0), y).backward()
                continue
            loss = F.mse_loss(model(x, number // 2 % 2), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            # One bit of difference in any gradient or buffer of either process shows in the next loss.
            dist.all_reduce(loss.detach_())
            if rank == 0:
                report(loss)


if __name__ == "__main__":
    mp.spawn(train, (2, free_port()), nprocs=2)
