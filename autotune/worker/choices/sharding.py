"""``fully_shard`` in another way than torch's own, where the script says nothing of it."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...records.choices import GatherChoice, PolicyChoice
from ..sharded_modules import MODULE, gathers_twice, inner_sharded
from .made import MadeChoice
from .precision import widened

# The modules that scripts import `fully_shard` from.
_NAMED_IN = (MODULE, f"{MODULE}._fully_shard", "torch.distributed._composable.fsdp")


class KeptGathered(MadeChoice):
    """Keeps the gathered parameters of sharded modules from their forward to their backward."""

    def __init__(self, choice: GatherChoice, note: Callable[[str], None]) -> None:
        super().__init__(choice, note)
        self._seen: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._kept: weakref.WeakSet[Any] = weakref.WeakSet()

    def around(self, root: nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
        """Give what is called in the place of a root's training call: the call itself, once its modules are told."""
        if root not in self._seen:
            self._seen.add(root)
            for module in inner_sharded(root):
                if gathers_twice(module):
                    module.set_reshard_after_forward(False, recurse=False)
                    self._kept.add(module)
        return call

    def undo(self) -> None:
        """Have the modules give back their parameters after the forward again."""
        for module in self._kept:
            module.set_reshard_after_forward(True, recurse=False)

    def problem(self) -> str:
        """Say why nothing has changed, or nothing."""
        return "" if self._kept else "no module inside of another gives its gathered parameters back after the forward"


class Policy(MadeChoice):
    """Gives ``fully_shard`` a mixed precision policy, in calls that have none."""

    choice: PolicyChoice

    def install(self) -> None:
        """Have calls of ``fully_shard`` go through here."""
        _policies.add(self.choice.field, getattr(torch, self.choice.dtype))

    def around(self, root: nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
        """Give what is called in the place of a root's training call: its outputs are as wide as without the policy."""
        del root
        dtype = getattr(torch, self.choice.dtype)
        if self.choice.field != "param_dtype":
            return call

        return lambda *arguments, **keywords: widened(call(*arguments, **keywords), dtype, self.note)

    def undo(self) -> None:
        """Put ``fully_shard`` back."""
        _policies.remove()

    def problem(self) -> str:
        """Say why nothing has changed, or nothing."""
        if _policies.given:
            return ""
        return "the script itself gives fully_shard a policy" if _policies.calls else "the script calls no fully_shard"


class _Policies:
    """The fields of the policy that all choices together ask for; torch's functions are replaced meanwhile."""

    def __init__(self) -> None:
        self._fields: dict[str, torch.dtype] = {}
        self._replaced: dict[str, Any] = {}
        self.calls = self.given = 0

    def add(self, field: str, dtype: torch.dtype) -> None:
        if not self._fields:
            self.calls = self.given = 0
            importlib.import_module(MODULE)
            for name in _NAMED_IN:
                own = getattr(sys.modules.get(name), "fully_shard", None)
                if own is not None:
                    self._replaced[name] = own
                    vars(sys.modules[name])["fully_shard"] = self._with_policy(own)
        self._fields[field] = dtype

    def remove(self) -> None:
        for name, own in self._replaced.items():
            vars(sys.modules[name])["fully_shard"] = own
        self._replaced.clear()
        self._fields.clear()

    def _with_policy(self, own: Callable[..., Any]) -> Callable[..., Any]:
        plain = sys.modules[MODULE].MixedPrecisionPolicy()

        @functools.wraps(own)
        def fully_shard(*arguments: Any, **keywords: Any) -> Any:
            self.calls += 1
            if keywords.get("mp_policy", plain) == plain:
                self.given += 1
                # Gradients of bfloat16 parameters are added up in float32 unless asked for otherwise.
                keywords["mp_policy"] = dataclasses.replace(plain, **{"reduce_dtype": torch.float32, **self._fields})
            return own(*arguments, **keywords)

        return fully_shard


_policies = _Policies()
