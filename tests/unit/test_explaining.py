"""What a trace holds at its peak, and the words and tables for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.cli.explain import card_of
from autotune.machine.devices import Device, Gpus
from autotune.predict import explaining
from autotune.predict.device_peak import peak_of
from autotune.predict.explaining import explain
from autotune.records.allocations import AllocationTrace, FirstTensor, Place, TensorRole, Traced, Way
from autotune.records.cards import CARDS, card_named
from autotune.records.codec import dumps, loads
from autotune.records.explanation import Explanation, HeldTensor
from autotune.records.facts import BatchControl
from autotune.report.explanation import (
    closing_sentences,
    draw_timeline,
    explanation_sentences,
    kind_table,
    line_table,
    module_table,
    tensor_table,
)

MIB = 1 << 20
A100 = CARDS["a100-40gb"]


class Script:
    """Writes a trace as a script does: tensors of so many MiB, of float32."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        self.bytes: list[int] = []
        self.tensors: list[FirstTensor] = []
        self.places: list[Place] = []

    def at(self, module: str, line: str, operator: str = "mm", called: str = "", way: Way = "forward") -> None:
        self.places.append(Place(module, line, called or line, operator, way, code="x" + " y" * 90))
        self.events.append(("w", len(self.places) - 1))

    def begin(self, phase: str) -> None:
        self.events.append(("p", AllocationTrace.PHASES.index(phase)))

    def make(self, mebibytes: int, role: TensorRole = "", parameter: str = "") -> int:
        self.bytes.append(mebibytes * MIB)
        self.tensors.append(FirstTensor((mebibytes, 1024, 256), "float32", role, parameter))
        self.events.append(("a", len(self.bytes) - 1))
        return len(self.bytes) - 1

    def free(self, *storages: int) -> None:
        self.events += [("f", storage) for storage in storages]

    def traced(self) -> Traced:
        kinds, numbers = zip(*self.events, strict=True)
        trace = AllocationTrace(
            "".join(kinds), numbers, tuple(self.bytes), places=tuple(self.places), tensors=tuple(self.tensors)
        )
        return Traced(trace, 8, BatchControl("none"), steps=2, process=1)


def kinds_of(script: Script) -> list[tuple[str, int]]:
    """Return what is held at the peak: kinds, and MiB."""
    return [(one.kind, one.bytes // MIB) for one in explain(script.traced(), A100, script="train.py").held]


def training() -> Script:
    """Train two steps of a model with two layers; the loss of the first step is kept in a list."""
    script = Script()
    script.at("layers.0", "train.py:1", "_to_copy")
    script.make(2, "parameter", "layers.0.weight")
    script.at("", "train.py:2")
    script.make(3)  # a table of the script's own
    for step in range(2):
        if step:
            script.begin("start")
        script.at("", "train.py:3", "_to_copy")
        batch = script.make(5)
        script.begin("forward")
        saved = []
        for layer in range(2):
            script.at(f"layers.{layer}", "model.py:7", "addmm", called="train.py:4")
            passing = script.make(1)
            saved.append(script.make(20))
            script.free(passing)
        script.at("", "train.py:5", "sum")
        script.make(7)
        script.begin("backward")
        for layer in (1, 0):
            script.at(f"layers.{layer}", "model.py:7", "mm", called="train.py:4", way="backward")
            gradient = script.make(4)
            script.free(saved[layer], gradient)
        script.make(2, "gradient", "layers.0.weight")
        script.begin("optimizer")
        script.at("", "train.py:6", "zeros_like")
        if not step:
            script.make(2, "optimizer state", "layers.0.weight")
        script.free(batch)
    return script


def explained() -> Explanation:
    return explain(training().traced(), A100, script="train.py")


def test_everything_at_the_peak_is_told_with_what_it_is_held_for() -> None:
    found = explained()
    kinds = {kind: sum(one.bytes // MIB for one in found.held if one.kind == kind) for kind in _kinds(found)}
    assert kinds == {
        "parameters": 2,
        "from before the first step": 3,
        "optimizer state": 2,
        "gradients": 2,
        "from earlier steps": 7,
        "inputs": 5,
        "saved activations": 40,
        "held by the script": 7,
        "in use": 4,
    }
    assert found.peak_bytes == peak_of(training().traced().trace, A100).allocated
    assert found.workspace_bytes == found.peak_bytes - sum(one.bytes for one in found.held)
    assert (found.moment.step, found.moment.phase, found.moment.place.module) == (1, "backward", "layers.1")


def test_a_process_needs_what_an_epoch_reserves(monkeypatch: pytest.MonkeyPatch) -> None:
    traced, plain = training().traced(), explained()
    kinds, sizes = f"{traced.trace.kinds}a", (*traced.trace.storage_bytes, 500 * MIB)
    trace = replace(traced.trace, kinds=kinds, numbers=(*traced.trace.numbers, len(sizes) - 1), storage_bytes=sizes)
    epoch = replace(traced, trace=trace, notes=("a note",))
    monkeypatch.setattr(explaining, "with_epoch", lambda _: epoch)
    found = explained()
    more = peak_of(trace, A100).reserved - peak_of(traced.trace, A100).reserved
    assert found.process_bytes - plain.process_bytes == more
    assert more > 0
    assert (found.peak_bytes, found.held, found.notes) == (plain.peak_bytes, plain.held, ("a note",))


def _kinds(found: Explanation) -> set[str]:
    return {one.kind for one in found.held}


def test_a_saved_activation_is_told_with_what_it_is_saved_for() -> None:
    saved = _named(explained(), "layers.0", "addmm")
    assert saved.bytes == 20 * MIB
    assert (saved.made.phase, saved.made.step) == ("forward", 1)
    assert saved.freed is not None
    assert (saved.freed.phase, saved.freed.place.module) == ("backward", "layers.0")


def _named(found: Explanation, module: str, operator: str) -> HeldTensor:
    (one,) = [each for each in found.held if (each.made.place.module, each.made.place.operator) == (module, operator)]
    return one


def test_a_tensor_that_its_operator_alone_needs_is_in_use_even_at_a_peak_in_the_forward() -> None:
    script = Script()
    script.begin("forward")
    script.at("layer", "model.py:1")
    kept = script.make(4)
    passing = script.make(9)
    script.free(passing)
    script.begin("backward")
    script.free(kept)
    assert kinds_of(script) == [("in use", 9), ("saved activations", 4)]


def test_what_a_backward_computes_again_is_told_apart_from_its_own_results() -> None:
    script = Script()
    script.begin("forward")
    script.at("layer", "model.py:1")
    script.free(script.make(1))
    script.begin("backward")
    script.at("layer", "model.py:1", way="recompute")
    script.make(5)
    script.at("layer", "model.py:1", way="backward")
    script.make(3)
    assert kinds_of(script) == [("recomputed activations", 5), ("in use", 3)]


def test_what_the_backward_does_not_free_is_held_by_the_script() -> None:
    script = Script()
    script.begin("forward")
    script.at("", "train.py:1")
    logits, saved = script.make(5), script.make(4)
    script.begin("backward")
    script.make(1)
    script.free(saved)
    script.begin("optimizer")
    script.free(logits)
    assert kinds_of(script) == [("held by the script", 5), ("saved activations", 4), ("in use", 1)]


def test_the_next_batch_of_a_step_is_an_input() -> None:
    script = Script()
    script.begin("forward")
    script.begin("backward")
    script.begin("optimizer")
    script.at("", "train.py:1")
    script.make(5)
    script.free(script.make(1))
    script.begin("forward")
    script.make(2)
    script.begin("backward")
    assert kinds_of(script) == [("inputs", 5), ("held by the script", 2)]


def test_of_equal_peaks_the_last_one_is_told() -> None:
    """Guards optimizers without state: in the first step, the batch was made before any step."""
    script = Script()
    for step in range(2):
        if step:
            script.begin("start")
        script.at("", "train.py:1")
        batch = script.make(5)
        script.begin("forward")
        script.begin("backward")
        script.free(batch)
    assert kinds_of(script) == [("inputs", 5)]


def test_a_peak_before_training_is_said_to_be_there() -> None:
    script = Script()
    script.at("", "train.py:1")
    script.free(script.make(5))
    script.begin("forward")
    (first, *_) = explanation_sentences(explain(script.traced(), A100, script="train.py"))
    assert first.startswith("Before its first step, the script holds 5 MiB")


def test_what_the_next_step_frees_is_said_to_be_held_until_then() -> None:
    script = Script()
    script.begin("forward")
    script.at("head", "train.py:1")
    logits = script.make(5)
    script.begin("backward")
    script.begin("start")
    script.begin("forward")
    script.free(logits)
    (row,) = tensor_table(explain(script.traced(), A100, script="train.py")).rows
    assert row[-1] == "the next step"


def test_an_empty_timeline_is_not_drawn() -> None:
    assert draw_timeline(replace(explained(), timeline=())) == ()


def test_a_leak_is_what_every_step_leaves() -> None:
    (leak,) = explained().leaks
    assert (leak.place.line, leak.bytes // MIB) == ("train.py:5", 7)


@pytest.mark.parametrize("made_in", [(0,), (1,)], ids=["a cache", "made late"])
def test_what_one_step_alone_leaves_is_no_leak(made_in: tuple[int, ...]) -> None:
    script = Script()
    for step in range(2):
        script.begin("start" if step else "forward")
        script.begin("forward")
        script.at("layer", "model.py:1")
        kept = script.make(4)
        if step not in made_in:
            script.free(kept)
    assert explain(script.traced(), A100, script="train.py").leaks == ()


@pytest.mark.parametrize("phase", ["start", "forward", "backward", "optimizer", "after the step"])
def test_a_leak_is_found_in_every_part_of_a_step(phase: str) -> None:
    script = Script()
    for step in range(3):
        for each in ("start", "forward", "backward", "optimizer"):
            if each != "start" or step:
                script.begin(each)
            if phase == "after the step" and each == "start" and step:
                script.at("", "train.py:8")
                script.make(2)
            if each == phase:
                script.at("", "train.py:9")
                script.make(3)
    (leak,) = explain(script.traced(), A100, script="train.py").leaks
    assert (leak.place.line, leak.bytes // MIB) == (
        ("train.py:8", 2) if phase == "after the step" else ("train.py:9", 3)
    )


def test_a_batch_that_is_loaded_ahead_is_no_leak() -> None:
    script = Script()
    script.at("", "train.py:1")
    batches = [script.make(4)]
    for step in range(3):
        if step:
            script.begin("start")
        batches.append(script.make(4))
        script.begin("forward")
        if step:
            script.free(batches[step - 1])
    assert explain(script.traced(), A100, script="train.py").leaks == ()


def test_a_variable_that_is_assigned_again_is_no_leak() -> None:
    script = Script()
    script.begin("forward")
    script.at("", "train.py:1")
    first = script.make(4)
    script.begin("start")
    script.begin("forward")
    script.make(4)
    script.free(first)
    assert explain(script.traced(), A100, script="train.py").leaks == ()


def test_an_explanation_survives_a_round_trip() -> None:
    assert loads(Explanation, dumps(explained())) == explained()


def test_the_first_sentences_name_the_moment_and_the_line_that_holds_most() -> None:
    assert explanation_sentences(explained()) == (
        "The step at batch size 8 holds 73 MiB of tensors at its peak, in the backward of layers.1 at model.py:7.",
        "44 MiB of that comes from model.py:7 (called at train.py:4): 3 tensors, most of them 20x1024x256 float32.",
        "Each step that was followed keeps 7 MiB more than the one before, made by sum at train.py:5.",
    )


def test_model_and_optimizer_are_named_first_where_they_hold_more_than_any_line() -> None:
    script = Script()
    script.at("layer", "train.py:1")
    script.make(50, "parameter", "layer.weight")
    script.begin("forward")
    script.at("layer", "model.py:1")
    script.make(4)
    script.begin("backward")
    told = explanation_sentences(explain(script.traced(), A100, script="train.py"))
    assert told[1:] == (
        "50 MiB of that is parameters.",
        "4 MiB of the rest comes from model.py:1: a tensor of 4x1024x256 float32.",
    )


def test_tables_put_alike_modules_in_one_row_and_order_by_memory() -> None:
    found = explained()
    assert kind_table(found).rows[0] == ("saved activations", "40 MiB", "54.8 %", "2")
    modules = module_table(found).rows
    assert modules[0] == ("layers.* (2)", "50 MiB", "6 MiB", "44 MiB")
    assert modules[1][0] == "outside of modules"
    lines = line_table(found)
    assert lines.rows[0][:4] == ("model.py:7", "44 MiB", "3", "addmm, mm")
    assert lines.rows[0][4] == "", "a library's"
    own = next(row for row in lines.rows if row[0] == "train.py:3")
    assert 0 < len(own[4]) <= 48
    tensors = tensor_table(found).rows
    assert tensors[0] == (
        *("2 x", "20x1024x256 float32", "40 MiB", "saved", "layers.*", "addmm"),
        "its backward",
    )
    weight = next(row for row in tensors if row[3] == "parameters")
    assert weight[4:] == ("layers.0.weight", "", "the end")


def test_the_timeline_shows_where_phases_begin() -> None:
    drawn = draw_timeline(explained())
    assert "73 MiB" in drawn[0]
    wide = replace(explained(), timeline=(*[("forward", 10)] * 200, *[("backward", 30)] * 100, ("optimizer", 20)))
    *bars, ruler = draw_timeline(wide)
    assert ruler.split() == ["forward", "backward"], "a phase of one column has no room for its name"
    assert bars[0].endswith("█" * 21), "the backward, and nothing of the optimizer's step"
    assert bars[-1].count("█") == 64


def test_the_process_needs_what_the_allocator_caches_and_a_context_too() -> None:
    found = replace(explained(), asked=("train.py:9",), notes=("compiled",))
    told = closing_sentences(found)
    assert "the process needs 1.48 GiB; a100-40gb has 39.4 GiB" in told[0]
    assert "train.py:9" in told[2]
    assert told[3] == "Note: compiled"


@pytest.mark.parametrize("title", ["NVIDIA H200", "NVIDIA A100-SXM4-40GB"])
def test_a_gpu_of_this_machine_is_known_by_its_name(title: str) -> None:
    assert card_named(title, 7).title == title
    assert card_named(title, 7).memory_bytes > 7


def test_a_gpu_that_is_not_in_the_list_counts_by_its_memory() -> None:
    card = card_named("NVIDIA Z9", 24 << 30)
    assert (card.name, card.title, card.memory_bytes) == ("24GiB", "NVIDIA Z9", 24 << 30)


def gpu(name: str, memory_bytes: int | None) -> Device:
    return Device(
        index=0,
        uuid="GPU-0",
        name=name,
        variables={},
        torch_uuids=(),
        memory_bytes=memory_bytes,
        reserved_bytes=1 << 30,
        used_bytes=0,
    )


@pytest.mark.parametrize(
    ("devices", "card"),
    [
        ((), "a100-80gb"),
        ((gpu("NVIDIA H200", 140 << 30),), "h200-141gb"),
        ((gpu("NVIDIA Z9", 25 << 30),), "24GiB"),
        ((gpu("NVIDIA GB10", None),), "a100-80gb"),
    ],
    ids=["no GPU", "a known one", "an unknown one", "one without memory of its own"],
)
def test_the_card_is_by_default_this_machine_s(
    devices: tuple[Device, ...], card: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.machine.meters.nvidia.read_gpus", lambda: Gpus(devices))
    assert card_of(None).name == card
    assert card_of([A100]) is A100, "the one that is named"
