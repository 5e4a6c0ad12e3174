"""Makes its own batches; every setting is a module global that `--name=value` replaces, as nanoGPT does."""

import ast
import sys

import torch
import torch.nn.functional as F

from toy import ToyNet, report, toy_data

batch_size = 8
steps = 300
learning_rate = 1e-2

for argument in sys.argv[1:]:
    key, _, value = argument.removeprefix("--").partition("=")
    if key not in globals():
        raise SystemExit(f"unknown setting: {key}")
    globals()[key] = ast.literal_eval(value)

torch.manual_seed(0)
inputs, targets = toy_data().tensors
model = ToyNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)


def get_batch():
    rows = torch.randint(len(inputs), (batch_size,))
    return torch.stack([inputs[i] for i in rows]), torch.stack([targets[i] for i in rows])


for _ in range(steps):
    x, y = get_batch()
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report(loss)
