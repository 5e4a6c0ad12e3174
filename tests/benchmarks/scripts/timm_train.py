"""Run timm's ``train.py``, the first argument, where torchvision was built for another torch.

A torchvision for CUDA cannot load its operators beside a torch for CPUs. Their names are declared in this case, since
timm's training calls none of them.
"""

from __future__ import annotations

import importlib
import runpy
import sys

import torch

try:
    importlib.import_module("torchvision")
except RuntimeError:
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
