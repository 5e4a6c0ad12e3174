"""Two models, two optimizers, two backward passes per batch; the discriminator is called three times."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from toy import FEATURES, ToyNet, report, toy_data

NOISE = 4


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(NOISE, 32), nn.GELU(), nn.Linear(32, FEATURES))

    def forward(self, noise):
        return self.layers(noise)


torch.manual_seed(0)
generator, discriminator = Generator(), ToyNet()
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3)
discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
loader = DataLoader(toy_data(), batch_size=8, shuffle=True)

for epoch in range(3):
    for real, _ in loader:
        fake = generator(torch.randn(len(real), NOISE))

        on_real, on_fake = discriminator(real), discriminator(fake.detach())
        loss = F.softplus(-on_real).mean() + F.softplus(on_fake).mean()
        discriminator_optimizer.zero_grad()
        loss.backward()
        discriminator_optimizer.step()
        report(loss)

        loss = F.softplus(-discriminator(fake)).mean()
        generator_optimizer.zero_grad()
        loss.backward()
        generator_optimizer.step()
        report(loss)
