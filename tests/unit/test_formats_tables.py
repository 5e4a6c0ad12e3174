"""The plan tables of ONNX Runtime's releases, as they stand in training logs."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.ort_logs.log import read_log_text
from autotune.ort_logs.table import LoggedPlan, PlanTable
from autotune.records.plan import ALL, Plan, parse_plans
from tests.fakes import ort_logs


def tables_of(text):
    return read_log_text(text.split("\n")).tables


def table_of(text):
    (table,) = tables_of(text)
    return table


def told(table):
    """What a table tells of each plan, without where it stands."""
    return [(row.entry, row.is_on, row.frequency, row.saving_bytes, row.saving_formula) for row in table.rows]


# -- the table in columns


def test_a_table_tells_of_each_plan_whether_it_is_on_its_frequency_and_what_it_saves():
    table = table_of(ort_logs.COLUMNS)
    assert told(table) == [
        ("FusedMatMul+Add+:1:-1", True, 4, 16_777_216, "16384.0*ids_dim0*ids_dim1"),
        ("Gelu+:1:-1", True, 4, 16_777_216, "16384.0*ids_dim0*ids_dim1"),
        ("LayerNormalization+:1:-1,Reshape+:1:-1", False, 1, 4096, "4.0*ids_dim0*ids_dim1"),
    ]
    assert (table.level, table.dimensions) == ("USER_SPECIFIED", {"ids_dim0": 8, "ids_dim1": 128})
    assert [row.line for row in table.rows] == [3, 4, 5]


def test_the_formulas_of_a_real_table_give_its_savings():
    table = table_of(ort_logs.COLUMNS)
    for row in table.rows:
        assert eval(row.saving_formula, {}, table.dimensions) == row.saving_bytes


def test_a_table_may_have_no_symbolic_column():
    table = table_of(
        "                   Configs              Freq  Max Saving(Bytes)\n"
        "- Plan 1 :  OFF :  Reshape+Where+:1:-1  1     134,217,728\n"
        "- Plan 2 :  OFF :  Cast+:2:-1           6     2,048\n"
    )
    assert told(table) == [
        ("Reshape+Where+:1:-1", False, 1, 134_217_728, ""),
        ("Cast+:2:-1", False, 6, 2048, ""),
    ]


def test_a_table_without_details_has_plans_only():
    table = table_of(" - Plan 1            :  ON   :  Gelu+:1:-1                           \n")
    assert told(table) == [("Gelu+:1:-1", True, None, None, "")]


def test_a_formula_holds_blanks_and_columns_may_stand_one_blank_apart():
    for row in (
        "- Plan 1 : ON : BiasSoftmax+:1:-1  1  134,086,656  128.0*dim0*dim1*(dim1 - 1)  ",
        "- Plan 1 : ON : BiasSoftmax+:1:-1 1 134,086,656 128.0*dim0*dim1*(dim1 - 1)",
    ):
        assert told(table_of(row)) == [
            ("BiasSoftmax+:1:-1", True, 1, 134_086_656, "128.0*dim0*dim1*(dim1 - 1)"),
        ]


def test_a_saving_that_the_first_batch_left_open_is_an_expression():
    table = table_of(
        "                  Configs     Freq  Max Saving(Bytes)  Saving Symbolic(Bytes)\n"
        "- Plan 1 : OFF :  Gelu+:1:-1  4     8192.0*dim1        1024.0*dim0*(dim1 + 1)\n"
    )
    assert told(table) == [("Gelu+:1:-1", False, 4, None, "1024.0*dim0*(dim1 + 1)")]


@pytest.mark.parametrize(
    "asked",
    [
        "Memory Optimization Level: [USER_SPECIFIED], Optimization Config: [Gelu+:1:2,Add+:1:3], Probe Level: [1]",
        "User config: Gelu+:1:2,Add+:1:3, probe level: 1",
    ],
)
def test_plans_that_are_on_have_the_count_that_was_asked_for(asked):
    table = table_of(
        f"Memory Optimizer     :  ON   :  {asked}\n"
        " - Plan 1  :  ON   :  Gelu+:1:-1  4  64  \n"
        " - Plan 2  :  OFF  :  Cast+:1:-1  4  32  \n"
    )
    assert table.on == (Plan("Gelu+", 1, 2),)
    assert table.config == (Plan("Add+", 1, 3), Plan("Gelu+", 1, 2))


def test_a_combination_that_is_on_has_all_its_plans_on():
    table = table_of("- Plan 1 : ON : B+:1:-1,A+:2:-1  4  64\n- Plan 2 : ON : B+:1:-1  4  64")
    assert table.on == parse_plans(["A+:2:-1", "B+:1:-1"])


def test_what_terminals_and_launchers_put_between_the_words_is_no_part_of_them():
    noisy = "".join(f"[1,0]<stdout>:\x1b[95m{line}\x1b[0m\r\n" for line in ort_logs.COLUMNS.splitlines())
    assert table_of(noisy) == table_of(ort_logs.COLUMNS)


def test_progress_bars_part_lines_and_are_not_counted():
    table = table_of(f"  0%|          | 0/200\r 1%|▏         | 2/200\r{ort_logs.COLUMNS}")
    assert table == table_of(ort_logs.COLUMNS)


def test_a_log_indented_as_in_the_documentation_is_read_alike():
    indented = "".join(f"\t{line}\n" for line in ort_logs.COLUMNS.splitlines())
    assert told(table_of(indented)) == told(table_of(ort_logs.COLUMNS))


def test_tables_come_in_order_and_those_that_are_repeated_once():
    other = ort_logs.COLUMNS.replace("Gelu+", "FastGelu+")
    tables = tables_of(ort_logs.OPPORTUNITIES + ort_logs.COLUMNS + other + ort_logs.COLUMNS + ort_logs.SUMMARY)
    assert [table.layout for table in tables] == ["opportunities", "columns", "columns", "summary"]
    assert [table.line for table in tables] == sorted(table.line for table in tables)


# -- the summary of 1.13 to 1.16


def test_a_summary_of_2022_tells_shapes_instead_of_bytes():
    table = table_of(ort_logs.SUMMARY)
    assert told(table) == [("BiasGelu+:1:-1", True, 24, None, ""), ("Reshape+:1:-1", False, 1, None, "")]
    assert [row.shapes for row in table.rows] == [("input_ids_dim0 x input_ids_dim1 x 4,096",), ("labels_dim0",)]
    assert table.config == (Plan("BiasGelu+", 1, ALL),)


def test_a_later_summary_has_counts_and_compromised_recompute():
    table = table_of(
        "MemoryOptimizer Summary:\n"
        "User config:\n"
        "**FastGelu+:1:12**\n"
        "########Recompute########\n"
        "Subgraph: FastGelu+\n"
        "    OptimizationType: **Recompute (requested_count=12, actual applied_count=12)**\n"
        "    PatternShape:input_ids_dim0 x input_ids_dim1 x 4096 x   Frequency:24\n"
        "########RecomputeWithCompromise########\n"
        "Subgraph: Cast+Where+Softmax+\n"
        "    OptimizationType: Disabled\n"
        "    PatternShape:input_ids_dim0 x 16 x input_ids_dim1 x input_ids_dim1 x  Frequency:20\n"
        "    PatternShape:input_ids_dim0 x  Frequency:4\n"
    )
    assert [(row.entry, row.frequency) for row in table.rows] == [
        ("FastGelu+:1:-1", 24),
        ("Cast+Where+Softmax+:2:-1", 24),
    ]
    assert table.on == (Plan("FastGelu+", 1, 12),)


def test_a_summary_may_be_quoted_on_one_line():
    table = table_of("`Subgraph: BiasGelu+ / AlleviationType: Recompute / PatternShape:a x 4,096 x Frequency:24`")
    assert told(table) == [("BiasGelu+:1:-1", True, 24, None, "")]
    assert table.rows[0].shapes == ("a x 4,096",)


# -- the table of opportunities


def test_opportunities_of_one_subgraph_are_one_plan():
    table = table_of(ort_logs.OPPORTUNITIES)
    assert told(table) == [("FusedMatMul+Add+:1:-1", True, 12, None, ""), ("Cast+:2:-1", False, 4, None, "")]
    assert table.rows[0].shapes == (
        "((ids_dim0)*(4)*(ids_dim1)*(64)), 4 bytes each, 100% saved",
        "((ids_dim0)*(4)*(64)*(ids_dim1)), 4 bytes each, 100% saved",
    )


def test_options_of_one_node_are_alternatives():
    assert table_of(ort_logs.OPPORTUNITIES).alternatives == (
        parse_plans(["FusedMatMul+Add+:1:-1", "Cast+:2:-1"])[::-1],
    )


def test_opportunities_tell_what_the_user_asked_for():
    asked = ort_logs.OPPORTUNITIES.replace("config file path: not provided", "config: FusedMatMul+Add+:1:3,Cast+:2:0")
    assert table_of(asked).on == (Plan("FusedMatMul+Add+", 1, 3),)
    assert table_of(ort_logs.OPPORTUNITIES.replace("config file path", "config")).config == ()


# -- as they were printed and published

RAW = {path.stem: path.read_text() for path in (Path(ort_logs.__file__).parent / "ort_tables").glob("*.txt")}


@pytest.mark.parametrize(
    ("name", "level", "on", "off"),
    [
        ("plan_table_A_l0", "", 0, 11),
        ("plan_table_A_l1", "TRANSFORMER_LAYERWISE_RECOMPUTE", 11, 0),
        ("plan_table_A_l2", "TRANSFORMER_LAYERWISE_RECOMPUTE_WITH_COMPROMISE", 11, 0),
        ("plan_table_A_cfg", "USER_SPECIFIED", 2, 9),
        ("plan_table_A_devinfo", "", 0, 13),
    ],
)
def test_a_table_that_ortmodule_printed_is_read_whole(name, level, on, off):
    table = next(one for one in tables_of(RAW[name]) if one.layout == "columns")
    assert table.level == level
    assert [sum(row.is_on is state for row in table.rows) for state in (True, False)] == [on, off]
    for row in table.rows:
        assert eval(row.saving_formula, {}, {"labels_dim0": 8, "labels_dim1": 128} | table.dimensions)


def test_a_table_of_opportunities_that_was_printed_is_read_whole():
    table = table_of(RAW["opportunity_table"])
    assert table.layout == "opportunities"
    assert table.rows


def test_the_samples_of_the_documentation_are_read():
    """Those of Memory_Optimizer.md, of a release without the symbolic column, and of the one of 2022."""
    published = """\
Memory Optimizer     :  ON   :  Memory Optimization Level: [TRANSFORMER_LAYERWISE_RECOMPUTE]
                                Configs                      Freq  Max Saving(Bytes)  Saving Symbolic(Bytes)
- Plan 1            :  ON   :  Reshape+Where+:1:-1          1     134,217,728        128.0*batch*seq_len**2
- Plan 2            :  ON   :  BiasSoftmax+:1:-1            1     134,086,656        128.0*batch*seq_len*(seq_len-1)
"""
    rows = [("Reshape+Where+:1:-1", True, 1, 134_217_728), ("BiasSoftmax+:1:-1", True, 1, 134_086_656)]
    formulas = ["128.0*batch*seq_len**2", "128.0*batch*seq_len*(seq_len-1)"]
    assert told(table_of(published)) == [(*row, formula) for row, formula in zip(rows, formulas, strict=True)]
    shorter = "\n".join(line[:78] for line in published.splitlines()).replace("Saving Sym", "")
    assert told(table_of(shorter)) == [(*row, "") for row in rows]
    form = (
        "Subgraph: BiasGelu+ / AlleviationType: Recompute / "
        "PatternShape:input_ids_dim0 x input_ids_dim1 x 4,096 x Frequency:24"
    )
    assert told(table_of(form)) == [("BiasGelu+:1:-1", True, 24, None, "")]


# -- there and back

CLUSTER_IDS = st.lists(st.text(string.ascii_letters + string.digits, min_size=1, max_size=8), min_size=1).map(
    lambda names: "".join(f"{name}+" for name in names)
)
PLANS = st.builds(Plan, CLUSTER_IDS, st.sampled_from([1, 2]), st.just(ALL))
FORMULAS = st.sampled_from(["16384.0*ids_dim0*ids_dim1", "48.0*dim0*dim1**2", "128.0*dim0*(dim1 - 1)"])


def rows_of(combinations, **fields):
    row = st.builds(LoggedPlan, line=st.just(0), plans=combinations, is_on=st.booleans(), **fields)
    return st.lists(row, min_size=1, max_size=8)


@given(
    rows_of(
        st.lists(PLANS, min_size=1, max_size=3).map(tuple),
        frequency=st.integers(0, 999),
        saving_bytes=st.none() | st.integers(0, 10**13),
        saving_formula=FORMULAS,
    ),
    st.lists(PLANS, max_size=3).map(lambda plans: parse_plans(map(str, plans))),
    st.dictionaries(st.text(string.ascii_lowercase + "_", min_size=1, max_size=6), st.integers(1, 4096), max_size=3),
    st.booleans(),
)
def test_any_table_in_columns_is_read_as_it_was_written(rows, config, dimensions, formulas):
    written = PlanTable("columns", 0, tuple(rows), "USER_SPECIFIED", config, dimensions)
    table = table_of(ort_logs.columns(written, formulas=formulas))
    for (entry, is_on, frequency, saving, formula), row in zip(told(table), rows, strict=True):
        assert (entry, is_on, frequency, saving) == (row.entry, row.is_on, row.frequency, row.saving_bytes)
        # Without the column a saving that is no number is all there is.
        assert formula == (row.saving_formula if formulas or row.saving_bytes is None else "")
    assert (table.config, table.dimensions, table.level) == (config, dimensions, "USER_SPECIFIED")


@given(
    rows_of(
        PLANS.map(lambda plan: (plan,)),
        shapes=st.lists(st.sampled_from(["a x 4", "a", "a x b x 4,096"]), min_size=1, max_size=3).map(tuple),
    )
)
def test_any_summary_is_read_as_it_was_written(rows):
    table = table_of(ort_logs.summary(rows))
    in_sections = sorted(rows, key=lambda row: row.plans[0].strategy)
    assert [(row.plans, row.is_on, row.shapes) for row in table.rows] == [
        (row.plans, row.is_on, row.shapes) for row in in_sections
    ]
    assert [row.frequency for row in table.rows] == [len(row.shapes) for row in in_sections]


# -- tables that are cut short

HEAD, _, _ = ort_logs.COLUMNS.partition("TritonOp")
OTHER = HEAD.replace("Gelu+", "Relu+")


def test_a_table_without_dimensions_ends_where_the_next_one_begins():
    assert [told(table) for table in tables_of(HEAD + OTHER)] == [told(table_of(HEAD)), told(table_of(OTHER))]


def test_rows_that_begin_anew_are_another_table():
    rows = OTHER[OTHER.index(" - Plan 1") :]
    assert [told(table) for table in tables_of(HEAD + rows)] == [told(table_of(HEAD)), told(table_of(OTHER))]


def test_dimensions_may_stand_behind_their_title():
    behind = table_of(ort_logs.COLUMNS.replace("values:\n  ids", "values:  ids"))
    assert behind.dimensions == table_of(ort_logs.COLUMNS).dimensions == {"ids_dim0": 8, "ids_dim1": 128}
