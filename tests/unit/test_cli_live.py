"""The line that moves while a study runs: what it says, and what is left of it on a terminal."""

from __future__ import annotations

import dataclasses
import io
import re
import threading

import pytest
from rich.console import Console
from rich.text import Text

from autotune.cli.live.display import Display
from autotune.cli.live.run_count import RunCount
from autotune.cli.live.status import Activity, StatusLine, status_text, time_left
from autotune.records.configuration import Configuration
from autotune.records.study import StudySpec
from autotune.tuning.budget import Interruption
from tests.fakes.study_record import LIMIT_BYTES, WINNER, measured, study_record
from tests.fakes.terminal import FakeTerminal

XTERM = {"TERM": "xterm-256color"}
SEARCHING = Activity(1000.0, stage="Search", figure="best 40.00 samples/s", doing={(0,): "step 3, batch 16"})
HOSTILE = "a\x1b[2Jb"


# -- what it says


def test_runs_side_by_side_are_counted():
    terminal, interruption = FakeTerminal(), Interruption()
    with RunCount(Console(file=terminal, width=80, height=24, _environ=XTERM), interruption) as count:
        count.progress(2, 5)
        assert re.fullmatch(r"[-|/\\] 2 of 5 runs have ended, 1s so far", count._line())
        assert interruption.say is not None
        interruption.finish.set()
        assert count._line().endswith("2 of 5 runs have ended, finishing what runs, Ctrl-C again stops now")
    assert interruption.say is None


def test_it_says_the_stage_the_best_the_time_left_and_what_runs():
    assert status_text(SEARCHING, 900.0) == "| Search, best 40.00 samples/s, 1m40s left: device 0: step 3, batch 16"


def test_it_says_since_when_the_script_is_described():
    activity = Activity(600.0, stage="Discovery", doing={(): "listing what can be recomputed"}, doing_since_s=20.0)
    assert status_text(activity, 32.0).endswith("Discovery, 32s so far: listing what can be recomputed, for 12s")
    limited = dataclasses.replace(activity, may_take_s=90.0)
    assert status_text(limited, 32.0).endswith("listing what can be recomputed, for 12s of at most 1m30s")


def test_it_moves_no_cursor_whatever_is_named():
    line = status_text(dataclasses.replace(SEARCHING, doing={(0,): HOSTILE}), 900.0)
    assert "\\x1b[2J" in line
    assert "\x1b" not in line


def test_what_an_interruption_does_stands_in_place_of_the_time_left():
    line = status_text(SEARCHING, 900.0, ending="stopping")
    assert "stopping" in line
    assert "left" not in line


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "1m40s left"),
        ({"forecast_ends_at_s": 930.0}, "ends in at most 30s"),
        ({"forecast_ends_at_s": 5000.0}, "1m40s left"),
        ({"forecast_ends_at_s": 890.0}, "1m40s left"),  # it was wrong
        ({"forecast_ends_at_s": 930.0, "stage": "Proof"}, "1m40s left"),
        ({"ends_at_s": 900.2}, "finishing what runs"),
        (
            {"stage": "Confirmation", "repetitions_began_s": 800.0, "repetitions_done": 10, "most_repetitions": 14},
            "40s left",
        ),
    ],
)
def test_the_time_left_is_the_smaller_of_budget_and_forecast(changes, told):
    assert time_left(dataclasses.replace(SEARCHING, **changes), 900.0) == told


# -- on a terminal


def status_on(terminal, *, text="moves"):
    console = Console(file=terminal, width=terminal.width, height=24, _environ=XTERM)
    status = StatusLine(console, lambda: text, every_s=None)
    status.start()
    status.refresh()
    return status, console


def test_it_stands_below_the_lines_that_stay_and_goes_without_a_trace():
    terminal = FakeTerminal()
    status, console = status_on(terminal)
    console.print(Text("a trial"))
    console.print(Text("another"))
    assert terminal.lines() == ["a trial", "another", "moves"]
    status.stop()
    assert [one for one in terminal.lines() if one] == ["a trial", "another"]


def test_what_a_signal_has_to_say_stands_above_it_from_the_next_refresh_on_or_the_end():
    terminal = FakeTerminal()
    status, _ = status_on(terminal)
    status.say_later("finishing what runs")
    assert "finishing what runs" not in terminal.lines(), "a handler that paints would meet what it interrupted"
    status.refresh()
    assert terminal.lines() == ["finishing what runs", "moves"]
    status.say_later("stopping")
    status.stop()
    assert [one for one in terminal.lines() if one] == ["finishing what runs", "stopping"]


def test_a_signal_is_told_through_it_only_while_there_is_one():
    spec = StudySpec(script="train.py")
    for terminal, has_line in ((FakeTerminal(), True), (io.StringIO(), False)):
        interruption = Interruption()
        with Display(Console(file=terminal, width=80, height=24, _environ=XTERM), spec, interruption):
            assert (interruption.say is not None) == has_line
        assert interruption.say is None


def test_it_is_cut_at_the_edge():
    terminal = FakeTerminal(40)
    status, _ = status_on(terminal, text="x" * 60)
    assert terminal.lines() == ["x" * 39]
    status.stop()


def test_it_is_repainted_by_itself_until_it_stops():
    terminal, painted = FakeTerminal(), threading.Event()
    times = []

    def text():
        times.append(1)
        if len(times) == 3:
            painted.set()
        return "moves"

    status = StatusLine(Console(file=terminal, width=80, height=24, _environ=XTERM), text, every_s=0.001)
    status.start()
    assert painted.wait(30.0)
    status.stop()
    assert [one for one in terminal.lines() if one] == []


# -- in a pipe


def test_in_a_pipe_it_is_printed_where_nothing_else_was_for_a_while():
    printed = threading.Event()

    class Told(io.StringIO):
        def write(self, text):
            printed.set()
            return super().write(text)

    told = Told()
    status = StatusLine(Console(file=told, width=80), lambda: "Search, 1m left", longest_silence_s=0.01)
    status.start()
    assert printed.wait(30.0)
    status.stop()
    assert set(told.getvalue().splitlines()) == {"Search, 1m left"}


def test_in_a_pipe_nothing_is_added_to_what_is_printed_often():
    told = io.StringIO()
    status = StatusLine(Console(file=told, width=80), lambda: "Search, 1m left", longest_silence_s=3600.0)
    status.start()
    status.said()
    status.stop()
    assert told.getvalue() == ""


# -- with what a study tells


class Pipe(io.StringIO):
    """A file that is no terminal, and writes UTF-8."""

    encoding = "utf-8"


def a_study(console):
    """Tell what a study does, from its discovery to its repetitions."""
    record = study_record()
    with Display(console, StudySpec(script="/x/train.py"), Interruption()) as display:
        display.discovering()
        display.discovered(record.facts, record.baseline.outcome, LIMIT_BYTES)
        display.searching_again()
        display.run_began((), (WINNER,))
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


def test_a_file_that_cannot_encode_more_gets_plain_characters():
    terminal = FakeTerminal(100)
    terminal.encoding = "ascii"
    for display in a_study(Console(file=terminal, width=100, height=40, _environ=XTERM)):
        display._status.refresh()
        assert "Confirmation, best 399.3 samples/s" in terminal.lines()[-1]
    assert terminal.written.isascii()


def test_a_trial_over_the_limit_is_not_the_best():
    for display in a_study(Console(file=Pipe(), width=160)):
        before = display._best
        display.trial_ended(2, Configuration(batch_size=96), measured(900.0, 96, 25.0))
        assert display._best is before
