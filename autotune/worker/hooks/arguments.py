"""Options of the script's command line that are whole numbers, and their values. Standard library only."""

from __future__ import annotations

import functools
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

# One for a whole process: a script may read its arguments before it imports torch.
seen: dict[str, int] = {}

# `--bs=8`, and `train.batch_size=8` as hydra and others write it.
_WITH_VALUE = re.compile(r"(--[\w-][\w.-]*|[A-Za-z_][\w.]*)=(\d+)")


def watch_argparse() -> None:
    """Wrap the method that every parser of argparse reads its arguments with; called once per process."""

    def options(parser: Any, found: Any) -> Iterable[tuple[Sequence[str], Any]]:
        return ((action.option_strings, getattr(found[0], action.dest, None)) for action in parser._actions)

    _watch(sys.modules["argparse"].ArgumentParser, "parse_known_args", options)


def watch_click(module: str) -> None:
    """Wrap the method that every command of click reads its arguments with, in ``module``; called once per process."""

    def options(command: Any, context: Any) -> Iterable[tuple[Sequence[str], Any]]:
        return ((one.opts, context.params.get(one.name)) for one in command.params)

    command_class: Any = getattr(sys.modules[module], "Command", None)
    if hasattr(command_class, "make_context"):  # a script may have a module of that name
        _watch(command_class, "make_context", options)


# Typer has a copy of click inside.
PARSERS: dict[str, Callable[[], None]] = {
    "argparse": watch_argparse,
    **{name: functools.partial(watch_click, name) for name in ("click.core", "typer._click.core")},
}
"""Functions to call as soon as a module is imported, by the module."""


def on_command_line(words: Sequence[str]) -> dict[str, int]:
    """Return the options among the words of a command line that have whole numbers, whoever reads them."""
    numbers = {match[1]: int(match[2]) for word in words if (match := _WITH_VALUE.fullmatch(word))}
    pairs = itertools.pairwise(words)
    return numbers | {name: int(value) for name, value in pairs if name.startswith("--") and value.isdecimal()}


def _watch(parser_class: type, method: str, options: Callable[[Any, Any], Iterable[tuple[Sequence[str], Any]]]) -> None:
    original = getattr(parser_class, method)

    @functools.wraps(original)
    def read(parser: Any, *arguments: Any, **keywords: Any) -> Any:
        found = original(parser, *arguments, **keywords)
        with suppress(Exception):  # a parser of the script's own may be otherwise
            for names, value in options(parser, found):
                longest = max(names, key=len, default="")
                if longest.startswith("-") and type(value) is int:
                    seen[longest] = value
        return found

    setattr(parser_class, method, read)
