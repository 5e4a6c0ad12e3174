"""Numbers that the script has under a telling name: in its module, its parsed arguments, and functions under way."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# A number of epochs with one of these in its name says when something else happens.
_OF_SOME_EPOCHS = ("warm", "decay", "start", "cur", "last", "save", "eval", "val_", "patience", "per_")
_NOT_THE_SCRIPTS = ("autotune", "torch")
# Of a snapshot that nobody else holds: its frame's, those of both loops here, and that of the call that counts.
_OWN_REFERENCES = 4


def numbers_named(is_telling: Callable[[str], bool]) -> dict[str, int]:
    """Whole numbers above 1 in the script's module and in its parsed arguments, by name; ``is_telling`` of lower case.

    Of two that have the same name the later one counts.
    """
    names = vars(sys.modules["__main__"]) if "__main__" in sys.modules else {}
    return _numbers(names, is_telling)


def epochs_named() -> int | None:
    """Return how often the script goes over its data at the most, as its variables are named; None without such a name.

    Looked for in the functions under way as well: a training step is made inside of what knows the number.
    """
    found: list[int] = []
    for names in _scopes():
        found += _numbers(names, _tells_epochs, least=1).values()
    return max(found, default=None)


def _tells_epochs(name: str) -> bool:
    """Return whether a number of that name is one of all epochs; ``epoch`` alone is the one under way."""
    return "epoch" in name and name != "epoch" and not any(word in name for word in _OF_SOME_EPOCHS)


def _scopes() -> Iterator[Mapping[str, Any]]:
    """Variables of the script's module, and of each function under way, the innermost first."""
    frame = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _NOT_THE_SCRIPTS:
            names = frame.f_locals
            yield names
            # Before Python 3.13 a function's frame keeps what was read of it, and so the tensors in it, until it ends.
            # Where the script has asked for locals() itself, it holds the same dictionary, and goes on with it.
            is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
            if is_function and isinstance(names, dict) and sys.getrefcount(names) <= _OWN_REFERENCES:
                names.clear()
            del names
        frame = frame.f_back  # type: ignore[assignment]
    if "__main__" in sys.modules:
        yield vars(sys.modules["__main__"])


def _numbers(names: Mapping[str, Any], is_telling: Callable[[str], bool], least: int = 2) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in list(names.items()):
        _add(found, str(name), value, is_telling, least)
        inner = value if isinstance(value, dict) else getattr(value, "__dict__", None)
        if isinstance(inner, dict) and type(value).__name__ in ("Namespace", "dict", "DictConfig"):
            for key, item in list(inner.items()):
                _add(found, str(key), item, is_telling, least)
    return found


def _add(found: dict[str, int], name: str, value: Any, is_telling: Callable[[str], bool], least: int) -> None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= least and is_telling(name.lower()):
        found[name] = value
