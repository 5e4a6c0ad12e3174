"""Staleness of a bundle: one comparison of its fingerprint with what is found, and the words for its result.

A bundle is stale where the script's own files, the model or the number of occurrences of a plan differ. So it is with
another torch where the setting is made of torch's graphs. Arguments count by what they change of the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .configuration import Configuration
from .engines import PLAIN_ENGINES, Engine, Target
from .fingerprint import Fingerprint, ModelPrint, SourceFile
from .printable import printable
from .words import counted

REFUSED_STATUS = 3
"""The exit status of a launch that was refused."""

_NEXT = "  next: `autotune run` on this {} writes a bundle for it; `--allow-stale` applies what still fits"

# So many classes of a model are named.
_MOST_NAMED = 4
_RELEASE = re.compile(r"(\d+)\.(\d+)")


MismatchKind = Literal["script", "torch", "model", "setting", "batch size", "accumulation"]


@dataclass(frozen=True)
class Mismatch:
    """A difference to what was measured. ``is_harmless``: it is worth a note, and refuses nothing."""

    what: MismatchKind
    said: str
    is_harmless: bool = False


def mismatches(expected: Fingerprint, found: Fingerprint, *, engine: Engine) -> tuple[Mismatch, ...]:
    """Return where what is found is not what a bundle was made of, as far as both are known.

    The engine tells of plans that recompute nothing any more: it knows what there is in their place.
    """
    told = [*_files(expected.files, found.files)]
    # Behind the plus is how it was built: for which CUDA, or for none.
    if expected.torch and found.torch and expected.torch.partition("+")[0] != found.torch.partition("+")[0]:
        told.append(_torch(expected.torch, found.torch, engine))
    if expected.models and found.models:
        told += _models(expected.models, found.models)
    for plan, before in expected.occurrences.items():
        now = found.occurrences.get(plan, 0)
        if now and now != before:
            said = f"{plan} recomputes {counted(now, 'occurrence')}, {before} when it was measured"
            told.append(Mismatch("setting", said))
    return tuple(told)


def refusal_text(found: Sequence[Mismatch], *, target: Target = "script") -> str:
    """Say why a bundle is refused for what is run, one reason a line, and what to do next."""
    first, *others = found
    lines = [f"autotune: the bundle cannot be applied to this {target}: {first.said}"]
    lines += [f"  also: {one.said}" for one in others]
    return _text([*lines, _NEXT.format(target)])


def applied_text(
    found: Sequence[Mismatch], configuration: Configuration, expected: Mapping[str, int], now: Mapping[str, int]
) -> str:
    """Say line by line what of a stale bundle is applied, and what is not."""
    lines = ["the bundle is stale, and applied as far as it fits"]
    lines += [f"  {one.said}" for one in found]
    for plan, number in now.items():
        before = f" ({expected[plan]} when it was measured)" if expected.get(plan, number) != number else ""
        to = f", to {counted(number, 'occurrence')}{before}" if number else ""
        lines.append(f"  {'applied' if number else 'not applied'}: {plan}{to}")
    not_set = {one.what for one in found}
    for what, value in (("batch size", configuration.batch_size), ("accumulation", configuration.accumulation)):
        if value:
            lines.append(f"  {'not applied' if what in not_set else 'applied'}: {what} {value}")
    return _text(lines).rstrip()


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{printable(line)}\n" for line in lines)


def _files(before: Sequence[SourceFile], now: Sequence[SourceFile]) -> Iterator[Mismatch]:
    if not before or not now:
        return
    # The script itself may have another name by now.
    pairs = [(before[0], now[0])]
    by_path = {one.path: one for one in now[1:]}
    for one in before[1:]:
        if one.path in by_path:
            pairs.append((one, by_path[one.path]))
        else:
            yield Mismatch("script", f"{one.path}, which the script imports, is not there any more")
    for old, new in pairs:
        if old.sha256 != new.sha256:
            is_same_path = old.path == new.path
            said = "has changed since it was measured" if is_same_path else f"is not the {old.path} that was measured"
            yield Mismatch("script", f"{new.path} {said}")


def _torch(before: str, now: str, engine: Engine) -> Mismatch:
    said = f"the bundle was measured with torch {before}, and this is torch {now}"
    # Another release traces, fuses and partitions in its own way; a plain engine has none of that done.
    return Mismatch("torch", said, is_harmless=_release(before) == _release(now) or engine in PLAIN_ENGINES)


def _release(version: str) -> tuple[str, ...] | str:
    match = _RELEASE.match(version)
    return match.groups() if match else version


def _models(before: Sequence[ModelPrint], now: Sequence[ModelPrint]) -> Iterator[Mismatch]:
    structures = {one.structure for one in before}
    new = [one for one in now if one.structure not in structures]
    if not new:
        return
    structures = {one.structure for one in now}
    gone = [one for one in before if one.structure not in structures]
    for one in new:
        old = next((each for each in gone if each.name == one.name), next(iter(gone), None))
        if old is not None:
            gone.remove(old)
        yield Mismatch("model", _model_changed(old, one))


def _model_changed(old: ModelPrint | None, new: ModelPrint) -> str:
    if old is None:
        return f"the script trains {new.name}, which it did not when it was measured"
    name = new.name if old.name == new.name else f"{new.name} ({old.name} when it was measured)"
    words = [
        f"{new.modules.get(one, 0)} {one} instead of {old.modules.get(one, 0)}"
        for one in dict.fromkeys([*old.modules, *new.modules])
        if old.modules.get(one, 0) != new.modules.get(one, 0)
    ]
    more = len(words) - _MOST_NAMED
    words = [*words[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]
    if old.num_parameters != new.num_parameters:
        words.append(f"{new.num_parameters:,} parameters instead of {old.num_parameters:,}")
    if old.num_trainable != new.num_trainable and new.num_trainable - old.num_trainable != (
        new.num_parameters - old.num_parameters
    ):
        words.append(f"{new.num_trainable:,} of them trainable instead of {old.num_trainable:,}")
    return f"the model {name} has changed: {', '.join(words) or 'its parts have other names, types or shapes'}"
