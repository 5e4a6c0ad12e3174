"""Runs a training script with one thing done to its model: ``drive.py WHAT train.py arguments``.

It is run in the script's place, by the worker or by hand, and becomes the script. WHAT is done to the first root module
that trains, right before its first training call:

- ``checkpoint:K``: ``torch.utils.checkpoint`` around every K-th of the model's repeated blocks
- ``compile`` or ``compile:B``: ``torch.compile``, with ``activation_memory_budget`` B; transformers' masks are made
  outside of its graphs, as under autotune's engines, so that attention keeps its fastest kernels
- ``transformers``, ``transformers:every_n_layers=N``, ``transformers:offload=True``: the library's own checkpointing

With ``--equal-numerics`` before WHAT generated code rounds as eager does and draws eager's random numbers, as far as
torch can: so that gradients can be compared. What the script has no use for ends it with ``NotApplicableError``.

Torch is imported before the script begins: what a script sets up for torch's import comes too late here.
"""

from __future__ import annotations

import functools
import inspect
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from autotune.worker.engines.untraced import in_root, keep_untraced


class NotApplicableError(Exception):
    """There is nothing in this script, or in this version of a library, that it could be done to."""


def when_training_begins(act: Callable[[nn.Module], None]) -> None:
    """Have ``act`` called once with the first module that trains, before its call.

    ``nn.Module.__call__`` is then again what it was, which may be the worker's: Dynamo knows that one.
    """
    called = nn.Module.__call__

    def __call__(self: nn.Module, *arguments: Any, **keywords: Any) -> Any:
        trains = self.training and torch.is_grad_enabled() and any(one.requires_grad for one in self.parameters())
        if not trains:
            return called(self, *arguments, **keywords)
        nn.Module.__call__ = called
        act(self.module if isinstance(self, nn.parallel.DistributedDataParallel) else self)
        return self(*arguments, **keywords)

    nn.Module.__call__ = __call__


def repeated_blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The modules that a model repeats one after the other, in order: its layers, not what is inside of them.

    What is repeated as a container (stages that are lists of blocks) is looked into first.
    """
    parts = list(module.children())
    is_row = isinstance(module, nn.ModuleList | nn.Sequential) and len(parts) > 1 and len({*map(type, parts)}) == 1
    has_parts = is_row and next(parts[0].children(), None) is not None
    inside = [] if has_parts and not isinstance(parts[0], nn.ModuleList | nn.Sequential) else parts
    found = [block for part in inside for block in repeated_blocks(part)]
    is_block = has_parts and not found and not isinstance(parts[0], nn.ModuleList)
    yield from parts if is_block else found


def checkpoint_blocks(root: nn.Module, every: int) -> None:
    """Checkpoint every so-manieth block, from the first one on, as one writes it into a model."""
    blocks = list(repeated_blocks(root))
    if not blocks:
        raise NotApplicableError(f"{type(root).__name__} repeats no block")
    for block in blocks[::every]:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def compile_root(root: nn.Module, budget: float | None, *, equal_numerics: bool) -> None:
    """Compile the model with Inductor."""
    import torch._functorch.config
    import torch._inductor.config

    if budget is not None:
        torch._functorch.config.activation_memory_budget = budget
    if equal_numerics:
        torch._inductor.config.fallback_random = True
        torch._inductor.config.emulate_precision_casts = True
    keep_untraced(lambda _: None)
    root.compile()
    root._compiled_call_impl = in_root(root._compiled_call_impl or root._call_impl)


def checkpoint_by_transformers(root: nn.Module, options: dict[str, Any]) -> None:
    """Enable what ``gradient_checkpointing_kwargs`` of its Trainer enable."""
    library = sys.modules.get("transformers")
    models = [] if library is None else [one for one in root.modules() if isinstance(one, library.PreTrainedModel)]
    if not models:
        raise NotApplicableError(f"{type(root).__name__} is no model of transformers")
    model = models[0]
    # Its name in releases that have options beside those of torch's checkpoint.
    enable = getattr(model, "activation_checkpointing_enable", None)
    missing = [name for name in options if enable is None or name not in inspect.signature(enable).parameters]
    if missing:
        raise NotApplicableError(f"transformers {library.__version__} has no {missing[0]}")
    if enable is not None:
        enable(**options)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def action_of(what: str, *, equal_numerics: bool) -> Callable[[nn.Module], None]:
    """What is done to the model; ValueError for what is not in this module's docstring."""
    name, _, setting = what.partition(":")
    if name == "checkpoint":
        return functools.partial(checkpoint_blocks, every=int(setting))
    if name == "compile":
        budget = float(setting) if setting else None
        return functools.partial(compile_root, budget=budget, equal_numerics=equal_numerics)
    if name == "transformers":
        pairs = (pair.split("=") for pair in setting.split(",") if pair)
        options = {key: value == "True" or int(value) for key, value in pairs}
        return functools.partial(checkpoint_by_transformers, options=options)
    raise ValueError(f"nobody knows what {what!r} is")


def main(arguments: list[str]) -> None:
    """Become the script, with WHAT done to its model."""
    equal_numerics = arguments[0] == "--equal-numerics"
    what, script, *rest = arguments[equal_numerics:]
    act = action_of(what, equal_numerics=equal_numerics)
    if what.startswith("compile"):
        # It notes what nn.Module.__call__ is when it is imported, and has to find the one that stays.
        import torch._dynamo  # noqa: F401
    when_training_begins(act)
    sys.argv = [script, *rest]
    sys.path[0] = os.path.dirname(os.path.realpath(script))  # noqa: PTH120 - in place of this file's own folder
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
