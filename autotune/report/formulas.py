"""Formulas for people, where a size of one name differs from graph to graph, as the rows that each expert gets.

The names of such sizes end in underscores: ``s14``, ``s14_``, ``s14__`` (``worker/describing/dimensions.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# So many sizes of one name are folded into one.
_MANY = 4
_NAMES_ADDED = re.compile(rf"(?<![\w*/.])([A-Za-z]\w*?)_*(?: \+ \1_*\b){{{_MANY - 1},}}(?![\w*/.(])")


def folded_formula(formula: str) -> str:
    """Write the sums of sizes that have one name as ``sum(s14)``."""
    return re.sub(r"\((sum\(\w+\))\)", r"\1", _NAMES_ADDED.sub(r"sum(\1)", formula))


def folded_names(dimensions: Mapping[str, int]) -> dict[str, list[int]]:
    """Return the names that many sizes have, with the sizes."""
    sizes: dict[str, list[int]] = {}
    for name, value in dimensions.items():
        sizes.setdefault(first_name(name), []).append(value)
    return {name: values for name, values in sizes.items() if len(values) >= _MANY}


def first_name(name: str) -> str:
    """Return the name of a dimension in the first graph that has one of its name."""
    return name.rstrip("_")
