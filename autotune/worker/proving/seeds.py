"""The seeds and casts of a run in mode ``verify``. Standard library only: the script has not imported torch yet."""

from __future__ import annotations

import os
import random
import sys

SEED = 20_240_229


def seed_numpy(rank: int = 0) -> None:
    """Seed NumPy's global generator, if the script has NumPy."""
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(SEED + rank)


def seed_generators(rank: int = 0) -> None:
    """Seed the global generators of Python, NumPy and torch, as far as the script has them."""
    random.seed(SEED + rank)
    seed_numpy(rank)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(SEED + rank)


def keep_casts() -> None:
    """Have Inductor round to bfloat16 or float16 wherever the script does, in this process and in those it starts.

    Left to itself it keeps in float32 what it fuses. What it fuses depends on the plans, so that plans would seem to
    change what is computed. The variable is read as torch is imported (``torch/_inductor/config.py``, 2.11 to 2.15), by
    the processes too that compile for this one.
    """
    os.environ["TORCHINDUCTOR_EMULATE_PRECISION_CASTS"] = "1"
