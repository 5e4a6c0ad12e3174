"""The attention in graphs is the one that the script calls, or the difference is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, LlamaConfig, LlamaModel

from autotune.worker.describing.attention import Attention, difference, eager_attention, graph_attention
from tests.fakes.planned import Planned, clean_torch

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")

BATCH, LENGTH = 4, 24
CAUSAL, PLAIN, MASKED = (
    Attention("flash_attention_for_cpu", is_causal, has_mask)
    for is_causal, has_mask in ((True, False), (False, False), (False, True))
)


@pytest.fixture(autouse=True)
def _clean_torch() -> Iterator[None]:
    with clean_torch():
        yield


class Called(nn.Module):
    """A model of transformers, called as scripts call it."""

    def __init__(self, model: nn.Module, *, with_mask: bool) -> None:
        super().__init__()
        self.model, self.with_mask = model, with_mask

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.model(
            input_ids=tokens, attention_mask=mask if self.with_mask else None
        ).last_hidden_state
        return hidden.square()


def llama() -> nn.Module:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 50}
    return LlamaModel(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, use_cache=False))


def gpt2() -> nn.Module:
    rates = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
    return GPT2Model(
        GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=50, n_positions=64, use_cache=False, **rates)
    )


def bert() -> nn.Module:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 50}
    return BertModel(
        BertConfig(**sizes, num_attention_heads=4, attention_probs_dropout_prob=0.0), add_pooling_layer=False
    )


def planned(make: Callable[[], nn.Module], mask: str) -> tuple[Planned, set[Attention]]:
    """A model under an engine, and the attention that it calls without."""
    given = torch.ones(BATCH, LENGTH, dtype=torch.long)
    if mask == "padded":
        given[0, LENGTH // 2 :] = 0
    inputs = torch.randint(50, (BATCH, LENGTH)), given
    found = Planned(lambda: Called(make(), with_mask=mask != "none"), lambda: inputs)
    return found, eager_attention(found.model(*inputs).mean())


def in_graphs(model: Planned) -> set[Attention]:
    return graph_attention(node for graph in model.engine.graphs for node in graph.joint.nodes.values())


@pytest.mark.parametrize(
    ("make", "mask", "expected"),
    [
        (llama, "none", CAUSAL),
        (llama, "full", CAUSAL),
        (llama, "padded", MASKED),
        (gpt2, "none", CAUSAL),
        (bert, "none", PLAIN),
        (bert, "full", PLAIN),
        (bert, "padded", MASKED),
    ],
)
def test_graphs_of_a_transformers_model_call_the_attention_that_the_script_calls(
    make: Callable[[], nn.Module], mask: str, expected: Attention
) -> None:
    model, eager = planned(make, mask)

    assert model.step() == model.plain()

    assert in_graphs(model) == eager == {expected}
    assert not difference(eager, in_graphs(model))


def test_a_mask_is_traced_with_the_sizes_of_what_was_traced_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against plans whose bytes would be known at one batch size and one length only."""
    monkeypatch.setattr(torch.fx.experimental._config, "use_duck_shape", False)  # as descriptions have it
    model, _ = planned(llama, "padded")
    model.engine.traces_sizes = True
    begin = model._begin

    def marked() -> list[torch.Tensor]:
        tensors = begin()
        for tensor in tensors:
            for dimension in (0, 1):
                torch._dynamo.maybe_mark_dynamic(tensor, dimension)
        return tensors

    model._begin = marked  # type: ignore[method-assign]

    model.step()

    (layers,) = (graph for graph in model.engine.graphs if graph.joint.layers)
    assert {size for size, _ in layers.varying_sizes} == {BATCH, LENGTH}


def test_what_the_script_compiles_itself_is_traced_as_it_always_was() -> None:
    """Guards a teacher that is compiled without breaks, beside a student under the engine."""
    model, _ = planned(llama, "full")
    model.step()
    teacher = Called(llama(), with_mask=True)

    with torch.no_grad():
        expected = teacher(*model.inputs)
        found = torch.compile(teacher, backend="eager", fullgraph=True)(*model.inputs)

    torch.testing.assert_close(found, expected)


class AsksWhetherTraced(nn.Module):
    """A library of its own that makes a mask explicit where it is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.project(x).unsqueeze(1)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril() if torch.compiler.is_compiling() else None
        return F.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask, is_causal=mask is None)


def test_another_attention_than_the_scripts_is_said() -> None:
    inputs = torch.randn(2, 16, 8)
    model = Planned(AsksWhetherTraced, lambda: (inputs,))
    eager = eager_attention([model.model(inputs).mean()])

    model.step()

    assert difference(eager, in_graphs(model)).startswith(
        "torch traces another attention than the script calls: flash_attention_for_cpu with a mask in the graphs, "
        "flash_attention_for_cpu (causal) in eager"
    )
    unknown = {Attention(one.kernel, one.is_causal, None) for one in eager}
    assert "flash_attention_for_cpu (causal) in eager" in difference(unknown, in_graphs(model))


def test_attention_that_graphs_have_besides_is_no_difference() -> None:
    assert not difference(set(), {CAUSAL})
    assert not difference({CAUSAL}, {CAUSAL, MASKED})
    assert not difference({CAUSAL, MASKED}, {CAUSAL})


class ScaledDotProductOfMyOwn(torch.autograd.Function):
    """Its node has the name of torch's kernels, and nothing else of theirs."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient * 2


def test_a_function_of_the_scripts_own_is_no_attention() -> None:
    x = torch.ones(2, requires_grad=True)

    assert eager_attention(ScaledDotProductOfMyOwn.apply(x).sum()) == set()  # type: ignore[no-untyped-call]


def test_a_checkpoint_is_not_run_again_to_see_its_mask() -> None:
    calls = []
    mask = torch.ones(16, 16, dtype=torch.bool)

    def attend(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.shape)
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    out = checkpoint(attend, torch.randn(2, 1, 16, 8, requires_grad=True), use_reentrant=False)

    assert eager_attention(out.sum()) == {MASKED}
    assert len(calls) == 1
