"""Has modules named like autotune's own, reads its command line, and checks that it runs as `python train.py` would."""

import argparse
import os
import sys
from pathlib import Path

import autotune
import records
import store
import torch
import torch.nn.functional as F
import trials
from search.model import Net
from torch.utils.data import DataLoader, TensorDataset

HERE = Path(__file__).resolve().parent

for module in (autotune, records, store, trials):
    assert Path(module.__file__).resolve().is_relative_to(HERE), f"{module.__name__} came from {module.__file__}"
assert Path(sys.path[0]).resolve() == HERE, sys.path
assert sum(Path(entry or os.curdir).resolve() == HERE for entry in sys.path) == 1, sys.path
if __name__ == "__main__":
    assert sys.modules["__main__"].__dict__ is globals()
    assert Path(sys.argv[0]).resolve() == Path(__file__).resolve(), sys.argv
    assert __spec__ is None
    assert __doc__.startswith("Has modules")
else:
    assert __name__ == "__mp_main__", __name__  # a spawned loader worker imports this file again


class Collate:
    """Defined here, so that a spawned worker can only unpickle it by importing this file."""

    def __call__(self, samples):
        return torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--name", default="", help="a free text")
    parser.add_argument("--spawned-workers", type=int, default=0)
    options = parser.parse_args()

    torch.manual_seed(0)
    x = torch.randn(512, 8)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    model = Net(width=16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=autotune.first_rate())
    loader = DataLoader(
        data,
        options.batch_size,
        shuffle=True,
        collate_fn=Collate(),
        num_workers=options.spawned_workers,
        multiprocessing_context="spawn" if options.spawned_workers else None,
        persistent_workers=options.spawned_workers > 0,
    )
    print("name", repr(options.name), "batch size", options.batch_size)
    for _ in range(options.epochs):
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            store.add(loss)
    print("best", records.best_of(store.losses))


if __name__ == "__main__":
    main()
