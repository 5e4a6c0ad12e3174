"""The modules that a script has sharded with ``fully_shard``, and how it did.

Source: ``torch/distributed/fsdp/_fully_shard`` of torch 2.11 to 2.15. What another torch does not tell counts as its
default.
"""

from __future__ import annotations

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
    """Return whether a sharded module gives its parameters back after the forward and gathers them once more."""
    return any(getattr(group, "_reshard_after_forward", True) for group in _groups(module))


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
    return [getattr(state, "_fsdp_param_group", None)] if groups is None else list(groups)
