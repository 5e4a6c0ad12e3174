"""The script has forward hooks of its own, on the model and inside it, and counts how often they run."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

calls = {"model before": 0, "block after": 0}
norms = []


def before_model(module, arguments):
    calls["model before"] += 1


def after_block(module, arguments, output):
    calls["block after"] += 1
    norms.append(output.detach().norm())


torch.manual_seed(0)
model = ToyNet()
model.register_forward_pre_hook(before_model)
model.blocks[1].register_forward_hook(after_block)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

step = 0
for epoch in range(4):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
        step += 1
        assert set(calls.values()) == {step}, (step, calls)
        assert len(norms) == step and norms[-1].item() > 0
