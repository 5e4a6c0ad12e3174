"""The seeds of a run in mode ``verify``. Standard library only: it is needed before the script has imported torch."""

from __future__ import annotations

import random
import sys

_SEED = 20_240_229


def seed_numpy(rank: int = 0) -> None:
    """Seed NumPy's global generator, if the script has NumPy."""
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(_SEED + rank)


def seed_generators(rank: int = 0) -> None:
    """Seed the global generators of Python, NumPy and torch, as far as the script has them."""
    random.seed(_SEED + rank)
    seed_numpy(rank)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(_SEED + rank)
