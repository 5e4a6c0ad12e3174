"""The block below the lines that stay, from what is known: a few lines of text, and the line under them that moves."""

from __future__ import annotations

from itertools import zip_longest

from rich.text import Text

from ...records.printable import printable
from ...records.units import format_bytes, format_duration
from .bar import draw_bar, draw_parts
from .front import draw_front, legend
from .marks import Marks, cut
from .state import State

# A smaller terminal keeps the line that moves alone; on a wider one the block stays as it is.
_LEAST_WIDTH, _LEAST_HEIGHT, _MOST_WIDTH = 60, 16, 100
# Lines of the sketch, its axis and figures included.
_SKETCH = 7
_MOST_FINALISTS = 6


def draw_block(state: State, *, width: int, height: int, marks: Marks) -> list[Text]:
    """Draw what is worth seeing at this stage, in at most eight lines that are shorter than the terminal is wide.

    Args:
        state: what is known.
        width: columns of the terminal.
        height: lines of the terminal.
        marks: the characters.

    Returns:
        Nothing where the terminal is small, or nothing is known yet.
    """
    if width < _LEAST_WIDTH or height < _LEAST_HEIGHT:
        return []
    room = min(width - 1, _MOST_WIDTH)
    if state.stage == "Finalists":
        lines = _finalists(state, room, marks)
    elif state.stage in ("Discovery", "Search"):
        lines = _search(state, room, marks) or draw_parts(
            state.parts, state.limit_bytes, width=room, marks=marks, target=state.target
        )
    else:
        lines = []
    return [Text(), *lines] if lines else []


def moving_line(state: State, now_s: float, *, with_best: bool, ending: str, marks: Marks) -> str:
    """The line that is made anew at every refresh: the stage, the best so far, the time left, and what runs.

    Args:
        state: what is known.
        now_s: the time, by ``time.monotonic``.
        with_best: whether to say what the best is, as no block does.
        ending: what to say in place of the time left, once the study is interrupted.
        marks: the characters.
    """
    spin = marks.spinner[int(now_s * 4) % len(marks.spinner)]
    doing = [f"device {device}: {what}" if device is not None else what for device, what in [*state.doing.items()]]
    since = "" if state.doing_since_s is None else f", for {_whole(now_s - state.doing_since_s)}"
    best = f"best {state.best.figure}" if with_best and state.best is not None else ""
    head = f" {marks.between} ".join(filter(None, [state.stage, best, ending or time_left(state, now_s)]))
    # What runs may be long, and is what can be cut.
    return printable(f"{spin} {head}: {'; '.join(doing) or 'choosing'}{since}")


def time_left(state: State, now_s: float) -> str:
    """How long the study, or its search, may still take.

    It is what the time budget has left. It is less if the runs of the rounds so far let expect that, and in the search
    if the search's own forecast is shorter: that counts the trials that may still be worth making by what is known now,
    and takes each for as long as trials and starts of runs have usually taken. Most searches end long before. The
    rounds, which come after it, are not in that.
    """
    if state.stage == "Discovery":
        return f"{_whole(now_s - state.began_s)} so far"
    left_s = state.ends_at_s - now_s
    if state.rounds_done:
        each_s = (now_s - state.rounds_began_s) / state.rounds_done
        left_s = min(left_s, each_s * (state.most_rounds - state.rounds_done))
    search_s = state.forecast.ends_at_s - now_s if state.stage == "Search" and state.forecast is not None else 0.0
    if 1 <= search_s < left_s:
        return f"ends in at most {format_duration(round(search_s))}"
    return f"{format_duration(round(left_s))} left" if left_s >= 1 else "finishing what runs"


def _whole(seconds: float) -> str:
    """A time that goes up second by second."""
    return format_duration(max(1, round(seconds)))


def _trials(number: int) -> str:
    return f"{number} trial{'' if number == 1 else 's'}"


def _search(state: State, room: int, marks: Marks) -> list[Text]:
    """The sketch, and beside it the figures; nothing before there are two trials to draw."""
    width = min(room // 2, 46)
    sketch = draw_front(state.points, state.limit_bytes, width=width, height=_SKETCH, marks=marks)
    if not sketch:
        return []
    beside = _figures(state, room - width - 2, marks)
    lines = []
    for left, right in zip_longest(sketch, beside, fillvalue=Text()):
        left.pad_right(width + 2 - left.cell_len)
        lines.append(Text.assemble(left, right))
    return lines


def _figures(state: State, room: int, marks: Marks) -> list[Text]:
    """The best so far, how many trials there were, how many there may be, and what the marks of the sketch mean."""
    lines = [Text("samples/s against peak", style="dim")]
    best = state.best
    if best is None:
        lines.append(Text("nothing fits so far"))
    else:
        times = "" if best.times is None else f", {best.times:.2f}x your {state.target}"
        of = "" if state.limit_bytes is None else f" of {format_bytes(state.limit_bytes)}"
        told = f" {format_bytes(best.peak_bytes)}{of}"
        bar = draw_bar([best.peak_bytes], state.limit_bytes, width=max(4, min(20, room - len(told) - 1)), marks=marks)
        lines += [Text(f"best {best.figure}{times}", style="bold"), Text.assemble(bar, told)]
    failed = f", {state.num_failed} failed" if state.num_failed else ""
    lines.append(Text(f"{_trials(state.num_trials)} of at most {state.max_trials}{failed}"))
    # Only where it says more than the line above.
    if state.forecast is not None and state.forecast.most_trials < state.max_trials - state.num_trials:
        lines.append(Text(f"at most {_trials(state.forecast.most_trials)} more may be worth it", style="dim"))
    lines.append(legend(state.points, state.limit_bytes, marks=marks, target=state.target))
    for line in lines:
        line.truncate(room)
    return lines


def _finalists(state: State, room: int, marks: Marks) -> list[Text]:
    """Of each finalist how often it was measured, and what that shows beside the script."""
    shown = state.finalists[:_MOST_FINALISTS]
    most = room - max((len(one.told) for one in shown), default=0) - 12
    names = [Text(cut(printable(one.name), most, marks)) for one in shown]
    width = max((name.cell_len for name in names), default=0)
    lines = []
    for one, name in zip(shown, names, strict=True):
        rounds = f"{one.rounds} round{' ' if one.rounds == 1 else 's'}"
        name.pad_right(width - name.cell_len)
        lines.append(Text.assemble((f"{rounds:<9} ", "dim"), name, "  ", one.told))
    more = len(state.finalists) - len(shown)
    return [*lines, Text(f"and {more} more", style="dim")] if more > 0 else lines
