"""Does not compile."""

import torch

model = torch.nn.Linear(8, 1
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
