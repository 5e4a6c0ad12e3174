"""Parts of a batch, whatever a script has made it of."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

# Of longer sequences, such as a list of images, only all elements together have a name.
MOST_NAMED = 8
# What holds more is not looked through: that would take time of a measured step.
MOST_VALUES = 1000
_CODE = (nn.Module, type, types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType)
PLAIN = (int, float, str, bytes, type(None))


def parts_of(value: Any) -> list[tuple[Any, Any]]:
    """List what a batch or a part of it holds, by name; parts of a long sequence have no names of their own."""
    found: Iterable[tuple[Any, Any]]
    if isinstance(value, Mapping):
        found = value.items() if len(value) <= MOST_VALUES else ()
    elif isinstance(value, (list, tuple)):
        found = enumerate(value) if len(value) <= MOST_NAMED else (("", each) for each in value[: MOST_VALUES + 1])
    else:
        found = () if isinstance(value, _CODE) else getattr(value, "__dict__", {}).items()
    return [(name, each) for name, each in found if not isinstance(each, PLAIN)]
