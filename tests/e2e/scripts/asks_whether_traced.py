"""Attention of a library that makes its mask explicit where it is traced, and not in eager."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from toy import report

LENGTH, WIDTH = 16, 8


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x):
        query, key, value = self.project(x).unsqueeze(1).chunk(3, dim=-1)
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril() if torch.compiler.is_compiling() else None
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None)
        return self.head(F.gelu(out.squeeze(1)))


torch.manual_seed(0)
model = Attention()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    for (x,) in DataLoader(TensorDataset(torch.randn(64, LENGTH, WIDTH)), batch_size=4):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
