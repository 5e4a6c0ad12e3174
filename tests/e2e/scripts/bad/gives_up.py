"""Says in words why it does not train."""

import sys

import torch

if not torch.backends.cuda.is_built() or torch.cuda.device_count() < 64:
    sys.exit("this recipe needs 64 GPUs")
