"""What a model saves, by module: held against what torch really keeps, and what checkpointing really frees."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autotune
from autotune.errors import UsageError
from autotune.worker.measuring.inspection import MemoryInspection
from autotune.worker.measuring.saved import OUTSIDE, SavedRow
from tests.fakes.models import CASES, Gpt
from tests.fakes.planned import clean_torch, kept_bytes


@pytest.fixture(autouse=True)
def _clean_torch() -> Iterator[None]:
    with clean_torch():
        yield


class Block(nn.Module):
    """(batch, 16) to (batch, 16)."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(self.down(torch.tanh(self.up(x))))


class Net(nn.Module):
    """(batch, 16) to (batch, 1); ``checkpointed`` puts torch's checkpoint around its blocks."""

    def __init__(self, *, checkpointed: bool = False, use_reentrant: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(16, 1)
        self.checkpointed, self.use_reentrant = checkpointed, use_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.use_reentrant) if self.checkpointed else block(x)
        return self.head(x)


BLOCKS = [f"blocks.{index}" for index in range(3)]


def inputs() -> torch.Tensor:
    return torch.randn(32, 16, generator=torch.Generator().manual_seed(1))


def named(memory: MemoryInspection) -> dict[str, SavedRow]:
    return {row.name: row for row in memory.rows}


def hooks(model: nn.Module) -> list[int]:
    return [
        len(each)
        for module in model.modules()
        for each in (module._forward_hooks, module._forward_pre_hooks, module._forward_hooks_always_called)
    ]


# -- how much, and where


@pytest.mark.parametrize("name", CASES)
def test_it_counts_what_autograd_keeps(name: str) -> None:
    torch.manual_seed(0)
    model, arguments = CASES[name].make().train(), CASES[name].inputs()
    memory = autotune.inspect_memory(model, *arguments)
    torch.manual_seed(0)
    assert memory.saved_bytes == kept_bytes(lambda: model(*arguments), [*model.parameters(), *model.buffers()])
    rows = memory.rows
    assert rows[0].name == ""
    assert rows[0].saved_bytes == memory.saved_bytes == sum(row.own_bytes for row in rows)


def test_each_module_has_what_it_saved_first() -> None:
    memory = autotune.inspect_memory(Net(), inputs())
    rows = named(memory)
    wide, narrow = 4 * 32 * 64, 4 * 32 * 16
    # Of each block: the first layer its inputs, tanh its outputs, dropout its mask.
    assert rows["blocks.*.up"].own_bytes == 3 * narrow
    assert rows["blocks.*"].own_bytes == 3 * wide
    assert (rows["blocks.*"].modules, rows["blocks.*"].calls, rows["blocks.*"].kind) == (3, 3, "Block")
    assert rows["blocks.*.dropout"].tensors == 3
    assert "blocks.*.down" not in rows  # it saves what tanh has saved
    assert rows["head"].own_bytes == narrow


def test_the_loss_is_outside_of_the_model() -> None:
    model = Net()
    with autotune.inspect_memory(model) as memory:
        nn.functional.mse_loss(model(inputs()), torch.zeros(32, 1)).backward()
    assert named(memory)[OUTSIDE].own_bytes == 2 * 4 * 32


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing_frees_what_was_said(use_reentrant: bool) -> None:
    model, checkpointed = Net(), Net(checkpointed=True, use_reentrant=use_reentrant)
    x = inputs().requires_grad_()
    before, after = autotune.inspect_memory(model, x), autotune.inspect_memory(checkpointed, x)
    freed = before.saved_bytes - after.saved_bytes
    # Checkpoint keeps the random state too, which is no tensor of a graph.
    assert before.freed_by_checkpointing(*BLOCKS) == freed > 0
    assert named(before)["blocks.*"].freed_by_checkpointing == freed
    assert after.freed_by_checkpointing(*BLOCKS) == 0


def test_what_others_save_of_a_module_stays() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()), nn.Linear(64, 1))
    memory = autotune.inspect_memory(model, inputs())
    assert memory.freed_by_checkpointing("0") == 4 * 32 * 64  # of two outputs of tanh, one is saved by the last layer

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model[1](checkpoint(self.model[0], x, use_reentrant=False))

    after = autotune.inspect_memory(Checkpointed(), inputs())
    assert memory.saved_bytes - after.saved_bytes == 4 * 32 * 64


def test_a_module_that_saves_its_inputs_only_frees_nothing() -> None:
    rows = named(autotune.inspect_memory(Net(), inputs()))
    assert rows["head"].freed_by_checkpointing == 0
    assert rows["blocks.*.up"].freed_by_checkpointing == 0


# -- what was seen


def test_of_several_steps_the_largest_moment_is_told_and_nothing_is_counted_twice() -> None:
    model = Net()
    single = autotune.inspect_memory(model, inputs()).saved_bytes
    with autotune.inspect_memory(model) as memory:
        model(inputs()[:8]).sum().backward()
        for _ in range(3):
            model(inputs()).sum().backward()
    assert memory.saved_bytes == single
    assert named(memory)[""].calls == 1


def test_two_forwards_before_a_backward_are_kept_at_once() -> None:
    model = Net()
    single = autotune.inspect_memory(model, inputs()).saved_bytes
    with autotune.inspect_memory(model) as memory:
        (model(inputs()) + model(inputs())).sum().backward()
        model(inputs()).sum().backward()
    assert memory.saved_bytes == 2 * single
    assert named(memory)[""].calls == 2


def test_what_no_backward_follows_is_let_go_with_its_graph() -> None:
    model = nn.Sequential(nn.Linear(16, 64), nn.Sigmoid())  # of which the last operator saves its own output
    single = autotune.inspect_memory(model, inputs()).saved_bytes
    with autotune.inspect_memory(model) as memory:
        for _ in range(3):
            outputs = model(inputs())
            reference = weakref.ref(outputs)
            del outputs
            assert reference() is None
    assert memory.saved_bytes == single


def test_parameters_of_another_model_do_not_count() -> None:
    encoder, decoder = nn.Linear(16, 32), nn.Linear(32, 1)
    with autotune.inspect_memory(encoder) as memory:
        decoder(encoder(inputs())).sum().backward()
    assert named(memory)[OUTSIDE].own_bytes == 4 * 32 * 32  # what enters the decoder


def test_what_is_told_can_be_read_while_it_goes_on_and_after_an_evaluation() -> None:
    model = Net()
    with autotune.inspect_memory(model) as memory:
        with torch.no_grad():
            model(inputs())
        assert memory.saved_bytes == 0
        loss = model(inputs()).sum()
        assert memory.saved_bytes > 0
        loss.backward()
    assert "kept nothing" not in str(memory)


def test_a_model_that_was_not_trained_says_so() -> None:
    with autotune.inspect_memory(Net()) as memory:
        pass
    assert str(memory).startswith("Net kept nothing from forward to backward: no forward with gradients was seen.")
    assert memory.rows == ()


def test_what_other_hooks_take_is_said_not_to_be_seen() -> None:
    model = Net()
    with autotune.inspect_memory(model) as outer, autotune.inspect_memory(model) as inner:
        model(inputs()).sum().backward()
    assert str(outer).startswith("Net kept nothing from forward to backward that can be seen here.")
    assert "an inspect_memory inside of this one" in str(outer)
    assert inner.saved_bytes > 0


def test_a_module_that_was_not_looked_at_is_no_module_that_frees_nothing() -> None:
    memory = autotune.inspect_memory(Net(), inputs())
    with pytest.raises(UsageError, match=r"Net has no module 'block.1' that was looked at") as refused:
        memory.freed_by_checkpointing("blocks.0", "block.1")
    assert refused.value.hint == "did you mean blocks.1?"


def test_lazy_modules_are_refused_until_they_have_shapes() -> None:
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d())
    with pytest.raises(UsageError, match="whose parameters have no shape yet") as refused:
        autotune.inspect_memory(model, inputs())
    assert refused.value.hint == "call the model once before"
    model(inputs())
    assert autotune.inspect_memory(model, inputs()).saved_bytes > 0


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_scripted_modules_are_refused() -> None:
    model = nn.Sequential(nn.Linear(16, 64), torch.jit.script(nn.Tanh()))
    with pytest.raises(UsageError, match="Sequential has scripted modules, which take no hooks"):
        autotune.inspect_memory(model)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_recomputation_in_the_backward_is_not_counted(use_reentrant: bool) -> None:
    model, x = Net(checkpointed=True, use_reentrant=use_reentrant), inputs().requires_grad_()
    once = autotune.inspect_memory(model, x).saved_bytes
    with autotune.inspect_memory(model) as memory:
        model(x).sum().backward()
    assert memory.saved_bytes == once


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_model_is_seen_as_a_whole_and_stays_one_graph(in_place: bool) -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append(graph)
        return graph

    model = Net()
    if in_place:
        model.compile(backend=backend)
    compiled = model if in_place else torch.compile(model, backend=backend)
    memory = autotune.inspect_memory(compiled, inputs())
    assert memory.saved_bytes == autotune.inspect_memory(Net(), inputs()).saved_bytes
    assert [row.name for row in memory.rows] == [""]
    assert "What is compiled is seen as a whole" in str(memory)
    assert sum("linear" in str(node) for graph in graphs for node in graph.graph.nodes) == 7
    assert len([graph for graph in graphs if "tanh" in graph.code]) == 1


# -- what it leaves behind


def test_nothing_is_left_behind_and_gradients_are_the_same() -> None:
    model = Net()
    before = hooks(model)
    torch.manual_seed(3)
    model(inputs()).sum().backward()
    found = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    torch.manual_seed(3)
    with autotune.inspect_memory(model):
        loss = model(inputs()).sum()
    assert hooks(model) == before
    loss.backward()  # after it has ended
    assert all(torch.equal(a, b.grad) for a, b in zip(found, model.parameters(), strict=True))
    packed: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x, lambda x: x):
        model(inputs())
    assert packed


@pytest.mark.parametrize("is_parameter", [False, True])
def test_a_change_in_place_of_what_the_backward_needs_raises_as_without_it(is_parameter: bool) -> None:
    first, second = nn.Linear(16, 16), nn.Linear(16, 1)
    with autotune.inspect_memory(second):
        hidden = torch.sigmoid(first(inputs()))
        loss = second(hidden).sum()
        with torch.no_grad():
            (second.weight if is_parameter else hidden).mul_(2)
        with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
            loss.backward()


def test_a_parameter_whose_data_is_replaced_before_the_backward_is_used_as_it_is_then() -> None:
    model = nn.Conv1d(16, 16, 1)
    x = inputs().unsqueeze(2).requires_grad_()
    with autotune.inspect_memory(model):
        loss = model(x).sum()
        model.weight.data = torch.zeros(16, 16, 1)
        loss.backward()
    assert x.grad is not None
    assert not x.grad.any()


def test_gradients_of_gradients_are_the_same() -> None:
    model, found = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)), []
    for around in (contextlib.nullcontext(), autotune.inspect_memory(model)):
        with around:
            x = inputs().requires_grad_()
            (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            model.zero_grad()
            gradient.square().sum().backward()
        found.append(model[0].weight.grad)
    assert torch.equal(*found)


def test_it_survives_exceptions() -> None:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.fails = Net(), True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.inner(x)
            if self.fails:
                raise ValueError("of the model")
            return x

    model = Failing()
    before = hooks(model)
    with autotune.inspect_memory(model) as memory:
        with pytest.raises(ValueError, match="of the model"):
            model(inputs())
        model.fails = False
        model(inputs()).square().sum().backward()
    # What is behind a call that failed is told apart from the model still.
    outside = named(memory)[OUTSIDE].own_bytes
    assert named(memory)["inner"].saved_bytes == memory.saved_bytes - outside
    assert outside == 4 * 32
    with pytest.raises(ValueError, match="of the loop"), autotune.inspect_memory(model):
        raise ValueError("of the loop")
    assert hooks(model) == before


def test_a_single_call_leaves_random_state_buffers_and_mode() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Dropout()).eval()
    model.register_buffer("scale", torch.ones(1).expand(16))
    state, random = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    memory = autotune.inspect_memory(model, inputs())
    assert memory.saved_bytes > 0
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not any(module.training for module in model.modules())


def test_a_single_call_puts_back_a_buffer_that_was_replaced_and_leaves_a_cache_that_has_grown() -> None:
    class Averaging(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(16, 16)
            self.register_buffer("mean", torch.zeros(16))
            self.register_buffer("cache", torch.zeros(1))
            self.register_buffer("nothing", None)
            self.cached = 1

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.cached < len(x):
                self.cached, self.cache = len(x), torch.arange(float(len(x)))
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
            return self.inner(x) + self.cache[:, None]

    model = Averaging()
    mean = model.mean
    autotune.inspect_memory(model, inputs())
    assert model.mean is mean
    assert torch.equal(mean, torch.zeros(16))
    assert len(model.cache) == model.cached == 32


@pytest.mark.parametrize("training", [False, True])
def test_a_single_call_leaves_a_graph_under_way(training: bool) -> None:
    model, found = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)), []
    for inspects in (False, True):
        model.zero_grad()
        loss = model.train(training)(inputs()).square().sum()
        if inspects:
            autotune.inspect_memory(model, inputs())
        loss.backward()
        found.append(model[0].weight.grad)
    assert torch.equal(*found)


# -- how it reads


def test_it_reads_in_a_terminal_and_in_a_notebook() -> None:
    memory = autotune.inspect_memory(Gpt(), torch.zeros(4, 24, dtype=torch.long))
    lines = str(memory).splitlines()
    assert lines[0].startswith("Gpt keeps ")
    assert "checkpointing the 3 GptBlocks (blocks.*) would free " in lines[0]
    assert lines[-1].startswith("Next: `autotune run SCRIPT`")
    assert any(line.startswith("blocks.*.norm_1 ") for line in lines)
    assert memory.peak_bytes is not None
    page = memory._repr_html_()
    assert page.count("<tr>") == 1 + len(memory.rows)
    assert "blocks.*" in page


def test_a_row_s_name_cannot_break_the_page() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
    model.add_module("<script>", nn.Tanh())
    page = autotune.inspect_memory(model, inputs())._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
