"""Learning rate schedulers of a script: which follow its optimizer steps, and for how many they were made."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from autotune.records.measurement import Schedule
from autotune.worker.hooks.schedules import ScheduleHooks
from tests.fakes.hooked import restored_torch

STEPS = 10


@pytest.fixture
def hooks() -> Iterator[ScheduleHooks]:
    with restored_torch():
        installed = ScheduleHooks()
        installed.install()
        yield installed


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1)


def warming(step: int, *, num_warmup_steps: int, num_training_steps: int) -> float:
    """As the schedules of transformers."""
    return min(step / num_warmup_steps, num_training_steps / max(step, 1))


def closed_over(optimizer: torch.optim.Optimizer) -> LRScheduler:
    max_iters, warmup_iters = 90, 95
    return lr_scheduler.LambdaLR(optimizer, lambda step: min(step / warmup_iters, 1 - step / max_iters))


def in_sequence(optimizer: torch.optim.Optimizer) -> LRScheduler:
    warmup = lr_scheduler.LinearLR(optimizer, total_iters=5)
    decay = lr_scheduler.CosineAnnealingLR(optimizer, 85)
    return lr_scheduler.SequentialLR(optimizer, [warmup, decay], [5])


@pytest.mark.parametrize(
    ("make", "schedule"),
    [
        (lambda one: lr_scheduler.OneCycleLR(one, 0.2, total_steps=90), Schedule("OneCycleLR", 90, raises_beyond=True)),
        (
            lambda one: lr_scheduler.OneCycleLR(one, 0.2, epochs=3, steps_per_epoch=30),
            Schedule("OneCycleLR", 90, raises_beyond=True),
        ),
        (lambda one: lr_scheduler.CosineAnnealingLR(one, 90), Schedule("CosineAnnealingLR", 90)),
        (lambda one: lr_scheduler.LinearLR(one, total_iters=90), Schedule("LinearLR", 90)),
        (
            lambda one: lr_scheduler.LambdaLR(
                one, functools.partial(warming, num_warmup_steps=95, num_training_steps=90)
            ),
            Schedule("LambdaLR", 90),
        ),
        (closed_over, Schedule("LambdaLR", 90)),
        (in_sequence, Schedule("SequentialLR", 90)),
        (lambda one: lr_scheduler.ExponentialLR(one, 0.9), None),
        (lambda one: lr_scheduler.LambdaLR(one, lambda step: 1 / (1 + step)), None),
    ],
)
def test_a_schedule_is_as_long_as_it_was_made(
    make: Callable[[torch.optim.Optimizer], LRScheduler], schedule: Schedule | None, hooks: ScheduleHooks
) -> None:
    stepped = optimizer()
    made = make(stepped)
    for step in range(STEPS):
        stepped.step()
        if step < STEPS - 1:  # the hooks look before the last one is followed
            made.step()
    assert hooks.schedules(STEPS) == (() if schedule is None else (schedule,))


def test_a_schedule_of_epochs_says_nothing_of_steps(hooks: ScheduleHooks) -> None:
    stepped = optimizer()
    made = lr_scheduler.CosineAnnealingLR(stepped, 90)
    for step in range(STEPS):
        stepped.step()
        if step % 2:
            made.step()
    assert hooks.schedules(STEPS) == ()


def test_steps_made_for_each_process_count_once(hooks: ScheduleHooks) -> None:
    stepped = optimizer()
    made = lr_scheduler.CosineAnnealingLR(stepped, 180)
    for _ in range(STEPS):
        stepped.step()
        made.step()
        made.step()
    assert hooks.schedules(STEPS) == (Schedule("CosineAnnealingLR", 90),)


def test_before_the_second_step_nothing_is_known_and_of_what_is_gone_neither(hooks: ScheduleHooks) -> None:
    stepped = optimizer()
    made = lr_scheduler.CosineAnnealingLR(stepped, 90)
    stepped.step()
    made.step()
    assert hooks.schedules(1) == ()
    assert hooks.schedules(2) == (Schedule("CosineAnnealingLR", 90),)
    del made
    assert hooks.schedules(2) == ()
