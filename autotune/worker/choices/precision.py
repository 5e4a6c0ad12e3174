"""The training forward under autocast.

Only root modules' training calls, as the script makes them: what is computed between them, the loss as a rule, and
evaluation stay in the precision that the script has. So that the loss is the script's own operations, what a root gives
back in the smaller type is given back as float32, as Accelerate does it.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from ...records.choices import AutocastChoice
from ..plans.layers import own_class
from .made import MadeChoice


class Autocast(MadeChoice):
    """Calls roots under autocast, unless the script does."""

    def __init__(self, choice: AutocastChoice, note: Callable[[str], None]) -> None:
        super().__init__(choice, note)
        self._dtype: torch.dtype = getattr(torch, choice.dtype)
        self._own = ""
        # The reason why a root is left alone; empty where it is not.
        self._reasons: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()

    def around(self, root: nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
        """Give what is called in the place of a root's training call."""
        if root not in self._reasons:
            reason = self._reasons[root] = self._reason(root)
            if reason:
                self.note(f"not under autocast: {reason}")
        if self._reasons[root]:
            return call
        device = next(root.parameters()).device.type

        def under_autocast(*arguments: Any, **keywords: Any) -> Any:
            with torch.autocast(device, dtype=self._dtype), self._watching(own_class(root).__name__):
                result = call(*arguments, **keywords)
            return tree_map(self._widened, result)

        return under_autocast

    def problem(self) -> str:
        """Say why nothing has changed, or nothing."""
        if self._own:
            return self._own
        if "" in self._reasons.values():
            return ""
        return "; ".join(dict.fromkeys(self._reasons.values())) or "no training call of a model was seen"

    @contextlib.contextmanager
    def _watching(self, root: str) -> Iterator[None]:
        """Watch for the script's own autocast inside of a root's call, under which ours would change nothing."""

        def saw(own: torch.autocast) -> None:
            # Parts of a model that stay in float32 switch it off.
            if own._enabled:
                self._own = f"{root} goes under autocast itself ({_name(own.fast_dtype)})"

        with _entering.told(saw):
            yield

    def _reason(self, root: nn.Module) -> str:
        name = own_class(root).__name__
        matrices = [one for one in root.parameters() if one.dim() > 1 and one.dtype == torch.float32]
        if not matrices:
            return f"{name} has no float32 parameter with more than one dimension"
        device = matrices[0].device.type
        if torch.is_autocast_enabled(device):
            return f"the script calls {name} under autocast already ({_name(torch.get_autocast_dtype(device))})"
        return ""

    def _widened(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.float() if value.dtype == self._dtype else value
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            widened = copy.copy(value)
            for field in dataclasses.fields(value):
                object.__setattr__(widened, field.name, tree_map(self._widened, getattr(value, field.name)))
            return widened
        held = getattr(value, "__dict__", {}).values()
        if any(isinstance(one, torch.Tensor) and one.dtype == self._dtype for one in held):
            self.note(f"outputs of class {type(value).__name__} keep {_name(self._dtype)}")
        return value


class _Entering:
    """Tells the thread that asked of each autocast that it enters; torch's class is patched meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # calls in several threads overlap
        self._askers = 0
        self._asked = threading.local()

    @contextlib.contextmanager
    def told(self, saw: Callable[[torch.autocast], None]) -> Iterator[None]:
        before = getattr(self._asked, "saw", None)
        self._change(1)
        self._asked.saw = saw
        try:
            yield
        finally:
            self._asked.saw = before
            self._change(-1)

    def _change(self, askers: int) -> None:
        with self._lock:
            if not self._askers:
                self._enter = enter = torch.autocast.__enter__

                @functools.wraps(enter)
                def __enter__(own: torch.autocast) -> Any:  # noqa: N807
                    saw = getattr(self._asked, "saw", None)
                    if saw is not None:
                        saw(own)
                    return enter(own)

                torch.autocast.__enter__ = __enter__  # type: ignore[method-assign]
            self._askers += askers
            if not self._askers:
                torch.autocast.__enter__ = self._enter  # type: ignore[method-assign]


_entering = _Entering()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
