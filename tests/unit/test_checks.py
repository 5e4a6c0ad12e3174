"""What is checked of a script before a run, and what a discovery run's ends mean."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from autotune.errors import DiscoveryError, InterruptionError, RunError, UsageError
from autotune.predict.prediction import Predictor
from autotune.records.configuration import Configuration
from autotune.records.facts import (
    AccumulationControl,
    BatchControl,
    ClusterFacts,
    Facts,
    OptimizerFacts,
    OutsideFacts,
    PrecisionFacts,
    StepsFacts,
)
from autotune.records.fingerprint import script_sha256, script_title
from autotune.records.graph import Calibration
from autotune.records.inference import Converted, InferenceFacts, InferenceMoment
from autotune.records.measurement import MemorySplit
from autotune.records.outcome import Fallback, HostOutOfMemory, Outcome, OutOfMemory, ScriptError, TimedOut
from autotune.records.study import StudySpec
from autotune.tuning.checks import (
    check_batch_sizes,
    check_choices,
    check_global_batch,
    check_limit,
    check_module,
    check_script,
    described_at_smaller,
    judge,
    smaller_to_describe,
)
from tests.fakes.predictable import BLOCK, PREDICTABLE
from tests.fakes.study_record import study_record
from tests.fakes.worker_side import measured

FACTS = study_record().facts
RUN = Path("runs/discovery")


def judged(facts: Facts | None, baseline: Outcome | None, failure: Outcome | None, *, reason: str = "") -> Facts:
    return judge(facts, baseline, failure, reason=reason, directory=RUN)


def test_a_script_that_is_there_gives_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    monkeypatch.chdir(tmp_path)
    assert check_script(Path("train.py"), python=sys.executable) == (tmp_path / "train.py").resolve()


def test_a_missing_script_is_an_error_that_names_a_similar_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    with pytest.raises(UsageError, match="no script") as caught:
        check_script(tmp_path / "trian.py", python=sys.executable)
    assert str(tmp_path / "train.py") in caught.value.hint


def test_a_notebook_is_an_error_that_names_the_way_to_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.ipynb").write_text('{"cells": []}')
    with pytest.raises(UsageError, match="is a notebook") as caught:
        check_script(tmp_path / "train.ipynb", python=sys.executable)
    assert "nbconvert --to script" in caught.value.hint


def test_a_program_beside_the_interpreter_goes_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "torchrun"
    program.write_text("#!/bin/python\nfrom torch.distributed.run import main\n")
    monkeypatch.chdir(tmp_path)
    assert check_script(Path("torchrun"), python=str(tmp_path / "bin" / "python")) == program
    with pytest.raises(UsageError, match="no script"):
        check_script(Path("torchrum"), python=str(tmp_path / "bin" / "python"))


def test_programs_that_are_not_in_python_are_errors() -> None:
    with pytest.raises(UsageError, match="is not in Python") as caught:
        check_script(Path("ls"), python=sys.executable)
    assert "script that it starts" in caught.value.hint
    with pytest.raises(UsageError, match="is an interpreter") as caught:
        check_script(Path("python3"), python=sys.executable)
    assert "leave it out" in caught.value.hint


@pytest.mark.process
def test_a_module_is_the_file_that_the_interpreter_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    package.mkdir()
    for name in ("__init__.py", "__main__.py", "train.py"):
        (package / name).write_text("raise RuntimeError('nothing is imported to find it')\n")
    monkeypatch.chdir(tmp_path)
    assert check_module("package.train", python=sys.executable) == package / "train.py"
    assert check_module("package", python=sys.executable) == package / "__main__.py"
    for name, missing in (("package.trian", "package.trian"), ("pakage.train", "pakage"), ("package.train.x", "x")):
        with pytest.raises(UsageError, match=rf"finds no module '.*{missing}'"):
            check_module(name, python=sys.executable)


def test_a_file_is_no_name_of_a_module_and_the_other_way_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="not a file") as caught:
        check_module("package/train.py", python=sys.executable)
    assert caught.value.hint == "did you mean -m package.train?"
    with pytest.raises(UsageError, match="no script") as caught:
        check_script(Path("package.train"), python=sys.executable)
    assert caught.value.hint == "did you mean -m package.train?"


def test_a_folder_is_an_error_that_names_a_script_inside(tmp_path: Path) -> None:
    (tmp_path / "main.py").touch()
    with pytest.raises(UsageError, match="is a folder") as caught:
        check_script(tmp_path, python=sys.executable)
    assert "main.py" in caught.value.hint


@pytest.mark.parametrize("source", [b"def f(:\n", b"x = '\n", b"\x00\x01", b"\xff\xfe\x00"])
def test_what_python_cannot_parse_is_an_error_with_the_place(tmp_path: Path, source: bytes) -> None:
    (tmp_path / "train.py").write_bytes(source)
    with pytest.raises(UsageError, match=r"train\.py"):
        check_script(tmp_path / "train.py", python=sys.executable)


def test_the_hash_tells_two_versions_of_a_script_apart(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("lr = 1\n")
    before = script_sha256(str(script))
    script.write_text("lr = 2\n")
    assert script_sha256(str(script)) != before


def test_what_a_launcher_starts_belongs_to_the_hash_and_gives_the_name(tmp_path: Path) -> None:
    program, script = tmp_path / "torchrun", tmp_path / "train.py"
    program.write_text("main()\n")
    script.write_text("lr = 1\n")
    arguments = ("--nproc-per-node", "2", "train.py")
    before = script_sha256(str(program), arguments, str(tmp_path))
    script.write_text("lr = 2\n")
    assert script_sha256(str(program), arguments, str(tmp_path)) != before
    assert script_sha256(str(script), ("x.py",), str(tmp_path)) == script_sha256(str(script))
    assert script_title(str(program), "", arguments) == "train.py"
    assert script_title(str(program), "", ("--nproc-per-node", "2", "-m", "package.train")) == "package.train"


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
    check_limit(replace(FACTS, split=None), 1)  # nobody knows what is in it
    facts = replace(FACTS, split=MemorySplit(parameters=2**30, gradients=2**30, optimizer_state=2**31, buffers=0))
    check_limit(facts, 2**33)
    with pytest.raises(RunError, match=r"need 4 GiB, 1 GiB more than the limit of 3 GiB"):
        check_limit(facts, 3 * 2**30)


def test_a_limit_below_a_models_weights_says_what_they_need() -> None:
    assert FACTS is not None
    moments = (InferenceMoment("before", 2**28, 2**28),)
    facts = replace(FACTS, split=None, inference=InferenceFacts(2**30, moments))
    check_limit(facts, 2**30 + 2**28)
    with pytest.raises(RunError, match=r"weights alone need 1 GiB, .* 256 MiB: 256 MiB more than the limit of 1 GiB"):
        check_limit(facts, 2**30)
    smaller, refused = Converted("int8", 2**28, 0.01), Converted("fp16", 2**20, 0.5, "too far off")
    check_limit(replace(facts, inference=InferenceFacts(2**30, moments, conversions=(smaller, refused))), 2**29)


def optimizer(name: str, **settings: str) -> Facts:
    return replace(FACTS, optimizers=(OptimizerFacts(name, settings),))


def environment(device_kind: Literal["cpu", "cuda"], **variables: str) -> Facts:
    own = replace(FACTS.environment, device_kind=device_kind, variables=variables)
    return replace(optimizer("AdamW", foreach="None", fused="None"), environment=own)


UNSAID = optimizer("AdamW", foreach="None", fused="None")

LIBRARY = "libtcmalloc_minimal.so.4"


def heap(libc: str, *libraries: str, **variables: str) -> Facts:
    found = environment("cpu", **variables).environment
    platform = f"Linux-6.1-x86_64-with-{libc}"
    return replace(UNSAID, environment=replace(found, platform=platform, heap_libraries=libraries))


def undiscovered_heap() -> Facts:
    found = heap("glibc2.36")
    return replace(found, environment=replace(found.environment, heap_libraries=None))


@pytest.mark.parametrize(
    ("choice", "facts"),
    [
        ("fused-optimizer", UNSAID),
        ("foreach-optimizer", environment("cpu")),
        ("bf16", replace(FACTS, precision=PrecisionFacts("float32"))),
        ("bf16", replace(FACTS, precision=None)),
        ("expandable-segments", environment("cuda", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:False")),
        ("compile", replace(FACTS, compile_refusal="")),
        ("tcmalloc", heap("glibc2.36", LIBRARY)),
        ("tcmalloc", heap("glibc2.36", LIBRARY, LD_PRELOAD="")),
        ("mmap-threshold", heap("glibc2.36")),
    ],
)
def test_choices_that_a_script_leaves_open_are_not_refused(choice: str, facts: Facts) -> None:
    check_choices("aot", (choice,), facts)


def test_what_an_engine_does_by_itself_no_script_rules_out() -> None:
    check_choices("ortmodule", ("compute-optimizer", "embedding-sparse-optimizer"), replace(FACTS, optimizers=()))


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
        ("tcmalloc", environment("cuda"), "trains on a GPU"),
        ("tcmalloc", heap("musl", LIBRARY), "about glibc"),
        ("tcmalloc", heap("glibc2.36"), "libtcmalloc_minimal.so.4 is not installed; .* in libtcmalloc-minimal4"),
        ("tcmalloc", heap("glibc2.36", LIBRARY, LD_PRELOAD="libjemalloc.so.2"), "LD_PRELOAD is set already"),
        ("tcmalloc", undiscovered_heap(), "discovered before this was looked at"),
        ("mmap-threshold", heap("glibc2.36", MALLOC_MMAP_THRESHOLD_="65536"), "MALLOC_MMAP_THRESHOLD_ is set already"),
        ("compile", FACTS, "it was discovered before this was looked at"),
        ("compile", replace(FACTS, compile_refusal="the script compiles Net itself"), "compiles Net itself"),
        (
            "expandable-segments",
            environment("cuda", PYTORCH_ALLOC_CONF="backend: cudaMallocAsync"),
            "PYTORCH_ALLOC_CONF leaves memory to backend:cudaMallocAsync, which has no segments",
        ),
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


def facts_at(batch_size: int, **changes: Any) -> Facts:
    control = BatchControl("loaders", loaders=(0,))
    return replace(FACTS, batch_size=batch_size, batch_control=control, undescribed=None, **changes)


@pytest.mark.parametrize("failure", [OutOfMemory("full"), HostOutOfMemory("full")])
def test_what_was_too_large_to_describe_is_tried_at_half_the_batch(failure: Outcome) -> None:
    assert smaller_to_describe(replace(facts_at(9), undescribed=failure)) == 4


def test_what_half_the_batch_does_not_help_is_not_tried_again() -> None:
    full = OutOfMemory("full")
    fixed = BatchControl("none", reason="no DataLoader")
    assert smaller_to_describe(facts_at(8)) is None
    assert smaller_to_describe(replace(facts_at(8), undescribed=Fallback("double backward"))) is None
    assert smaller_to_describe(replace(facts_at(8), undescribed=TimedOut("slow"))) is None
    assert smaller_to_describe(replace(facts_at(8), undescribed=full, batch_control=fixed)) is None
    assert smaller_to_describe(replace(facts_at(2), undescribed=full)) is None


def test_plans_found_at_half_the_batch_are_brought_to_the_scripts_own() -> None:
    whole = replace(facts_at(8, clusters=(), dimensions={}), undescribed=OutOfMemory("no memory left\nat line 3"))
    rows = (
        ClusterFacts("gelu+", 1, 2, 400, "100*batch", 0.5),
        ClusterFacts("cat+", 1, 2, 33, "edges_dim1", 0.5),
    )
    half = facts_at(4, clusters=rows, dimensions={"batch": 4, "edges_dim1": 33, "seq_len": 7})
    half = replace(half, per_sample={"edges_dim1": 8.2})

    found = described_at_smaller(whole, half)

    assert [row.saving_bytes for row in found.clusters] == [800, 66]
    assert [row.recompute_time_s for row in found.clusters] == [1.0, 1.0]
    assert found.dimensions == {"batch": 8, "edges_dim1": 66, "seq_len": 7}
    assert found.batch_size == 8
    assert found.undescribed is None
    assert found.notes[-1] == "described at batch size 4, since at the script's own that failed: no memory left"


def test_memory_is_predicted_by_graphs_that_were_found_at_half_the_batch() -> None:
    own, size = PREDICTABLE.baseline, PREDICTABLE.batch_size
    assert size is not None
    found_at_own = replace(PREDICTABLE, outside=(OutsideFacts("Rope", 2, 800),))
    half = replace(
        found_at_own,
        batch_size=size // 2,
        baseline=replace(own, batch_size=size // 2),
        dimensions={"batch": size // 2},
        outside=(OutsideFacts("Rope", 2, 400),),
    )
    failed = TimedOut("slow")
    whole = replace(PREDICTABLE, graphs=(), traces=(), calibration=None, clusters=(), undescribed=failed)

    found = described_at_smaller(whole, half)

    assert found.outside == found_at_own.outside
    for plans, batch_size in (((), size), ((BLOCK,), size), ((BLOCK,), 4 * size)):
        configuration = Configuration("aot", plans, 0, batch_size)
        told, wanted = Predictor(found).predict(configuration), Predictor(PREDICTABLE).predict(configuration)
        assert (told.peak_bytes, told.saved_bytes) == (wanted.peak_bytes, wanted.saved_bytes)


def test_sizes_that_do_not_tell_the_batch_are_brought_up_in_proportion_and_not_predicted() -> None:
    whole = replace(facts_at(8), undescribed=OutOfMemory("full"))
    half = facts_at(4, clusters=(ClusterFacts("gelu+", 1, 2, 400, "400", 0.5),), dimensions={})
    calibration = Calibration("2.13", "cpu", "float32", 1, {}, error=0.01)

    found = described_at_smaller(whole, replace(half, calibration=calibration))

    assert found.clusters[0].saving_bytes == 800
    assert (found.graphs, found.traces) == ((), ())
    assert found.calibration is not None
    assert found.calibration.error is None
    assert "batch size 4 only" in found.calibration.reason


def test_what_was_found_at_a_batch_size_nobody_knows_cannot_be_brought_to_the_scripts_own() -> None:
    whole = replace(facts_at(8), undescribed=OutOfMemory("full"))
    assert described_at_smaller(whole, replace(facts_at(4), batch_size=None)) == whole


def test_a_saving_whose_formula_has_another_name_in_it_is_brought_up_in_proportion() -> None:
    whole = replace(facts_at(8), undescribed=OutOfMemory("full"))
    half = facts_at(4, clusters=(ClusterFacts("gelu+", 1, 2, 400, "100*s99", 0.5),), dimensions={"batch": 4})
    assert described_at_smaller(whole, half).clusters[0].saving_bytes == 800


def test_a_script_without_torch_is_told_to_choose_an_interpreter() -> None:
    with pytest.raises(DiscoveryError) as caught:
        judged(None, ScriptError("ModuleNotFoundError: No module named 'torch'", advice="see the traceback"), None)
    assert "--python" in caught.value.hint


def test_a_second_failure_is_told_beside_the_first() -> None:
    whole = replace(facts_at(8), undescribed=OutOfMemory("full"))
    found = described_at_smaller(whole, replace(facts_at(4, clusters=()), undescribed=TimedOut("slow")))
    assert found == replace(whole, undescribed=OutOfMemory("full; at batch size 4 as well: slow"))


def keeping(steps: int | None, how: Literal["arguments", "none"], sizes: tuple[int, int] | None = None) -> None:
    assert FACTS is not None
    facts = replace(FACTS, accumulation_control=AccumulationControl(how, steps, "nothing sets it"))
    check_global_batch(StudySpec("/train.py", keep_global_batch=True, batch_sizes=sizes), facts)


def test_a_global_batch_can_be_kept_where_the_accumulation_can_be_set() -> None:
    keeping(2, "arguments")
    keeping(2, "arguments", (3, 4))
    assert FACTS is not None
    check_global_batch(StudySpec("/train.py"), FACTS)


def test_a_global_batch_that_cannot_be_kept_is_refused_with_the_reason() -> None:
    with pytest.raises(UsageError, match="the script's accumulation cannot be set: nothing sets it") as caught:
        keeping(2, "none")
    assert "--batch-sizes 16:16" in caught.value.hint
    keeping(2, "none", (16, 16))
    with pytest.raises(UsageError, match="cannot be set"):
        keeping(2, "none", (8, 16))


def test_a_range_of_batches_that_the_data_do_not_fill_is_refused() -> None:
    assert FACTS is not None
    facts = replace(FACTS, steps=StepsFacts(in_pass=4.5))
    assert FACTS.batch_size == 16
    for fine in (None, (72, 100), (1, 16)):
        check_batch_sizes(StudySpec("/train.py", batch_sizes=fine), facts)
    check_batch_sizes(StudySpec("/train.py", batch_sizes=(73, 100)), FACTS)
    with pytest.raises(UsageError, match=r"at batch size 16 a pass .* has 4\.5 optimizer steps, too few for one at 73"):
        check_batch_sizes(StudySpec("/train.py", batch_sizes=(73, 100)), facts)
    longer = replace(facts, steps=StepsFacts(in_pass=450))
    with pytest.raises(UsageError) as caught:
        check_batch_sizes(StudySpec("/train.py", batch_sizes=(7201, 7300)), longer)
    assert caught.value.hint == "give a range that begins at 800 or below: a trial needs about 9 optimizer steps"


def test_a_range_without_a_divisor_of_the_global_batch_is_refused() -> None:
    with pytest.raises(UsageError, match="none of the batch sizes 5 to 7 divides 32"):
        keeping(2, "arguments", (5, 7))
