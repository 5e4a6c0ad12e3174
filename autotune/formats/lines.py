"""A log as lines: without what terminals and launchers put between the words, and with their numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..errors import FormatError

# Colours and cursor movements, and what `mpirun --tag-output` writes in front of each write, so inside of words too.
_NOISE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\[\d+,\d+\]<std(?:out|err)>:")
_SHOWN = 120


@dataclass(frozen=True)
class Line:
    """A line of a log, or what a carriage return left of it. ``number`` counts from 1, as editors do."""

    number: int
    text: str

    def malformed(self, reason: str) -> FormatError:
        """Make the error that says where and why."""
        shown = self.text.strip()
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
        return FormatError(
            f"line {self.number}: {reason}: {shown!r}",
            hint="mend the line, or cut its table out of the log",
        )


def clean(texts: Iterable[str]) -> Iterator[Line]:
    """Give the lines of a log without noise; a progress bar's carriage returns part lines, but are not counted."""
    for number, text in enumerate(texts, start=1):
        for part in text.rstrip("\r\n").split("\r"):
            yield Line(number, _NOISE.sub("", part))
