"""Keeps a moving average in a deep copy of the model, and saves and loads the whole model with pickle."""

import copy
import io

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

torch.manual_seed(0)
model = ToyNet()
average = None
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

for epoch in range(4):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
        if average is None:
            average = copy.deepcopy(model).eval()  # made after the first step, so of a model that has been called
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
            average(x)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    same = all(torch.equal(a, b) for a, b in zip(loaded.parameters(), model.parameters(), strict=True))
    assert same and vars(loaded).keys() == vars(ToyNet()).keys(), vars(loaded).keys()
