"""Detection of a process that autotune runs: a trial, or a script that was launched."""

from __future__ import annotations

import os
import sys
from typing import Any

# The worker loads this package under a private name, so that a script's own `autotune` folder keeps its name.
_WORKER = "_autotune"


def is_hosted() -> bool:
    """Return whether autotune's hooks are in this process, or it was started by one that has them."""
    return _WORKER in sys.modules or "AUTOTUNE_RUN" in os.environ


def requested_batch_size(default: int) -> int:
    """The batch size of the trial that this process is in; ``default`` in any other process."""
    worker: Any = sys.modules.get(f"{_WORKER}.worker.hooks.batch_size")
    return default if worker is None else int(worker.requested(default))
