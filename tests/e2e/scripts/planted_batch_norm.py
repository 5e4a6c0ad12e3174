"""A planted bug: where the engine runs the model, BatchNorm's statistics are updated once more in each backward.

Its argument says whether that happens only where something is recomputed ("plans") or always ("engine").
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from toy import FEATURES, toy_data

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)


def plant(pair_class, always):
    run_backward = pair_class.run_backward.func

    def planted(pair):
        run = run_backward(pair)

        def twice(arguments):
            if always or pair.recomputed:
                model[1].num_batches_tracked += 1
                model[1].running_mean.mul_(1 - model[1].momentum)
            return run(arguments)

        return twice

    pair_class.run_backward = property(planted)


engine = sys.modules.get("_autotune.worker.plans.graph_pair")
if engine is not None:
    plant(engine.Pair, sys.argv[1] == "engine")

for x, y in DataLoader(toy_data(), batch_size=16, shuffle=True):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
