"""Out of memory on demand, for the scripts beside this file."""

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset


def read_options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--above", type=int, default=0, help="only a batch larger than this runs out of memory")
    parser.add_argument("--really", action="store_true", help="ask the CPU's allocator for what it cannot give")
    return parser.parse_args()


def batches(batch_size):
    x = torch.randn(4096, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, torch.sin(x.sum(1, keepdim=True)))
    while True:
        yield from DataLoader(data, batch_size=batch_size, shuffle=True, drop_last=True)


def run_out_of_memory(*, really):
    if really:
        torch.empty(2**50)
    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 8.00 GiB."
    )
