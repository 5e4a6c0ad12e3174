"""DistributedDataParallel on gloo. `python ddp.py 1` trains in this process, `python ddp.py 2` in two spawned ones."""

import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from toy import ToyNet, report, toy_data


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(rank, world_size, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def stop():
    # gloo can hang or abort at the end where a rank leaves early, or where the model outlives the process group.
    dist.barrier()
    dist.destroy_process_group()


def train(rank, world_size, port):
    start(rank, world_size, port)
    train_model(rank)
    stop()


def train_model(rank):
    torch.manual_seed(0)
    model = DistributedDataParallel(ToyNet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = toy_data()
    sampler = DistributedSampler(data, shuffle=True, seed=0)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                report(loss)


if __name__ == "__main__":
    world_size = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    if world_size == 1:
        train(0, 1, free_port())
    else:
        mp.spawn(train, (world_size, free_port()), nprocs=world_size)
