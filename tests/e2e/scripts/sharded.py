"""What torchrun starts: blocks that are sharded, with dropout and BatchNorm.

With a rank as its argument a bug is planted there: what is recomputed updates the statistics once more. With
``layer-norm`` there are no statistics, which a policy of bfloat16 could not have on a CPU.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

from toy import FEATURES, toy_data


Norm = nn.LayerNorm if sys.argv[1:] == ["layer-norm"] else nn.BatchNorm1d


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(FEATURES, 32), Norm(32), nn.Linear(32, FEATURES)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        return x + self.dropout(self.down(F.gelu(self.norm(self.up(x)))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(3)), nn.Linear(FEATURES, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def plant(pair_class):
    run_backward = pair_class.run_backward.func

    def planted(pair):
        run = run_backward(pair)

        def twice(arguments):
            if pair.recomputed:
                model.blocks[1].norm.running_mean.mul_(0.9)
            return run(arguments)

        return twice

    pair_class.run_backward = property(planted)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
engine = sys.modules.get("_autotune.worker.plans.graph_pair")
if engine is not None and sys.argv[1:] == [str(dist.get_rank())]:
    plant(engine.Pair)

data = toy_data()
for epoch in range(4):
    for x, y in DataLoader(data, batch_size=16, sampler=DistributedSampler(data)):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
