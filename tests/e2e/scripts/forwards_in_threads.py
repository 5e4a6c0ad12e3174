"""Two models run forward in two threads at once; one loss over both."""

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

torch.manual_seed(0)
models = [ToyNet(dropout=0.0), ToyNet(dropout=0.0)]  # the random state is shared: dropout would depend on timing
optimizer = torch.optim.SGD([p for model in models for p in model.parameters()], lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

with ThreadPoolExecutor(max_workers=2) as pool:
    for epoch in range(4):
        for x, y in loader:
            outputs = [future.result() for future in [pool.submit(model, x) for model in models]]
            loss = F.mse_loss(outputs[0] + outputs[1], y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            report(loss)
