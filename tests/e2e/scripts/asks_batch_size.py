"""Makes its own batches and asks autotune how large they shall be."""

import autotune
import torch
import torch.nn.functional as F

from toy import ToyNet, report, toy_data

batch_size = autotune.batch_size(8)

torch.manual_seed(0)
inputs, targets = toy_data().tensors
model = ToyNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

for _ in range(300):
    rows = torch.randint(len(inputs), (batch_size,))
    loss = F.mse_loss(model(inputs[rows]), targets[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report(loss)
