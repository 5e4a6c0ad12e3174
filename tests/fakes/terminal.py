"""A terminal in memory: what a program that prints, moves up and erases leaves on the screen."""

from __future__ import annotations

import io
import re

_SEQUENCE = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])")


class FakeTerminal(io.StringIO):
    """A file that is a terminal; ``written`` is all that came, ``lines()`` what is to be seen, scrolled off or not.

    ``encoding`` is what the console takes its characters from.
    """

    encoding = "utf-8"

    def __init__(self, width=80):
        super().__init__()
        self.width = width
        self.written = ""
        self._rows, self._row, self._column = [""], 0, 0

    def isatty(self):
        return True

    def write(self, text):
        self.written += text
        at = 0
        while at < len(text):
            match = _SEQUENCE.match(text, at)
            if match is not None:
                self._control(match[1], match[2])
                at = match.end()
            else:
                self._put(text[at])
                at += 1
        return len(text)

    def lines(self):
        return [row.rstrip() for row in self._rows]

    def _control(self, number, letter):
        if letter == "A":
            self._row = max(0, self._row - int(number or 1))
        elif letter == "K":
            assert number == "2", "no other erasing is known here"
            self._rows[self._row] = ""
        else:
            assert letter in "mhl", f"{letter} is not known here"

    def _put(self, character):
        if character == "\r":
            self._column = 0
            return
        if character == "\n" or self._column >= self.width:
            self._row, self._column = self._row + 1, 0
            if self._row == len(self._rows):
                self._rows.append("")
        if character != "\n":
            row = self._rows[self._row].ljust(self._column)
            self._rows[self._row] = row[: self._column] + character + row[self._column + 1 :]
            self._column += 1
