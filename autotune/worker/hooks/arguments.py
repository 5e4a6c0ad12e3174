"""Options of the script's command line that are whole numbers, as ``argparse`` has read them. Standard library only."""

from __future__ import annotations

import functools
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

# One for a whole process: a script may read its arguments before it imports torch.
seen: dict[str, int] = {}


def watch() -> None:
    """Wrap the method that every parser reads its arguments with; called once per process, when there is argparse."""
    parser_class = sys.modules["argparse"].ArgumentParser
    original = parser_class.parse_known_args

    @functools.wraps(original)
    def parse_known_args(parser: argparse.ArgumentParser, *arguments: Any, **keywords: Any) -> Any:
        parsed = original(parser, *arguments, **keywords)
        with suppress(Exception):  # a parser of the script's own may be otherwise
            _note(parser, parsed[0])
        return parsed

    parser_class.parse_known_args = parse_known_args


def _note(parser: argparse.ArgumentParser, values: argparse.Namespace) -> None:
    for action in parser._actions:
        value = getattr(values, action.dest, None)
        if action.option_strings and type(value) is int:
            seen[max(action.option_strings, key=len)] = value
