"""Strings that came from a script, a log or somebody else's file, made safe to show and to store."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["first_line", "is_unicode", "markdown", "printable", "printable_json", "without_password"]

# The first Markdown, and what is made after it, knows a backslash before some marks alone: entities do for the others.
_MARKUP = {ord(one): f"\\{one}" for one in "\\`*_{}[]>#!"} | {ord(one): f"&#{ord(one)};" for one in "<&|~"}
# Read as SQLAlchemy reads it: the user's name may hold an @. The driver takes a password among the parameters as well.
_PASSWORD = re.compile(r"(:/*[^:/]*):.*@")
_PASSWORD_PARAMETER = re.compile(r"([?&](?:ssl)?password=)[^&]*")


def printable(text: str) -> str:
    r"""Write what does not print (control and escape sequences, bidirectional marks, lone surrogates) as ``\x1b``.

    What is left can be shown on a terminal without moving its cursor, and encoded as UTF-8.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode it: a name of a file may have bytes that are no characters (PEP 383)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def first_line(text: str) -> str:
    """The first line that is not blank, printable; for a place that has one line."""
    return printable(next((line for line in text.splitlines() if line.strip()), ""))


def printable_json(data: Any) -> Any:
    """The same for every string of a JSON value, keys included."""
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, list):
        return [printable_json(item) for item in data]
    if isinstance(data, dict):
        return {printable(key): printable_json(item) for key, item in data.items()}
    return data


def markdown(text: str) -> str:
    """The same in a line of Markdown, where nothing of it is markup."""
    return printable(text).translate(_MARKUP)


def without_password(url: str) -> str:
    """A URL, or what was meant as one, as it may be shown: with ``***`` for its passwords."""
    return _PASSWORD_PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))
