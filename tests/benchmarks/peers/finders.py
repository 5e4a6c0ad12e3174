"""Batch-size finders of libraries, asked in a process of their own; what they try is measured elsewhere.

``python finders.py NAME FIRST MOST`` writes ``{"try": 32}`` for each size that the library wants to train with, and
reads how that ended: ``fits``, ``out of memory``, or anything else for another failure. Its last line is
``{"found": 28, "version": "1.2"}``, or ``{"failed": "why"}``. So the library's own rule decides, and each size is
trained by the same script, under the same limit and by the same meter as everybody's.

Accelerate begins at MOST and goes down, Lightning begins at FIRST and goes up.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

# As allocators say it: this is what the libraries look for.
_OUT_OF_MEMORY = "CUDA out of memory. The limit does not hold this batch size."

Train = Callable[[int], None]


def accelerate_finder(train: Train, first: int, most: int) -> int:
    """``find_executable_batch_size``, with its own way of going down."""
    from accelerate.utils import find_executable_batch_size

    def training(batch_size: int) -> int:
        train(batch_size)
        return batch_size

    return int(find_executable_batch_size(training, starting_batch_size=most)())


def lightning_finder(train: Train, first: int, most: int, *, mode: str) -> int:
    """``Tuner.scale_batch_size``, which is the callback BatchSizeFinder."""
    import torch
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.tuner import Tuner
    from torch.utils.data import DataLoader

    class Asking(LightningModule):
        """Its step is one of the script's, with the batch size that is set."""

        def __init__(self) -> None:
            super().__init__()
            self.batch_size = first
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def train_dataloader(self) -> Any:
            # More than are asked for: a size as large as the data would end the search.
            return DataLoader(torch.zeros(2 * most + 1, 1), self.batch_size)

        def training_step(self, batch: Any, index: int) -> Any:
            train(self.batch_size)
            return (self.weight * batch.mean()).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        found = Tuner(trainer).scale_batch_size(Asking(), mode=mode, init_val=first)
    if found is None:
        raise RuntimeError("it came to no batch size")
    return int(found)


FINDERS: dict[str, tuple[str, Callable[[Train, int, int], int]]] = {
    "accelerate": ("accelerate", accelerate_finder),
    "lightning": ("lightning", lambda *asked: lightning_finder(*asked, mode="power")),
    "lightning-binsearch": ("lightning", lambda *asked: lightning_finder(*asked, mode="binsearch")),
}


def main(name: str, first: int, most: int) -> None:
    """Have a library look for a batch size, and tell what came of it."""
    tell = sys.stdout
    sys.stdout = sys.stderr  # what libraries print is not for who reads this
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)

    def say(**what: Any) -> None:
        tell.write(json.dumps(what) + "\n")
        tell.flush()

    library, find = FINDERS[name]
    if importlib.util.find_spec(library) is None:
        say(failed=f"{library} is not installed")
        return
    answers: dict[int, str] = {}

    def train(batch_size: int) -> None:
        if batch_size > most:
            raise RuntimeError(_OUT_OF_MEMORY)
        if batch_size not in answers:
            say(**{"try": batch_size})
            answers[batch_size] = sys.stdin.readline().strip()
        if answers[batch_size] == "out of memory":
            raise RuntimeError(_OUT_OF_MEMORY)
        if answers[batch_size] != "fits":
            raise ValueError(f"batch {batch_size} ended otherwise: {answers[batch_size]}")

    try:
        found = find(train, first, most)
    except Exception as error:
        say(failed=f"{type(error).__name__}: {error}")
    else:
        say(found=found, version=importlib.metadata.version(library))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
