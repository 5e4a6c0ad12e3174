"""Training logs as a whole: what is malformed in them, their memory matrix, and what a search may start from."""

from __future__ import annotations

import contextlib
import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import FormatError, PlanError, UsageError
from autotune.ort_logs.log import first_to_try, read_first, read_log, read_log_text
from autotune.records.matrix import MemoryPhase, PhaseMemory
from tests.fakes import ort_logs

MIB = 2**20


def read(text):
    return read_log_text(text.split("\n"))


# -- what is malformed


def columns(before, after):
    assert before in ort_logs.COLUMNS
    return ort_logs.COLUMNS.replace(before, after)


def summary(before, after):
    assert before in ort_logs.SUMMARY
    return ort_logs.SUMMARY.replace(before, after)


def opportunities(before, after):
    assert before in ort_logs.OPPORTUNITIES
    return ort_logs.OPPORTUNITIES.replace(before, after)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (columns(":  ON   :  Gelu+", ":  SO   :  Gelu+"), 4, "expected ON or OFF behind the plan's number, got 'SO'"),
        (columns("Plan 2            :  ON   :  Gelu+:1:-1", "Plan 2            :  ON"), 4, "expected ON or OFF"),
        (columns("Gelu+:1:-1 ", "Gelu+:1 "), 4, "malformed plan 'Gelu+:1': 2 field(s)"),
        (columns("Gelu+:1:-1 ", "Gelu+:3:-1 "), 4, "bad strategy 3"),
        (columns("Gelu+:1:-1 ", "Ge:1:-1 "), 4, "a cluster id ends with '+', this is 'Ge'"),
        (columns("16,777,216         16384.0*ids_dim0*ids_dim1\n - Plan 2", "\n - Plan 2"), 3, "the saving is missing"),
        (columns("1   4,096              4.0*ids_dim0*ids_dim1", ""), 5, "frequency and the saving are missing"),
        (columns("1   4,096 ", "one   4,096 "), 5, "the frequency is no whole number: 'one'"),
        (columns("1   4,096 ", "1   4,09 "), 5, "the saving is neither a number nor an expression: '4,09'"),
        (columns("4,096              4.0*ids_dim0*ids_dim1", "4,096"), 5, "the symbolic saving is missing"),
        (columns("  Saving Symbolic(Bytes)", ""), 3, "'16384.0*ids_dim0*ids_dim1' follows the last column"),
        (columns("Plan 2", "Plan 3"), 4, "plan 3 follows plan 1, so lines are missing"),
        (columns("Plan 1", "Plan 7"), 3, "plan 7 follows the table's beginning, so lines are missing"),
        (columns("ids_dim1=128", "ids_dim1=?"), 9, "expected the dimensions of the first batch"),
        (columns("[mem_opt.json]", "[Gelu+:1:-1,:1:2]"), 1, "bad cluster id ''"),
        (summary("Subgraph: BiasGelu+", "Subgraph: "), 6, "bad cluster id ''"),
        (summary("AlleviationType: Disabled", "AlleviationType: Unknown"), 12, "expected Disabled or Recompute"),
        (summary("\tFrequency:24", ""), 9, "no frequency follows the shape"),
        (summary("AlleviationType: Recompute", ""), 6, "no OptimizationType follows this subgraph"),
        (summary("PatternShape:labels_dim0 x \tFrequency:1\n", "\n"), 11, "no PatternShape follows this subgraph"),
        (summary("Subgraph: BiasGelu+", ""), 7, "no subgraph precedes it"),
        (summary("\tBiasGelu+:1\n", "\tBiasGelu+\n"), 4, "malformed plan 'BiasGelu+'"),
        (opportunities("|8      |For", "|?      |For"), 5, "the frequency is no whole number: '?'"),
        (opportunities("|8      |For each row", "|"), 7, "no frequency precedes this option"),
        (opportunities("Recompute subgraph FusedMatMul+Add+", "Offload subgraph A+"), 7, "got 'Offload'"),
        (opportunities(">>Option 1     : Recompute", ""), 8, "no option precedes this status"),
        (opportunities("Status       : Disabled. Enable", "Status       : Maybe. Enable"), 21, "got 'Maybe. Enable"),
        (ort_logs.MATRIX.replace("MiB", "GiB"), 1, "expected sizes in MiB, got 'GiB'"),
        (ort_logs.MATRIX.replace("pre_forward", "lunch"), 1, "expected a phase, one of pre_forward,"),
        (ort_logs.MATRIX.replace("max allocated: 9039", "max allocated: x"), 1, "'max allocated' is no whole number"),
        (ort_logs.MATRIX.replace("| allocated: 5331 ", ""), 1, "'allocated' is missing"),
    ],
)
def test_what_is_malformed_is_told_with_its_line_and_the_reason(text, line, reason):
    with pytest.raises(FormatError) as caught:
        read(text)
    assert str(caught.value).startswith(f"line {line}: ")
    assert reason in str(caught.value)
    assert caught.value.hint


def test_a_file_s_name_stands_before_the_line(tmp_path):
    log = tmp_path / "train.log"
    log.write_text("epoch 1\n" + columns("Gelu+:1:-1 ", "Gelu+ "))
    with pytest.raises(FormatError, match=r"^train\.log, line 5: malformed plan 'Gelu\+'"):
        read_log(log)


@given(st.text(max_size=200))
def test_any_other_text_is_a_log_without_plans(text):
    assert read(text).tables == ()


@given(st.data())
def test_a_log_with_any_part_cut_out_is_read_or_a_format_error(data):
    whole = ort_logs.SUMMARY + ort_logs.OPPORTUNITIES + ort_logs.COLUMNS + ort_logs.MATRIX
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    with contextlib.suppress(FormatError):
        read(whole[:start] + whole[end:])


def test_a_log_may_hold_bytes_that_are_no_text(tmp_path):
    log = tmp_path / "train.log"
    log.write_bytes(b"\xff\xfe\x00\n" + ort_logs.COLUMNS.encode())
    assert len(read_log(log).tables[0].rows) == 3


# -- the memory matrix


def test_a_line_of_the_memory_matrix_is_read_in_bytes():
    (row,) = read(ort_logs.MATRIX).memory_matrix
    assert (row.rank, row.step, row.phase) == (0, 1, "pre_forward")
    assert (row.allocated, row.max_allocated) == (5331 * MIB, 9039 * MIB)
    assert (row.cached, row.max_cached, row.inactive, row.max_inactive) == (
        9382 * MIB,
        9382 * MIB,
        219 * MIB,
        816 * MIB,
    )
    assert (row.parameters, row.gradients, row.buffers) == (5314 * MIB, 0, 8 * MIB)
    assert row.peak is None


def test_release_1_16_had_no_figures_of_the_parameters():
    line = "[3/8] step 4 memory (MiB) | phase: post_backward | allocated: 2932 | max allocated: 26215 | cached: 26406"
    (row,) = read(f"  0%|          | 0/200 [00:00<?]\r{line}").memory_matrix
    assert (row.rank, row.step, row.allocated) == (3, 4, 2932 * MIB)
    assert (row.parameters, row.gradients, row.inactive) == (None, None, None)


SIZES = st.integers(0, 2**20).map(lambda size: size * MIB)
OPTIONAL_SIZES = st.none() | SIZES


@given(
    st.builds(
        PhaseMemory,
        phase=st.sampled_from(get_args(MemoryPhase)),
        step=st.integers(0, 10**6),
        allocated=SIZES,
        max_allocated=SIZES,
        peak=st.none(),
        parameters=OPTIONAL_SIZES,
        gradients=OPTIONAL_SIZES,
        buffers=OPTIONAL_SIZES,
        cached=OPTIONAL_SIZES,
        max_cached=OPTIONAL_SIZES,
        inactive=OPTIONAL_SIZES,
        max_inactive=OPTIONAL_SIZES,
        rank=st.integers(0, 1000),
    )
)
def test_any_row_is_read_as_it_was_written(row):
    assert read(f"2024-02-27 07:18:55 [INFO] - {row}\n").memory_matrix == (row,)


# -- what a search may start from


def test_a_search_starts_from_what_was_on_then_from_what_saves_most():
    table = """\
 - Plan 1  :  OFF  :  A+:1:-1          4  1,000
 - Plan 2  :  ON   :  B+:1:-1          4  3,000
 - Plan 3  :  ON   :  C+:1:-1,D+:2:-1  4  2,000
"""
    assert first_to_try(read(table)) == ("B+:1:-1,C+:1:-1,D+:2:-1", "B+:1:-1", "C+:1:-1,D+:2:-1", "A+:1:-1")


def test_without_savings_the_log_s_order_counts():
    assert first_to_try(read(ort_logs.SUMMARY)) == ("BiasGelu+:1:-1", "Reshape+:1:-1")


def test_a_mem_opt_json_is_one_setting_and_what_is_off_in_it_is_left_out(tmp_path):
    path = tmp_path / "mem_opt.json"
    path.write_text(json.dumps(["B+:1:2", "A+:1:-1,C+:0:-1", "D+:1:0", "B+:1:3"]))
    assert read_first(path) == ("A+:1:-1,B+:1:3",)


def test_a_malformed_entry_of_a_mem_opt_json_is_told_with_its_number(tmp_path):
    path = tmp_path / "mem_opt.json"
    path.write_text('["A+:1:-1",\n "B+:1"]')
    with pytest.raises(PlanError, match=r"^mem_opt\.json, entry 2: malformed plan 'B\+:1'"):
        read_first(path)
    path.write_text('["A+:1:-1",\n }')
    with pytest.raises(PlanError, match=r"^mem_opt\.json: not JSON: .*line 2"):
        read_first(path)


@pytest.mark.parametrize(("name", "text"), [("a.log", "epoch 1\n"), ("a.json", "[]"), ("b.json", '["A+:0:-1"]')])
def test_a_file_without_plans_is_a_usage_error(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=f"there are no plans in '{name}'"):
        read_first(tmp_path / name)


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*No such file"):
        read_first(tmp_path / "train.log")
    with pytest.raises(UsageError, match=r"cannot read .*Is a directory"):
        read_log(tmp_path)
