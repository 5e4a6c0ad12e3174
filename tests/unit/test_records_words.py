"""A configuration in words, and names of operators that are too long to read."""

from __future__ import annotations

import pytest

from autotune.records.configuration import Configuration, SizedPlans
from autotune.records.facts import ClusterFacts
from autotune.records.plan import Plan
from autotune.records.words import brief_words, cut_names, recomputed_words, setting_words, sized_words


def row(cluster_id: str, frequency: int, *, is_layer: bool = False) -> ClusterFacts:
    return ClusterFacts(cluster_id, 1, frequency, 1, "1", 0.0, is_layer=is_layer)


ROWS = (row("Block+", 6, is_layer=True), row("gelu+", 6), row("addmm+clone+", 18), row("bmm+", 6), row("mul+", 1))


def words(*plans: tuple[str, int], level: int = 0, rows: tuple[ClusterFacts, ...] = ROWS) -> str:
    made = tuple(Plan(cluster_id, 1, count) for cluster_id, count in plans)
    return recomputed_words(Configuration("aot", made, level), rows)


def test_layers_are_counted_out_of_how_many_there_are_and_other_kinds_by_their_number() -> None:
    some = (("Block+", 5), ("gelu+", -1), ("addmm+clone+", 3), ("bmm+", -1))
    assert words(*some) == "5 of 6 Blocks and 3 more operator patterns"
    assert words(*some[1:]) == "3 operator patterns"


def test_one_or_two_kinds_of_operators_are_named() -> None:
    assert words(("gelu+", -1)) == "all 6 gelu operators"
    assert words(("Block+", -1), ("addmm+clone+", 3)) == "all 6 Blocks and 3 of 18 addmm+clone operators"
    assert words(("gelu+", 2), ("bmm+", -1)) == "2 of 6 gelu and all 6 bmm operators"


def test_what_there_is_one_of_is_not_counted() -> None:
    assert words(("mul+", -1)) == "the mul operator"
    assert words(("mul+", 1), ("gelu+", 2)) == "the mul and 2 of 6 gelu operators"


def test_every_third_occurrence_is_counted() -> None:
    assert words(("Block+/3", -1)) == "2 of 6 Blocks"


def test_nothing_is_no_words_and_a_level_is_named() -> None:
    assert words() == ""
    assert words(level=1) == "every layer"
    assert words(("gelu+", -1), level=1) == "every layer and all 6 gelu operators"
    assert recomputed_words(Configuration("aot", (Plan("gelu+", 0, -1),)), ROWS) == ""


def test_without_facts_it_is_not_said_of_how_many() -> None:
    assert words(("Block+", 5), ("gelu+", -1), rows=()) == "the first 5 Blocks and all gelu operators"
    assert words(("Block+/2", -1), rows=()) == "one in 2 Blocks"


def test_a_whole_setting_is_the_subject_of_a_sentence() -> None:
    block = (Plan("Block+", 1, -1),)
    assert setting_words(Configuration("aot", block, batch_size=16), ROWS) == "recomputing all 6 Blocks at batch 16"
    assert setting_words(Configuration("aot", block), ROWS) == "recomputing all 6 Blocks"
    assert setting_words(Configuration(batch_size=8, choices=("bf16=1",))) == "batch 8 without plans, bf16=1"
    assert setting_words(Configuration()) == "the script without plans"


def test_a_line_among_others_begins_with_what_sets_it_apart() -> None:
    block = (Plan("Block+", 1, -1),)
    assert brief_words(Configuration("aot", block, batch_size=16), ROWS) == "batch 16, recompute all 6 Blocks"
    assert brief_words(Configuration("inductor", (), 0, 16, ("bf16=1",))) == "batch 16, inductor, bf16=1, no plans"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("bmm+div+masked_fill+_softmax+:1:3", "bmm+div+masked_fill+_softmax+:1:3"),
        ("a+b+c+d+e+:1:-1", "a+b+…+e+:1:-1"),
        ("batch 16, a+b+c+d+e+f+[1]:1:-1 gelu+:1:3", "batch 16, a+b+…+f+[1]:1:-1 gelu+:1:3"),
        ("a+b+c+d+e+/2:1:4", "a+b+…+e+/2:1:4"),
        ("+".join(["view"] * 12) + "+", "view+view+…+view+"),
    ],
)
def test_names_of_many_operators_are_cut_in_the_middle(text: str, shown: str) -> None:
    assert cut_names(text) == shown


def test_what_smaller_batches_recompute_is_told_by_the_largest_that_recompute_nothing_or_less() -> None:
    plans = (Plan("Block+", 1, 2),)
    some, more = SizedPlans(((4,), (4, 300)), plans), SizedPlans(((4,), (4, 450)), plans)
    assert sized_words(()) == ""
    assert sized_words((some, more)) == "less up to inputs of 4x450"
    nothing = SizedPlans(((4,), (4, 225)))
    assert sized_words((nothing, some, more)) == "nothing up to inputs of 4x225 and less up to 4x450"
