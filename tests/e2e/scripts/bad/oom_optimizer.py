"""Out of memory in the second optimizer step."""

import torch
import torch.nn.functional as F
from exhausted import batches, read_options, run_out_of_memory
from torch import nn

options = read_options()


class Hungry(torch.optim.Optimizer):
    """Plain gradient descent that would like more memory than there is."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})
        self.steps = 0

    @torch.no_grad()
    def step(self, closure=None):
        self.steps += 1
        if self.steps == 2 and options.batch_size > options.above:
            run_out_of_memory(really=options.really)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(parameter.grad, alpha=group["lr"])


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
optimizer = Hungry(model.parameters(), lr=1e-2)

for step, (x, y) in zip(range(1, 301), batches(options.batch_size)):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("LOSS", loss.item().hex(), flush=True)
