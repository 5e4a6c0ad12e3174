"""Any batch larger than its own takes far more memory than its graph says."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

torch.manual_seed(0)
model = ToyNet()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

for epoch in range(20):
    for x, y in DataLoader(toy_data(), batch_size=8):
        kept = torch.ones(100 * 2**20) if len(x) > 8 else None
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
