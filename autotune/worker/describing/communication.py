"""The moments at which ``fully_shard`` gathers parameters or reduces gradients: that memory is the same at any batch.

Source: ``torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py`` of torch 2.11 to 2.15.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

_MODULE, _CLASS = "torch.distributed.fsdp._fully_shard._fsdp_param_group", "FSDPParamGroup"
_METHODS = ("pre_forward", "post_forward", "pre_backward", "post_backward", "finalize_backward")


class Communication:
    """Calls ``begins`` and ``ended`` around each such moment, from ``watch`` to ``stop``."""

    def __init__(self, begins: Callable[[], object], ended: Callable[[], object]) -> None:
        self._begins, self._ended = begins, ended
        self._replaced: dict[str, Callable[..., Any]] = {}

    def watch(self) -> None:
        """Begin; nothing where the script shards no module, or where its torch has no such methods."""
        group: Any = getattr(sys.modules.get(_MODULE), _CLASS, None)
        for name in _METHODS:
            method = vars(group).get(name) if group is not None else None
            if callable(method):
                self._replaced[name] = method
                setattr(group, name, self._around(method))

    def stop(self) -> None:
        """Put the methods back."""
        for name, method in self._replaced.items():
            setattr(getattr(sys.modules[_MODULE], _CLASS), name, method)
        self._replaced.clear()

    def _around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def called(*arguments: Any, **keywords: Any) -> Any:
            self._begins()
            try:
                return method(*arguments, **keywords)
            finally:
                self._ended()

        return called
