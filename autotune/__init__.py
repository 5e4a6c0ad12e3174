"""autotune: how should this training script run, so that it trains the most samples per second in the memory it has?"""

from __future__ import annotations

__all__ = ["__version__", "batch_size"]

__version__ = "0.1.0"


def batch_size(default: int) -> int:
    """Give a training script the batch size of the trial it runs in; ``default`` when autotune does not run it.

    For scripts that make their own batches: ``batch_size = autotune.batch_size(32)``.
    """
    import sys

    # The worker loads this package under a private name, so that a script's own `autotune` folder keeps its name.
    worker = sys.modules.get("_autotune.worker.hooks.batch_size")
    return default if worker is None else int(worker.requested(default))
