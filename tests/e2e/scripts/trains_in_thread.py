"""The whole training runs in a thread; the main thread waits for it, and works on afterwards."""

import threading

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data


def train():
    model = ToyNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    loader = DataLoader(toy_data(), batch_size=8, shuffle=True)
    for epoch in range(4):
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            report(loss)


torch.manual_seed(0)
thread = threading.Thread(target=train, name="training")
thread.start()
thread.join()
print("main thread goes on", flush=True)
