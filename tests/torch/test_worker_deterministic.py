"""Kernels that are told to be deterministic without exception, where torch is told to warn and go on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from autotune.worker.proving import deterministic
from autotune.worker.proving.deterministic import attention_backward, insist, replace_cudnn_attention_backward

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _warn_only() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def put() -> torch.Tensor:
    """Torch has no deterministic kernel for this, on any device."""
    return torch.zeros(3).put_(torch.tensor([0, 1]), torch.ones(2), accumulate=False)


@pytest.mark.filterwarnings("ignore:put_ does not have a deterministic implementation:UserWarning")
def test_an_operator_that_is_insisted_on_finds_no_exception_and_others_do() -> None:
    assert put().sum() == 2
    with torch.library._scoped_library("aten", "IMPL") as library:
        insist(library, "aten::put_", "CPU")
        with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
            put()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert put().sum() == 2


def test_arguments_and_results_are_the_kernels_own() -> None:
    values = torch.rand(3, 5)
    own = aten.topk(values, 2, dim=0, largest=False), values.sum(1, dtype=torch.float64)
    with torch.library._scoped_library("aten", "IMPL") as library:
        for operator in ("aten::topk", "aten::sum.dim_IntList"):
            insist(library, operator, "CPU")
        again = aten.topk(values, 2, dim=0, largest=False), values.sum(1, dtype=torch.float64)
    assert all(torch.equal(*pair) for pair in zip(own[0], again[0], strict=True))
    assert torch.equal(own[1], again[1])
    assert again[1].dtype == torch.float64


@pytest.fixture(params=["plain", "causal", "biased", "grouped", "scaled"])
def attended(request: pytest.FixtureRequest) -> Attended:
    torch.manual_seed(0)
    key_heads = 2 if request.param == "grouped" else 4
    q, k, v = (torch.randn(2, heads, 9, width) for heads, width in ((4, 8), (key_heads, 8), (key_heads, 6)))
    found = Attended(q, k, v, is_causal=request.param == "causal", scale=0.3 if request.param == "scaled" else None)
    if request.param == "biased":
        found.bias = torch.randn(2, 1, 9, 9).masked_fill(torch.rand(9) < 0.3, -math.inf)
        found.bias[0, 0, 3] = -math.inf
    return found


@dataclasses.dataclass
class Attended:
    """Compute attention by a formula that autograd can go through."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    bias: torch.Tensor | None = None
    is_causal: bool = False
    scale: float | None = None

    def forward(self) -> tuple[torch.Tensor, torch.Tensor]:
        groups = self.query.shape[1] // self.key.shape[1]
        key, value = (one.repeat_interleave(groups, 1) for one in (self.key, self.value))
        scale = self.query.shape[-1] ** -0.5 if self.scale is None else self.scale
        scores = self.query @ key.mT * scale
        if self.is_causal:
            scores = scores + torch.full(scores.shape[-2:], -math.inf).triu(1)
        if self.bias is not None:
            scores = scores + self.bias
        sees = (scores > -math.inf).any(-1, keepdim=True)
        return scores.masked_fill(~sees, 0).softmax(-1) * sees @ value, scores.logsumexp(-1, keepdim=True)

    def gradients(self, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs = [one.requires_grad_() for one in (self.query, self.key, self.value)]
        with torch.enable_grad():
            return torch.autograd.grad(self.forward()[0], inputs, grad)

    def replaced(self, grad: torch.Tensor, out: torch.Tensor, logsumexp: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = (grad, self.query, self.key, self.value, out, logsumexp, self.bias)
        return attention_backward(*given, is_causal=self.is_causal, scale=self.scale)


@pytest.mark.parametrize("probabilities", [1, 4 * 9 * 4, 2**25])
def test_attentions_gradients_are_those_of_autograd(
    monkeypatch: pytest.MonkeyPatch, attended: Attended, probabilities: int
) -> None:
    monkeypatch.setattr(deterministic, "_PROBABILITIES", probabilities)
    out, logsumexp = attended.forward()
    grad = torch.randn_like(out)
    with torch.no_grad():
        own = attended.replaced(grad, out, logsumexp)
    for pair in zip(own, attended.gradients(grad), strict=True):
        torch.testing.assert_close(*pair)


def test_attentions_gradients_change_with_whatever_the_forward_saved(attended: Attended) -> None:
    out, logsumexp = attended.forward()
    grad = torch.randn_like(out)
    own = attended.replaced(grad, out, logsumexp)[0]
    with_another_mask = attended.replaced(grad, out * (torch.rand_like(out) > 0.5), logsumexp)[0]
    assert not torch.equal(own, with_another_mask)
    assert not torch.equal(own, attended.replaced(grad, out, logsumexp + 1e-3)[0])


def test_cudnns_attention_has_its_backward_replaced(attended: Attended) -> None:
    """The operator is called as autograd calls it; a kernel for a CPU shows that the arguments arrive."""
    out, logsumexp = attended.forward()
    grad, nothing = torch.randn_like(out), torch.empty(0)
    with torch.library._scoped_library("aten", "IMPL") as library:
        replace_cudnn_attention_backward(library, "CPU")
        found = aten._scaled_dot_product_cudnn_attention_backward(
            *(grad, attended.query, attended.key, attended.value, out, logsumexp, nothing, nothing, attended.bias),
            *(nothing, nothing, 9, 9, 0.0, attended.is_causal),
            scale=attended.scale,
        )
    for own, expected in zip(found, attended.replaced(grad, out, logsumexp), strict=True):
        assert torch.equal(own, expected)


def test_a_script_keeps_the_attention_that_it_trains_with(monkeypatch: pytest.MonkeyPatch) -> None:
    # There are no kernels for CUDA to be told.
    monkeypatch.setattr(deterministic, "_ATTENTION", ())
    monkeypatch.setattr(deterministic, "_libraries", [])
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
    allowed = SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION
    with sdpa_kernel(list(allowed)):
        deterministic.use_deterministic_algorithms()
        assert torch.backends.cuda.cudnn_sdp_enabled()
    assert torch._C._dispatch_has_kernel_for_dispatch_key(deterministic._CUDNN_ATTENTION_BACKWARD, "CUDA"), "replaced"


def test_the_attention_kernels_that_are_told_exist() -> None:
    for operator in (*deterministic._ATTENTION, deterministic._CUDNN_ATTENTION_BACKWARD):
        namespace, _, name = operator.partition("::")
        assert hasattr(getattr(torch.ops, namespace), name), operator
