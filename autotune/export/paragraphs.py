"""Parts of a bundle's plain texts, wrapped for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

_WIDTH = 96


def sections(titled: Iterable[tuple[str, Iterable[str]]]) -> str:
    """A text of blocks under titles, the first of which is the text's own; a title without blocks is left out."""
    return (
        "\n\n".join(
            f"{title}\n{('-' if number else '=') * len(title)}\n" + "\n\n".join(blocks)
            for number, (title, blocks) in enumerate((title, list(blocks)) for title, blocks in titled)
            if blocks
        )
        + "\n"
    )


def wrapped(text: str) -> str:
    """A paragraph."""
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def bullets(items: Iterable[str]) -> str:
    """A list."""
    return "\n".join(
        textwrap.fill(item, _WIDTH, initial_indent="  * ", subsequent_indent="    ", break_on_hyphens=False)
        for item in items
    )


def rows(named: Mapping[str, str]) -> str:
    """Names with their values, one below the other; those without a value are left out."""
    return "\n".join(
        textwrap.fill(
            f"{name:<14}{value}",
            _WIDTH,
            initial_indent=" " * 4,
            subsequent_indent=" " * 18,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for name, value in named.items()
        if value
    )
