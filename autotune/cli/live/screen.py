"""The block on the terminal: repainted a few times a second, from segments that are made when something happened."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment
from rich.text import Text

from .marks import ASCII, UNICODE, Marks, cut


class Screen:
    """The last lines of a terminal; nothing where the console is a file, a pipe, or cannot move its cursor.

    Args:
        console: where it paints.
        block: makes the lines of the block for so many columns and lines; called when something happened, or when the
            terminal has another size.
        line: makes the line that moves; called at every refresh, so it has to cost next to nothing.
        every_s: how often it is repainted by itself; None for never.
    """

    def __init__(
        self,
        console: Console,
        block: Callable[[int, int, Marks], Sequence[Text]],
        line: Callable[[bool, Marks], str],
        *,
        every_s: float | None = 0.25,
    ) -> None:
        self._console, self._block, self._line = console, block, line
        self._marks = ASCII if console.options.ascii_only else UNICODE
        # FORCE_COLOR has rich take a pipe for a terminal: colours do no harm there, a cursor that moves does.
        self._is_on = console.file.isatty()
        self._size = (0, 0)
        self._lines: list[list[Segment]] = []
        self._widths: list[int] = []
        self._is_stale = True
        self._unsaid: deque[str] = deque()
        # Rich's own thread would paint while another one prints: where the block has just become higher, each of them
        # would move up by what the other one does not know.
        self._lock = threading.RLock()
        self._live = Live(self, console=console, auto_refresh=False, transient=True)
        self._every_s, self._stopped = every_s, threading.Event()
        self._thread = threading.Thread(target=self._repaint, name="screen", daemon=True)

    @property
    def is_on(self) -> bool:
        """Whether it paints at all."""
        return self._is_on

    def start(self) -> None:
        """Begin to paint."""
        if self._is_on:
            self._live.start()
            self._thread.start()

    def stop(self) -> None:
        """Take the block away."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._live.stop()
        self._say_unsaid()

    def refresh(self) -> None:
        """Paint it now."""
        with self._lock:
            self._say_unsaid()
            self._live.refresh()

    def say_later(self, line: str) -> None:
        """Print a line that stays at the next refresh; takes no lock, so a signal's handler may call it."""
        self._unsaid.append(line)

    def changed(self) -> None:
        """Note that the block has to be made anew, at the next refresh."""
        self._is_stale = True

    @contextmanager
    def above(self) -> Iterator[Console]:
        """Print lines that stay, above the block; nothing repaints it meanwhile."""
        with self._lock:
            if self._widths and self._console.width < self._size[0]:
                self._live.refresh()  # clears what a narrower terminal has folded, before it is moved away
            yield self._console

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Paint."""
        size = (console.width, console.height)
        if size != self._size:
            folded = sum(max(0, -(-width // size[0]) - 1) for width in self._widths)
            # A terminal that became narrower has folded lines of the last painting: as many more are above. Those that
            # cut lines instead (xterm) lose that many lines of what was printed.
            for _ in range(folded):
                yield Control((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)).segment
        if size != self._size or self._is_stale:
            self._size, self._is_stale = size, False
            block = Text("\n", no_wrap=True, overflow="crop").join(self._block(*size, self._marks))
            self._lines = console.render_lines(block, options, pad=False) if block else []
        line = cut(self._line(not self._lines, self._marks), size[0] - 1, self._marks)
        for segments in self._lines:
            yield from segments
            yield Segment.line()
        yield Segment(line)
        self._widths = [*(sum(one.cell_length for one in segments) for segments in self._lines), cell_len(line)]

    def _say_unsaid(self) -> None:
        while self._unsaid:
            self._console.print(Text(self._unsaid.popleft()))

    def _repaint(self) -> None:
        while self._every_s is not None and not self._stopped.wait(self._every_s):
            self.refresh()
