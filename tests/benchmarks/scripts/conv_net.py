"""A convolutional net with BatchNorm in residual blocks, on random images: something to recompute that counts."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ConvBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)

    def forward(self, x):
        y = F.gelu(self.first_norm(self.first(x)))
        return F.gelu(x + self.second_norm(self.second(y)))


def main():
    torch.manual_seed(0)
    stem = nn.Conv2d(3, 24, 3, padding=1)
    blocks = nn.Sequential(*(ConvBlock(24) for _ in range(5)))
    model = nn.Sequential(stem, blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(2048, 3, 32, 32, generator=generator)
    data = TensorDataset(images, torch.randint(10, (2048,), generator=generator))
    for _ in range(40):
        for x, y in DataLoader(data, batch_size=16, shuffle=True, drop_last=True):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
