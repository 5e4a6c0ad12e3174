"""Which kernel attention takes on a card that is not there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from autotune.worker.absent.attention import _allowed, _kernel

TURING, AMPERE, HOPPER = (7, 5), (8, 0), (9, 0)


def kernel(
    capability: tuple[int, int],
    dtype: torch.dtype = torch.bfloat16,
    *,
    heads: tuple[int, int] = (64, 64),
    has_mask: bool = False,
    dropout: float = 0.0,
    is_causal: bool = False,
    keys: int = 128,
) -> str:
    query = torch.empty(2, 4, 128, heads[0], dtype=dtype, device="meta")
    key = torch.empty(2, 4, keys, heads[0], dtype=dtype, device="meta")
    value = torch.empty(2, 4, keys, heads[1], dtype=dtype, device="meta")
    mask = torch.empty(128, keys, dtype=torch.bool, device="meta") if has_mask else None
    return _kernel(capability, _allowed(), query, key, value, mask, dropout, is_causal)


@pytest.mark.parametrize(
    ("capability", "given", "expected"),
    [
        (HOPPER, {}, "cudnn"),
        (HOPPER, {"has_mask": True}, "cudnn"),
        (HOPPER, {"dropout": 0.1}, "flash"),
        (HOPPER, {"dropout": 0.125}, "cudnn"),
        (HOPPER, {"heads": (256, 256)}, "flash"),
        (HOPPER, {"dtype": torch.float32}, "efficient"),
        (AMPERE, {}, "flash"),
        (AMPERE, {"has_mask": True}, "efficient"),
        (AMPERE, {"is_causal": True, "keys": 64}, "efficient"),
        (AMPERE, {"heads": (192, 128)}, "efficient"),
        (AMPERE, {"heads": (60, 60)}, "flash"),
        (AMPERE, {"heads": (60, 60), "has_mask": True}, "math"),
        (AMPERE, {"dtype": torch.float32}, "efficient"),
        (AMPERE, {"dtype": torch.float64}, "math"),
        (TURING, {}, "math"),
        (TURING, {"dtype": torch.float16}, "efficient"),
        (TURING, {"dtype": torch.float32}, "efficient"),
    ],
)
def test_a_kernel_is_chosen_by_card_type_and_shape(
    capability: tuple[int, int], given: dict[str, Any], expected: str
) -> None:
    assert kernel(capability, **given) == expected


def test_a_kernel_that_the_script_switched_off_is_not_taken() -> None:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert kernel(AMPERE) == "math"
