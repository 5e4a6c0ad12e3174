"""A network on graphs of different sizes: a batch is one large graph, with as many nodes and edges as its graphs have."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from toy import report

torch.manual_seed(0)


class Graphs(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        nodes = int(torch.randint(10, 30, (1,), generator=generator))
        edges = torch.randint(0, nodes, (2, 4 * nodes), generator=generator)
        return torch.randn(nodes, 8, generator=generator), edges, torch.randn(1, generator=generator)


def collate(graphs):
    nodes, edges, targets = zip(*graphs, strict=True)
    sizes = torch.tensor([len(each) for each in nodes])
    first = sizes.cumsum(0) - sizes
    joined = torch.cat([each + start for each, start in zip(edges, first, strict=True)], dim=1)
    return torch.cat(nodes), joined, torch.repeat_interleave(torch.arange(len(sizes)), sizes), torch.stack(targets)


class Convolution(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Linear(2 * width, width)
        self.update = nn.Linear(2 * width, width)

    def forward(self, nodes, edges):
        source, target = edges
        ends = torch.cat([nodes.index_select(0, source), nodes.index_select(0, target)], dim=-1)
        messages = torch.relu(self.message(ends))
        index = target.unsqueeze(-1).expand_as(messages)
        received = torch.zeros_like(nodes).scatter_add(0, index, messages)
        return nodes + torch.relu(self.update(torch.cat([nodes, received], dim=-1)))


class Network(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.convolutions = nn.ModuleList(Convolution(width) for _ in range(3))
        self.head = nn.Linear(width, 1)

    def forward(self, nodes, edges, graph_of_node, num_graphs):
        nodes = self.embed(nodes)
        for convolution in self.convolutions:
            nodes = convolution(nodes, edges)
        pooled = torch.zeros(num_graphs, nodes.shape[1]).index_add(0, graph_of_node, nodes)
        return self.head(pooled)


model = Network()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(Graphs(), batch_size=16, shuffle=True, collate_fn=collate)

for epoch in range(2):
    for nodes, edges, graph_of_node, targets in loader:
        loss = (model(nodes, edges, graph_of_node, len(targets)) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
