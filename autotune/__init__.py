"""autotune: how should this training script run, so that it trains the most samples per second in the memory it has?

PYTEST_DONT_REWRITE: pytest would look for assertions of tests here, as its plugin is in the same package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from typing import Any

    from .api.applying import Applied
    from .api.tuning import Tuned
    from .worker.measuring.inspection import MemoryInspection
    from .worker.measuring.memory_matrix import ModelMatrix

__all__ = ["__version__", "apply", "batch_size", "inspect_memory", "memory_matrix", "tune"]

__version__ = "0.1.0"


def apply(model: Any, bundle: str | os.PathLike[str], *, allow_stale: bool = False) -> Applied:
    """Have a model train as a bundle says, in a training loop of one's own and without ``autotune launch``.

    ``applied = autotune.apply(model, "bundle/")`` before the first step; then train as before. The model stays the
    object that it is: its training calls recompute what the bundle says, its evaluation calls, its ``state_dict`` and
    its pickle do not change, and a copy of it is not applied to. Batch size and accumulation are the loop's to set:
    ``applied.batch_size`` and ``applied.accumulation`` say the bundle's. An optimizer needs
    ``applied.optimizer(optimizer)`` where the bundle has a choice of optimizers. ``applied.remove()`` takes it all
    back.

    The release of torch is compared at once, as ``autotune launch`` does. At the end of the first backward it is
    checked that the model is the one that was measured, and that what ran is what the bundle says. If not, that
    backward raises a ``BundleError``, before an optimizer has stepped, and the model is as it was.

    Until all that was applied is taken back, torch's compiler has a few settings in this process that engines need, as
    ``suppress_errors``; what a compiled function logs is written when its graph has run, from then on until the process
    ends.

    In a process that autotune runs itself nothing is applied: the trial's setting is what runs, and standard error says
    so.

    Args:
        model: a torch.nn.Module, the one that the loop calls, not compiled; in DistributedDataParallel or not.
        bundle: the folder that ``autotune run`` or ``autotune.tune`` has written.
        allow_stale: apply what still fits to another model, or under another torch, and say on standard error what
            that is.

    Raises:
        UsageError: that is no module, or no path.
        BundleError: the bundle cannot be read, or the model cannot have it: it is of an ONNX model or of engine
            ``ortmodule``, was measured with a torch whose graphs are others, needs a variable of the environment that
            is not set, or the model is compiled already.
    """
    from .api.applying import apply as apply_bundle

    return apply_bundle(model, bundle, allow_stale=allow_stale)


def batch_size(default: int) -> int:
    """Give a training script the batch size of the trial it runs in; ``default`` when autotune does not run it.

    For scripts that make their own batches: ``batch_size = autotune.batch_size(32)``.
    """
    from .api.source import requested_batch_size

    return requested_batch_size(default)


def inspect_memory(model: Any, *arguments: Any, **keywords: Any) -> MemoryInspection:
    """See what a model keeps from forward to backward, by module, and what checkpointing a module would free.

    As a context manager, around as many training steps as you like; what is told is the moment at which the most was
    kept::

        with autotune.inspect_memory(model) as memory:
            loss = model(inputs).sum()
            loss.backward()
        print(memory)

    As a function, ``print(autotune.inspect_memory(model, inputs))``: one forward is run in training mode and thrown
    away; random state, buffers and the model's mode are put back.

    A tensor counts once, with its whole storage, and for the module that saved it first; parameters and buffers do not
    count. ``rows`` are typed (``SavedRow``), ``saved_bytes`` is the sum. In a notebook it shows itself as a table.

    Args:
        model: a torch.nn.Module. What is saved outside of it, by the loss say, has a row of its own.
        arguments: of a call; without any it is a context manager.
        keywords: of a call.

    Raises:
        UsageError: it is no module, has scripted modules, or lazy ones that were not called yet.
    """
    from .worker.measuring.inspection import MemoryInspection

    inspection = MemoryInspection(model)
    return inspection.of_call(*arguments, **keywords) if arguments or keywords else inspection


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

    Raises:
        UsageError: it is no module.
    """
    from .worker.measuring.memory_matrix import ModelMatrix

    return ModelMatrix(model, write)


def tune(
    script: str | os.PathLike[str] | Callable[[], object],
    arguments: Sequence[str] = (),
    *,
    progress: bool = True,
    **options: Any,
) -> Tuned:
    """Tune a training script, or a function that trains, as ``autotune run`` does: from a program or a notebook.

    ``autotune.tune("train.py", ["--epochs", "1"], memory_limit="24GiB", time_budget="10m")`` gives the answer as a
    typed result; in a notebook it shows the report. The work is done by the command line in a process of its own, so
    that nothing of torch's or the GPU's state here is touched. The same call again goes on with the study.

    A function is called without arguments. One that was defined in a notebook, or in the script under way, is written
    into a file with the functions, classes, imports and plain values that it uses; what else it needs it has to make
    itself.

    An interruption (Ctrl-C, or a notebook's) is passed on to the study, which ends soon and gives what it knows; a
    second one ends it at once, and is raised.

    Args:
        script: the path of a script, or a function.
        arguments: the script's own, which the command line takes behind ``--``.
        progress: show the study's lines as they come: on standard error, or in the cell's output.
        options: those of ``autotune run``, with ``_`` for ``-``. A flag takes True, times may be seconds, sizes bytes,
            ``batch_sizes`` a pair.

    Raises:
        UsageError: an option, the script or the function is wrong, or autotune runs this process itself.
        RunError: the script does not train as it stands, say; ``hint`` says what to do.
        InterruptionError: it was interrupted before there was anything to show.
    """
    from .api.tuning import tune as tune_script

    return tune_script(script, arguments, progress=progress, **options)
