"""The block below the lines that stay: from what is known to text, without a terminal."""

from __future__ import annotations

import dataclasses
import math

import pytest
from rich.cells import cell_len

from autotune.cli.live.bar import draw_bar, draw_parts
from autotune.cli.live.block import draw_block, moving_line, time_left
from autotune.cli.live.front import draw_front, legend
from autotune.cli.live.marks import ASCII, UNICODE, cut
from autotune.cli.live.state import Best, Finalist, Forecast, Point, State

MIB = 1 << 20
OWN, BEST = Point(30.0, 800 * MIB, "own"), Point(40.0, 900 * MIB, "best")
PARTS = (("rest", 600 * MIB), ("activations", 300 * MIB), ("parameters", 100 * MIB))
SEARCHING = State(
    ends_at_s=1000.0,
    stage="Search",
    parts=PARTS,
    limit_bytes=1000 * MIB,
    points=(OWN, BEST, Point(20.0, 700 * MIB, "fits")),
    best=Best("40.00/s", 1.333, 900 * MIB),
    num_trials=3,
    num_failed=1,
    max_trials=60,
)


def front(*points, limit=1000 * MIB, width=40, height=7, marks=UNICODE):
    return [line.plain for line in draw_front(points, limit, width=width, height=height, marks=marks)]


def block(state, width=80, height=24, marks=UNICODE):
    return [line.plain for line in draw_block(state, width=width, height=height, marks=marks)]


def moving(state, now_s=0.0, *, with_best=True, ending="", marks=UNICODE):
    return moving_line(state, now_s, with_best=with_best, ending=ending, marks=marks)


# -- the sketch of the front


@pytest.mark.parametrize(
    "points", [(), (OWN,), (OWN, Point(math.nan, MIB, "fits")), (OWN, Point(math.inf, MIB, "fits")),
               (OWN, Point(0.0, MIB, "fits")), (OWN, Point(1.0, 0, "fits"))]
)  # fmt: skip
def test_less_than_two_trials_with_figures_make_no_sketch(points):
    assert front(*points) == []


def test_faster_is_higher_and_more_memory_is_further_right():
    lines = front(OWN, BEST)
    (own,) = (line for line in lines if UNICODE.own in line)
    (best,) = (line for line in lines if UNICODE.best in line)
    assert lines.index(best) < lines.index(own)
    assert own.index(UNICODE.own) < best.index(UNICODE.best)
    assert lines[0].startswith("40.00")
    assert lines[-3].startswith("30.00")


def test_the_limit_stands_between_what_fits_and_what_is_over_it():
    lines = front(OWN, Point(50.0, 1200 * MIB, "over"))
    columns = {line.index(UNICODE.limit, 6) for line in lines[:-2]}
    assert len(columns) == 1, "it goes from top to bottom"
    over = next(line.index(UNICODE.trial) for line in lines if UNICODE.trial in line)
    own = next(line.index(UNICODE.own) for line in lines if UNICODE.own in line)
    assert own < columns.pop() < over


def test_a_limit_far_off_is_named_and_crushes_nothing():
    lines = front(OWN, BEST, limit=24000 * MIB)
    assert "limit 23.4 GiB" in lines[-1]
    assert "limit" not in legend((OWN, BEST), 24000 * MIB, marks=UNICODE).plain
    assert "limit" in legend((OWN, BEST), 1000 * MIB, marks=UNICODE).plain
    assert all(line.count(UNICODE.limit) == 1 for line in lines[:-2]), "the axis, and no limit"
    assert any(line.rstrip().endswith(UNICODE.best) and len(line) == 40 for line in lines)


def test_where_all_are_over_the_limit_the_sketch_has_no_best():
    lines = front(Point(30.0, 1200 * MIB, "own"), Point(20.0, 1100 * MIB, "over"))
    assert not any(UNICODE.best in line for line in lines)
    assert any(UNICODE.own in line for line in lines)


@pytest.mark.parametrize("others", [0, 1000])
def test_the_best_is_seen_however_many_trials_share_its_cell(others):
    crowd = [Point(40.0, 900 * MIB, "fits") for _ in range(others)]
    lines = front(BEST, *crowd, OWN)
    assert sum(line.count(UNICODE.best) for line in lines) == 1
    assert {len(line) <= 40 for line in lines} == {True}
    assert len(lines) == 7


def test_trials_that_are_all_alike_are_drawn_in_the_middle():
    lines = front(OWN, OWN, limit=None, height=7)
    assert UNICODE.own in lines[2]


def test_a_console_without_unicode_gets_plain_characters():
    drawn = [*front(OWN, BEST, limit=24000 * MIB, marks=ASCII), *block(SEARCHING, marks=ASCII)]
    drawn += [*block(dataclasses.replace(SEARCHING, points=()), marks=ASCII), moving(SEARCHING, marks=ASCII)]
    drawn.append(cut("x" * 50, 10, ASCII))
    assert all(line.isascii() for line in drawn)


# -- the bars


def test_a_bar_has_each_part_in_its_share_and_the_limit_at_its_place():
    bar = draw_bar([size for _, size in PARTS], 2000 * MIB, width=40, marks=UNICODE).plain
    assert bar == "█" * 12 + "▓" * 6 + "▒" * 2 + "·" * 20 + "│"


def test_what_passes_the_limit_is_drawn_behind_its_mark():
    bar = draw_bar([1000 * MIB], 500 * MIB, width=20, marks=UNICODE).plain
    assert bar == "█" * 10 + "│" + "█" * 10


def test_before_the_limit_is_known_the_peak_is_told_without_a_bar():
    (line,) = draw_parts((("measured", 900 * MIB),), None, width=60, marks=UNICODE)
    assert line.plain == "Your script: peak 900 MiB"


def test_every_part_is_named_with_its_size_in_lines_that_fit():
    title, _, *legend = (one.plain for one in draw_parts(PARTS, 1000 * MIB, width=40, marks=UNICODE))
    assert title == "Your script: peak 1000 MiB, limit 1000 MiB"
    assert "".join(legend).split("  ")[:3] == ["█ rest 600 MiB", "▓ activations 300 MiB", "▒ parameters 100 MiB"]
    assert max(map(len, legend)) <= 42
    assert len(legend) == 2


# -- the block


@pytest.mark.parametrize(("width", "height"), [(59, 40), (200, 15)])
def test_a_small_terminal_has_no_block(width, height):
    assert block(SEARCHING, width, height) == []
    assert block(SEARCHING, 60, 16) != []


HOSTILE = "[red]Block[/red] 模型模型模型 \x1b[2J " + 40 * "very long "
CROWDED = dataclasses.replace(
    SEARCHING,
    points=SEARCHING.points + tuple(Point(float(one + 1), one * MIB, "over") for one in range(1000)),
    best=Best("123,456,789/s", 1234.5, 1 << 50),
    num_trials=100_000,
    forecast=Forecast(100_000, 9e9),
    parts=tuple((f"part of the memory {one}", MIB) for one in range(6)),
    finalists=tuple(Finalist(HOSTILE, one, "1.043x (1.021x to 1.066x)") for one in range(20)),
)


@pytest.mark.parametrize("width", [60, 80, 120, 500])
@pytest.mark.parametrize(
    "state",
    [CROWDED, dataclasses.replace(CROWDED, points=()), dataclasses.replace(CROWDED, stage="Finalists")],
    ids=["front", "parts", "finalists"],
)
def test_no_line_reaches_the_edge_and_there_are_at_most_nine(state, width):
    lines = block(state, width)
    assert 2 < len(lines) <= 9
    assert max(map(cell_len, lines)) < width
    assert not any("\x1b" in line for line in lines)


def test_names_that_look_like_markup_are_shown_as_they_are():
    lines = block(dataclasses.replace(CROWDED, stage="Finalists"), width=120)
    assert "[red]Block[/red]" in lines[1]


def test_before_a_second_trial_the_parts_of_the_scripts_memory_are_shown():
    assert "Your script: peak 1000 MiB, limit 1000 MiB" in block(dataclasses.replace(SEARCHING, points=(OWN,)))[1]
    assert not any("Your script: peak" in line for line in block(SEARCHING))


def test_beside_the_sketch_stand_the_best_and_what_was_tried():
    state = dataclasses.replace(SEARCHING, forecast=Forecast(1, 900.0))
    text = "\n".join(block(state))
    for said in ("best 40.00/s, 1.33x your script", "900 MiB of 1000 MiB", "3 trials of at most 60, 1 failed",
                 "at most 1 trial more may be worth it"):  # fmt: skip
        assert said in text


def test_a_forecast_that_says_no_more_than_the_most_trials_is_left_out():
    for most, said in ((57, False), (56, True)):
        lines = block(dataclasses.replace(SEARCHING, forecast=Forecast(most, 900.0)))
        assert any("may be worth it" in line for line in lines) == said


def test_without_anything_that_fits_there_is_no_best():
    text = "\n".join(block(dataclasses.replace(SEARCHING, best=None)))
    assert "nothing fits so far" in text
    assert "best " not in text.replace(f"{UNICODE.best} best", "")


def test_of_many_finalists_the_rest_is_counted():
    assert block(dataclasses.replace(CROWDED, stage="Finalists"))[-1] == "and 14 more"


def test_nothing_is_drawn_of_a_proof():
    assert block(dataclasses.replace(SEARCHING, stage="Proof")) == []


# -- the line that moves


def test_the_moving_line_has_the_best_only_where_no_block_says_it():
    assert "best 40.00/s" in moving(SEARCHING)
    assert "best" not in moving(SEARCHING, with_best=False)


def test_the_moving_line_says_since_when_the_script_is_described():
    state = State(600.0, stage="Discovery", doing={None: "listing what can be recomputed"}, doing_since_s=20.0)
    assert moving(state, 32.0).endswith("Discovery · 32s so far: listing what can be recomputed, for 12s")


def test_the_moving_line_moves_no_cursor_whatever_is_named():
    assert "\\x1b[2J" in moving(dataclasses.replace(SEARCHING, doing={0: HOSTILE}))
    assert "\x1b" not in moving(dataclasses.replace(SEARCHING, doing={0: HOSTILE}))


def test_what_an_interruption_does_stands_in_place_of_the_time_left():
    line = moving(SEARCHING, ending="stopping")
    assert "stopping" in line
    assert "left" not in line


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "1m40s left"),
        ({"forecast": Forecast(4, 930.0)}, "ends in at most 30s"),
        ({"forecast": Forecast(400, 5000.0)}, "1m40s left"),
        ({"forecast": Forecast(4, 890.0)}, "1m40s left"),  # it was wrong
        ({"forecast": Forecast(4, 930.0), "stage": "Proof"}, "1m40s left"),
        ({"ends_at_s": 900.2}, "finishing what runs"),
        ({"stage": "Finalists", "rounds_began_s": 800.0, "rounds_done": 10, "most_rounds": 14}, "40s left"),
    ],
)
def test_the_time_left_is_the_smaller_of_budget_and_forecast(changes, told):
    assert time_left(dataclasses.replace(SEARCHING, **changes), 900.0) == told


@pytest.mark.parametrize(("text", "told"), [("abc", "abc"), ("abcdefgh", "abcd…"), ("模型模型", "模型…")])
def test_a_line_that_is_too_long_is_cut_by_columns_and_not_by_characters(text, told):
    assert cut(text, 5, UNICODE) == told
    assert cell_len(told) <= 5


def test_a_model_is_called_a_model():
    assert draw_parts((("measured", 900 * MIB),), None, width=60, marks=UNICODE, target="model")[0].plain.startswith(
        "Your model: peak"
    )
    assert "your model" in legend((OWN, BEST), None, marks=UNICODE, target="model").plain
