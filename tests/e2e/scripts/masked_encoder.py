"""Tagging with `nn.TransformerEncoder` under a causal mask, which torch itself looks through before each call."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from toy import report

VOCABULARY, LENGTH, WIDTH, TAGS = 50, 12, 16, 5


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 4 * WIDTH, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=3)
        self.head = nn.Linear(WIDTH, TAGS)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.encoder(self.embed(tokens), mask=mask)[:, -1])


torch.manual_seed(0)
model = Tagger()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randint(1, VOCABULARY, (256, LENGTH)), torch.randint(TAGS, (256,)))
for epoch in range(3):
    for tokens, tags in DataLoader(data, batch_size=8, shuffle=True):
        loss = F.cross_entropy(model(tokens), tags)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
