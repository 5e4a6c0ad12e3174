"""Two ranks; in the step after the fifth, rank 1 fails in the way that the command line names."""

import os
import signal
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from exhausted import run_out_of_memory
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def fail(how):
    if how == "raises":
        raise LookupError("no batch for rank 1")
    if how == "out_of_memory":
        run_out_of_memory(really=False)
    if how == "wrapped":
        try:
            run_out_of_memory(really=False)
        except torch.OutOfMemoryError as error:
            raise RuntimeError("the forward pass of rank 1 failed") from error
    if how == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "hangs":
        time.sleep(600)


def train(rank, port, how):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(100):
        loss = model(torch.randn(8, 8)).square().mean()
        if (rank, step) == (1, 5):
            fail(how)
        if how == "crashes" and step == 5:
            # Else it may end with its own error, of a lost connection, before the process above sees the crash.
            time.sleep(600)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(train, (port, sys.argv[1]), nprocs=2)
