"""A training process from its first step to its last line: what it writes, and what it never does to the script."""

from __future__ import annotations

import errno
import gc
import itertools
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch._dynamo.config

from autotune.records.configuration import Configuration
from autotune.records.facts import Facts
from autotune.records.measurement import Measurement
from autotune.records.measuring import GpuMeasuring, Measuring
from autotune.records.outcome import Fallback, Measured, NoTrainingStep
from autotune.records.progress import Progress
from autotune.records.run import Described
from autotune.worker.device import uses_cuda
from autotune.worker.engines.timed_nodes import TimedNodes
from autotune.worker.measuring.memory_split import memory_split
from autotune.worker.modes.measure import MeasureMode
from tests.fakes.cuda import FakeCuda, FakeDevice
from tests.fakes.hooked import restored_torch
from tests.fakes.planned import clean_torch
from tests.fakes.training_process import TrainingProcess, train

pytestmark = [
    # What torch says of a layout that is a prototype.
    pytest.mark.filterwarnings("ignore:Sparse :UserWarning"),
    # A warning made an error stops Dynamo's tracing.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
]


@pytest.fixture(autouse=True)
def _clean_torch() -> Iterator[None]:
    with clean_torch(), restored_torch():
        yield


def gelus() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 4), torch.nn.GELU())


def measurement(process: TrainingProcess) -> Measurement:
    (outcome,) = process.outcomes()
    assert isinstance(outcome, Measured), outcome
    return outcome.measurement


def test_a_script_that_ends_early_is_described_by_what_it_had(tmp_path: Path) -> None:
    """Guards short scripts with a main(): models and optimizers are held weakly, and are gone at the script's end."""
    process = TrainingProcess(tmp_path, mode="discover", measuring=Measuring(max_warmup_steps=2, min_steps=50))
    process.run(lambda: train(steps=8, optimizer=torch.optim.Adam))
    split = measurement(process).split
    assert split is not None
    assert split.parameters == 4 * (6 + 2)
    assert split.optimizer_state >= 2 * split.parameters
    (described,) = process.described()
    assert described.facts.split == split
    assert [optimizer.name for optimizer in described.facts.optimizers] == ["Adam"]


def test_what_is_known_of_a_script_is_told_while_its_description_goes_on(tmp_path: Path) -> None:
    """Guards the plans of descriptions that are cut off: those that were known were lost with the rest."""
    process = TrainingProcess(tmp_path, mode="discover")
    process.run(lambda: train(steps=60, make=gelus))

    first, *later, last = [line for line in process.lines() if isinstance(line, Described)]
    assert first.facts.split == measurement(process).split
    assert not first.facts.clusters
    assert first.may_take_s is not None
    known = next(line.facts for line in later if line.facts.clusters)
    assert known.calibration is None
    assert last.may_take_s is None
    assert last.facts.calibration is not None

    def rows(facts: Facts) -> list[tuple[str, int, int]]:
        return [(row.cluster_id, row.strategy, row.saving_bytes) for row in facts.clusters]

    assert rows(known) == rows(last.facts)
    assert all(row.recompute_time_s > 0 for row in known.clusters)


def test_a_script_without_anything_to_recompute_is_described_to_the_end(tmp_path: Path) -> None:
    """Guards its predicted memory: telling what is known must not take the calibration's place."""
    process = TrainingProcess(tmp_path, mode="discover")
    process.run(lambda: train(steps=60))
    (described,) = process.described()
    assert described.facts.clusters == ()
    assert described.facts.calibration is not None
    assert described.facts.calibration.reason == ""
    assert described.facts.graphs


def quantized() -> torch.nn.Module:
    model = gelus()
    model.register_parameter("packed", torch.nn.Parameter(torch.zeros(999, dtype=torch.uint8), requires_grad=False))
    return model


def test_the_precision_is_that_of_what_is_computed_and_not_of_packed_weights(tmp_path: Path) -> None:
    process = TrainingProcess(tmp_path, mode="discover")
    process.run(lambda: train(steps=60, make=quantized))
    precision = process.described()[-1].facts.precision
    assert precision is not None
    assert precision.dtype == "float32"


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # Inductor's import
@pytest.mark.parametrize("kernel_search", [True, False])
def test_a_baseline_whose_kernels_were_not_searched_says_so(
    kernel_search: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards what trials are compared with: their kernels are not searched either."""
    asked: list[object] = []
    monkeypatch.setattr(torch, "compile", lambda model, **keywords: asked.append(keywords.get("mode")) or model)
    process = TrainingProcess(tmp_path, mode="discover", kernel_search=kernel_search)
    process.run(lambda: train(make=lambda: torch.compile(torch.nn.Linear(3, 2), mode="max-autotune")))
    found = measurement(process)
    assert asked[0] == ("max-autotune" if kernel_search else None)
    assert found.kernels_searched is kernel_search
    says = [note for note in found.notes if "the confirmation and `autotune launch` have it" in note]
    assert bool(says) != kernel_search


def test_the_controller_is_told_when_the_steps_that_count_began_and_when_they_are_over(tmp_path: Path) -> None:
    process = TrainingProcess(tmp_path, Configuration(), Configuration(accumulation=1))
    since_s: list[float] = []

    def backward(outputs: torch.Tensor) -> None:
        since_s.append(progress_in(tmp_path).measuring_since_s)
        outputs.pow(2).mean().backward()

    process.run(lambda: train(steps=12, backward=backward))

    # Two steps of warm-up and four that are measured, twice.
    assert [each > 0 for each in since_s] == 2 * ([False] * 2 + [True] * 4)
    assert len(set(since_s)) == 3


def test_what_the_script_has_too_few_steps_left_for_is_given_back(tmp_path: Path) -> None:
    """Guards what comes last in a process: a configuration is not judged by what those before it have used up."""
    process = TrainingProcess(tmp_path, Configuration(), Configuration(accumulation=1))
    process.run(lambda: train(steps=8))
    (outcome,) = process.outcomes()
    assert isinstance(outcome, Measured)
    assert process.reason() == "the script ended"


def test_a_script_without_enough_steps_for_one_trial_is_told_so(tmp_path: Path) -> None:
    process = TrainingProcess(tmp_path, Configuration(), Configuration(accumulation=1))
    process.run(lambda: train(steps=3))
    (outcome,) = process.outcomes()
    assert isinstance(outcome, NoTrainingStep)
    assert outcome.steps_seen == 3


def test_only_a_loss_of_one_element_is_kept_and_nothing_that_it_is_part_of(tmp_path: Path) -> None:
    """Guards the peak: what ``outputs.backward(gradient)`` was called on stayed until the next backward."""
    process = TrainingProcess(tmp_path)
    storages: list[weakref.ref[torch.UntypedStorage]] = []

    def backward(outputs: torch.Tensor) -> None:
        storages.append(weakref.ref(outputs.untyped_storage()))
        outputs.backward(torch.ones_like(outputs))

    def backward_of_part(outputs: torch.Tensor) -> None:
        losses = outputs.pow(2)
        storages.append(weakref.ref(losses.untyped_storage()))
        losses[0, 0].backward()

    for each in (backward, backward_of_part):
        train(steps=1, backward=each)
        gc.collect()
    assert [storage() for storage in storages] == [None, None]
    mode = process.conductor._mode
    assert isinstance(mode, MeasureMode)
    assert mode._loss is not None
    assert mode._loss.untyped_storage().nbytes() == 4


def test_samples_are_counted_where_the_script_asks_for_gradients_itself(tmp_path: Path) -> None:
    """Guards scripts that use torch.autograd.grad, where no backward moves the calls into their step."""

    def script() -> None:
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(60):
            loss = model(torch.randn(8, 3)).pow(2).mean()
            for parameter, gradient in zip(
                model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
            ):
                parameter.grad = gradient
            optimizer.step()

    process = TrainingProcess(tmp_path)
    process.run(script)
    assert set(measurement(process).samples_per_step) == {8}


def test_steps_without_any_sample_are_said(tmp_path: Path) -> None:
    """Guards the rate: zero samples a second must not come without a word."""

    def script() -> None:
        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=0.01)
        for _ in range(60):
            weight.pow(2).sum().backward()
            optimizer.step()

    process = TrainingProcess(tmp_path)
    process.run(script)
    assert set(measurement(process).samples_per_step) == {0}
    assert any("no samples" in note for note in measurement(process).notes)


def test_sparse_gradients_are_measured_by_their_indices_and_values(tmp_path: Path) -> None:
    """Guards embeddings with sparse=True: their gradients have no storage, and each trial ended as a script's error."""

    def embedding() -> torch.nn.Module:
        return torch.nn.Embedding(100, 4, sparse=True)

    process = TrainingProcess(tmp_path)
    process.run(lambda: train(make=embedding, optimizer=torch.optim.SparseAdam, inputs=lambda: torch.arange(8)))
    split = measurement(process).split
    assert split is not None
    assert split.gradients == 8 * (8 + 4 * 4)


def test_a_layout_without_a_storage_counts_its_elements() -> None:
    """Guards the same for layouts that nobody has thought of."""
    model = torch.nn.Module()
    model.register_buffer("mask", torch.eye(8).to_sparse_csr())
    assert memory_split([model], []).buffers == 8 * 8 * 4


def broken(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_hook_that_fails_ends_the_run_with_its_cause_and_never_raises_into_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the script's own step from what goes wrong in ours, and the user from a cause that blames it."""
    process = TrainingProcess(tmp_path)
    monkeypatch.setattr("autotune.worker.modes.measure.memory_split", broken)
    with pytest.raises(SystemExit):
        train()
    (outcome,) = process.outcomes()
    assert isinstance(outcome, Fallback)
    assert "autotune itself failed" in outcome.cause
    assert "No space left" in outcome.cause
    assert process.reason() == outcome.cause


def test_a_full_disk_ends_the_run_with_a_word_on_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards the same where not even the failure can be written."""
    TrainingProcess(tmp_path)
    monkeypatch.setattr("autotune.worker.process.append_line", broken)
    with pytest.raises(SystemExit):
        train()
    assert "could not write this down: OSError: [Errno 28] No space left on device" in capsys.readouterr().err


def test_a_launched_script_goes_on_without_a_hook_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards launch, which has no right to end a script."""
    process = TrainingProcess(tmp_path, mode="launch")
    monkeypatch.setattr(process.conductor._mode, "step", broken)
    train(steps=5)
    assert process.conductor.process.steps == 5
    assert capsys.readouterr().err.count("autotune itself failed") == 1


def test_what_ends_a_description_is_the_runs_last_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the message that a script was measured, but not described: it says why."""
    process = TrainingProcess(tmp_path, mode="discover")
    monkeypatch.setattr(process.conductor._mode, "_write", broken)
    process.run(lambda: train(steps=100))
    assert [type(outcome) for outcome in process.outcomes()] == [Measured]
    assert "No space left" in process.reason()


def test_nothing_of_ours_runs_while_the_script_captures_a_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards scripts that capture their whole step: a meter that waits for the device would end the capture."""
    process = TrainingProcess(tmp_path)
    train(steps=1)
    for name in ("is_initialized", "is_current_stream_capturing"):
        monkeypatch.setattr(torch.cuda, name, lambda: True)
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "synchronize", lambda: pytest.fail("the device was waited for"))
        train(steps=2)
    monkeypatch.undo()
    process.conductor.script_ended()
    (outcome,) = process.outcomes()
    assert isinstance(outcome, NoTrainingStep)
    assert outcome.steps_seen == 1
    assert "CUDA graph" in outcome.cause


def test_whether_cuda_is_used_is_asked_without_counting_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards loader workers and other forks: a process forked after the count can use no device."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("the devices were counted"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: pytest.fail("the devices were counted"))
    assert not uses_cuda()
    TimedNodes(torch.fx.symbolic_trace(lambda x: torch.sin(x) + 1), {}).run(torch.ones(2))


def test_a_part_of_the_model_that_dynamo_gives_up_on_is_noticed_while_others_still_run(tmp_path: Path) -> None:
    """Guards the measurement of plans: half of the model ran without them, and the sum of all runs went on growing."""

    class Restless(torch.nn.Linear):
        """Dynamo guards on a plain number, and compiles anew for each."""

        step = 0

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs) * (self.step + 1.5)

    def script() -> None:
        steady, restless = torch.nn.Linear(3, 3), Restless(3, 2)
        optimizer = torch.optim.SGD([*steady.parameters(), *restless.parameters()], lr=0.01)
        for step in range(60):
            restless.step = step // 3
            restless(steady(torch.randn(8, 3))).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    process = TrainingProcess(tmp_path, Configuration("aot"), measuring=Measuring(max_warmup_steps=2, min_steps=60))
    with torch._dynamo.config.patch(recompile_limit=3, automatic_dynamic_shapes=False, specialize_int=True):
        process.run(script)
    (outcome,) = process.outcomes()
    assert isinstance(outcome, Fallback), outcome
    assert "Dynamo gave up on" in outcome.cause


def progress_in(directory: Path) -> Progress:
    (path,) = directory.glob("progress-*")
    progress = Progress.from_bytes(path.read_bytes())
    assert progress is not None
    return progress


def test_the_progress_names_the_device_from_the_first_training_call_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the meter, which would read another device's memory, or hold a limit against the wrong kind of it."""
    FakeCuda(monkeypatch, FakeDevice(uuid="first"), FakeDevice(uuid="second"))
    monkeypatch.setattr("autotune.worker.process.cuda_device", lambda tensors: 1)
    TrainingProcess(tmp_path)
    seen = []

    def backward(outputs: torch.Tensor) -> None:
        seen.append(progress_in(tmp_path).device)
        outputs.sum().backward()

    train(steps=1, backward=backward)

    assert seen == ["second"]


def test_a_model_that_moves_itself_to_a_device_later_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = FakeCuda(monkeypatch, FakeDevice(total=1000), FakeDevice(total=1000, uuid="second"))
    TrainingProcess(tmp_path, memory_limit_bytes=500)
    train(steps=2)
    assert progress_in(tmp_path).device == "", "that CUDA is awake does not mean that the script trains on it"
    assert [device.fraction for device in (cuda[0], cuda[1])] == [None, None]

    monkeypatch.setattr("autotune.worker.process.cuda_device", lambda tensors: 1)
    train(steps=1)

    assert progress_in(tmp_path).device == "second"
    assert [device.fraction for device in (cuda[0], cuda[1])] == [None, 0.5]


def test_a_limit_is_set_on_the_device_by_what_it_had_free_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards runs beside other processes: what those hold was taken off the limit."""
    others, context = 300, 50
    cuda = FakeCuda(monkeypatch, FakeDevice(total=1000, used=others + context, uuid="first"))
    TrainingProcess(tmp_path, memory_limit_bytes=500, free_bytes={"first": 1000 - others, "second": 1000})
    monkeypatch.setattr("autotune.worker.process.cuda_device", lambda tensors: 0)

    train(steps=2)

    assert cuda[0].fraction == pytest.approx((500 - context) / 1000)


def test_a_limit_reckons_with_the_libraries_that_the_first_step_of_each_trial_has_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards limits below the card's size: workspaces of cuBLAS and kernels came on top of the limit."""
    cuda = FakeCuda(monkeypatch, FakeDevice(total=1000, used=10, uuid="first"))
    process = TrainingProcess(
        tmp_path,
        Configuration(),
        Configuration(accumulation=1),
        memory_limit_bytes=500,
        free_bytes={"first": 1000},
        measuring=Measuring(
            max_warmup_steps=2, min_steps=3, max_steps=3, min_measure_s=0.0, on_gpu=GpuMeasuring(0.0, 0.0, 0)
        ),
    )
    monkeypatch.setattr("autotune.worker.process.cuda_device", lambda tensors: 0)
    fractions: list[float] = []
    loads = itertools.chain([20, 2, 2, 0, 0, 5], itertools.repeat(0))

    def backward(outputs: torch.Tensor) -> None:
        fractions.append(cuda[0].fraction)
        cuda[0].used += next(loads)
        outputs.pow(2).mean().backward()

    process.run(lambda: train(steps=12, backward=backward))

    assert [isinstance(outcome, Measured) for outcome in process.outcomes()] == [True, True]
    allowed = [490] + 4 * [470] + [466] + 4 * [461]
    assert fractions == pytest.approx([each / 1000 for each in allowed])
