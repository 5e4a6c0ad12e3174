"""Bags of words: the words of all texts of a batch in one row, and where each text begins."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from toy import report

torch.manual_seed(0)


class Texts(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        length = int(torch.randint(20, 60, (1,), generator=generator))
        return torch.randint(0, 300, (length,), generator=generator), index % 4


def collate(items):
    texts, labels = zip(*items, strict=True)
    sizes = torch.tensor([len(text) for text in texts])
    return torch.cat(texts), sizes.cumsum(0) - sizes, torch.tensor(labels)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(300, 32)
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4))

    def forward(self, words, offsets):
        return self.layers(self.bag(words, offsets))


model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Texts(), batch_size=16, shuffle=True, collate_fn=collate)

for epoch in range(2):
    for words, offsets, labels in loader:
        loss = nn.functional.cross_entropy(model(words, offsets), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
