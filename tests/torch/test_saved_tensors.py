"""What autograd keeps, counted by hooks, against what torch's allocator says of the same step with and without them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import checkpoint as checkpoints
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts

from autotune.worker.describing.allocations import Allocations
from autotune.worker.hooks.saving import GENERATOR, SavingHooks, SavingWatch
from autotune.worker.measuring.saved_tensors import ModulePlaces, SavedTensors

# Torch 2.15 warns where hooks, which these tests are about, are around a selective checkpoint.
pytestmark = pytest.mark.filterwarnings("ignore:A saved_tensors_hooks context:FutureWarning")

SAMPLES, WIDTH = 256, 32
# A tensor of a block's width, and of its inside.
NARROW, WIDE = 4 * SAMPLES * WIDTH, 16 * SAMPLES * WIDTH
PATCHED = (
    (torch.autograd.graph.saved_tensors_hooks, "__enter__"),
    (torch.autograd.graph.saved_tensors_hooks, "__exit__"),
    (checkpoints, GENERATOR),
    (checkpoints._VersionWrapper, "__init__"),
)


@pytest.fixture
def saved() -> Iterator[Callable[[Callable[[], Any]], SavedTensors]]:
    """``saved(step)`` runs a step with its backward and gives what was counted."""
    before = [(owner, name, getattr(owner, name)) for owner, name in PATCHED]
    forward = checkpoints.CheckpointFunction.forward
    hooks = SavingHooks(SavingWatch())
    hooks.install()

    def run(step: Callable[[], Any], *, lasting: Any = ()) -> SavedTensors:
        # Hooks that are pushed belong to a thread, and stay.
        return in_thread(lambda: counted(hooks, step, lasting))

    yield run
    for owner, name, value in before:
        setattr(owner, name, value)
    checkpoints.CheckpointFunction.forward = staticmethod(forward)


def counted(hooks: SavingHooks, step: Callable[[], Any], lasting: Any) -> SavedTensors:
    hooks.watch = watch = SavedTensors("cpu", lasting)
    hooks.begin()
    loss = step()
    watch.backward_begins()
    loss.backward()
    watch.backward_done()
    watch.counted()
    hooks.watch = SavingWatch()
    return watch


def in_thread(act: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(act()))
    thread.start()
    thread.join()
    assert found, "the thread raised"
    return found[0]


class Block(nn.Module):
    def __init__(self, *, ends_in_relu: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.ends_in_relu = ends_in_relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.down(nn.functional.gelu(self.up(x)))
        return nn.functional.relu(y) if self.ends_in_relu else x + y


class Net(nn.Module):
    """Four blocks, run by ``through``."""

    def __init__(self, through: Callable[..., torch.Tensor], *, ends_in_relu: bool = False) -> None:
        super().__init__()
        self.into = nn.Linear(8, WIDTH)
        self.blocks = nn.ModuleList(Block(ends_in_relu=ends_in_relu) for _ in range(4))
        self.through = through

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.through(self.blocks, self.into(x)).sum()


def plain(blocks: Any, x: torch.Tensor) -> torch.Tensor:
    for block in blocks:
        x = block(x)
    return x


def each(blocks: Any, x: torch.Tensor, **options: Any) -> torch.Tensor:
    for block in blocks:
        x = checkpoint(block, x, **options)
    return x


def nested(blocks: Any, x: torch.Tensor) -> torch.Tensor:
    inner = functools.partial(each, blocks, use_reentrant=False)
    return checkpoint(inner, x, use_reentrant=False)


NOT_REENTRANT = functools.partial(each, use_reentrant=False)
REENTRANT = functools.partial(each, use_reentrant=True)
SELECTIVE = functools.partial(
    each,
    use_reentrant=False,
    context_fn=functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default]),
)


def sequential(blocks: Any, x: torch.Tensor) -> torch.Tensor:
    return checkpoint_sequential(blocks, 2, x, use_reentrant=False)


def model(through: Callable[..., torch.Tensor], *, ends_in_relu: bool) -> tuple[Net, torch.Tensor]:
    torch.manual_seed(0)
    net = Net(through, ends_in_relu=ends_in_relu)
    return net, torch.randn(SAMPLES, 8)


def peak_of(through: Callable[..., torch.Tensor], *, ends_in_relu: bool) -> int:
    """The most that a step has allocated at once, in bytes, to the byte."""
    net, x = model(through, ends_in_relu=ends_in_relu)
    net(x).backward()
    with Allocations() as allocations:
        allocations.mark()
        net(x).backward()
        allocations.mark()
    return allocations.stretches[-1].peak


@pytest.mark.parametrize("ends_in_relu", [False, True])
@pytest.mark.parametrize(
    "through",
    [NOT_REENTRANT, REENTRANT, SELECTIVE, nested, sequential],
    ids=["each", "reentrant", "sac", "nested", "two"],
)
def test_what_is_counted_as_freed_is_what_the_peak_is_lower_by(
    through: Callable[..., torch.Tensor], ends_in_relu: bool, saved: Any
) -> None:
    measured = peak_of(plain, ends_in_relu=ends_in_relu) - peak_of(through, ends_in_relu=ends_in_relu)
    net, x = model(through, ends_in_relu=ends_in_relu)

    found = saved(lambda: net(x), lasting=[*net.parameters(), x]).counted()

    own, other = model(plain, ends_in_relu=ends_in_relu)
    without = saved(lambda: own(other), lasting=[*own.parameters(), other]).counted()
    assert found.without_bytes == without.kept_bytes
    # The gradient of a block's inside comes and goes.
    assert found.saving_bytes == pytest.approx(measured, abs=WIDE)


@pytest.mark.parametrize(
    "through", [NOT_REENTRANT, REENTRANT, SELECTIVE, nested], ids=["each", "reentrant", "sac", "nested"]
)
def test_gradients_are_those_without_hooks(through: Callable[..., torch.Tensor], saved: Any) -> None:
    own, x = model(plain, ends_in_relu=False)
    own(x).backward()
    net, y = model(through, ends_in_relu=False)

    saved(lambda: net(y))

    for one, other in zip(own.parameters(), net.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_what_is_kept_is_counted_once_by_storage_without_parameters_and_inputs(saved: Any) -> None:
    net, x = model(plain, ends_in_relu=False)

    found = saved(lambda: net(x), lasting=[*net.parameters(), x])

    # Of each block what enters it, what enters and what leaves its activation.
    assert found.counted().kept_bytes == 4 * (NARROW + 2 * WIDE)
    blocks = found.blocks()
    assert blocks is not None
    assert (blocks.names, blocks.number) == (("Block",), 4)
    assert blocks.peak_bytes == 4 * NARROW + 2 * WIDE
    holders = {(one.path, one.name): one.saved_bytes for one in found.holders()}
    assert holders == {
        ("blocks.*", "Block"): 4 * WIDE,
        ("blocks.*.down", "Linear"): 4 * WIDE,
        ("blocks.*.up", "Linear"): 4 * NARROW,
    }


def test_regions_without_gradients_are_called_and_free_nothing(saved: Any) -> None:
    net, x = model(NOT_REENTRANT, ends_in_relu=False)
    own, _ = model(plain, ends_in_relu=False)

    def step() -> torch.Tensor:
        with torch.no_grad():
            net(x)
        return own(x)

    (region,) = saved(step).regions()

    assert (region.name, region.calls, region.calls_without_gradients, region.freed_bytes) == ("Block", 4, 4, 0)


def test_a_copy_that_hooks_keep_stands_in_for_what_it_was_made_of(saved: Any) -> None:
    net, x = model(plain, ends_in_relu=False)

    def step() -> torch.Tensor:
        with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda kept: kept):
            return net(x)

    found = saved(step, lasting=[*net.parameters(), x])

    counted = found.counted()
    assert counted.without_bytes == 4 * (NARROW + 2 * WIDE)
    # Weights and the input are copied as well.
    assert counted.kept_bytes > counted.without_bytes
    assert counted.saving_bytes < 0
    assert [(one.name, one.kind) for one in found.regions()] == [("saved_tensors_hooks", "hooks")]


def test_a_change_in_place_of_what_the_backward_needs_raises_as_without_hooks(saved: Any) -> None:
    net, x = model(plain, ends_in_relu=False)

    def step() -> torch.Tensor:
        loss = net(x)
        with torch.no_grad():
            net.blocks[1].up.weight.mul_(2)
        with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
            loss.backward()
        return net(x)

    step()
    saved(step)


def test_what_fails_in_counting_is_kept_for_a_note_and_the_step_goes_on(
    saved: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, x = model(NOT_REENTRANT, ends_in_relu=False)

    def fails(*_: Any, **__: Any) -> None:
        raise ValueError("odd module")

    monkeypatch.setattr(ModulePlaces, "here", fails)
    found = saved(lambda: net(x))

    assert found.problem == "ValueError: odd module"
    assert all(parameter.grad is not None for parameter in net.parameters())
