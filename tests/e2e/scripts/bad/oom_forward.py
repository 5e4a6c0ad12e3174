"""Out of memory in the forward pass of the second step, in a layer inside the model."""

import torch
import torch.nn.functional as F
from exhausted import batches, read_options, run_out_of_memory
from torch import nn

options = read_options()
step = 0


@torch.library.custom_op("e2e_oom_forward::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    """A kernel that torch knows nothing about: it fails when it runs, compiled or not, not when it is traced."""
    if step == 2 and len(x) > options.above:
        run_out_of_memory(really=options.really)
    return x * 2


double.register_fake(torch.empty_like)
double.register_autograd(lambda context, grad: grad * 2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 1)

    def forward(self, x):
        return self.second(double(F.gelu(self.first(x))))


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

for step, (x, y) in zip(range(1, 301), batches(options.batch_size)):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("LOSS", loss.item().hex(), flush=True)
