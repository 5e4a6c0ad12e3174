"""Strings that came from a script, a log or another program's file, made safe to show, to store, and for a shell."""

from __future__ import annotations

import dataclasses
import operator
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast


def shell_word(word: str) -> str:
    r"""Quote one word of a shell's command line; the result is printable and on one line.

    A word with characters that do not print (a newline, bytes that are no UTF-8) is written as ``$'a\012b'``, which
    bash, zsh, ksh and busybox read (POSIX.1-2024, section 2.2.4); others as ``shlex`` does.
    """
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(map(_escaped, word)) + "'"


def _escaped(character: str) -> str:
    if character.isprintable():
        return f"\\{character}" if character in "'\\" else character
    # Three octal digits each: a digit that follows is not taken for one of them.
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(character))


def shell_line(words: Iterable[str]) -> str:
    """Quote a command line for a shell."""
    return " ".join(map(shell_word, words))


def as_operand(path: str) -> str:
    """Write a path so that no program takes it for an option."""
    return os.path.join(os.curdir, path) if path.startswith("-") else path  # noqa: PTH118


def launch_command(
    bundle: str, script: str, arguments: Sequence[str], *, module: str = "", options: Sequence[str] = ()
) -> str:
    """Write ``autotune launch BUNDLE SCRIPT -- ARGUMENTS``, quoted for a shell; with ``-m MODULE`` for a module."""
    ran = ["-m", module] if module else [as_operand(script)]
    behind = ["--", *arguments] if arguments else []
    return shell_line(["autotune", "launch", as_operand(bundle), *ran, *options, *behind])


T = TypeVar("T")

# The first Markdown, and what is made after it, knows a backslash before some marks alone: entities do for the others.
_MARKUP = {ord(one): f"\\{one}" for one in "\\`*_{}[]>#!"} | {ord(one): f"&#{ord(one)};" for one in "<&|~"}
# Read as SQLAlchemy reads it: the user's name may hold an @. The driver takes a password among the parameters as well.
_PASSWORD = re.compile(r"(:/*[^:/]*):.*@")
_PASSWORD_PARAMETER = re.compile(r"([?&](?:ssl)?password=)[^&]*")


def printable(text: str) -> str:
    r"""Write what does not print (control and escape sequences, bidirectional marks, lone surrogates) as ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode it: a name of a file may have bytes that are no characters (PEP 383)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def first_line(text: str) -> str:
    """Return the first line that is not blank, printable; for a place that has one line."""
    return printable(next((line for line in text.splitlines() if line.strip()), ""))


def printable_strings(value: T) -> T:
    """Make every string in a record or in a JSON value printable, keys included."""
    return cast("T", _printable(value))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, (tuple, list)):
        shown = [_printable(item) for item in value]
        return value if all(map(operator.is_, shown, value)) else type(value)(shown)
    if isinstance(value, dict):
        return {printable(key): _printable(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        changed = {name: shown for name, item in own.items() if (shown := _printable(item)) is not item}
        return dataclasses.replace(value, **changed) if changed else value
    return value


def markdown(text: str) -> str:
    """Make a text printable in a line of Markdown, where nothing of it is markup."""
    return printable(text).translate(_MARKUP)


def without_password(url: str) -> str:
    """Write a URL, or what was meant as one, as it may be shown: with ``***`` for its passwords."""
    return _PASSWORD_PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))
