"""autotune: how should this training script run, so that it trains the most samples per second in the memory it has?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .worker.measuring.memory_matrix import ModelMatrix

__all__ = ["__version__", "batch_size", "memory_matrix"]

__version__ = "0.1.0"


def batch_size(default: int) -> int:
    """Give a training script the batch size of the trial it runs in; ``default`` when autotune does not run it.

    For scripts that make their own batches: ``batch_size = autotune.batch_size(32)``.
    """
    import sys

    # The worker loads this package under a private name, so that a script's own `autotune` folder keeps its name.
    worker = sys.modules.get("_autotune.worker.hooks.batch_size")
    return default if worker is None else int(worker.requested(default))


def memory_matrix(model: Any, write: Callable[[str], object] | None = None) -> ModelMatrix:
    """Write what the memory holds before and after each forward and backward of a model, in a script of one's own.

    As a context manager, ``with autotune.memory_matrix(model): train()``, or from the call on until ``close()``. The
    lines are ORTModule's, in MiB: of steps 0 to 9, and of those whose number is a power of two::

        rank-0 step 1 memory (MiB) | phase: pre_forward | allocated: 5331 | max allocated: 9039 | cached: 9382 | ...

    A step is a forward in training mode with its backward. On CPU ``allocated`` is the process's resident set, and
    ``cached`` and ``inactive`` are ``n/a``. ``rows`` of what is given back holds the same in bytes, with each phase's
    own peak (``records.PhaseMemory``). Each row resets ``torch.cuda``'s peak statistics of the model's device.

    Args:
        model: a torch.nn.Module; the outermost one, so the compiled or the wrapped one where there is one.
        write: takes each line; standard output by default.
    """
    from .worker.measuring.memory_matrix import ModelMatrix

    return ModelMatrix(model, write)
