"""Run another script, the first argument, where torchvision was built for another torch.

A torchvision for CUDA cannot load its operators beside a torch for CPUs. Their names are declared in this case, since
training of image models calls none of them. Where ``torchsummary`` is not installed, its tables are left out.
"""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
import types
from pathlib import Path

import torch

try:
    importlib.import_module("torchvision")
except RuntimeError:
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

if importlib.util.find_spec("torchsummary") is None:
    sys.modules["torchsummary"] = types.ModuleType("torchsummary")
    sys.modules["torchsummary"].summary = lambda *_, **__: None  # type: ignore[attr-defined]

if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
