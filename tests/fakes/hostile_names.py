"""Names that somebody may give a file, a folder, a study or an argument, each of which means something to somebody."""

from __future__ import annotations

import os

__all__ = ["HOSTILE_NAMES"]

HOSTILE_NAMES = {
    "a shell's substitution": "$(touch pwned)`touch pwned`",
    "a shell's words": "a  b;touch pwned&|#!~*?${HOME}",
    "quotes": """it's "so" called""",
    "a backslash": "a\\nb\\",
    "HTML": "<script>alert(1)<img src=x onerror=alert(1)>&lt;",
    "SQL": "'); DROP TABLE autotune_study;--",
    "formats": "%s%n%(x)s{}{0}{{ policy }}",
    "rich's markup": "[red]x[link=file:x]y",
    "Markdown": "|*_[x](javascript:alert(1))_*|~~#",
    "a command of a CI": "::error::x",
    "an option": "--help",
    "a newline": "a\nb; touch pwned",
    "newlines at its end": "a\n\n",
    "an escape sequence": "\x1b[2J\x1b]0;t\x07\x9b31m",
    "right to left": "\u202eevil\u2066",
    "other letters": "训练模型é",
    "no UTF-8": os.fsdecode(b"a\xff\xfeb"),
    "a question of a URL": "a?b#c%20d",
    "as long as can be": "x" * 200,
    "as many bytes as can be": "训" * 66,
}
"""What it is, and the name: all can name a file, also with ``.py`` behind."""
