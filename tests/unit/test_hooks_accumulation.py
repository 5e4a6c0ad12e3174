"""Accumulation of libraries: who holds the number, who trains by it, and setting it; with libraries of a few lines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from autotune.records.facts import AccumulationControl
from autotune.worker.hooks import training_libraries

Put = Callable[..., ModuleType]


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Put:
    """Have the script import a module with these classes."""

    def make(name: str, **classes: type) -> ModuleType:
        module = ModuleType(name)
        vars(module).update(classes)
        monkeypatch.setitem(sys.modules, name, module)
        training_libraries.patch(name)
        return module

    training_libraries.choose(None, None)
    return make


def transformers(put: Put) -> tuple[Any, Any]:
    class TrainingArguments:
        def __init__(self, steps: int) -> None:
            self.gradient_accumulation_steps = steps
            self.__post_init__()

        def __post_init__(self) -> None:
            self.seen = self.gradient_accumulation_steps

    class Trainer:
        def __init__(self, args: TrainingArguments) -> None:
            self.args = args

        def train(self, *, resume: str) -> str:
            return resume

    put("transformers.training_args", TrainingArguments=TrainingArguments)
    put("transformers.trainer", Trainer=Trainer)
    return TrainingArguments, Trainer


def accelerate(put: Put) -> Any:
    class Accelerator:
        def __init__(self, gradient_accumulation_steps: int = 1) -> None:
            self.gradient_accumulation_steps = gradient_accumulation_steps

        def accumulate(self, model: object) -> object:
            return model

    put("accelerate.accelerator", Accelerator=Accelerator)
    return Accelerator


def test_what_the_trainer_trains_by_is_read_from_it(put: Put) -> None:
    arguments, trainer = transformers(put)
    trains = trainer(arguments(4))
    assert training_libraries.control(None, 4.0).how == "none", "it does not train yet"
    assert trains.train(resume="x") == "x"
    assert training_libraries.control(None, 4.0) == AccumulationControl("transformers", 4)
    del trains
    assert training_libraries.control(None, 4.0) == AccumulationControl("transformers", 4), (
        "when the script has ended, too"
    )


def test_it_is_set_before_anything_is_derived_from_it(put: Put) -> None:
    training_libraries.choose(8, AccumulationControl("transformers", 4))
    arguments, _ = transformers(put)
    made = arguments(4)
    assert (made.gradient_accumulation_steps, made.seen) == (8, 8)


@pytest.mark.parametrize("name", ["lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"])
def test_lightning_goes_by_either_of_its_names(put: Put, name: str) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.accumulate_grad_batches = 1

        def fit(self) -> None:
            pass

    training_libraries.choose(2, AccumulationControl("lightning", 1))
    made = put(name, Trainer=Trainer).Trainer()
    made.fit()
    assert made.accumulate_grad_batches == 2
    assert training_libraries.control(None, 2.0) == AccumulationControl("lightning", 2)


def test_an_accelerator_that_the_script_does_not_accumulate_by_is_none_to_set(put: Put) -> None:
    made = accelerate(put)()
    assert training_libraries.control(None, 1.0).how == "none"
    made.accumulate(None)
    assert training_libraries.control(None, 1.0) == AccumulationControl("accelerate", 1)


def test_the_accelerator_inside_of_a_trainer_is_left_alone(put: Put) -> None:
    training_libraries.choose(8, AccumulationControl("transformers", 4))
    assert accelerate(put)().gradient_accumulation_steps == 1


def test_a_number_that_the_steps_do_not_show_is_none_to_set(put: Put) -> None:
    made = accelerate(put)(gradient_accumulation_steps=4)
    made.accumulate(None)
    control = training_libraries.control(None, 1.0)
    assert control == AccumulationControl("none", 1, "Accelerate's Accelerator says 4, but an optimizer step takes 1")


def test_the_arguments_are_believed_where_the_steps_show_it() -> None:
    given = AccumulationControl("arguments", 4)
    assert training_libraries.control(given, 4.0) == given
    assert training_libraries.control(given, 1.0).reason == "the arguments say 4, but an optimizer step takes 1"
    assert training_libraries.control(None, 1.5) == AccumulationControl(
        "none", None, training_libraries.control(None, 1.5).reason
    )


def test_a_version_without_these_names_is_left_as_it_is(put: Put) -> None:
    class Trainer:
        train = None

    put("transformers.trainer", Trainer=Trainer)
    put("transformers.training_args")
    assert Trainer.train is None
    assert training_libraries.control(None, 1.0).how == "none"


@pytest.mark.parametrize(
    ("set_to", "rank", "is_told"), [(16, "0", True), (16, "1", False), (8, "0", False), (None, "0", False)]
)
def test_a_batch_size_that_the_trainer_tells_and_does_not_train_with_is_pointed_out(
    set_to: int | None,
    rank: str,
    is_told: bool,
    put: Put,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("RANK", rank)
    arguments, trainer = transformers(put)
    training_libraries.choose(None, None, set_to)
    try:
        made = arguments(1)
        made.per_device_train_batch_size = 8
        trainer(made).train(resume="x")
    finally:
        training_libraries.choose(None, None)
    note = (
        "autotune: note: transformers' Trainer tells a batch size of 8 (in its log, in trainer_state.json, and in "
        "samples per second where max_steps is set); it trains with 16\n"
    )
    assert capsys.readouterr().err == (note if is_told else "")
