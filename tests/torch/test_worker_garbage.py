"""Garbage is found between trials, without going through all objects each time."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch

from autotune.worker.garbage import LongLived


class Cycle:
    """Holds a tensor, and itself."""

    def __init__(self) -> None:
        self.tensor = torch.zeros(4)
        self.own = self


@pytest.fixture
def long_lived() -> Iterator[LongLived]:
    gc.unfreeze()  # what conftest.py has put aside
    gc.collect()
    yield LongLived()
    gc.unfreeze()


def test_what_is_there_after_the_first_trial_is_not_looked_at_again(long_lived: LongLived) -> None:
    lasting = torch.zeros(4)
    long_lived.first_step_done()
    long_lived.trial_done()
    long_lived.trial_done()
    lasting.add_(1)

    assert gc.get_freeze_count() > 0


def test_garbage_of_the_first_trial_is_gone_before_the_second(long_lived: LongLived) -> None:
    long_lived.first_step_done()
    tensor = weakref.ref(Cycle().tensor)
    long_lived.trial_done()

    assert tensor() is None


@pytest.mark.slow
def test_garbage_of_later_trials_is_found(long_lived: LongLived) -> None:
    long_lived.first_step_done()
    long_lived.trial_done()
    tensor = weakref.ref(Cycle().tensor)
    gc.collect()

    assert tensor() is None


@pytest.mark.slow
def test_what_becomes_garbage_after_it_was_put_aside_is_found_a_trial_later(long_lived: LongLived) -> None:
    long_lived.first_step_done()
    cycle = Cycle()
    tensor = weakref.ref(cycle.tensor)
    long_lived.trial_done()
    del cycle
    gc.collect()
    assert tensor() is not None

    long_lived.trial_done()
    gc.collect()

    assert tensor() is None


@pytest.mark.slow
def test_garbage_of_what_was_taken_to_last_is_found_some_trials_later(long_lived: LongLived) -> None:
    cycle = Cycle()
    tensor = weakref.ref(cycle.tensor)
    long_lived.first_step_done()
    long_lived.trial_done()
    del cycle
    for _ in range(8):
        long_lived.trial_done()

    assert tensor() is None
    assert gc.get_freeze_count() > 0


def test_parameters_can_be_swapped_during_the_first_trial(long_lived: LongLived) -> None:
    one, other = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.ones(2))
    long_lived.first_step_done()
    torch.utils.swap_tensors(one, other)

    assert one.sum() == 2


@pytest.mark.slow
def test_what_is_let_go_by_itself_does_not_end_it(long_lived: LongLived) -> None:
    long_lived.first_step_done()
    of_a_step = torch.zeros(4)
    long_lived.trial_done()
    del of_a_step
    long_lived.trial_done()

    assert gc.get_freeze_count() > 0
