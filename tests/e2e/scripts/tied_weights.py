"""Input embedding and output layer share one parameter."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from toy import report

VOCABULARY, WIDTH = 50, 16


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)
        self.out = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(self.dropout(F.gelu(self.hidden(self.embed(tokens)))))


torch.manual_seed(0)
tokens = torch.randint(VOCABULARY, (512, 7))
model = Tied()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(tokens[:, :-1], tokens[:, 1:]), batch_size=8, shuffle=True)

for epoch in range(4):
    for x, y in loader:
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
