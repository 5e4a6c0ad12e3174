"""DistributedDataParallel in two processes; each says how often GELU runs in one step, which recomputing doubles."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from toy import ToyNet, report, toy_data


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def train(rank, world_size, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    train_model(rank)
    dist.barrier()
    dist.destroy_process_group()


def train_model(rank):
    torch.manual_seed(rank)
    inputs, targets = toy_data().tensors
    model = DistributedDataParallel(ToyNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def step():
        rows = torch.randint(len(inputs), (8,))
        loss = F.mse_loss(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            report(loss)

    for _ in range(4):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        step()
    count = sum(event.count for event in profiled.key_averages() if event.key == "aten::gelu")
    print(f"RANK {rank} GELUS {count}\n", end="", flush=True)


if __name__ == "__main__":
    mp.spawn(train, (2, free_port()), nprocs=2)
