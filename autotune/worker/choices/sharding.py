"""``fully_shard`` in another way than torch's own."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from ...records.choices import GatherChoice, PolicyChoice
from ..sharded_modules import MODULE, gathers_twice, inner_sharded, keep_output_type
from .made import MadeChoice

# The modules that scripts import `fully_shard` from.
_NAMED_IN = (MODULE, f"{MODULE}._fully_shard", "torch.distributed._composable.fsdp")


class KeptGathered(MadeChoice):
    """Keeps the gathered parameters of sharded modules from their forward to their backward, in training calls only."""

    def __init__(self, choice: GatherChoice, note: Callable[[str], None]) -> None:
        super().__init__(choice, note)
        self._kept: weakref.WeakKeyDictionary[nn.Module, list[Any]] = weakref.WeakKeyDictionary()

    def around(self, root: nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
        """Give what is called in the place of a root's training call."""
        if root not in self._kept:
            self._kept[root] = list(filter(gathers_twice, inner_sharded(root)))
        kept = self._kept[root]

        def keeping(*arguments: Any, **keywords: Any) -> Any:
            _set_resharding(kept, after_forward=False)
            try:
                return call(*arguments, **keywords)
            finally:
                _set_resharding(kept, after_forward=True)

        return keeping

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Let go of parameters that no backward has: they would not be gathered anew, and so miss the step."""
        del optimizer
        for kept in self._kept.values():
            for module in kept:
                module.reshard()

    def problem(self) -> str:
        """Say why nothing has changed, or nothing."""
        kept = any(self._kept.values())
        return "" if kept else "no module inside of another gives its gathered parameters back after the forward"


def _set_resharding(modules: list[Any], *, after_forward: bool) -> None:
    for module in modules:
        module.set_reshard_after_forward(after_forward, recurse=False)


class Policy(MadeChoice):
    """Gives ``fully_shard`` a mixed precision policy, in calls that have none."""

    choice: PolicyChoice

    def install(self) -> None:
        """Have calls of ``fully_shard`` go through here."""
        usual = (("reduce_dtype", self.choice.reduces_as),) if self.choice.reduces_as else ()
        outputs = (("output_dtype", self.choice.gives_back),) if self.choice.gives_back else ()
        _policies.add(_types((*self.choice.fields, *outputs)), usual=_types(usual))

    def undo(self) -> None:
        """Put ``fully_shard`` back."""
        _policies.remove()

    def problem(self) -> str:
        """Say why nothing has changed, or nothing."""
        if _policies.given:
            return ""
        if not _policies.is_at_work:
            return "the model was sharded before; only `autotune launch` gives fully_shard the policy"
        return "the script itself gives fully_shard a policy" if _policies.calls else "the script calls no fully_shard"


def _types(fields: Iterable[tuple[str, str]]) -> dict[str, torch.dtype]:
    return {field: getattr(torch, name) for field, name in fields}


class _Policies:
    """The fields of the policy that all choices together ask for; torch's functions are replaced meanwhile."""

    def __init__(self) -> None:
        self._fields: dict[str, torch.dtype] = {}
        self._replaced: dict[str, Any] = {}
        self.calls = self.given = 0

    @property
    def is_at_work(self) -> bool:
        """Return whether calls go through here."""
        return bool(self._fields)

    def add(self, fields: dict[str, torch.dtype], *, usual: dict[str, torch.dtype]) -> None:
        """Ask for fields of the policy, too, and for ``usual`` ones unless another choice asks for them."""
        if not self._fields:
            importlib.import_module(MODULE)
            for name in _NAMED_IN:
                own = getattr(sys.modules.get(name), "fully_shard", None)
                if own is not None:
                    self._replaced[name] = own
                    vars(sys.modules[name])["fully_shard"] = self._with_policy(own)
        self._fields = {**usual, **self._fields, **fields}

    def remove(self) -> None:
        """Ask for nothing any more."""
        for name, own in self._replaced.items():
            vars(sys.modules[name])["fully_shard"] = own
        self._replaced.clear()
        self._fields.clear()
        self.calls = self.given = 0

    def _with_policy(self, own: Callable[..., Any]) -> Callable[..., Any]:
        plain = sys.modules[MODULE].MixedPrecisionPolicy()

        @functools.wraps(own)
        def fully_shard(*arguments: Any, **keywords: Any) -> Any:
            self.calls += 1
            if keywords.get("mp_policy", plain) == plain:
                self.given += 1
                keywords["mp_policy"] = dataclasses.replace(plain, **self._fields)
            result = own(*arguments, **keywords)
            # What is inside of this module is not the outermost any more.
            for module in arguments[0] if isinstance(arguments[0], list) else arguments[:1]:
                for inner in module.modules():
                    if inner is not module:
                        keep_output_type(inner)
            return result

        return fully_shard


_policies = _Policies()
