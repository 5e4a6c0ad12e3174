"""torch with hooks installed, and put back as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
import torch._dynamo.utils
import torch._dynamo.variables.nn_module
import torch.utils.data
from torch import nn
from torch.optim import lr_scheduler, optimizer
from torch.utils.data import dataloader

__all__ = ["restored_torch"]

_PATCHED = (
    (torch.utils.data.DataLoader, "__init__"),
    (torch.utils.data.DataLoader, "__iter__"),
    (dataloader._BaseDataLoaderIter, "__init__"),
    (dataloader._BaseDataLoaderIter, "_next_index"),
    (dataloader._BaseDataLoaderIter, "_reset"),
    (dataloader._BaseDataLoaderIter, "__next__"),
    (optimizer.Optimizer, "__init__"),
    (torch.amp.GradScaler, "__init__"),
    (lr_scheduler.LRScheduler, "__init__"),
    (lr_scheduler.SequentialLR, "__init__"),
    (torch.autograd, "backward"),
    (torch, "compile"),
    (nn.Module, "__call__"),
    (torch._dynamo.utils, "unpatched_nn_module_call"),
    (torch._dynamo.variables.nn_module, "unpatched_nn_module_call"),
)


@contextlib.contextmanager
def restored_torch() -> Iterator[None]:
    """Undo whatever hooks patch, and forget the global optimizer hooks."""
    owns = "__init_subclass__" in vars(torch.utils.data.DataLoader)
    before = [(owner, name, getattr(owner, name)) for owner, name in _PATCHED]
    hooks = [optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks]
    known = [dict(each) for each in hooks]
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
        if not owns and "__init_subclass__" in vars(torch.utils.data.DataLoader):
            del torch.utils.data.DataLoader.__init_subclass__
        for each, entries in zip(hooks, known, strict=True):
            each.clear()
            each.update(entries)
