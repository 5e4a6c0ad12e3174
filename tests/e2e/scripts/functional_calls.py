"""Calls the model through `torch.func`: functional_call for the loss, vmap(grad) for gradients per sample."""

import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

torch.manual_seed(0)
model = ToyNet(dropout=0.0)
parameters = dict(model.named_parameters())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
loader = DataLoader(toy_data(num_samples=256), batch_size=8, shuffle=True)


def loss_of_one(parameters, x, y):
    return F.mse_loss(functional_call(model, parameters, (x[None],)), y[None])


gradients_per_sample = vmap(grad(loss_of_one), in_dims=(None, 0, 0))

for epoch in range(3):
    for x, y in loader:
        frozen = {name: parameter.detach() for name, parameter in parameters.items()}
        per_sample = gradients_per_sample(frozen, x, y)
        loss = F.mse_loss(functional_call(model, parameters, (x,)), y)
        optimizer.zero_grad()
        loss.backward()
        for name, parameter in parameters.items():
            torch.testing.assert_close(per_sample[name].mean(dim=0), parameter.grad, rtol=1e-3, atol=1e-4)
        optimizer.step()
        report(loss)
