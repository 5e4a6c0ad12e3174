"""The modules that a script has sharded with ``fully_shard``, and how it did.

Source: ``torch/distributed/fsdp/_fully_shard`` of torch 2.11 to 2.15. What another torch does not tell counts as its
default.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from ..records.facts import ShardingFacts

MODULE = "torch.distributed.fsdp"


def inner_sharded(root: nn.Module) -> Iterator[Any]:
    """Yield the modules of ``root`` that are sharded inside of another sharded one, which the outermost surrounds."""
    kind = _kind()
    outer = [name for name, module in root.named_modules() if kind is not None and isinstance(module, kind)]
    for name in outer:
        if any(name.startswith(f"{other}." if other else "") and name != other for other in outer):
            yield root.get_submodule(name)


def gathers_twice(module: Any) -> bool:
    """Return whether a sharded module gives its parameters back after the forward and gathers them once more.

    A module that keeps a part of them, as the script has said, does not count.
    """
    return any(
        getattr(group, "_reshard_after_forward", True) and not getattr(group, "_use_post_forward_mesh", False)
        for group in _groups(module)
    )


def keep_output_type(module: nn.Module) -> None:
    """Have a sharded module give back what it computes, in whichever type; others are left alone."""
    kind = _kind()
    policy = getattr(_state(module), "_mp_policy", None) if kind is not None and isinstance(module, kind) else None
    if policy is not None and policy.output_dtype is not None:
        _state(module)._mp_policy = dataclasses.replace(policy, output_dtype=None)


def sharding_facts(roots: Iterable[nn.Module]) -> ShardingFacts | None:
    """Return how the modules of some roots are sharded; None where none is."""
    kind = _kind()
    roots = list(roots)
    sharded = [one for root in roots for one in root.modules() if kind is not None and isinstance(one, kind)]
    if not sharded:
        return None
    policies = [policy for one in sharded if (policy := getattr(_state(one), "_mp_policy", None)) is not None]
    return ShardingFacts(
        modules=len(sharded),
        gathered_twice=sum(gathers_twice(one) for root in roots for one in inner_sharded(root)),
        has_policy=any(policy != type(policy)() for policy in policies),
    )


def _kind() -> Any:
    return getattr(sys.modules.get(MODULE), "FSDPModule", None)


def _state(module: Any) -> Any:
    return getattr(module, "_get_fsdp_state", lambda: None)()


def _groups(module: Any) -> list[Any]:
    state = _state(module)
    groups = getattr(state, "_fsdp_param_groups", None)
    # Before torch 2.12 there was at most one.
    found = [getattr(state, "_fsdp_param_group", None)] if groups is None else list(groups)
    return [group for group in found if group is not None]
