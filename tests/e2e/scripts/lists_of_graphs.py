"""Batches are lists of objects of the script's own, or one such object; an option says how many are in a batch."""

import argparse

import torch
from torch import nn

from toy import report


class Graph:
    def __init__(self):
        self.nodes = torch.randn(5, 16)


class Batch:
    def __init__(self, graphs):
        self.graphs = graphs


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, batch):
        return self.layers(torch.stack([graph.nodes for graph in getattr(batch, "graphs", batch)]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=6)
    parser.add_argument("--wrapped", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    graphs = [Graph() for _ in range(64)]
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(200):
        chosen = [graphs[index] for index in torch.randint(64, (options.batch_size,)).tolist()]
        loss = model(Batch(chosen) if options.wrapped else chosen).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)


main()
