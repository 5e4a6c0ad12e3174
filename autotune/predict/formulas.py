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
            self._evaluate = self._read(ast.parse(text, mode="eval").body)
        except FormatError:
            raise
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise FormatError(f"not a formula: {text[:200]!r}: {error}") from None

    def __call__(self, values: Mapping[str, int]) -> int:
        """Return the value, rounded down."""
        missing = sorted(self.names - values.keys())
        if missing:
            raise FormatError(f"the formula {self.text!r} needs a value for {', '.join(missing)}")
        try:
            value: int = math.floor(self._evaluate(values))
        except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
            raise FormatError(f"the formula {self.text!r} has no value at {dict(values)!r}: {error}") from None
        return value

    def _read(self, node: ast.expr) -> Callable[[Mapping[str, int]], Any]:
        """Return what evaluates a part of the formula."""
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return lambda _values: number
            case ast.Name(id=name):
                self.names.add(name)
                return operator.itemgetter(name)
            case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=int(exponent))) if 0 <= exponent <= _LARGEST_POWER:
                base = self._read(node.left)
                return lambda values: _power(base(values), exponent)
            case ast.BinOp(op=operation) if type(operation) in _OPERATORS:
                binary, left, right = _OPERATORS[type(operation)], self._read(node.left), self._read(node.right)
                return lambda values: binary(left(values), right(values))
            case ast.UnaryOp(op=operation) if type(operation) in _OPERATORS:
                unary, operand = _OPERATORS[type(operation)], self._read(node.operand)
                return lambda values: unary(operand(values))
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS and node.args:
                function, arguments = _FUNCTIONS[name], list(map(self._read, node.args))
                return lambda values: function(*(argument(values) for argument in arguments))
        raise FormatError(f"{ast.unparse(node)!r} has no place in a formula: {self.text!r}")


def _power(base: Any, exponent: int) -> Any:
    if abs(base) > _LARGEST_BASE:
        raise OverflowError(f"{base!r} is too large for a power")
    return base**exponent
