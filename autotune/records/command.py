"""Commands as every file and screen states them: what is pasted into a shell does what it says."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence


def shell_word(word: str) -> str:
    r"""One word of a shell's command line, whatever is in it; what is shown is printable and on one line.

    A word with characters that do not print (a newline, an escape sequence, bytes that are no UTF-8) is written as
    ``$'a\012b'``, which bash, zsh, ksh and busybox read (POSIX.1-2024, section 2.2.4); others as ``shlex`` does.
    """
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(map(_escaped, word)) + "'"


def _escaped(character: str) -> str:
    if character in "'\\":
        return f"\\{character}"
    if character.isprintable():
        return character
    # Three octal digits each: a digit that follows is not taken for one of them.
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(character))


def shell_line(words: Iterable[str]) -> str:
    """A command line for a shell."""
    return " ".join(map(shell_word, words))


def as_operand(path: str) -> str:
    """A path that no program takes for an option."""
    return os.path.join(os.curdir, path) if path.startswith("-") else path  # noqa: PTH118


def launch_command(
    bundle: str, script: str, arguments: Sequence[str], *, module: str = "", options: Sequence[str] = ()
) -> str:
    """``autotune launch BUNDLE SCRIPT -- ARGUMENTS``, quoted for a shell; with ``-m MODULE`` where it is a module."""
    ran = ["-m", module] if module else [as_operand(script)]
    behind = ["--", *arguments] if arguments else []
    return shell_line(["autotune", "launch", as_operand(bundle), *ran, *options, *behind])
