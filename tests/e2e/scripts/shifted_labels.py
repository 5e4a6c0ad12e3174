"""A language model whose loss is computed in the model after a graph break, on rows of all but the last word."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from toy import report

torch.manual_seed(0)
WORDS = 100


class Texts(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        length = int(torch.randint(20, 60, (1,), generator=generator))
        return torch.randint(1, WORDS, (length,), generator=generator)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.head = nn.Linear(64, WORDS)

    def forward(self, x):
        scores = self.head(self.layers(self.words(x)))
        torch._dynamo.graph_break()
        return self.loss(scores[:, :-1].reshape(-1, WORDS), x[:, 1:].reshape(-1))

    def loss(self, x, labels):
        # Each function names what it is given as it likes: its `x` has other sizes than the one before.
        torch._dynamo.graph_break()
        x = torch.log_softmax(x.float() * 0.5, -1)
        return nn.functional.nll_loss(x, labels)


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Texts(), batch_size=16, collate_fn=lambda texts: pad_sequence(texts, batch_first=True))

for epoch in range(2):
    for texts in loader:
        loss = model(texts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
