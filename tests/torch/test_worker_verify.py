"""Mode ``verify`` in a training process: what is taken of a step, and how large a difference is."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from autotune.records.configuration import Configuration
from autotune.records.outcome import Fallback
from autotune.records.proof import ValueGroup, difference_of
from autotune.records.run import Compared, Verifying
from autotune.worker.modes.verify import nudge
from autotune.worker.proving import verification
from autotune.worker.proving.seeds import keep_casts
from autotune.worker.proving.verification import Verification
from tests.fakes.hooked import restored_torch
from tests.fakes.planned import clean_torch
from tests.fakes.training_process import TrainingProcess, train

CASTS = "TORCHINDUCTOR_EMULATE_PRECISION_CASTS"
Tamper = Callable[[nn.Module], None]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.embedding = nn.Embedding(5, 4, sparse=True)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(self.embedding(indices)))  # type: ignore[no-any-return]


def two_steps(directory: Path, reference: Path | None = None, tamper: Tamper = lambda model: None) -> Compared:
    """Two steps of a model that nothing has seeded; ``tamper`` is called before the second is taken."""
    directory.mkdir()
    rules = Verifying(steps=2, references=() if reference is None else (str(reference),), is_reference=not reference)
    verification = Verification(rules, directory)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    verification.begin(0)
    for step in (1, 2):
        optimizer.zero_grad()
        loss = model(torch.randint(5, (8,))).pow(3).mean() + 0.0 * random.random()
        loss.backward()
        verification.add_loss(loss)
        optimizer.step()
        if step == 2:
            tamper(model)
        assert verification.step([model], [optimizer]) is (step == 2)
    return verification.result(process=1)


def test_two_runs_of_the_same_are_equal_in_everything(tmp_path: Path) -> None:
    first = two_steps(tmp_path / "first")
    second = two_steps(tmp_path / "second", tmp_path / "first")
    assert (first.differences, second.steps) == ((), 2)
    (differences,) = second.differences
    assert {one.group: (one.compared, one.differing) for one in differences} == {
        "losses": (2, 0),
        "gradients": (2 * 6, 0),  # of the sparse one both indices and values
        "buffers": (2 * 2, 0),
        "counters": (2 * 1, 0),
        "random": (2 * 3, 0),
    }


def test_a_group_that_a_reference_has_not_kept_is_an_error_and_not_equal(tmp_path: Path) -> None:
    two_steps(tmp_path / "first")
    kept = tmp_path / "first/values-0-1.pt"
    torch.save({group: values for group, values in torch.load(kept).items() if group != "gradients"}, kept)
    with pytest.raises(KeyError, match="gradients"):
        two_steps(tmp_path / "second", tmp_path / "first")


def change_gradient(model: nn.Module) -> None:
    gradient = model.linear.weight.grad
    assert isinstance(gradient, torch.Tensor)
    gradient[1, 2] += 1.0


def drop_gradient(model: nn.Module) -> None:
    model.linear.bias.grad = None


def flip_a_zero(model: nn.Module) -> None:
    model.norm.running_mean.copy_(torch.tensor([-0.0, 0.0, 0.0]))


def zero(model: nn.Module) -> None:
    model.norm.running_mean.zero_()


def update_twice(model: nn.Module) -> None:
    model.norm.num_batches_tracked += 1


def draw(model: nn.Module) -> None:
    torch.rand(1)


def draw_in_python(model: nn.Module) -> None:
    random.random()


@pytest.mark.parametrize(
    ("tamper", "group", "name", "size"),
    [
        (change_gradient, "gradients", "linear.weight", 1.0),
        (drop_gradient, "gradients", "linear.bias", None),
        (update_twice, "counters", "norm.num_batches_tracked", 1.0),
        (draw, "random", "torch", None),
        (draw_in_python, "random", "random", None),
    ],
)
def test_every_kind_of_difference_is_found_with_its_name_and_size(
    tamper: Tamper, group: ValueGroup, name: str, size: float | None, tmp_path: Path
) -> None:
    two_steps(tmp_path / "first")
    (differences,) = two_steps(tmp_path / "second", tmp_path / "first", tamper).differences
    found = difference_of(differences, group)
    assert (found.differing, found.name, found.step) == (1, name, 2)
    assert found.absolute == (None if size is None else pytest.approx(size))
    assert (found.relative is None) == (size is None)
    assert sum(one.differing for one in differences) == 1


def test_bits_are_compared_and_not_values(tmp_path: Path) -> None:
    two_steps(tmp_path / "first", tamper=zero)
    (differences,) = two_steps(tmp_path / "second", tmp_path / "first", flip_a_zero).differences
    found = difference_of(differences, "buffers")
    assert (found.differing, found.absolute, found.relative) == (1, 0.0, 0.0)


def test_of_more_than_fits_on_disk_a_part_is_kept_and_all_bits_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "_KEPT_BYTES", 100)

    def change_what_is_not_kept(model: nn.Module) -> None:
        gradient = model.linear.weight.grad
        assert isinstance(gradient, torch.Tensor)
        gradient[0, 1] += 1.0

    two_steps(tmp_path / "first")
    second = two_steps(tmp_path / "second", tmp_path / "first", change_what_is_not_kept)
    found = difference_of(second.differences[0], "gradients")
    assert second.sampled_one_in > 1
    assert (found.differing, found.absolute) == (1, 0.0)
    kept = sum(path.stat().st_size for path in (tmp_path / "first").iterdir())
    assert kept < 20_000


def test_the_script_may_have_any_type_of_number(tmp_path: Path) -> None:
    types = (torch.bool, torch.int8, torch.bfloat16, torch.float16, torch.complex64, torch.float8_e4m3fn)

    def run(directory: Path, reference: str = "") -> Compared:
        directory.mkdir()
        rules = Verifying(1, (reference,) if reference else (), is_reference=True)
        model = nn.Module()
        for type_ in types:
            values = torch.tensor([0.0, 2.0 if reference else 1.0, 3.0])
            model.register_buffer(str(type_).replace(".", "_"), values.to(type_))
        model.register_buffer("empty", torch.empty(0))
        model.register_buffer("rows", torch.eye(3).to_sparse_coo())
        verification = Verification(rules, directory)
        verification.step([model], [])
        return verification.result(1)

    run(tmp_path / "first")
    (differences,) = run(tmp_path / "second", str(tmp_path / "first")).differences
    assert difference_of(differences, "buffers").differing == 4
    assert difference_of(differences, "counters").differing == 1, "2 and 1 are the same truth"


def names_of(kept: Path, group: str) -> list[str]:
    return list(torch.load(kept / "values-0-1.pt")[group])


def test_where_no_gradient_is_left_the_parameters_are_compared_as_the_step_has_left_them(tmp_path: Path) -> None:
    verification = Verification(Verifying(1, is_reference=True), tmp_path)
    model = nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    verification.step([model], [])
    assert names_of(tmp_path, "gradients") == ["weight, after the step", "bias, after the step"]


def test_several_roots_and_what_only_an_optimizer_has_keep_names_of_their_own(tmp_path: Path) -> None:
    verification = Verification(Verifying(1, is_reference=True), tmp_path)
    first, second, apart = nn.Linear(2, 1, bias=False), nn.Linear(1, 1, bias=False), nn.Parameter(torch.ones(1))
    tied = nn.ModuleList([second])
    (second(first(torch.ones(1, 2))) * apart).sum().backward()
    parameters = [*first.parameters(), *second.parameters(), apart]
    verification.step([first, second, tied], [torch.optim.SGD(parameters, lr=0.1)])
    assert names_of(tmp_path, "gradients") == ["1: weight", "2: weight", "optimizer 1, parameter 2"]


# -- in a run


@pytest.fixture
def _clean_torch() -> Iterator[None]:
    with clean_torch(), restored_torch():
        yield


@pytest.mark.usefixtures("_clean_torch")
def test_a_run_ends_after_its_steps_with_what_it_compared(tmp_path: Path) -> None:
    process = TrainingProcess(tmp_path, mode="verify")
    process.run(lambda: train(steps=60))
    compared = process.lines()[0]
    assert isinstance(compared, Compared)
    assert (compared.steps, process.outcomes()) == (Verifying().steps, [])


@pytest.mark.usefixtures("_clean_torch")
def test_a_script_that_ends_early_is_compared_as_far_as_it_went(tmp_path: Path) -> None:
    process = TrainingProcess(tmp_path, mode="verify")
    process.run(lambda: train(steps=2))
    compared = process.lines()[0]
    assert isinstance(compared, Compared)
    assert compared.steps == 2


@pytest.mark.usefixtures("_clean_torch")
def test_a_batch_size_that_does_not_reach_the_script_is_no_comparison(tmp_path: Path) -> None:
    process = TrainingProcess(tmp_path, Configuration(batch_size=4), mode="verify")
    process.run(lambda: train(steps=5))
    (outcome,) = process.outcomes()
    assert isinstance(outcome, Fallback)
    assert "batch size 4 was asked for" in outcome.cause


@pytest.mark.parametrize(("dtype", "share"), [(torch.float32, 1.0), (torch.bfloat16, 1 / 16)])
def test_a_nudge_moves_parameters_by_their_last_bit_and_coarse_ones_in_few_places(
    dtype: torch.dtype, share: float
) -> None:
    model = nn.Linear(16, 8).to(dtype)
    model.scale = nn.Parameter(torch.tensor(3.0, dtype=dtype))
    before = model.weight.detach().clone()
    nudge([model])
    moved = (model.weight.detach().double() / before.double() - 1).abs()
    eps = torch.finfo(dtype).eps
    assert 0 < moved.max() <= 2 * eps
    assert (moved > 0).double().mean() <= share
    assert model.scale.item() != 3.0


def test_keeping_casts_overrides_what_the_user_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CASTS, "0")
    keep_casts()
    assert os.environ[CASTS] == "1"
