"""A script that tunes another one: it must not be tuned itself."""

import sys

import torch

import autotune
from autotune.errors import UsageError

try:
    autotune.tune("loader_loop.py", progress=False)
except UsageError as error:
    print("REFUSED", error, error.hint, flush=True)

sys.argv = ["loader_loop.py"]
import loader_loop  # noqa: E402, F401
