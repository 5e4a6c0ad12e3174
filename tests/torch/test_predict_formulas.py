"""Formulas from a database are arithmetic, and can be nothing else."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._sympy.functions import (
    CeilDiv,
    CeilToInt,
    CleanDiv,
    FloorDiv,
    FloorToInt,
    IntTrueDiv,
    ModularIndexing,
    PythonMod,
    TruncToInt,
)

from autotune.errors import FormatError
from autotune.predict.formulas import Formula
from autotune.worker.plans.joint import Bytes

batch, length = (sympy.Symbol(name, positive=True, integer=True) for name in ("batch", "seq_len"))


@pytest.mark.parametrize(
    "expression",
    [
        4 * batch * length,
        384 * (34336 * batch - 237),
        batch * length / 2,
        sympy.Max(1, batch - 3) + sympy.Min(batch, 2),
        sympy.floor(batch / 3) + sympy.ceiling(length / 7) + sympy.Mod(length, 5) + sympy.Abs(3 - batch),
        FloorDiv(batch, 3) * 4 + CleanDiv(length, 2),
        PythonMod(length, 7) + ModularIndexing(batch, 2, 3),
        length**2 * batch - (-batch),
        # What attention's kernels on a GPU pad.
        sympy.Max(1, 32 * CeilToInt(IntTrueDiv(length, 32))) * batch + CeilDiv(length, 16),
        FloorToInt(IntTrueDiv(length, 7)) + TruncToInt(IntTrueDiv(batch, 3)),
    ],
    ids=str,
)
@given(batch_size=st.integers(1, 999), seq_len=st.integers(1, 999))
def test_what_sympy_prints_has_the_value_that_sympy_gives(
    expression: sympy.Expr, batch_size: int, seq_len: int
) -> None:
    values = {"batch": batch_size, "seq_len": seq_len}
    expected = sympy.floor(expression.subs({batch: batch_size, length: seq_len}))
    if "CleanDiv" in str(expression) and seq_len % 2:
        return
    assert Formula(str(expression))(values) == expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "batch.__class__",
        "(lambda: 1)()",
        "[batch for batch in (1,)]",
        "open('x')",
        "floor()",
        "floor(batch, key=batch)",
        "9**9**9",
        "2**99999999",
        "batch**seq_len",
        "'a' * 9",
        "True",
        "1 if batch else 2",
        "batch and 3",
        "batch[0]",
        "batch := 3",
        "1j",
        "",
        "(" * 500 + "batch" + ")" * 500,
        "batch" + "+1" * 100_000,
    ],
)
def test_anything_but_arithmetic_is_refused_before_it_is_evaluated(text: str) -> None:
    with pytest.raises(FormatError):
        Formula(text)


def test_a_missing_value_and_a_division_by_zero_are_named() -> None:
    with pytest.raises(FormatError, match="needs a value for seq_len"):
        Formula("4*batch*seq_len")({"batch": 3})
    with pytest.raises(FormatError, match="no value"):
        Formula("4/(batch - 3)")({"batch": 3})


def test_powers_of_powers_come_to_an_end() -> None:
    towering = Formula("((((((batch**16)**16)**16)**16)**16)**16)**16")
    with pytest.raises(FormatError, match="too large"):
        towering({"batch": 2})


def test_bytes_follow_their_names_to_other_sizes() -> None:
    """Guards a table for another batch than the traced one: the value stayed what it was while tracing."""
    traced = sympy.Symbol("s0", positive=True, integer=True)
    amount = Bytes(64, 8 * traced, {traced: 8})
    assert amount.named({traced: batch}).value_at({"batch": 20}) == 160
    assert amount.named({}).value_at({"batch": 20}) == 64


def test_a_sign_before_a_name_is_arithmetic() -> None:
    assert Formula("-batch + 7")({"batch": 3}) == 4
    assert Formula("4*-(batch - 9)")({"batch": 3}) == 24
