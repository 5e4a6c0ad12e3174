"""Formulas for people: sizes of one name that differ from graph to graph are summed by that name."""

import dataclasses

import pytest

from autotune.report.build import build_report
from autotune.report.formulas import folded_formula, readable_formula
from autotune.report.sentences import dimensions_sentence
from tests.fakes.study_record import study_record


@pytest.mark.parametrize(
    ("formula", "folded"),
    [
        ("1024*(s14 + s14_ + s14__ + s14___ + s14____)", "1024*sum(s14)"),
        ("s1 + s1_ + s1__ + s1___ + 4*batch", "sum(s1) + 4*batch"),
        ("4*(batch + s1 + s1_ + s1__ + s1___) - 3", "4*(batch + sum(s1)) - 3"),
        ("2*s1 + s1_ + s1__ + s1___ + s1____", "2*s1 + sum(s1)"),
        ("s1 + s1_ + s1__ + s1___*batch", "s1 + s1_ + s1__ + s1___*batch"),
        ("s1 + s1_ + s1__", "s1 + s1_ + s1__"),
        ("s1 + s2 + s3 + s4", "s1 + s2 + s3 + s4"),
        ("8*batch*seq_len", "8*batch*seq_len"),
        ("", ""),
    ],
)
def test_many_sizes_of_one_name_are_summed(formula, folded):
    assert folded_formula(formula) == folded


LONG = "4*batch*(256*(length//10) + 256*(length//20)) + 3*(length//10) - 259*Max(1, length//5 - 1) - 265"


def test_a_long_formula_is_a_line_in_the_batch_size_at_the_other_sizes():
    sizes = {"batch": 4, "length": 1000}
    assert readable_formula(LONG, sizes) == f"{4 * 256 * 150}*batch - {259 * 199 + 265 - 300} (at sizes as seen)"
    assert readable_formula(f"batch*({LONG})", sizes) == f"batch*({LONG})"[:59] + "…", "no line"
    assert readable_formula(LONG, {"batch": 4}) == LONG[:59] + "…", "a size that nobody knows"
    assert readable_formula("8*batch*length", sizes) == "8*batch*length"
    without_batch = LONG.replace("4*batch*", "4*")
    assert readable_formula(without_batch, sizes) == f"{4 * 256 * 150 + 300 - 259 * 199 - 265} (at sizes as seen)"
    assert readable_formula(LONG, sizes, {"length"}) == LONG[:59] + "…", "a size that follows the batch size"


def test_only_the_sizes_of_formulas_that_are_shown_are_told():
    described = dataclasses.replace(build_report(study_record()), dimensions={"batch": 8, "s1": 3, "s2": 7})
    assert dimensions_sentence(described, ["8*batch*s2"]) == "batch = 8, s2 = 7"
    assert dimensions_sentence(described) == "batch = 8, s1 = 3, s2 = 7"


def test_of_many_sizes_of_one_name_the_range_is_told():
    sizes = {"batch": 8, "s14": 3873, "s14_": 3328, "s14__": 4068, "s14___": 2439, "s2": 7, "s2_": 9}
    described = dataclasses.replace(build_report(study_record()), dimensions=sizes, per_sample={})
    assert dimensions_sentence(described) == "batch = 8, s2 = 7, s2_ = 9, s14 = 2,439 to 4,068 in 4 graphs"
