"""Sizes as formulas of batch and the other dimensions: the arithmetic that sympy prints, and nothing else."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from ..errors import FormatError

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: Fraction,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
# By the names that sympy, and torch's functions for it, print.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Max": max,
    "Min": min,
    "Abs": abs,
    "floor": math.floor,
    "ceiling": math.ceil,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": lambda base, divisor: -(-base // divisor),
    "CeilToInt": math.ceil,
    "FloorToInt": math.floor,
    "TruncToInt": math.trunc,
    "IntTrueDiv": Fraction,
    "ModularIndexing": lambda base, divisor, modulus: base // divisor % modulus,
}
_LARGEST_POWER, _LARGEST_BASE = 16, 10**15


class Formula:
    """A formula read from text; calling it with values for its names gives a whole number of bytes.

    Raises:
        FormatError: the text is anything but arithmetic on names and numbers; or, when called, a value is missing or
            the result is not a number.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: set[str] = set()
        try:
            self._tree = ast.parse(text, mode="eval").body
            self._check(self._tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"not a formula: {text[:200]!r}: {error}") from None

    def __call__(self, values: Mapping[str, int]) -> int:
        """The value, rounded down."""
        missing = sorted(self.names - values.keys())
        if missing:
            raise FormatError(f"the formula {self.text!r} needs a value for {', '.join(missing)}")
        try:
            value: int = math.floor(self._value(self._tree, values))
        except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
            raise FormatError(f"the formula {self.text!r} has no value at {dict(values)!r}: {error}") from None
        return value

    def _check(self, node: ast.expr) -> None:
        match node:
            case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
                return
            case ast.Name(id=name):
                self.names.add(name)
                return
            case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=int(power))) if 0 <= power <= _LARGEST_POWER:
                parts = [node.left]
            case ast.BinOp(op=operation) if type(operation) in _OPERATORS:
                parts = [node.left, node.right]
            case ast.UnaryOp(op=operation) if type(operation) in _OPERATORS:
                parts = [node.operand]
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS and node.args:
                parts = node.args
            case _:
                raise FormatError(f"{ast.unparse(node)!r} has no place in a formula: {self.text!r}")
        for part in parts:
            self._check(part)

    def _value(self, node: ast.expr, values: Mapping[str, int]) -> Any:
        match node:
            case ast.Constant(value=int() | float() as value):
                return value
            case ast.Name(id=name):
                return values[name]
            case ast.BinOp(op=ast.Pow()):
                assert isinstance(node.right, ast.Constant)
                assert isinstance(node.right.value, int)
                base, power = self._value(node.left, values), node.right.value
                if abs(base) > _LARGEST_BASE:
                    raise OverflowError(f"{base!r} is too large for a power")
                return base**power
            case ast.BinOp(op=operation):
                return _OPERATORS[type(operation)](self._value(node.left, values), self._value(node.right, values))
            case ast.UnaryOp(op=operation):
                return _OPERATORS[type(operation)](self._value(node.operand, values))
            case ast.Call(func=ast.Name(id=name)):
                return _FUNCTIONS[name](*(self._value(argument, values) for argument in node.args))
        raise AssertionError(f"_check let {ast.dump(node)} through")
