"""The model as a tree: parts add up to what the report says elsewhere, and alike ones are one row."""

from __future__ import annotations

import dataclasses
import re

import pytest

from autotune.predict.prediction import Predictor
from autotune.records.codec import from_json, to_json
from autotune.records.configuration import Configuration
from autotune.records.facts import OutsideFacts
from autotune.records.graph import LayerNodes
from autotune.records.plan import ALL, Plan
from autotune.report.build import build_report
from autotune.report.page import render_html
from autotune.report.record import ModelPart, Report
from autotune.report.sentences import model_sentences, part_words, rerun_words
from tests.fakes.deep_model import BLOCK, OWN, deep_graph, deep_study
from tests.fakes.predictable import BLOCK as SMALL_BLOCK
from tests.fakes.predictable import DROPOUT, GRAPH
from tests.fakes.study_record import study_record

FOUR = Configuration("aot", (Plan("Block+", 1, 4),), 0, 8)


def tree(*graphs, winner=None):
    return build_report(deep_study(*graphs, winner=winner)).model


def rows(part):
    return [(part_words(one), one.kept_bytes, one.planned_bytes) for one in part.parts]


def every(part):
    yield part
    for one in part.parts:
        yield from every(one)


@pytest.mark.parametrize("plans", [(SMALL_BLOCK,), (DROPOUT,), (BLOCK,), (Plan("Block+", 1, 1),)])
@pytest.mark.parametrize("graphs", [(GRAPH,), (deep_graph(3), GRAPH), (deep_graph(30, grows=True), GRAPH)])
@pytest.mark.parametrize("calls", [1.0, 2.0, 1.3])
def test_parts_add_up_to_the_bytes_that_are_predicted_to_be_saved(plans, graphs, calls):
    graphs = tuple(dataclasses.replace(graph, calls=calls) for graph in graphs)
    record = deep_study(*graphs, winner=Configuration("aot", plans, 0, 16))
    predictor, model = Predictor(record.facts), build_report(record).model
    for part in every(model.whole):
        if part.parts:
            assert sum(one.kept_bytes for one in part.parts) == part.kept_bytes
            assert sum(one.planned_bytes for one in part.parts) == part.planned_bytes
            assert sum(one.num_operators for one in part.parts) == part.num_operators
            assert sum(one.num_recomputed for one in part.parts) == part.num_recomputed
    at = {size: predictor.predict(Configuration("aot", plans, 0, size)).saved_bytes for size in (8, 16)}
    assert model.whole.kept_bytes == predictor.predict(dataclasses.replace(OWN, engine="aot")).saved_bytes
    assert (model.whole.planned_bytes, model.planned_bytes_at_own_batch) == (at[8], at[16])


def test_blocks_stand_before_what_is_outside_of_them_and_open_into_their_operators():
    whole = tree(deep_graph(1)).whole
    assert whole.name == "GPT"
    assert rows(whole) == [("Block", 240, None), ("outside of blocks", 40, None)]
    assert rows(whole.parts[0]) == [("gelu", 160, None), ("mm", 80, None)]


def test_alike_blocks_are_one_row_with_all_their_bytes():
    assert rows(tree(deep_graph(12)).whole)[0] == ("Block x 12", 12 * 240, None)
    assert rows(tree(deep_graph(12)).whole.parts[0]) == [("gelu", 12 * 160, None), ("mm", 12 * 80, None)]


def test_recomputed_blocks_are_a_row_of_their_own():
    whole = tree(deep_graph(12), winner=FOUR).whole
    assert [name for name, _, _ in rows(whole)] == ["Block 1 to 4", "Block 5 to 12", "outside of blocks"]
    first, second, _ = whole.parts
    assert (first.planned_bytes, second.planned_bytes) == (4 * 160, 8 * 240)
    assert (rerun_words(first), rerun_words(second)) == ("4 of 8 operators", "nothing")


def test_blocks_that_are_recomputed_in_turns_are_two_rows():
    every_third = Configuration("aot", (Plan("Block+/3", 1, ALL),), 0, 8)
    words = [name for name, _, _ in rows(tree(deep_graph(12), winner=every_third).whole)]
    assert words == ["Block x 8, between 1 and 11", "Block x 4, between 3 and 12", "outside of blocks"]


def test_blocks_within_blocks_are_parts_of_them():
    graph = deep_graph(4)
    pairs = [graph.layers[0], graph.layers[1]], [graph.layers[2], graph.layers[3]]
    outer = [
        LayerNodes("Stage+", 6, tuple(node for one in pair for node in one.recompute), (pair[0].keep + pair[1].keep))
        for pair in pairs
    ]
    whole = tree(dataclasses.replace(graph, layers=(*graph.layers, *outer))).whole
    assert rows(whole) == [("Stage x 2", 4 * 240, None), ("outside of blocks", 40, None)]
    assert [name for name, _, _ in rows(whole.parts[0])] == ["Block x 2"]


def test_several_graphs_are_parts_and_alike_ones_one_row():
    whole = tree(deep_graph(2), deep_graph(2), deep_graph(3)).whole
    assert [name for name, _, _ in rows(whole)] == ["graph 1 to 2", "graph 3"]
    assert [name for name, _, _ in rows(whole.parts[0])] == ["Block x 2", "outside of blocks"]


def test_more_parts_than_one_can_look_at_are_counted_and_none_is_lost():
    whole = tree(deep_graph(200, grows=True)).whole
    *shown, rest, outside = rows(whole)
    assert [name for name, _, _ in shown] == [f"Block {number}" for number in range(189, 201)], "the largest, in order"
    assert rest[0] == "188 smaller ones"
    assert outside[0] == "outside of blocks"


def test_a_setting_is_shown_at_the_scripts_batch_size_and_its_own_is_said():
    made = build_report(deep_study(deep_graph(2), winner=dataclasses.replace(FOUR, batch_size=1 << 20)))
    assert made.model.batch_size == 8
    assert made.model.whole.planned_bytes == 2 * 160 + 40
    said = " ".join(model_sentences(made))
    assert "at batch 8, simulated" in said
    assert "At its own batch 1048576 the setting keeps 45 MiB." in said


def test_a_setting_that_cannot_be_simulated_leaves_the_script_alone():
    other = tree(deep_graph(2), winner=Configuration("ortmodule", (), 0, 8))
    assert other.whole.kept_bytes == 2 * 240 + 40
    assert {one.planned_bytes for one in every(other.whole)} == {None}
    assert tree(deep_graph(2), winner=OWN).whole.planned_bytes is None, "there is nothing to hold it against"


def test_graphs_of_one_batch_size_do_not_tell_what_a_setting_keeps_at_another():
    graph = deep_graph(2)
    fixed = dataclasses.replace(graph, formulas=tuple(text.replace("batch", "8") for text in graph.formulas))
    made = build_report(deep_study(fixed, winner=dataclasses.replace(FOUR, batch_size=16)))
    assert (made.model.whole.planned_bytes, made.model.planned_bytes_at_own_batch) == (2 * 160 + 40, None)
    assert "At its own batch" not in " ".join(model_sentences(made))


def test_a_tensor_of_the_graphs_own_that_is_kept_is_a_part_too():
    # The product of the first block, as if the model had it from the beginning.
    made = build_report(deep_study(dataclasses.replace(deep_graph(2), constants=(1,))))
    assert sum(one.kept_bytes for one in made.model.whole.parts) == 2 * 240 + 40


def test_without_graphs_there_is_no_tree():
    made = build_report(study_record())
    assert made.model is None
    assert model_sentences(made) == ()
    assert 'class="tree' not in render_html(made)


def test_modules_outside_of_graphs_are_said_to_be_missing():
    record = deep_study(deep_graph(1))
    outside = (OutsideFacts("LSTM", 2, 3 << 20),)
    made = build_report(dataclasses.replace(record, facts=dataclasses.replace(record.facts, outside=outside)))
    assert "Not included: 3 MiB that 2 LSTM keep outside of graphs." in model_sentences(made)


def test_a_tree_survives_json():
    made = build_report(deep_study(deep_graph(3), winner=FOUR))
    assert from_json(Report, to_json(made)) == made


def test_an_operator_is_said_to_run_again_in_words():
    one = ModelPart(kind="operator", name="gelu", kept_bytes=1, planned_bytes=0, num_operators=1, num_recomputed=1)
    assert rerun_words(one) == "its one operator"
    assert rerun_words(dataclasses.replace(one, num_operators=3, num_recomputed=3)) == "all 3 operators"


def test_parts_without_a_row_of_their_own_are_counted_in_words():
    others = ModelPart(kind="others", name="", kept_bytes=1, planned_bytes=0, num_operators=9, num_recomputed=0)
    assert part_words(others) == "1 smaller one"
    assert part_words(dataclasses.replace(others, number=2)) == "2 smaller ones"
    none = dataclasses.replace(others, kept_bytes=0)
    assert part_words(none) == "1 that keeps nothing"
    assert part_words(dataclasses.replace(none, number=4)) == "4 that keep nothing"


def test_the_page_opens_the_first_level_and_names_what_is_in_each_part():
    html = render_html(build_report(deep_study(deep_graph(12), winner=FOUR)))
    model, *blocks = re.findall(r'<details( open)?><summary><span class="what">([^<]*)</span>', html)
    assert model == (" open", "GPT")
    assert blocks == [("", "Block 1 to 4"), ("", "Block 5 to 12"), ("", "outside of blocks")]
    assert '<b>1.88 KiB</b><b>1.88 KiB</b><span class="rerun">nothing</span>' in html


@pytest.mark.parametrize("graph", [deep_graph(200), deep_graph(200, grows=True)])
def test_a_deep_model_leaves_the_page_small(graph):
    with_tree = render_html(build_report(deep_study(graph, winner=Configuration("aot", (BLOCK,), 0, 16))))
    record = deep_study(graph, winner=Configuration("aot", (BLOCK,), 0, 16))
    without = render_html(dataclasses.replace(build_report(record), model=None))
    assert len(with_tree) - len(without) < 30_000
