"""The last line of a terminal, which moves while a study runs; in a file or a pipe a line now and then."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ...records.printable import printable
from ...records.units import format_duration
from ...tuning.budget import Interruption

_EVERY_S = 0.25
_LONGEST_SILENCE_S = 15.0
_SPINNER = "|/-\\"

Stage = Literal["", "Discovery", "Search", "Confirmation", "Equivalence check", "Compiling"]


@dataclass(frozen=True)
class Activity:
    """The present activity of a study; times are those of ``time.monotonic``, in seconds.

    ``figure`` is the samples/s, or the memory, of the best so far. ``doing`` holds the work of the devices of each run;
    their tuple is empty where the script chooses. ``doing_since_s`` is None unless the script is being started or
    described; ``may_take_s`` is what a description may take. The forecast is the search's own, of its latest end.
    ``repetitions_done`` and ``most_repetitions`` count runs.
    """

    ends_at_s: float
    began_s: float = 0.0
    stage: Stage = ""
    figure: str = ""
    doing: Mapping[tuple[int, ...], str] = field(default_factory=dict)
    doing_since_s: float | None = None
    may_take_s: float | None = None
    forecast_ends_at_s: float | None = None
    repetitions_began_s: float = 0.0
    repetitions_done: int = 0
    most_repetitions: int = 0


def _devices_text(devices: tuple[int, ...]) -> str:
    return f"device{'s' * (len(devices) > 1)} {','.join(map(str, devices))}"


def status_text(activity: Activity, now_s: float, *, ending: str = "", moves: bool = True) -> str:
    """Return the line: the stage, the best so far, ``ending`` or else the time left, and what runs."""
    turning = spinner(now_s) if moves else ""
    doing = [f"{_devices_text(devices)}: {what}" if devices else what for devices, what in activity.doing.items()]
    since = "" if activity.doing_since_s is None else f", for {_whole(now_s - activity.doing_since_s)}"
    since += "" if activity.may_take_s is None else f" of at most {_whole(activity.may_take_s)}"
    head = ", ".join(filter(None, [activity.stage, activity.figure, ending or time_left(activity, now_s)]))
    # What runs may be long, and is what can be cut.
    told = f": {'; '.join(doing)}{since}" if doing else ""
    return printable(f"{turning}{head}{told}")


def ending_words(interruption: Interruption) -> str:
    """Say what an interruption does; empty if there was none."""
    if interruption.cancel.is_set():
        return "stopping"
    return "finishing what runs, Ctrl-C again stops now" if interruption.finish.is_set() else ""


def spinner(now_s: float) -> str:
    """Return a character that turns with the time, and a space."""
    return f"{_SPINNER[int(now_s / _EVERY_S) % len(_SPINNER)]} "


def time_left(activity: Activity, now_s: float) -> str:
    """Say how long the study, or its search, may still take.

    That is what the time budget has left, or less where the runs of the repetitions so far let expect less. In the
    search it may be the search's own forecast, which takes every trial that may still be worth making, and no
    repetitions.
    """
    if activity.stage == "Discovery":
        return f"{_whole(now_s - activity.began_s)} so far"
    left_s = activity.ends_at_s - now_s
    if activity.repetitions_done:
        each_s = (now_s - activity.repetitions_began_s) / activity.repetitions_done
        left_s = min(left_s, each_s * (activity.most_repetitions - activity.repetitions_done))
    forecast_at_s = activity.forecast_ends_at_s if activity.stage == "Search" else None
    if forecast_at_s is not None and 1 <= forecast_at_s - now_s < left_s:
        return f"ends in at most {format_duration(round(forecast_at_s - now_s))}"
    return f"{format_duration(round(left_s))} left" if left_s >= 1 else "finishing what runs"


def _whole(seconds: float) -> str:
    return format_duration(max(1, round(seconds)))


class StatusLine:
    """Repaints the line below what is printed; in a file or a pipe it prints the line where nothing else was printed.

    Every refresh calls ``text`` for the line, so ``text`` has to cost next to nothing. With ``every_s`` None
    only ``refresh`` repaints it. ``said`` is to be called after each line that is printed. While it repaints, lines of
    the ``interruption`` are printed at the next refresh.
    """

    def __init__(
        self,
        console: Console,
        text: Callable[[], str],
        *,
        every_s: float | None = _EVERY_S,
        longest_silence_s: float = _LONGEST_SILENCE_S,
        interruption: Interruption | None = None,
    ) -> None:
        self._interruption = interruption or Interruption()
        self._console, self._text, self._every_s = console, text, every_s
        self._longest_silence_s, self._said_s = longest_silence_s, time.monotonic()
        # FORCE_COLOR has rich take a pipe for a terminal: colours do no harm there, a cursor that moves does.
        self.is_on = console.file.isatty()
        self._unsaid: deque[str] = deque()
        self._live = Live(get_renderable=self._line, console=console, auto_refresh=False, transient=True)
        self._stopped = threading.Event()
        work = self._repaint if self.is_on else self._print
        self._thread = threading.Thread(target=work, name="status line", daemon=True)

    def start(self) -> None:
        """Begin to paint or to print."""
        if self.is_on:
            self._live.start()
            self._interruption.say = self.say_later
        self._thread.start()

    def said(self) -> None:
        """Note that a line was printed."""
        self._said_s = time.monotonic()

    def stop(self) -> None:
        """Take the line away."""
        self._interruption.say = None
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._live.stop()
        self._say_unsaid()

    def refresh(self) -> None:
        """Paint it now."""
        self._say_unsaid()
        self._live.refresh()

    def say_later(self, line: str) -> None:
        """Print a line that stays at the next refresh; takes no lock, so a signal's handler may call it."""
        self._unsaid.append(line)

    def _line(self) -> Text:
        # One column stays free: some terminals fold a line that fills them.
        text = Text(self._text(), no_wrap=True)
        text.truncate(self._console.width - 1)
        return text

    def _say_unsaid(self) -> None:
        while self._unsaid:
            self._console.print(Text(self._unsaid.popleft()))

    def _print(self) -> None:
        while not self._stopped.wait(max(0.0, self._said_s + self._longest_silence_s - time.monotonic())):
            if time.monotonic() - self._said_s >= self._longest_silence_s:
                self._console.print(Text(self._text(), style="dim"))
                self.said()

    def _repaint(self) -> None:
        while self._every_s is not None and not self._stopped.wait(self._every_s):
            self.refresh()
