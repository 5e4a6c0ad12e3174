"""What `torchrun` starts, once for each rank: DistributedDataParallel on gloo."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from toy import ToyNet, toy_data

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(ToyNet())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = toy_data()
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))

for epoch in range(4):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.barrier()
dist.destroy_process_group()
