"""Kernels that are told to be deterministic without exception, where torch is told to warn and go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from autotune.worker.proving import deterministic
from autotune.worker.proving.deterministic import insist

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


@pytest.mark.parametrize(
    ("allowed", "is_left"),
    [
        ([SDPBackend.CUDNN_ATTENTION], True),
        ([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], False),
        ([SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION], False),
    ],
)
def test_a_script_that_allows_cudnns_attention_only_keeps_it(
    monkeypatch: pytest.MonkeyPatch, allowed: list[SDPBackend], *, is_left: bool
) -> None:
    # There are no kernels for CUDA to be told.
    monkeypatch.setattr(deterministic, "_ATTENTION", ())
    monkeypatch.setattr(deterministic, "_libraries", [])
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
    with sdpa_kernel(allowed):
        deterministic.use_deterministic_algorithms()
        assert torch.backends.cuda.cudnn_sdp_enabled() == is_left


def test_the_attention_kernels_that_are_told_exist() -> None:
    for operator in deterministic._ATTENTION:
        namespace, _, name = operator.partition("::")
        assert hasattr(getattr(torch.ops, namespace), name), operator
