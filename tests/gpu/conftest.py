"""cuBLAS reads the size of its workspace at its first use in a process, so that is set before any test runs."""

from __future__ import annotations

import os

import torch

if torch.cuda.is_available():
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
