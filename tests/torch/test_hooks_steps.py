"""What counts as a training step, and which phase it is in."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch._dynamo.utils
import torch.utils.checkpoint
from torch import nn
from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list
from torch.utils._python_dispatch import TorchDispatchMode

from autotune.worker.hooks.compilation import watch_compile
from autotune.worker.hooks.steps import StepHooks
from tests.fakes.hooked import restored_torch


@pytest.fixture(autouse=True)
def _restored_torch() -> Iterator[None]:
    with restored_torch():
        yield


class Watched:
    """Installs the hooks and writes down what they tell."""

    def __init__(self, *modules: nn.Module) -> None:
        self.steps = 0
        self.failures: list[Exception] = []
        self.begun: list[int] = []
        self.backwards: list[Any] = []
        self.phases: list[str] = []
        self.stepping: list[str] = []
        self.hooks = StepHooks(
            phase=self._phase,
            before_step=self._before_step,
            backward_begins=self._backward_begins,
            backward_done=self._backward_done,
            step_done=self._step,
            parameters=lambda: (parameter for module in modules for parameter in module.parameters()),
            failed=self.failures.append,
            hands_off=lambda: False,
        )
        self.hooks.install()

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.stepping.append(type(optimizer).__name__)

    def _phase(self, phase: str) -> None:
        self.phases.append(phase)

    def _backward_begins(self, loss: Any) -> None:
        self.begun.append(id(loss))  # its graph is not kept alive
        self.phases.append("backward")

    def _backward_done(self, loss: Any) -> None:
        self.backwards.append(loss)

    def _step(self) -> None:
        self.steps += 1


def loss_of(module: nn.Module) -> torch.Tensor:
    return module(torch.randn(4, 3)).pow(2).mean()


def test_an_optimizer_holds_parameters_from_the_time_it_is_made() -> None:
    module, other = nn.Linear(3, 2), nn.Linear(3, 2)
    watched = Watched(module)
    optimizer = torch.optim.SGD([{"params": [module.bias]}])
    assert watched.hooks.optimizes(module)
    assert not watched.hooks.optimizes(other)
    optimizer.add_param_group({"params": [other.weight]})
    assert watched.hooks.optimizes(other)
    del optimizer
    assert not watched.hooks.optimizes(module)


def test_a_checkpoints_backward_is_part_of_the_scripts() -> None:
    module = nn.Linear(3, 2)
    watched = Watched(module)
    x = torch.randn(4, 3, requires_grad=True)
    loss = torch.utils.checkpoint.checkpoint(module, x, use_reentrant=True).pow(2).mean()
    loss.backward()
    assert watched.backwards == [loss]
    assert watched.phases == ["backward", "forward"]
    assert module.weight.grad is not None


def test_an_optimizer_is_told_of_before_it_steps() -> None:
    module = nn.Linear(3, 2)
    watched = Watched(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    loss_of(module).backward()
    assert not watched.stepping
    optimizer.step()
    assert watched.stepping == ["SGD"]


def test_each_step_of_the_optimizer_counts_once_however_many_backwards_it_took() -> None:
    model = nn.Linear(3, 2)
    watched = Watched(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        for _ in range(2):
            loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert watched.steps == 3
    assert len(watched.backwards) == 6
    assert watched.hooks.optimizers == [optimizer]


def test_the_phases_of_a_step_in_their_order() -> None:
    model = nn.Linear(3, 2)
    watched = Watched(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_of(model).backward()
    optimizer.step()
    assert watched.phases == ["backward", "forward", "optimizer", "forward"]


def test_a_backward_that_raises_leaves_its_phase() -> None:
    model = nn.Linear(3, 2)
    watched = Watched(model)
    with pytest.raises(RuntimeError, match="scalar"):
        model(torch.randn(4, 3)).backward()
    assert watched.phases == ["backward"]
    assert watched.backwards == []


def test_the_loss_is_told_however_backward_is_called() -> None:
    model = nn.Linear(3, 2)
    watched = Watched(model)
    first, second, third = (loss_of(model) for _ in range(3))
    first.backward()
    torch.autograd.backward(second)
    torch.autograd.backward(tensors=[third])
    assert watched.backwards[0] is first
    assert watched.backwards[1] is second
    assert watched.backwards[2][0] is third
    assert watched.begun == [id(loss) for loss in watched.backwards]


class Lookahead(torch.optim.Optimizer):
    """An optimizer around another one, whose step it calls."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        super().__init__([p for group in inner.param_groups for p in group["params"]], {})

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)


def test_of_nested_optimizers_the_outermost_counts() -> None:
    model = nn.Linear(3, 2)
    watched = Watched(model)
    optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(3):
        loss_of(model).backward()
        optimizer.step()
    assert watched.steps == 3
    assert watched.hooks.optimizers == [optimizer]


def test_of_two_optimizers_in_turn_the_first_counts() -> None:
    generator, critic = nn.Linear(3, 3), nn.Linear(3, 1)
    watched = Watched(generator, critic)
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for module in (critic, generator)]
    counted = []
    for _ in range(3):
        for optimizer in optimizers:
            loss_of(nn.Sequential(generator, critic)).backward()
            optimizer.step()
            counted.append(watched.steps)
    assert counted == [1, 1, 2, 2, 3, 3]
    assert set(watched.hooks.optimizers) == set(optimizers)


def test_of_two_optimizers_the_busier_counts() -> None:
    generator, critic = nn.Linear(3, 3), nn.Linear(3, 1)
    watched = Watched(generator, critic)
    rare, busy = (torch.optim.SGD(module.parameters(), lr=0.1) for module in (generator, critic))
    rare.step()
    for _ in range(4):
        for _ in range(3):
            busy.step()
        rare.step()
    # One of the rare optimizer's before the busy one had caught up, and the busy one's from its second on.
    assert watched.steps == 1 + 11


def steps_of_six_tasks(watched: Watched, kept: list[torch.optim.Optimizer] | None) -> list[int]:
    """Ten steps for each task, each with an optimizer of its own; what was counted after each task."""
    counted = []
    for _ in range(6):
        model = nn.Linear(3, 2)
        optimizer = torch.optim.Adam(model.parameters())
        if kept is not None:
            kept.append(optimizer)
        for _ in range(10):
            loss_of(model).backward()
            optimizer.step()
        counted.append(watched.steps)
    return counted


def test_a_new_optimizer_leads_at_once_when_the_old_one_is_gone() -> None:
    """Guards scripts with an optimizer for each fold or task: a new one had to overtake the count of a dead one."""
    assert steps_of_six_tasks(Watched(), None) == [10, 20, 30, 40, 50, 60]


def test_a_new_optimizer_leads_from_its_second_step_on_while_the_old_one_is_kept() -> None:
    """Guards the same where a scheduler's cycle or a list of the script keeps the old optimizer alive."""
    assert steps_of_six_tasks(Watched(), []) == [10, 19, 28, 37, 46, 55]


def test_optimizers_and_their_models_are_not_kept_alive() -> None:
    """Guards the memory of a script that makes a model for each fold, in a launch too."""
    watched = Watched()
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_of(model).backward()
    optimizer.step()
    parameter = weakref.ref(model.weight)
    watched.backwards.clear()
    del model, optimizer
    gc.collect()
    assert parameter() is None
    assert watched.hooks.optimizers == []


def test_a_step_with_closures_is_one_step() -> None:
    model = nn.Linear(3, 2)
    watched = Watched(model)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    inputs = torch.randn(8, 3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(inputs).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
    assert watched.steps == 2
    assert len(watched.backwards) > 2
    # A backward inside of the step gives the phase back to the optimizer.
    assert watched.phases[:4] == ["optimizer", "backward", "optimizer", "backward"]
    assert watched.phases[-1] == "forward"


@pytest.mark.parametrize("emptied", ["set to none", "zeroed in place"])
def test_without_an_optimizer_a_backward_from_empty_gradients_ends_the_step_before(emptied: str) -> None:
    model = nn.Linear(3, 2)
    watched = Watched(model)
    counted = []
    for _ in range(3):
        for _ in range(2):
            loss_of(model).backward()
            counted.append(watched.steps)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.1 * parameter.grad)
                if emptied == "set to none":
                    parameter.grad = None
                else:
                    parameter.grad.zero_()
    assert counted == [0, 0, 1, 1, 2, 2]


class Waits(TorchDispatchMode):
    """Counts how often a value is asked for, which on CUDA waits for the device."""

    number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_without_an_optimizer_the_gradients_are_looked_at_once_in_a_step() -> None:
    """Guards the measured step: a look at each gradient by itself waited for the device as often."""
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(4)))
    watched = Watched(model)
    loss_of(model).backward()
    model.zero_grad(set_to_none=False)
    with Waits() as waits:
        loss_of(model).backward()
    assert waits.number == 1
    assert watched.steps == 1


def test_with_an_optimizer_that_has_not_stepped_yet_backwards_are_no_steps() -> None:
    model = nn.Linear(3, 2)
    watched = Watched(model)
    torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        loss_of(model).backward()
        model.zero_grad()
    assert watched.steps == 0


def test_a_step_that_raised_does_not_hide_the_ones_after_it() -> None:
    class Failing(torch.optim.SGD):
        fails = True

        def step(self, closure: Any = None) -> Any:
            if self.fails:
                raise RuntimeError("a spike in the loss")
            return super().step(closure)

    model = nn.Linear(3, 2)
    watched = Watched(model)
    optimizer = Failing(model.parameters(), lr=0.1)
    assert not watched.hooks._running
    with pytest.raises(RuntimeError, match="spike"):
        optimizer.step()
    optimizer.fails = False
    optimizer.step()
    optimizer.step()
    assert watched.steps == 2


def test_a_step_that_calls_its_base_class_is_one_step() -> None:
    class Clipping(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    model = nn.Linear(3, 2)
    watched = Watched(model)
    # torch hooks into the step of a class when the first optimizer of it is made: into both classes' then.
    torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = Clipping(model.parameters(), lr=0.1)
    for _ in range(3):
        loss_of(model).backward()
        optimizer.step()
    assert watched.steps == 3


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # Dynamo imports the whole of Inductor here
def test_a_compiled_step_is_one_step_and_nothing_of_ours_is_compiled_with_it() -> None:
    model = nn.Linear(3, 2)
    watched = Watched(model)
    watch_compile(None, lambda: None, watched.phases.append, watched.hooks.entries())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = torch.compile(optimizer.step, backend="eager")
    for _ in range(3):
        loss_of(model).backward()
        step()
    assert watched.steps == 3
    assert torch._dynamo.utils.counters["frames"]["ok"] > 0
    for function in (StepHooks._before_step, StepHooks._forget_raised, Watched._step):
        assert _debug_get_cache_entry_list(function.__code__) == []
    torch._dynamo.reset()


def test_a_gradient_scaler_is_noticed_when_it_is_on() -> None:
    watched = Watched()
    torch.amp.GradScaler("cpu", enabled=False)
    assert not watched.hooks.grad_scaler
    torch.amp.GradScaler("cpu")
    assert watched.hooks.grad_scaler


def test_who_rests_counts_nothing_and_prepares_optimizers_still() -> None:
    model = nn.Linear(3, 2)
    watched = Watched(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        loss_of(model).backward()
        optimizer.step()
        watched.hooks.rest()
        watched.phases.clear()
    later = torch.optim.Adam(model.parameters())
    later.step()
    assert (watched.steps, len(watched.backwards), watched.phases) == (1, 1, [])
    assert watched.stepping == ["SGD", "SGD", "Adam"]
