"""The command line and logs of ONNX Runtime: `autotune plans`, and `autotune run --plans-from`."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

from autotune.cli import main
from autotune.cli.live.display import Display
from autotune.cli.spec import check_same, default_study_name, spec_of
from autotune.errors import UsageError
from autotune.ort_logs.log import read_first
from autotune.records.plan import Plan
from autotune.records.study import StudySpec
from autotune.search.given_plans import Given
from autotune.tuning.budget import Interruption
from tests.fakes import ort_logs


@pytest.fixture
def autotune(monkeypatch, capsys, tmp_path):
    """``autotune("plans", "x.log")`` runs the command line in a folder of its own; gives exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch\n")
    Path("train.log").write_text(f"epoch 1\n{ort_logs.COLUMNS}{ort_logs.MATRIX}")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["autotune", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


def test_a_log_s_plans_are_a_table_with_the_dimensions_below_and_the_memory_matrix(autotune):
    code, output, errors = autotune("plans", "train.log")
    assert (code, errors) == (0, "")
    assert "From line 4 on: 3 plans, 2 on, level USER_SPECIFIED\n" in output
    assert re.search(r"^Gelu\+:1:-1 +on +4 +16 MiB +16384\.0\*ids_dim0\*ids_dim1$", output, re.MULTILINE)
    assert re.search(r"^LayerNormalization\+:1:-1,Reshape\+:1:-1 +1 +4 KiB ", output, re.MULTILINE)
    assert "with ids_dim0 = 8, ids_dim1 = 128; savings of several plans cannot be summed\n" in output
    assert re.search(r"^ +1 +pre forward +8\.83 GiB +5\.21 GiB ", output, re.MULTILINE)


def test_a_log_of_2022_is_a_table_of_shapes(autotune):
    Path("old.log").write_text(ort_logs.SUMMARY)
    code, output, _ = autotune("plans", "old.log")
    assert code == 0
    assert "asked for: BiasGelu+:1:-1\n" in output
    assert re.search(r"^BiasGelu\+:1:-1 +on +24 +input_ids_dim0 x input_ids_dim1 x 4,096$", output, re.MULTILINE)


def test_as_json_bytes_and_lines_are_numbers(autotune):
    code, output, _ = autotune("plans", "train.log", "--json")
    document = json.loads(output)
    assert (code, document["log"]) == (0, "train.log")
    (table,) = document["tables"]
    assert table["on"] == ["FusedMatMul+Add+:1:-1", "Gelu+:1:-1"]
    assert table["dimensions"] == {"ids_dim0": 8, "ids_dim1": 128}
    assert table["plans"][1] == {
        "plan": "Gelu+:1:-1",
        "is_on": True,
        "frequency": 4,
        "saving_bytes": 16_777_216,
        "saving_formula": "16384.0*ids_dim0*ids_dim1",
        "shapes": [],
        "line": 5,
    }
    assert [row["allocated"] for row in document["memory_matrix"]] == [5331 * 2**20]


@pytest.mark.parametrize(
    ("text", "cause", "next_step"),
    [
        ("epoch 1\n", "there are neither plans nor a memory matrix in 'bad.log'", "LogLevel.INFO"),
        (" - Plan 1 : ON : Gelu+:1\n", "bad.log, line 1: malformed plan 'Gelu+:1': 2 field(s)", "mend the line"),
    ],
)
def test_a_log_that_tells_nothing_or_is_malformed_is_a_usage_error(autotune, text, cause, next_step):
    Path("bad.log").write_text(text)
    code, output, errors = autotune("plans", "bad.log")
    assert (code, output) == (2, "")
    first, second = errors.splitlines()
    assert first.startswith(f"autotune: {cause}")
    assert next_step in second


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (["nosuch.log"], "--plans-from: cannot read 'nosuch.log': No such file or directory"),
        (["train.py"], "--plans-from: there are no plans in 'train.py'"),
        (["bad.log"], "--plans-from: bad.log, line 2: malformed plan 'Gelu+:1'"),
        (["bad.json"], "--plans-from: bad.json, entry 1: malformed plan 'Gelu+'"),
        (["train.log", "--engine", "eager"], "--plans-from: engine 'eager' has no plans"),
    ],
)
def test_a_file_that_a_search_cannot_start_from_is_refused_before_anything_runs(autotune, options, cause):
    Path("bad.log").write_text("\n - Plan 1 : ON : Gelu+:1\n")
    Path("bad.json").write_text('["Gelu+"]')
    code, output, errors = autotune("run", "train.py", "--plans-from", *options)
    assert (code, output) == (2, "")
    assert errors.startswith(f"autotune: {cause}")
    assert "\n  next: " in errors
    assert not Path(".autotune").exists()


def test_the_study_keeps_what_it_starts_from_and_is_another_one_without(autotune):
    del autotune  # for its folder
    without = spec_of({"script": Path("train.py"), "engine": "aot"})
    spec = spec_of({"script": Path("train.py"), "engine": "aot", "plans_first": read_first(Path("train.log"))})
    assert spec.plans_first == (
        "FusedMatMul+Add+:1:-1,Gelu+:1:-1",
        "FusedMatMul+Add+:1:-1",
        "Gelu+:1:-1",
        "LayerNormalization+:1:-1,Reshape+:1:-1",
    )
    assert default_study_name(spec) != default_study_name(without)
    with pytest.raises(UsageError, match="begun with another --plans-from"):
        check_same("gpt", without, spec)


@pytest.fixture
def said():
    """What the display says of plans that were given."""

    def say(given):
        file = io.StringIO()
        Display(Console(file=file, width=300), StudySpec(script="/x/train.py"), Interruption()).given(given)
        return file.getvalue()

    return say


def test_what_is_tried_first_and_what_is_left_out_is_said(said):
    tried, unknown = (Plan("gelu+", 1, -1), Plan("add+", 2, 3)), Plan("BiasGelu+", 1, -1)
    text = said(Given(sets=(tried,), unknown=(unknown,), passed_over=(tried[:1],)))
    assert "Tried first, as given:\n  gelu+:1:-1 add+:2:3\n" in text
    assert "Left out, because engine aot finds no such cluster in this script: BiasGelu+:1:-1\n" in text
    assert "1 more of these plans " in text


def test_a_log_of_another_engine_is_said_to_bring_nothing(said):
    text = said(Given(unknown=(Plan("BiasGelu+", 1, -1),)))
    assert "None of the plans given can be tried first." in text
    assert "the operators in their engine's graph" in text
