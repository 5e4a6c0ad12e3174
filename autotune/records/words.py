"""A configuration in words for people, and names of many operators cut in the middle.

Codes such as ``Block+:1:5`` say exactly what runs, and stand beneath the words. ``--json``, ``mem_opt.json`` and
``stack.json`` have names whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from .configuration import Configuration, SizedPlans
from .engines import ENGINES
from .facts import ClusterFacts
from .plan import ALL, NONE, Plan

# Of a name of more operators than four the first two and the last are left.
_LONG_NAME = re.compile(r"(?:[^\s:,+]+\+){5,}")
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_LEVELS = {1: "every layer", 2: "every layer, with compromises"}
# So many operator patterns are named, more are counted.
_MOST_NAMED = 2


def setting_words(configuration: Configuration, clusters: Iterable[ClusterFacts] = ()) -> str:
    """Write the whole setting as the subject of a sentence: ``recomputing all 6 Blocks at batch 16``."""
    words, batch = recomputed_words(configuration, clusters), configuration.batch
    compiled = ENGINES[configuration.engine].in_verdict
    if configuration.choices:
        compiled += f", {' '.join(configuration.choices)}"
    if words:
        return f"recomputing {words} at {batch}{compiled}" if batch else f"recomputing {words}{compiled}"
    if ENGINES[configuration.engine].target == "model":
        return f"{batch or 'the model'}{compiled}"
    return f"{batch or 'the script'} without plans{compiled}"


def brief_words(configuration: Configuration, clusters: Iterable[ClusterFacts] = ()) -> str:
    """Write the whole setting as a line among others: ``batch 16, recompute all 6 Blocks``."""
    words = recomputed_words(configuration, clusters)
    return configuration.listed(f"recompute {words}" if words else "") or "the model as it is"


def recomputed_words(configuration: Configuration, clusters: Iterable[ClusterFacts] = ()) -> str:
    """Return what is recomputed: ``5 of 6 Blocks and 3 more operator patterns``; empty for nothing."""
    rows = {(row.cluster_id, row.strategy): row for row in clusters}
    found = [(plan, rows.get((plan.cluster, plan.strategy))) for plan in configuration.plans if plan.strategy != NONE]
    layers = [_counted(plan, row) for plan, row in found if _is_layer(plan, row)]
    others = [(plan, row) for plan, row in found if not _is_layer(plan, row)]
    parts = [_LEVELS.get(configuration.level, f"level {configuration.level}")] if configuration.level else []
    parts += layers
    if len(others) <= _MOST_NAMED:
        noun = "operator" if len(others) == 1 and _is_single(others[0][1]) else "operators"
        parts += [f"{joined([_counted(plan, row) for plan, row in others])} {noun}"] if others else []
    else:
        parts.append(f"{len(others)} {'more ' if parts else ''}operator patterns")
    return joined(parts)


def sized_words(sized: Sequence[SizedPlans]) -> str:
    """Return what smaller batches recompute: ``nothing up to inputs of 4x90 and less up to 4x180``."""
    last = {bool(one.plans): f"{'less' if one.plans else 'nothing'} up to {one.size}" for one in sized}
    return joined([*last.values()]).replace("up to ", "up to inputs of ", 1)


def _is_single(row: ClusterFacts | None) -> bool:
    return row is not None and row.frequency == 1


def cut_names(text: str) -> str:
    """Cut the long names of clusters in a text in the middle: ``addmm+view+…+clone+``."""

    def cut(match: re.Match[str]) -> str:
        first, second, *_, last = match[0].rstrip("+").split("+")
        return f"{first}+{second}+…+{last}+"

    return _LONG_NAME.sub(cut, text)


def _is_layer(plan: Plan, row: ClusterFacts | None) -> bool:
    if row is not None:
        return row.is_layer
    # A repeated block goes by the name of its class; operators are written small.
    return plan.cluster[:1].isupper() and plan.cluster.count("+") == 1


def _counted(plan: Plan, row: ClusterFacts | None) -> str:
    name = cut_names(plan.cluster).replace("+[", "[").removesuffix("+")
    names = f"{name}s" if _is_layer(plan, row) and not name.endswith("s") else name
    if row is None:
        if plan.every > 1:
            return f"one in {plan.every} {names}"
        return f"all {names}" if plan.count == ALL else f"the first {plan.count} {names}"
    count = plan.applies_to(row.frequency)
    if _is_single(row) and count:
        return f"the {name}"
    return f"all {count} {names}" if count == row.frequency else f"{count} of {row.frequency} {names}"


def counted(number: int, noun: str) -> str:
    """Write ``1 repetition``, ``3 repetitions``, ``1,200 settings``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def sentence(words: str) -> str:
    """Write words as a sentence begins: with a capital letter."""
    return words[:1].upper() + words[1:]


def alike(path: str) -> str:
    """Return a path with its numbers left out, so that those which differ in them alone are the same."""
    return _NUMBER.sub("*", path)


def joined(parts: Sequence[str]) -> str:
    """Write ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
