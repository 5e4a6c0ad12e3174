"""Learning rate schedulers of a script: which follow its optimizer steps, and for how many they were made."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from autotune.records.measurement import Schedule
from autotune.worker.hooks.schedules import ScheduleHooks
from tests.fakes.hooked import restored_torch

STEPS = 10
pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step\\(\\)` before:UserWarning")


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScheduleHooks]:
    monkeypatch.delitem(sys.modules, "accelerate.scheduler", raising=False)  # of another test
    with restored_torch():
        installed = ScheduleHooks()
        installed.install()
        yield installed


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1)


def warming(step: int, *, num_warmup_steps: int, num_training_steps: int) -> float:
    """Compute a factor as the schedules of transformers do."""
    return min(step / num_warmup_steps, num_training_steps / max(step, 1))


def closed_over(optimizer: torch.optim.Optimizer) -> LRScheduler:
    max_iters, warmup_iters = 90, 95
    return lr_scheduler.LambdaLR(optimizer, lambda step: min(step / warmup_iters, 1 - step / max_iters))


def decayed_by_epoch(optimizer: torch.optim.Optimizer) -> LRScheduler:
    steps_per_epoch = 30
    return lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 ** (step // steps_per_epoch))


def in_sequence(optimizer: torch.optim.Optimizer) -> LRScheduler:
    warmup = lr_scheduler.LinearLR(optimizer, total_iters=5)
    decay = lr_scheduler.CosineAnnealingLR(optimizer, 85)
    return lr_scheduler.SequentialLR(optimizer, [warmup, decay], [5])


def unbound(optimizer: torch.optim.Optimizer) -> LRScheduler:
    """A schedule whose function closes over a name that has no value yet."""
    made = lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < 99 else later)
    if made is None:
        later = 1.0
    return made


class OfTheScript(LRScheduler):
    """A scheduler of another kind, with a length that cannot be looked at."""

    @property
    def total_steps(self) -> int:
        raise RuntimeError

    def get_lr(self) -> list[float]:
        return [0.1]


def one_cycle(steps: int) -> Schedule:
    return Schedule("OneCycleLR", steps, raises_beyond=True)


def follow(hooks: ScheduleHooks, make: Callable[[torch.optim.Optimizer], LRScheduler], **how: Any) -> tuple[Any, ...]:
    """Return the schedules seen after some steps, looked at after each optimizer step as a trial does."""
    stepped = optimizer()
    made, found = make(stepped), ()
    if how.get("resumed"):
        made.last_epoch = how["resumed"]
    for step in range(1, STEPS + 1):
        if how.get("before"):
            made.step()
        stepped.step()
        found = hooks.schedules(step)
        if not how.get("before") and step % how.get("every", 1) == 0:
            for _ in range(how.get("times", 1)):
                made.step()
    return found


@pytest.mark.parametrize(
    ("make", "schedule"),
    [
        (lambda one: lr_scheduler.OneCycleLR(one, 0.2, total_steps=90), one_cycle(90)),
        (lambda one: lr_scheduler.OneCycleLR(one, 0.2, epochs=3, steps_per_epoch=30), one_cycle(90)),
        (lambda one: lr_scheduler.CosineAnnealingLR(one, 90), Schedule("CosineAnnealingLR", 90)),
        (lambda one: lr_scheduler.PolynomialLR(one, 90), Schedule("PolynomialLR", 90)),
        (
            lambda one: lr_scheduler.LambdaLR(
                one, functools.partial(warming, num_warmup_steps=95, num_training_steps=90)
            ),
            Schedule("LambdaLR", 90),
        ),
        (closed_over, Schedule("LambdaLR", 90)),
        (in_sequence, Schedule("SequentialLR", 90)),
        (
            lambda one: lr_scheduler.SequentialLR(one, [lr_scheduler.CosineAnnealingLR(one, 90)], []),
            Schedule("SequentialLR", 90),
        ),
        (decayed_by_epoch, None),
        (unbound, None),
        (OfTheScript, None),
        (lambda one: lr_scheduler.LinearLR(one, total_iters=90), None),
        (lambda one: lr_scheduler.ExponentialLR(one, 0.9), None),
    ],
)
def test_a_schedule_of_a_training_is_as_long_as_it_was_made(
    make: Callable[[torch.optim.Optimizer], LRScheduler], schedule: Schedule | None, hooks: ScheduleHooks
) -> None:
    assert follow(hooks, make) == (() if schedule is None else (schedule,))


def cosine(steps: int) -> Callable[[torch.optim.Optimizer], LRScheduler]:
    return lambda one: lr_scheduler.CosineAnnealingLR(one, steps)


def test_a_schedule_of_epochs_says_nothing_of_steps(hooks: ScheduleHooks) -> None:
    assert follow(hooks, cosine(90), every=2) == ()


def test_steps_made_for_each_process_count_once(hooks: ScheduleHooks) -> None:
    assert follow(hooks, cosine(180), times=2) == (Schedule("CosineAnnealingLR", 90),)


def test_a_schedule_that_goes_on_or_steps_first_has_its_length(hooks: ScheduleHooks) -> None:
    assert follow(hooks, cosine(90), resumed=40) == (Schedule("CosineAnnealingLR", 90),)
    assert follow(hooks, cosine(80), before=True) == (Schedule("CosineAnnealingLR", 80),)


def test_under_accelerate_no_schedule_raises(hooks: ScheduleHooks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accelerate.scheduler", ModuleType("accelerate.scheduler"))
    made = follow(hooks, lambda one: lr_scheduler.OneCycleLR(one, 0.2, total_steps=90))
    assert made == (Schedule("OneCycleLR", 90),)


def test_what_is_gone_is_forgotten(hooks: ScheduleHooks) -> None:
    stepped = optimizer()
    made = lr_scheduler.CosineAnnealingLR(stepped, 90)
    for step in range(1, 4):
        stepped.step()
        known = hooks.schedules(step)
        made.step()
    assert known
    del made
    assert hooks.schedules(4) == ()
