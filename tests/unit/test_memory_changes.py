"""Changes of a script: which ones are tried, what each does to the peak, and the words for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autotune import pipeline
from autotune.launch.port import Launcher, RunResult
from autotune.predict.explaining import explain
from autotune.records.allocations import AllocationTrace, FirstTensor, Place, Traced
from autotune.records.cards import CARDS
from autotune.records.codec import dumps, loads
from autotune.records.explanation import Explanation
from autotune.records.facts import BatchControl
from autotune.records.look_ahead import LookAhead, SeenBatch
from autotune.records.memory_changes import CHANGES, ChangeEffect, UntriedChange
from autotune.records.outcome import Fallback, ScriptError
from autotune.records.run import ALL_BLOCKS, Request
from autotune.records.study import StudySpec
from autotune.report.explanation import change_sentences, change_table
from autotune.tuning.budget import Interruption
from autotune.tuning.memory_changes import try_changes

MIB = 1 << 20
A100 = CARDS["a100-40gb"]
SETS_BATCHES = BatchControl("loaders", loaders=(0,))


def script(
    mebibytes: int,
    *,
    batch_size: int | None = 8,
    control: BatchControl = SETS_BATCHES,
    blocks: int = 6,
    state: int = 8,
    optimizers: tuple[str, ...] = ("AdamW",),
    again: tuple[str, str] | None = None,
) -> Traced:
    """Make the trace of a step that takes so many MiB, with so many MiB of optimizer state of them, and 100 FLOPs.

    A module of the name in ``again`` has an operator that is computed once more.
    """
    sizes = (state * MIB, (mebibytes - state) * MIB)
    tensors = (FirstTensor((state, 1024, 256), "float32", "optimizer state"), FirstTensor((mebibytes,), "float32"))
    places = () if again is None else (Place(again[0], "m.py:1", "t.py:1", again[1], "recompute"),)
    trace = AllocationTrace("aaef", (0, 1, 0, 1), sizes, places=places, tensors=tensors)
    of_class = {"Block": blocks} if blocks else {}
    counts = {"step_flops": 100, "optimizers": optimizers}
    return Traced(trace, batch_size, control, steps=3, process=1, blocks=of_class, **counts)


def effects_of(
    own: Traced, found: Callable[[Request], Traced | str | ScriptError]
) -> tuple[dict[str, ChangeEffect], dict[str, str], list[Request]]:
    """Try all changes of a script; ``found`` makes a trace of each request, or says why there is none."""
    asked: list[Request] = []
    lock = threading.Lock()

    def run(request: Request, name: str) -> RunResult:
        assert " " not in name
        with lock:
            asked.append(request)
        made = found(request)
        outcome = Fallback(made, advice="leave it out") if isinstance(made, str) else made
        if isinstance(outcome, Traced):
            return RunResult((None,), None, None, Path("/run"), traced=outcome)
        return RunResult((outcome,), None, None, Path("/run"))

    spec = StudySpec("/train.py", engine="eager")
    effects, untried = try_changes(own, spec, A100, run, at_once=2, progress=lambda *_: None)
    return {one.change: one for one in effects}, {one.change: one.reason for one in untried}, asked


def test_each_run_makes_one_change() -> None:
    effects, untried, asked = effects_of(script(100), lambda _: script(80))

    assert not untried
    assert effects.keys() == CHANGES.keys()
    assert all(request.mode == "trace" and request.tells_places for request in asked)
    made = {(one.change, one.checkpointed_blocks, one.configurations[0].choices, one.batch_size) for one in asked}
    assert len(made) == len(asked)
    assert {blocks for _, blocks, _, _ in made} == {0, 3, ALL_BLOCKS}
    assert ("accumulation", 0, (), 4) in made
    assert effects["offload activations"].peak_bytes == 80 * MIB


BLOCKS = {"checkpoint all blocks", "checkpoint half of the blocks", "checkpoint all but products"}


@pytest.mark.parametrize(
    ("own", "left_out", "reason"),
    [
        (script(100, blocks=1), {"checkpoint half of the blocks"}, "the model has one block"),
        (script(100, blocks=0), BLOCKS, "no module with others inside repeats in the model"),
        (script(100, again=("h.0.mlp", "mm")), BLOCKS, "the script checkpoints already"),
        (script(100, again=("head", "_log_softmax")), {"chunk the loss"}, "the script checkpoints its loss already"),
        (script(100, batch_size=7), {"accumulate half batches"}, "the batch size 7 is odd"),
        (script(100, batch_size=None), {"accumulate half batches"}, "the batch size could not be counted"),
        (script(100, control=BatchControl("none", reason="it has none")), {"accumulate half batches"}, "it has none"),
        (script(100, optimizers=("AdamW", "NAdam")), {"8-bit optimizer state"}, "bitsandbytes has no NAdam of 8 bits"),
        (script(100, state=0), {"8-bit optimizer state"}, "no optimizer has state of 4,096 values or more"),
    ],
)
def test_what_a_script_has_nothing_for_is_left_out_with_the_reason(
    own: Traced, left_out: set[str], reason: str
) -> None:
    effects, untried, asked = effects_of(own, lambda _: script(80))
    assert CHANGES.keys() - effects.keys() == untried.keys() == left_out
    assert all(reason in told for told in untried.values())
    assert len(asked) == 9 - len(left_out - {"8-bit optimizer state"}), "no run is made in vain"


def test_allocator_settings_that_are_there_already_are_left_out() -> None:
    own = script(100)
    trace = replace(own.trace, kinds="aaf", numbers=(0, 1, 1), expands=True)
    _, untried, _ = effects_of(replace(own, trace=trace), lambda _: script(80))
    assert untried == {
        "expandable segments": "the environment has them already",
        "leave empty_cache out": "the script does not call it",
    }


def test_a_change_that_cannot_be_made_comes_with_its_reason() -> None:
    effects, untried, _ = effects_of(
        script(100), lambda request: "no loss" if request.change == "chunked loss" else script(90)
    )
    failing = ScriptError("KeyError: 'lr'")
    _, others, _ = effects_of(script(100), lambda request: failing if request.change == "offloading" else script(90))
    assert others == {"offload activations": "the script fails with it: KeyError: 'lr'"}
    assert untried == {"chunk the loss": "no loss"}
    assert "offload activations" in effects


@pytest.mark.parametrize(("differ", "look_ahead"), [(True, 5), (False, 0)])
def test_runs_read_as_far_ahead_as_an_epoch_of_half_the_batch_size_goes(differ: bool, look_ahead: int) -> None:
    small, large = (SeenBatch(number, size, {"ids": (1, size)}) for number, size in ((1, 4), (2, 9)))
    ahead = LookAhead((4, 9), small, large, ((small,), (large,)), differ=differ, is_whole=True, ended_by="")
    _, _, asked = effects_of(replace(script(100), ahead=ahead), lambda _: script(60))
    assert {request.look_ahead for request in asked} == {look_ahead}


def test_state_in_8_bits_has_a_scale_for_each_block_and_no_small_tensor() -> None:
    own = script(100, state=64)
    tensors = (*own.trace.tensors, FirstTensor((4095,), "float32", "optimizer state"))
    trace = replace(
        own.trace, kinds="aaaf", numbers=(0, 2, 1, 1), storage_bytes=(64 * MIB, 36 * MIB, 4 * 4095), tensors=tensors
    )
    values = 16 * MIB
    expected = values + 4 * values // 256 + 16384 + 36 * MIB
    for dtype in ("float32", "bfloat16"):
        of_type = (replace(tensors[0], dtype=dtype), *tensors[1:])
        effects, _, _ = effects_of(replace(own, trace=replace(trace, tensors=of_type)), lambda _: "no")
        assert effects["8-bit optimizer state"].peak_bytes == pytest.approx(expected, abs=1024)


def test_prices_are_for_as_many_samples() -> None:
    """Guards accumulation, whose run has half a step's."""

    def found(request: Request) -> Traced:
        return replace(script(90), step_flops=60 if request.change == "accumulation" else 130, moved_bytes=40)

    effects, _, _ = effects_of(replace(script(100), moved_bytes=30), found)
    assert effects["accumulate half batches"].more_flops == pytest.approx(0.2)
    assert effects["accumulate half batches"].moved_bytes == 50
    assert effects["offload activations"].more_flops == pytest.approx(0.3)
    assert effects["offload activations"].moved_bytes == 10
    assert effects["expandable segments"].more_flops == 0


def test_what_empties_the_cache_may_be_left_out() -> None:
    own = script(100)
    trace = replace(own.trace, kinds="afeaf", numbers=(0, 0, 0, 1, 1), storage_bytes=(30 * MIB, 60 * MIB))
    effects, _, _ = effects_of(replace(own, trace=trace), lambda _: "no")
    kept = effects["leave empty_cache out"]
    assert kept.peak_bytes == 60 * MIB
    assert kept.process_bytes - effects["expandable segments"].process_bytes == 30 * MIB


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_what_is_explained_is_told_though_changes_are_interrupted(is_interrupted: bool, tmp_path: Path) -> None:
    interruption = Interruption()
    made: list[Request] = []

    def run(request: Request, **_: Any) -> RunResult:
        made.append(request)
        if is_interrupted:
            interruption.finish.set()
        return RunResult((None,), None, None, tmp_path, traced=script(100))

    found = pipeline.explain(
        StudySpec("/train.py", engine="eager"),
        A100,
        launcher=cast(Launcher, SimpleNamespace(run=run)),
        interruption=interruption,
        runs=tmp_path,
        tries_changes=True,
    )
    assert found.peak_bytes == 100 * MIB
    assert bool(found.changes) == (not is_interrupted)
    assert len(made) == (1 if is_interrupted else 10)


def explained() -> Explanation:
    return replace(
        explain(replace(script(1000)), A100, script="train.py"),
        changes=(
            ChangeEffect("expandable segments", 1050 * MIB, 1150 * MIB),
            ChangeEffect("fused optimizer", 1000 * MIB, 1200 * MIB),
            ChangeEffect("offload activations", 1000 * MIB, 1300 * MIB, moved_bytes=300 * MIB),
            ChangeEffect("checkpoint all blocks", 600 * MIB, 800 * MIB, more_flops=0.31),
            ChangeEffect("checkpoint half of the blocks", 800 * MIB, 1000 * MIB, more_flops=0.15),
            ChangeEffect("chunk the loss", 700 * MIB, 900 * MIB),
            ChangeEffect("bfloat16 autocast", 990 * MIB, 1100 * MIB),
        ),
        untried=(UntriedChange("8-bit optimizer state", "it has none"),),
    )


def test_the_largest_effect_stands_first_in_the_table() -> None:
    rows = change_table(explained()).rows
    assert [row[0] for row in rows][:3] == ["checkpoint all blocks", "chunk the loss", "checkpoint half of the blocks"]
    assert rows[0] == ("checkpoint all blocks", "600 MiB", "-40 %", "800 MiB", "31 % more arithmetic")
    assert rows[-1][2] == "+5 %"
    assert rows[-2] == ("offload activations", "1000 MiB", "none", "1.27 GiB", "300 MiB between GPU and CPU")


def test_sentences_tell_how_three_are_made_and_which_cost_without_an_effect() -> None:
    told = change_sentences(explained())
    by_hand = ["`checkpoint all blocks`: call", "`chunk the loss`: split", "`checkpoint half of the blocks`: call"]
    assert all(said.startswith(begin) for said, begin in zip(told, by_hand, strict=False))
    assert told[3:] == (
        "`offload activations` frees nothing at the peak. Its price: 300 MiB between GPU and CPU.",
        "`expandable segments` raises the peak by 5 %.",
        "No `8-bit optimizer state`: it has none.",
    )


def test_changes_survive_being_written() -> None:
    assert loads(Explanation, dumps(explained())) == explained()
