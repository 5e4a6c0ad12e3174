"""The memory matrix: its rows in a run and in a script of one's own, and the line that each is written as."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autotune
from autotune.records.configuration import Configuration
from autotune.records.engines import Engine
from autotune.records.matrix import PhaseMemory, highest
from autotune.records.outcome import Measured
from autotune.records.plan import parse_plans
from autotune.worker.measuring import memory_matrix as worker_matrix
from autotune.worker.measuring.memory_matrix import MemoryMatrix
from tests.fakes.hooked import restored_torch
from tests.fakes.planned import clean_torch
from tests.fakes.training_process import TrainingProcess, train

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")

PHASES = ["pre_forward", "post_forward", "pre_backward", "post_backward"]
MIB = 2**20
# What other programs read in these logs.
LINE = re.compile(
    r"rank-\d+ step \d+ memory \(MiB\) \| phase: \w+ \| allocated: \d+ \| max allocated: \d+ \| cached: (\d+|n/a) \| "
    r"max cached: (\d+|n/a) \| inactive: (\d+|n/a) \| max inactive: (\d+|n/a) \| param: \d+ \| grad: \d+ \| buffer: \d+"
)


@pytest.fixture(autouse=True)
def _clean_torch() -> Iterator[None]:
    with clean_torch(), restored_torch():
        yield


class Wide(nn.Module):
    """Its activations take 32 MiB from forward to backward, and nothing else takes much."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 256), nn.Linear(256, 1)
        self.register_buffer("mask", torch.ones(256))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(torch.sin(torch.tanh(self.inner(x))) * self.mask)


def wide_inputs() -> torch.Tensor:
    return torch.randn(16384, 8)


def phases(rows: tuple[PhaseMemory, ...]) -> list[str]:
    return [row.phase for row in rows]


def test_a_row_is_written_as_ortmodule_writes_it() -> None:
    row = PhaseMemory(
        phase="pre_forward", step=1, allocated=5331 * MIB, max_allocated=9039 * MIB, peak=0, parameters=5314 * MIB,
        gradients=0, buffers=8 * MIB, cached=9382 * MIB, max_cached=9382 * MIB, inactive=219 * MIB,
        max_inactive=816 * MIB,
    )  # fmt: skip
    assert str(row) == (
        "rank-0 step 1 memory (MiB) | phase: pre_forward | allocated: 5331 | max allocated: 9039 | cached: 9382 | "
        "max cached: 9382 | inactive: 219 | max inactive: 816 | param: 5314 | grad: 0 | buffer: 8"
    )


def test_a_run_that_is_asked_for_it_takes_two_steps_more_and_measures_none_of_them(tmp_path: Path) -> None:
    process = TrainingProcess(tmp_path, memory_matrix=True)
    process.run(lambda: train(make=Wide, inputs=wide_inputs))
    (outcome,) = process.outcomes()
    assert isinstance(outcome, Measured)
    rows = outcome.measurement.memory_matrix
    assert phases(rows) == PHASES * 2
    measured = outcome.measurement.warmup_steps + len(outcome.measurement.step_times_s)
    assert [row.step for row in rows] == [measured] * 4 + [measured + 1] * 4
    assert process.conductor.process.steps == measured + 2
    assert process.reason() == "done"


def test_the_rows_follow_the_activations_and_the_gradients(tmp_path: Path) -> None:
    process = TrainingProcess(tmp_path, memory_matrix=True)
    process.run(lambda: train(make=Wide, inputs=wide_inputs))
    (outcome,) = process.outcomes()
    assert isinstance(outcome, Measured)
    before, after, loss, end = outcome.measurement.memory_matrix[4:]
    parameters = 4 * (8 * 256 + 256 + 256 + 1)
    assert {row.parameters for row in (before, after, loss, end)} == {parameters}
    assert [row.gradients for row in (before, after, loss, end)] == [0, 0, 0, parameters]
    assert end.buffers == 4 * 256
    assert after.allocated - before.allocated == pytest.approx(32 * MIB, rel=0.2)
    assert end.allocated < after.allocated
    assert (after.cached, after.max_cached, after.inactive, after.max_inactive) == (None,) * 4
    if end.peak is None:
        pytest.skip("the high-water mark cannot be reset here")
    assert before.peak is not None
    assert before.peak < after.allocated, "of what the first step's backward took nothing is left to see"
    assert end.peak >= loss.allocated
    assert end.max_allocated == max(row.peak or 0 for row in outcome.measurement.memory_matrix)
    assert highest(outcome.measurement.memory_matrix) is not None


@pytest.mark.parametrize("engine", ["eager", "aot"])
def test_a_plan_shows_in_what_is_left_after_the_forward(tmp_path: Path, engine: Engine) -> None:
    configuration = Configuration(engine, parse_plans(["sin+mul+:1:-1"]) if engine == "aot" else ())
    process = TrainingProcess(tmp_path, configuration, memory_matrix=True)
    process.run(lambda: train(make=Wide, inputs=wide_inputs))
    (outcome,) = process.outcomes()
    assert isinstance(outcome, Measured), outcome
    before, after = outcome.measurement.memory_matrix[4:6]
    kept = 32 if engine == "eager" else 16
    assert after.allocated - before.allocated == pytest.approx(kept * MIB, rel=0.3)


def test_an_optimizer_that_takes_much_memory_holds_the_peak(tmp_path: Path) -> None:
    class Greedy(torch.optim.SGD):
        def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
            torch.ones(128 * MIB, dtype=torch.uint8)
            super().step(closure)

    process = TrainingProcess(tmp_path, memory_matrix=True)
    process.run(lambda: train(optimizer=Greedy))
    (outcome,) = process.outcomes()
    assert isinstance(outcome, Measured)
    row = highest(outcome.measurement.memory_matrix)
    if row is None:
        pytest.skip("the high-water mark cannot be reset here")
    assert (row.phase, row.step) == ("pre_forward", process.conductor.process.steps - 1)


def test_calls_that_are_no_training_calls_and_backwards_within_a_backward_are_no_rows(tmp_path: Path) -> None:
    class Checkpointed(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return checkpoint(super().forward, inputs, use_reentrant=True)

    def script() -> None:
        model, loss = Checkpointed(3, 2), nn.MSELoss()
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(60):
            outputs = model(torch.randn(4, 3, requires_grad=True))
            with torch.no_grad():
                model(torch.randn(4, 3, requires_grad=True))
            loss(outputs, torch.zeros(4, 2)).backward()
            optimizer.step()

    process = TrainingProcess(tmp_path, memory_matrix=True)
    process.run(script)
    (outcome,) = process.outcomes()
    assert isinstance(outcome, Measured)
    assert phases(outcome.measurement.memory_matrix) == PHASES * 2


def test_of_several_calls_in_a_step_the_one_with_the_highest_peak_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([5, 30, 30, 30, 5, 40, 20, 30])
    monkeypatch.setattr(worker_matrix, "_resident_memory", lambda: ({"allocated": 1}, {"allocated": next(peaks)}))
    monkeypatch.setattr(worker_matrix, "reset_resident_peak", lambda: None)
    matrix = MemoryMatrix(lambda: [nn.Linear(2, 2)])
    for phase in PHASES * 2:
        matrix.take(phase)  # type: ignore[arg-type]
    assert [row.peak for row in matrix.rows] == [5, 40, 30, 30]
    assert [row.max_allocated for row in matrix.rows] == [5, 40, 30, 30]


def test_on_cuda_a_row_is_what_the_allocator_tells_of_the_models_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is called of ``torch.cuda``, and under which names; tests/gpu has the real figures."""
    device = torch.device("cuda", 1)
    current = {"allocated_bytes": 5 * MIB, "reserved_bytes": 8 * MIB, "inactive_split_bytes": 2 * MIB}
    peaks = iter([9 * MIB, 7 * MIB])
    resets = []

    def memory_stats(of: torch.device) -> dict[str, int]:
        assert of == device
        peak = next(peaks)
        highs = {"allocated_bytes": peak, "reserved_bytes": peak + MIB, "inactive_split_bytes": 3 * MIB}
        return {
            f"{name}.all.{kind}": size
            for kind, of in (("current", current), ("peak", highs))
            for name, size in of.items()
        }

    monkeypatch.setattr(torch.cuda, "memory_stats", memory_stats)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", resets.append)
    monkeypatch.setattr(MemoryMatrix, "_device", lambda self: device)
    matrix = MemoryMatrix(lambda: [nn.Linear(2, 2)])
    first, second = matrix.take("pre_forward"), matrix.take("post_forward")
    assert first is not None
    assert second is not None
    assert resets == [device] * 3
    assert (second.peak, second.max_allocated, second.max_cached) == (7 * MIB, 9 * MIB, 10 * MIB)
    assert str(first).startswith(
        "rank-0 step 0 memory (MiB) | phase: pre_forward | allocated: 5 | max allocated: 9 | cached: 8 | "
        "max cached: 10 | inactive: 2 | max inactive: 3 | "
    )


def test_no_peak_is_claimed_where_the_high_water_mark_cannot_be_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_matrix, "reset_resident_peak", lambda: "Permission denied")
    matrix = MemoryMatrix(lambda: [nn.Linear(2, 2)])
    row = matrix.take("pre_forward")
    assert row is not None
    assert row.peak is None
    assert row.max_allocated >= row.allocated
    assert highest(matrix.rows) is None


def test_a_script_that_ends_within_the_two_steps_keeps_what_was_measured(tmp_path: Path) -> None:
    process = TrainingProcess(tmp_path, memory_matrix=True)
    process.run(lambda: train(steps=2 + 4 + 1))
    (outcome,) = process.outcomes()
    assert isinstance(outcome, Measured)
    assert phases(outcome.measurement.memory_matrix) == PHASES
    assert len(outcome.measurement.step_times_s) == 4
    assert not any("ended after" in note for note in outcome.measurement.notes)


def test_discovery_takes_the_matrix_of_the_baseline(tmp_path: Path) -> None:
    process = TrainingProcess(tmp_path, mode="discover", memory_matrix=True)
    process.run(lambda: train(make=Wide, inputs=wide_inputs))
    (outcome,) = process.outcomes()
    (described,) = process.described()
    assert isinstance(outcome, Measured)
    assert phases(described.facts.memory_matrix) == PHASES * 2
    assert described.facts.memory_matrix == outcome.measurement.memory_matrix
    assert described.facts.clusters, "the description goes on after it"


# In a script of one's own


def step(model: Callable[..., torch.Tensor], *, size: int = 64) -> None:
    model(torch.randn(size, 8)).pow(2).mean().backward()


def test_lines_are_written_at_each_phase_and_ever_more_rarely() -> None:
    model, lines = Wide(), list[str]()
    with autotune.memory_matrix(model, write=lines.append) as matrix:
        for _ in range(20):
            step(model)
    assert all(LINE.fullmatch(line) for line in lines), lines[:1]
    steps = [*range(10), 16]
    assert [(row.step, row.phase) for row in matrix.rows] == [(number, phase) for number in steps for phase in PHASES]
    assert lines == [str(row) for row in matrix.rows]
    assert "cached: n/a" in lines[0]


def test_the_hooks_are_gone_when_it_is_closed() -> None:
    model, lines = Wide(), list[str]()
    matrix = autotune.memory_matrix(model, lines.append)
    step(model)
    matrix.close()
    step(model)
    assert len(lines) == len(matrix.rows) == 4
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_evaluation_writes_nothing_and_gradients_asked_for_otherwise_do() -> None:
    model, lines = Wide(), list[str]()
    with autotune.memory_matrix(model, lines.append) as matrix:
        with torch.no_grad():
            model(torch.randn(4, 8))
        model.eval()
        step(model)
        assert lines == []
        model.train()
        torch.autograd.grad(model(torch.randn(4, 8)).mean(), list(model.parameters()))
    assert phases(matrix.rows) == PHASES


def test_a_backward_that_raises_does_not_hide_the_next_one() -> None:
    model = Wide()

    def failing(gradient: torch.Tensor) -> torch.Tensor:
        raise ValueError("no")

    with autotune.memory_matrix(model, lambda line: None) as matrix:
        handle = model.inner.weight.register_hook(failing)
        with pytest.raises(ValueError, match="no"):
            step(model)
        handle.remove()
        step(model)
    assert phases(matrix.rows) == PHASES
    assert matrix.rows[-1].step == 0


def test_nested_outputs_and_a_script_of_its_own_checkpoint_give_one_row_for_each_phase() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> dict[str, object]:
            hidden = checkpoint(self.inner, x, use_reentrant=False)
            return {"loss": hidden.mean(), "more": [hidden, hidden.pow(2)]}

    model = Model()
    with autotune.memory_matrix(model, lambda line: None) as matrix:
        outputs = model(torch.randn(4, 8))
        (outputs["loss"] + outputs["more"][1].sum()).backward()
    assert phases(matrix.rows) == PHASES


@pytest.mark.parametrize("how", ["wrapped", "in place"])
def test_compiled_models_have_their_rows(how: str) -> None:
    model = Wide()
    if how == "wrapped":
        called = torch.compile(model, backend="aot_eager")
    else:
        model.compile(backend="aot_eager")
        called = model
    with autotune.memory_matrix(called, lambda line: None) as matrix:
        for _ in range(2):
            step(called)
    assert phases(matrix.rows) == PHASES * 2


def test_importing_autotune_for_it_loads_nothing_heavy() -> None:
    code = "import autotune, sys; autotune.memory_matrix; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
