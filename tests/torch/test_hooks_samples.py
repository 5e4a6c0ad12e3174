"""How many samples a step took."""

from __future__ import annotations

import sys
import types
from argparse import Namespace

import numpy as np
import pytest
import torch

from autotune.metering.trial_meter import Window
from autotune.worker.hooks import batch_size
from autotune.worker.hooks.samples import SampleCounter, tensors_of


class Loaders:
    """Hands out what a test says that the loaders have drawn."""

    are_resized = False

    def __init__(self) -> None:
        self.drawn: list[int] = []
        self.left = 0

    def training_call(self) -> int:
        return self.drawn.pop(0) if self.drawn else 0

    def take_drawn(self) -> int:
        return self.left


@pytest.fixture(autouse=True)
def script(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The script's module, with nothing in it yet."""
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def counter(*drawn: int, known: int | None = None) -> SampleCounter:
    loaders = Loaders()
    loaders.drawn = list(drawn)
    return SampleCounter(loaders, known)  # type: ignore[arg-type]


def test_a_step_takes_what_the_loaders_drew_for_its_calls() -> None:
    samples = counter(4, 4, 2)
    for _ in range(2):
        samples.training_call((torch.zeros(99, 3),), {})
        samples.backward_done()
    assert samples.close() == Window(samples=8, calls=2, backwards=2, batch_size=4)
    samples.training_call((torch.zeros(99, 3),), {})
    samples.backward_done()
    assert samples.close() == Window(samples=2, calls=1, backwards=1, batch_size=2)


def test_micro_batches_of_the_named_size_take_all_that_the_loader_drew() -> None:
    samples = counter(64, known=16)
    for _ in range(4):
        samples.training_call((torch.zeros(16, 3),), {})
        samples.backward_done()
    assert samples.close() == Window(samples=64, calls=4, backwards=4, batch_size=64)


def test_a_short_last_batch_beside_a_matrix_of_as_many_rows_as_were_named_is_short() -> None:
    samples = counter(17, known=64)
    samples.training_call((torch.zeros(64, 3), torch.zeros(17, 3)), {})
    samples.backward_done()
    assert samples.close() == Window(samples=17, calls=1, backwards=1, batch_size=17)


def test_a_call_whose_backward_has_not_come_belongs_to_the_step_of_its_backward() -> None:
    samples = counter(4, 4)
    samples.training_call((torch.zeros(4, 3),), {})
    samples.backward_done()
    samples.training_call((torch.zeros(4, 3),), {})
    assert samples.close().samples == 4
    samples.backward_done()
    assert samples.close().samples == 4


def test_a_second_root_called_on_the_same_batch_adds_a_call_and_no_samples() -> None:
    samples = counter(4, 0)
    samples.training_call((torch.zeros(4, 3),), {})
    samples.training_call((torch.zeros(4, 7),), {})
    samples.backward_done()
    assert samples.close() == Window(samples=4, calls=2, backwards=1, batch_size=4)


@pytest.mark.parametrize(
    ("values", "shape", "expected"),
    [
        ({"batch_size": 6}, (6, 3), (6, 0, False)),
        ({"BATCH": 6}, (3, 6), (6, 1, False)),
        ({"bsz": 6}, (6, 3), (6, 0, False)),
        ({"args": Namespace(lr=0.1, train_batch_size=6)}, (5, 6), (6, 1, False)),
        ({"config": {"batch": 6}}, (6, 3), (6, 0, False)),
        ({"batch_size": True, "bs": 1, "batch_norm": "yes"}, (6, 3), (6, 0, True)),
        ({"batch_size": 7}, (6, 3), (6, 0, True)),
        ({}, (6, 3), (6, 0, True)),
    ],
)
def test_without_loaders_the_scripts_own_variables_tell_or_the_first_dimension_is_a_guess(
    values: dict[str, object], shape: tuple[int, ...], expected: tuple[int, int, bool], script: types.ModuleType
) -> None:
    vars(script).update(values)
    samples = counter()
    dimension = samples.training_call((torch.zeros(shape),), {})
    samples.backward_done()
    window = samples.close()
    assert (window.samples, dimension, window.guessed) == expected


def test_the_size_that_was_asked_for_comes_before_the_scripts_variables(script: types.ModuleType) -> None:
    vars(script)["batch_size"] = 3
    samples = counter(known=6)
    assert samples.training_call((torch.zeros(3, 6),), {}) == 1
    samples.backward_done()
    assert samples.close().samples == 6


def test_all_inputs_must_share_the_batch_dimension() -> None:
    samples = counter(known=6)
    samples.training_call((torch.zeros(6, 3),), {"mask": torch.zeros(5, 5)})
    samples.backward_done()
    assert samples.close().guessed


def test_the_same_inputs_again_in_a_step_count_once() -> None:
    samples, inputs = counter(), torch.zeros(6, 3)
    for _ in range(3):
        samples.training_call((inputs,), {})
        samples.backward_done()
    assert samples.close() == Window(samples=6, calls=3, backwards=3, guessed=True, batch_size=6)
    samples.training_call((inputs,), {})
    samples.backward_done()
    assert samples.close().samples == 6


def test_inputs_that_come_out_of_other_calls_are_no_samples_of_their_own() -> None:
    """Guards speeds of solvers, whose calls per step change with the batch: each call counted as a batch."""
    samples, model = counter(known=4), torch.nn.Linear(3, 3)
    for _ in range(2):
        state = torch.zeros(4, 3)
        for _ in range(5):
            samples.training_call((torch.tensor(0.1), state), {})
            state = state + 0.1 * model(state)
        samples.backward_done()
    assert samples.close() == Window(samples=8, calls=10, backwards=2, batch_size=4)


def test_new_data_beside_a_state_is_another_batch() -> None:
    samples, model = counter(known=4), torch.nn.Linear(3, 3)
    state = torch.zeros(4, 3)
    for _ in range(2):
        samples.training_call((torch.zeros(4, 3), state), {})
        state = model(state)
    samples.backward_done()
    assert samples.close() == Window(samples=8, calls=2, backwards=1, batch_size=4)


def test_a_buffer_that_is_filled_anew_is_another_batch() -> None:
    samples, inputs = counter(), torch.zeros(6, 3)
    for value in range(3):
        inputs.fill_(value)
        samples.training_call((inputs,), {})
        samples.backward_done()
    assert samples.close().samples == 18


def test_a_tensor_at_the_address_of_one_that_is_gone_is_another_batch() -> None:
    samples = counter()
    for _ in range(3):
        samples.training_call((torch.zeros(6, 3),), {})
        samples.backward_done()
    assert samples.close().samples == 18


def test_the_inputs_are_not_kept_alive() -> None:
    samples, freed = counter(), []

    class Watched(torch.Tensor):
        def __del__(self) -> None:
            freed.append(True)

    samples.training_call((torch.zeros(6, 3).as_subclass(Watched),), {})
    assert freed == [True]


def test_inputs_without_tensors_or_dimensions_count_nothing() -> None:
    samples = counter()
    assert samples.training_call(("text", 3, torch.tensor(1.0)), {"flag": True}) is None
    samples.backward_done()
    assert samples.close() == Window(calls=1, backwards=1)


def test_where_no_call_was_seen_the_step_takes_what_was_drawn() -> None:
    samples = counter()
    samples._loaders.left = 12  # type: ignore[attr-defined]
    assert samples.close() == Window(samples=12, batch_size=12)


def test_tensors_are_found_a_few_levels_deep_in_order() -> None:
    first, second, third = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    assert tensors_of(({"a": first, "b": [second]}, (third, "x"))) == [first, second, third]
    assert tensors_of([[[[[first]]]]]) == []


def test_a_script_that_asks_is_told_the_trials_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_size, "asked", [])
    monkeypatch.setattr(batch_size, "_answer", None)
    assert batch_size.requested(8) == 8
    batch_size.set_answer(32)
    assert batch_size.requested(8) == 32
    assert batch_size.asked == [8, 8]


def test_a_short_last_batch_still_makes_a_whole_number_of_micro_batches() -> None:
    assert Window(samples=4 * 64 - 1, calls=4, batch_size=64).micro_batches == 4.0
    assert Window(samples=96, calls=2, batch_size=64).micro_batches == 1.5
    assert Window(samples=96, calls=4, backwards=2, guessed=True, batch_size=64).micro_batches == 2.0


def test_an_actor_and_a_critic_that_share_a_backward_take_one_micro_batch() -> None:
    samples = counter()
    samples.training_call((torch.zeros(64, 4),), {})
    samples.training_call((torch.zeros(64, 4),), {})
    samples.backward_done()
    window = samples.close()
    assert window.guessed
    assert window.micro_batches == 1.0


def test_where_no_backward_is_seen_the_calls_tell_the_micro_batches() -> None:
    samples = counter()
    for _ in range(3):
        samples.training_call((torch.zeros(64, 4),), {})
    assert samples.close().micro_batches == 3.0


class Graph:
    """An object of the script's own, which keeps its tensors to itself."""


@pytest.mark.parametrize(
    ("known", "options", "number"),
    [
        pytest.param(None, {}, 0, id="no number is named"),
        pytest.param(None, {"--batch_size": 3}, 3, id="an option says it"),
        pytest.param(3, {}, 3, id="the user says it"),
        pytest.param(None, {"--heads": 3}, 0, id="another option is as large"),
        pytest.param(4, {"--batch_size": 4}, 0, id="there are fewer"),
    ],
)
def test_a_list_of_objects_of_the_size_that_is_named_is_a_batch(
    known: int | None, options: dict[str, int], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.worker.hooks.samples.option_values", options)
    samples = counter(known=known)
    for _ in range(2):
        assert samples.training_call(([Graph(), Graph(), Graph()],), {}) is None
        samples.backward_done()
    assert samples.close() == Window(samples=2 * number, calls=2, backwards=2, batch_size=number or None)


@pytest.mark.parametrize(("options", "guessed"), [({}, True), ({"--batch_size": 64}, False)])
def test_arrays_of_numpy_have_their_samples_in_their_first_dimension(
    options: dict[str, int], *, guessed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.worker.hooks.samples.option_values", options)
    samples = counter()
    samples.training_call((np.zeros(64), np.zeros((64, 200))), {"mask": np.zeros(())})
    samples.backward_done()
    assert samples.close() == Window(samples=64, calls=1, backwards=1, batch_size=64, guessed=guessed)
