"""Wrappers of functions that write files in native code, of which no audit hook hears: they tell the backup."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from ..files.backup import replaced
from .torch_import import when_imported

# Class in the module (or none), function, and the position of the path, ``self`` included. All empty that file.
_Writer = tuple[str, str, int]
_TORCH: tuple[_Writer, ...] = (("_C.PyTorchFileWriter", "__init__", 1), ("_C.ScriptModule", "save", 1))
_OTHERS: dict[str, _Writer] = {
    "safetensors": ("", "serialize_file", 1),
    "tokenizers": ("Tokenizer", "save", 1),
    "cv2": ("", "imwrite", 0),
}


@functools.cache  # once: a process may come from one in which they are wrapped
def watch_native_writers() -> None:
    """Wrap torch's, which is imported, and the others when they are."""
    for writer in _TORCH:
        _wrap("torch", writer)
    for module, writer in _OTHERS.items():
        when_imported(functools.partial(_wrap, module, writer), module)


def _wrap(module: str, writer: _Writer) -> None:
    owner, name, position = writer
    target: Any = sys.modules[module]
    try:
        for part in filter(None, owner.split(".")):
            target = getattr(target, part)
        original = getattr(target, name)

        @functools.wraps(original)
        def write(*arguments: Any, **keywords: Any) -> Any:
            named = [keywords[key] for key in ("filename", "path") if key in keywords]
            for path in [*arguments[position : position + 1], *named]:
                if isinstance(path, str | bytes | os.PathLike):  # and not an open file
                    replaced(path)
            return original(*arguments, **keywords)

        setattr(target, name, write)
    except (AttributeError, TypeError):
        return  # another version of the library: it is as if it was not on the list
