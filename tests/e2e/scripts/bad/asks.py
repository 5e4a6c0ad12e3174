"""Asks the person at the terminal, first of all."""

import torch

rate = float(input("learning rate: "))
torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=rate)
