"""What is checked of a script before a run, and what a discovery run's ends mean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from autotune.discovery import check_choices, check_limit, check_script, judge, script_sha256
from autotune.errors import DiscoveryError, InterruptionError, RunError, UsageError
from autotune.records import Facts, MemorySplit, OptimizerFacts, Outcome, OutOfMemory, PrecisionFacts, ScriptError
from tests.fakes.study_record import study_record
from tests.fakes.worker_side import measured

FACTS = study_record().facts
RUN = Path("runs/discovery")


def judged(facts: Facts | None, baseline: Outcome | None, failure: Outcome | None, *, reason: str = "") -> Facts:
    return judge(facts, baseline, failure, reason=reason, directory=RUN)


def test_a_script_that_is_there_gives_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    monkeypatch.chdir(tmp_path)
    assert check_script(Path("train.py")) == (tmp_path / "train.py").resolve()


def test_a_missing_script_is_an_error_that_names_a_similar_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    with pytest.raises(UsageError, match="no script") as caught:
        check_script(tmp_path / "trian.py")
    assert str(tmp_path / "train.py") in caught.value.hint


def test_a_folder_is_an_error_that_names_a_script_inside(tmp_path: Path) -> None:
    (tmp_path / "main.py").touch()
    with pytest.raises(UsageError, match="is a folder") as caught:
        check_script(tmp_path)
    assert "main.py" in caught.value.hint


@pytest.mark.parametrize("source", [b"def f(:\n", b"x = '\n", b"\x00\x01", b"\xff\xfe\x00"])
def test_what_python_cannot_parse_is_an_error_with_the_place(tmp_path: Path, source: bytes) -> None:
    (tmp_path / "train.py").write_bytes(source)
    with pytest.raises(UsageError, match=r"train\.py"):
        check_script(tmp_path / "train.py")


def test_the_hash_tells_two_versions_of_a_script_apart(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("lr = 1\n")
    before = script_sha256(script)
    script.write_text("lr = 2\n")
    assert script_sha256(script) != before


def test_a_measured_baseline_with_facts_is_what_a_search_needs() -> None:
    assert judged(FACTS, measured(), None) is FACTS


def test_the_scripts_own_traceback_is_in_the_error() -> None:
    failed = ScriptError(cause="ValueError: no data", traceback="Traceback: line 3\n", advice="look at line 3")
    with pytest.raises(DiscoveryError, match="no data") as caught:
        judged(None, failed, None)
    assert "line 3" in caught.value.detail
    assert "look at line 3" in caught.value.hint
    assert str(RUN) in caught.value.hint


def test_a_baseline_that_runs_out_of_memory_asks_for_a_smaller_batch() -> None:
    with pytest.raises(DiscoveryError, match="out of memory in backward") as caught:
        judged(None, OutOfMemory(cause="out of memory in backward", phase="backward"), None)
    assert "smaller" in caught.value.hint


def test_a_run_that_fails_while_describing_gives_that_failure() -> None:
    with pytest.raises(DiscoveryError, match="died while describing"):
        judged(None, measured(), ScriptError(cause="died while describing"))


def test_a_run_that_ends_before_it_described_the_script_says_the_runs_last_word() -> None:
    with pytest.raises(DiscoveryError, match="the script ended"):
        judged(None, measured(), None, reason="the script ended")


def test_an_interrupted_discovery_says_so() -> None:
    with pytest.raises(InterruptionError, match="stopped"):
        judged(None, None, None)


def test_a_limit_below_what_no_plan_changes_says_by_how_much() -> None:
    assert FACTS is not None
    facts = replace(FACTS, split=MemorySplit(parameters=2**30, gradients=2**30, optimizer_state=2**31, buffers=0))
    check_limit(facts, 2**33)
    with pytest.raises(RunError, match=r"need 4 GiB, 1 GiB more than the limit of 3 GiB"):
        check_limit(facts, 3 * 2**30)


def optimizer(name: str, **settings: str) -> Facts:
    return replace(FACTS, optimizers=(OptimizerFacts(name, settings),))


def environment(device_kind: Literal["cpu", "cuda"], **variables: str) -> Facts:
    own = replace(FACTS.environment, device_kind=device_kind, variables=variables)
    return replace(optimizer("AdamW", foreach="None", fused="None"), environment=own)


UNSAID = optimizer("AdamW", foreach="None", fused="None")


@pytest.mark.parametrize(
    ("choice", "facts"),
    [
        ("fused-optimizer", UNSAID),
        ("foreach-optimizer", environment("cpu")),
        ("bf16", replace(FACTS, precision=PrecisionFacts("float32"))),
        ("expandable-segments", environment("cuda", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:False")),
    ],
)
def test_choices_that_a_script_leaves_open_are_not_refused(choice: str, facts: Facts) -> None:
    check_choices("aot", (choice,), facts)


@pytest.mark.parametrize(
    ("choice", "facts", "reason"),
    [
        ("fused-optimizer", optimizer("RMSprop", foreach="None"), "RMSprop has no 'fused'"),
        ("fused-optimizer", optimizer("AdamW", foreach="False", fused="None"), "the script itself says how AdamW"),
        ("fused-optimizer", optimizer("AdamW", foreach="None", fused="True"), "the script itself says how AdamW"),
        ("fused-optimizer", replace(FACTS, optimizers=()), "no optimizer of torch's"),
        ("foreach-optimizer", environment("cuda"), "by themselves"),
        ("bf16", replace(FACTS, precision=PrecisionFacts("float32", "float16")), r"autocast already \(float16\)"),
        ("bf16", replace(FACTS, precision=PrecisionFacts("float32", None, grad_scaler=True)), "GradScaler"),
        ("bf16", replace(FACTS, precision=PrecisionFacts("bfloat16")), "parameters are bfloat16"),
        ("expandable-segments", environment("cpu"), "trains on CPU"),
        (
            "expandable-segments",
            environment("cuda", PYTORCH_ALLOC_CONF="max_split_size_mb:64, expandable_segments: True"),
            "PYTORCH_ALLOC_CONF has it already",
        ),
    ],
)
def test_choices_that_would_change_nothing_are_refused_with_the_reason(choice: str, facts: Facts, reason: str) -> None:
    with pytest.raises(UsageError, match=f"'{choice}' cannot be had: .*{reason}") as caught:
        check_choices("aot", (choice,), facts)
    assert "--allow" in caught.value.hint
