"""Formulas for people: folded where many sizes have one name, and as a line in the batch size where they are long.

Sizes of one name differ from graph to graph, as the rows that each expert gets. Their names end in underscores:
``s14``, ``s14_``, ``s14__`` (``worker/describing/dimensions.py``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from ..errors import FormatError
from ..predict.formulas import Formula

# Characters of a formula that a reader takes in at once.
_LONGEST = 60
_BATCH = "batch"
# So many sizes of one name are folded into one.
_MANY = 4
_NAMES_ADDED = re.compile(rf"(?<![\w*/.])([A-Za-z]\w*?)_*(?: \+ \1_*\b){{{_MANY - 1},}}(?![\w*/.(])")


def readable_formula(formula: str, dimensions: Mapping[str, int], growing: Collection[str] = ()) -> str:
    """Write a formula of bytes for people; a long one as a line in the batch size, at ``dimensions`` otherwise.

    No line is written of a formula with a name of ``growing``: those sizes follow the batch size.
    """
    folded = folded_formula(formula)
    if len(folded) <= _LONGEST:
        return folded
    line = "" if names_in([formula]) & set(growing) else _line_in_batch(formula, dimensions)
    return line or f"{folded[: _LONGEST - 1]}…"


def _line_in_batch(formula: str, dimensions: Mapping[str, int]) -> str:
    """Write a formula as a line in the batch size; empty where it is none."""
    try:
        calculate, batch = Formula(formula), dimensions[_BATCH]
        first, second, third = (calculate({**dimensions, _BATCH: factor * batch}) for factor in (1, 2, 3))
    except (FormatError, KeyError):
        return ""
    slope, rest = divmod(second - first, batch)
    if rest or third - second != second - first:
        return ""
    constant = first - slope * batch
    terms = [f"{slope}*{_BATCH}"] if slope else []
    if constant or not slope:
        terms.append(f"{'- ' if constant < 0 else '+ ' if slope else ''}{abs(constant)}")
    return f"{' '.join(terms)} (at sizes as seen)"


def folded_formula(formula: str) -> str:
    """Write the sums of sizes that have one name as ``sum(s14)``."""
    return re.sub(r"\((sum\(\w+\))\)", r"\1", _NAMES_ADDED.sub(r"sum(\1)", formula))


def folded_names(dimensions: Mapping[str, int]) -> dict[str, list[int]]:
    """Return the names that many sizes have, with the sizes."""
    sizes: dict[str, list[int]] = {}
    for name, value in dimensions.items():
        sizes.setdefault(first_name(name), []).append(value)
    return {name: values for name, values in sizes.items() if len(values) >= _MANY}


def names_in(formulas: Iterable[str]) -> set[str]:
    """Return the names that formulas have."""
    return {name for formula in formulas for name in re.findall(r"[A-Za-z]\w*", formula)}


def first_name(name: str) -> str:
    """Return the name of a dimension in the first graph that has one of its name."""
    return name.rstrip("_")
