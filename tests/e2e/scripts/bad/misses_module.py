"""Imports a module that is not installed."""

import no_such_layers
import torch
from torch import nn

model = no_such_layers.Wide(nn.Linear(8, 1))
model(torch.randn(8, 8)).sum().backward()
