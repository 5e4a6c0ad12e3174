"""What has to be set before any test uses the device.

cuBLAS reads the size of its workspace at its first use in a process. On the GPU without kernels (tests/fakes/null_gpu)
each process of tests has a device of its own, and no tensor is shown: its values would decide how many are.
"""

from __future__ import annotations

import os
import tempfile

import torch

if "NULL_GPU" in os.environ:
    # What a process of an earlier session held would be held still where its pid is another's by now.
    _STATE = tempfile.NamedTemporaryFile(prefix="null-gpu-")  # noqa: SIM115 - until this process ends
    os.environ["NULL_GPU_STATE"] = _STATE.name
    torch.Tensor.__repr__ = lambda tensor, **_: f"<{tuple(tensor.shape)} on {tensor.device}>"  # type: ignore[method-assign]

if torch.cuda.is_available():
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
