"""The block on a terminal: what is painted and what is left of it, and that a pipe gets plain lines."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console
from rich.text import Text

from autotune.cli.live.display import Display
from autotune.cli.live.screen import Screen
from autotune.launch.port import Event
from autotune.records.configuration import Configuration
from autotune.records.study import StudySpec
from autotune.tuning.budget import Interruption
from autotune.verdict.rounds import compare
from tests.fakes.study_record import LIMIT_BYTES, WINNER, measured, study_record
from tests.fakes.terminal import FakeTerminal

XTERM = {"TERM": "xterm-256color"}


def screen_on(terminal, *, environ=None, block=("first", "second"), line="moves"):
    console = Console(file=terminal, width=terminal.width, height=24, _environ=environ or XTERM)
    made = []

    def draw(width, height, marks):
        made.append((width, height))
        return [Text(one) for one in block]

    screen = Screen(console, draw, lambda with_best, marks: line, every_s=None)
    screen.made, screen.console = made, console
    return screen


def say(screen, text):
    with screen.above() as console:
        console.print(Text(text))


def test_the_block_stands_below_the_lines_that_stay_and_goes_without_a_trace():
    terminal = FakeTerminal()
    screen = screen_on(terminal)
    screen.start()
    say(screen, "a trial")
    screen.refresh()
    say(screen, "another")
    assert terminal.lines() == ["a trial", "another", "first", "second", "moves"]
    screen.stop()
    assert [one for one in terminal.lines() if one] == ["a trial", "another"]


def test_what_a_signal_has_to_say_stands_above_the_block_from_the_next_refresh_on_or_the_end():
    terminal = FakeTerminal()
    screen = screen_on(terminal)
    screen.start()
    screen.refresh()
    screen.say_later("finishing what runs")
    assert "finishing what runs" not in terminal.lines(), "a handler that paints would meet what it interrupted"
    screen.refresh()
    assert terminal.lines() == ["finishing what runs", "first", "second", "moves"]
    screen.say_later("stopping")
    screen.stop()
    assert [one for one in terminal.lines() if one] == ["finishing what runs", "stopping"]


def test_a_signal_is_told_through_the_block_only_while_there_is_one(tmp_path):
    spec = StudySpec(script="train.py")
    for terminal, has_block in ((FakeTerminal(), True), (io.StringIO(), False)):
        interruption = Interruption()
        console = Console(file=terminal, width=80, height=24, _environ=XTERM)
        with Display(console, spec, interruption):
            assert (interruption.say is not None) == has_block
        assert interruption.say is None


def test_the_block_is_made_anew_only_when_something_happened_or_the_size_is_another():
    screen = screen_on(FakeTerminal())
    screen.start()
    for _ in range(3):
        screen.refresh()
    assert screen.made == [(80, 24)]
    screen.changed()
    screen.refresh()
    screen.console.width = 70
    screen.refresh()
    screen.stop()
    assert screen.made == [(80, 24), (80, 24), (70, 24)]


@pytest.mark.parametrize("prints", [False, True])
def test_a_terminal_that_becomes_narrower_keeps_no_leftovers(prints):
    terminal = FakeTerminal(80)
    screen = screen_on(terminal, block=["x" * 70, "y" * 30], line="z" * 79)
    screen.start()
    say(screen, "a trial")
    terminal.narrow(30)
    screen.console.width = 30
    if prints:
        say(screen, "another")
    screen.refresh()
    screen.stop()
    assert [one for one in terminal.lines() if one] == ["a trial", *(["another"] if prints else [])]


def test_the_moving_line_is_cut_at_the_edge():
    terminal = FakeTerminal(40)
    screen = screen_on(terminal, block=(), line="x" * 60)
    screen.start()
    screen.refresh()
    assert terminal.lines() == ["x" * 38 + "…"]
    screen.stop()


def test_it_is_repainted_by_itself_until_it_stops():
    terminal, painted = FakeTerminal(), threading.Event()
    console = Console(file=terminal, width=80, height=24, _environ=XTERM)
    times = []

    def line(with_best, marks):
        times.append(1)
        if len(times) == 3:
            painted.set()
        return "moves"

    screen = Screen(console, lambda *size: [], line, every_s=0.001)
    screen.start()
    assert painted.wait(30.0)
    screen.stop()
    assert [one for one in terminal.lines() if one] == []


class Pipe(io.StringIO):
    """A file that is no terminal, and writes UTF-8."""

    encoding = "utf-8"


def a_study(console, **changes):
    """What a study tells, from its discovery to its rounds."""
    record = study_record()
    spec = StudySpec(script="/x/train.py", **changes)
    with Display(console, spec, Interruption()) as display:
        display.discovering()
        display.event(None, Event("result", 0, 7, "forward", record.baseline.outcome, 1.0))
        display.discovered(record.facts, record.baseline.outcome, LIMIT_BYTES)
        display.searching_again()
        display.run_began(None, (WINNER,))
        display.trial_ended(1, WINNER, measured(400.0, 48, 22.0))
        display.repeating((record.facts.baseline, WINNER), 28)
        for number in range(3):
            display.repeated(record.facts.baseline, number, measured(150.0 + number, 16, 15.0))
            display.repeated(WINNER, number, measured(300.0 + number, 48, 22.0))
        yield display


@pytest.mark.parametrize("environ", [{}, {"FORCE_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_pipe_gets_no_cursor_that_moves(environ):
    pipe = Pipe()
    list(a_study(Console(file=pipe, width=160, _environ=environ)))
    written = pipe.getvalue()
    assert "<- best so far" in written
    assert not [one for one in ("\r", "\x1b[?25", "\x1b[1A", "\x1b[2K") if one in written]
    assert "FORCE_COLOR" in environ or "\x1b" not in written


def test_a_dumb_terminal_gets_no_escape_sequence():
    terminal = FakeTerminal(160)
    list(a_study(Console(file=terminal, width=160, height=40, _environ={"TERM": "dumb"})))
    assert "<- best so far" in terminal.written
    assert "\x1b" not in terminal.written


def test_no_color_leaves_the_block_without_colours():
    terminal = FakeTerminal(160)
    console = Console(file=terminal, width=160, height=40, color_system=None, _environ={**XTERM, "NO_COLOR": "1"})
    for display in a_study(console):
        display._screen.refresh()
    assert "rounds" in terminal.written
    assert "\x1b[1m" not in terminal.written
    assert "\x1b[2m" not in terminal.written
    assert "\x1b[3" not in terminal.written


def test_a_file_that_cannot_encode_the_marks_gets_plain_ones():
    terminal = FakeTerminal(100)
    terminal.encoding = "ascii"
    for display in a_study(Console(file=terminal, width=100, height=40, _environ=XTERM)):
        display._screen.refresh()
    assert terminal.written.isascii()


# -- what the display knows


@pytest.fixture
def shown():
    """What the display knows at the end of ``a_study``."""
    console = Console(file=Pipe(), width=160)

    def at_end(**changes):
        (display,) = a_study(console, **changes)
        return display._state

    return at_end


def test_the_parts_of_the_scripts_memory_come_to_its_peak(shown):
    state = shown()
    assert sum(size for _, size in state.parts) == study_record().baseline.measured.measurement.peaks.fit_bytes
    assert {"rest", "activations", "parameters"} <= {name for name, _ in state.parts}


def test_finalists_are_told_by_their_ratio_to_the_script_with_its_interval(shown):
    own, winner = shown().finalists
    assert own.told.endswith("/s")
    assert winner.told.startswith("1.9")
    assert " to " in winner.told
    assert (own.rounds, winner.rounds) == (3, 3)


def test_the_interval_of_rounds_is_that_of_a_final_that_may_go_on():
    for display in a_study(Console(file=Pipe(), width=160)):
        rounds, own, aim = display._repeats, display._facts.baseline, display._aim
        open_, over = (compare(rounds, own, aim, 14, is_over=is_over)[0] for is_over in (False, True))
        told = display._state.finalists[1].told
        assert told == f"{open_.speedup:.3f}x ({open_.speedup_low:.3f}x to {open_.speedup_high:.3f}x)"
        assert open_.speedup_low < over.speedup_low, "or the test would not tell"


def test_rounds_of_an_earlier_final_are_not_those_of_this_one():
    for display in a_study(Console(file=Pipe(), width=160)):
        display.repeating((WINNER,), 2)
        assert display._state.finalists[0].rounds == 0
        assert display._state.finalists[0].told == "not measured yet"
        display.repeated(WINNER, 0, measured(300.0, 48, 22.0))
        assert display._state.finalists[0].told == "299.5/s"


def test_own_script_and_best_are_marked_among_the_trials(shown):
    kinds = sorted(one.kind for one in shown().points)
    assert kinds == ["best", "own"]


def test_a_trial_over_the_limit_is_none_that_fits():
    for display in a_study(Console(file=Pipe(), width=160)):
        display.trial_ended(2, Configuration(batch_size=96), measured(900.0, 96, 25.0))
        assert [one.kind for one in display._state.points][-1] == "over"
        assert (display._state.num_trials, display._state.num_failed) == (2, 0)
