"""Application of an exported file to the script: code for the model, or a library's arguments.

The file's ``apply`` is called with each root before its first training call. Its ``ARGUMENTS`` are set over the
script's in transformers' ``TrainingArguments``. Torch is not imported here: the library may be importing it.
"""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING, Any

from ..records.outcome import Fallback
from .hooks.training_libraries import wrap

if TYPE_CHECKING:
    from torch import nn


_ARGUMENTS = "transformers.training_args"

# For a whole process: the file that was asked for, and whether a library was made with its arguments.
_path = ""
_is_set = False


def choose(path: str) -> None:
    """Choose the file; empty for none."""
    global _path, _is_set
    _path, _is_set = path, False


def patch(module: str) -> None:
    """Have the file's arguments set in a library's module, which the script has just imported."""
    if _path and module == _ARGUMENTS:
        wrap(module, "TrainingArguments", "__post_init__", _set, is_before=True)


def _set(made: Any) -> None:
    global _is_set  # noqa: PLW0603
    for name, value in runpy.run_path(_path).get("ARGUMENTS", {}).items():
        setattr(made, name, value)
        _is_set = True


class WrittenCode:
    """Applies the chosen file's code to the script's roots; nothing where no file was chosen, or it has no code."""

    def __init__(self) -> None:
        self._code: dict[str, Any] | None = None
        self._seen: set[int] = set()
        self._is_applied = False
        self._error = ""

    def before_call(self, root: nn.Module) -> None:
        """Apply the file to a root that is about to be called in training."""
        if not _path or id(root) in self._seen:
            return
        self._seen.add(id(root))
        try:
            if self._code is None:
                self._code = runpy.run_path(_path)
            if "apply" in self._code:
                self._code["apply"](root)
                self._is_applied = True
        except Exception as error:  # of several roots one has the blocks that the file is for
            self._error = f"{type(error).__name__}: {error}"

    def problem(self) -> Fallback | None:
        """Return why the file has changed nothing; to be asked after a training step."""
        if not _path or self._is_applied or _is_set:
            return None
        why = self._error or "the script has made no TrainingArguments of transformers"
        return Fallback(cause=f"the exported file does not apply to the script: {why}")
