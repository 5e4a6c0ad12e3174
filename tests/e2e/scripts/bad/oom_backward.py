"""Out of memory in the backward pass of the second step."""

import torch
import torch.nn.functional as F
from exhausted import batches, read_options, run_out_of_memory
from torch import nn

options = read_options()

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

for step, (x, y) in zip(range(1, 301), batches(options.batch_size)):
    output = model(x)
    if step == 2 and len(x) > options.above:
        output.register_hook(lambda grad: run_out_of_memory(really=options.really))
    loss = F.mse_loss(output, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("LOSS", loss.item().hex(), flush=True)
