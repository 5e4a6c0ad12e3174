"""Reads its data from a path that starts in the folder that it expects to run in."""

from pathlib import Path

import torch

torch.tensor(list(Path("data/train.bin").read_bytes()))
