"""The answer of a gate that compares what two versions of a script hold at their peaks, line by line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ...records.allocations import Place
from ...records.explanation import PARTS, STATE, WORKSPACES, Explanation, HeldTensor
from ...records.gate import Growth, MemoryAnswer, MemoryGate
from ...records.units import format_bytes, format_share
from ...records.words import alike, joined

_MOST_LINES = 3
_WORTH_TELLING = 1024

# The file, its code, and which of the lines with this code it is: numbers change with each line before them.
_Line = tuple[str, str, int]


def decide_by_lines(
    before: Explanation, now: Explanation, *, against: str, allowed: float, cautions: Sequence[str] = ()
) -> MemoryGate:
    """Decide whether a script needs more memory than another version of it did.

    Args:
        before: the peak of the other version.
        now: the peak of the script.
        against: the name of the other version.
        allowed: the growth of the peak that passes, as a share. What each step keeps may not grow.
        cautions: sentences about what may not be as it was.
    """
    change = now.peak_bytes - before.peak_bytes
    has_grown = now.peak_bytes > before.peak_bytes * (1 + allowed)
    growth, leaks = _growth(before, now), _leak_growth(before, now)
    has_leak = sum(one.bytes for one in leaks) > 0
    answer: MemoryAnswer = "regression" if has_grown or has_leak else "pass"
    if has_grown:
        heading = f"More memory than {against!r}"
    elif change > 0:
        heading = f"No more than the allowed {format_share(allowed)} over {against!r}"
    else:
        heading = f"{'Less memory than' if change else 'As much memory as'} {against!r}"
    sentences = [f"{heading}: {_peaks(before, now)}."]
    if has_leak:
        sentences.insert(0, f"A leak that {against!r} does not have: each step that was followed keeps more.")
        sentences += [
            f"Each step keeps {format_bytes(one.bytes)} more{_where(one)}"
            for one in leaks[:_MOST_LINES]
            if one.bytes > 0
        ]
    if before.moment.phase != now.moment.phase:
        parts = [PARTS[one.moment.phase] for one in (now, before)]
        sentences.append(f"The peak is now in the {parts[0]}, and was in the {parts[1]}.")
    told = [one for one in growth if one.bytes >= _WORTH_TELLING][:_MOST_LINES]
    sentences += [f"{format_bytes(one.bytes)} more{_where(one)}" for one in told]
    return MemoryGate(
        answer=answer,
        sentences=(*sentences, *cautions),
        before_bytes=before.peak_bytes,
        now_bytes=now.peak_bytes,
        growth=tuple(growth),
        leaks=tuple(leaks),
        before_batch_size=before.batch_size,
        batch_size=now.batch_size,
    )


def _peaks(before: Explanation, now: Explanation) -> str:
    size = "" if now.batch_size is None else f" at batch size {now.batch_size}"
    if now.batch_size != before.batch_size:
        size += f", before {before.batch_size or 'one that could not be counted'},"
    change = now.peak_bytes - before.peak_bytes
    more = f", {format_bytes(abs(change))} {'more' if change > 0 else 'less'}" if change else ""
    return f"the step{size} holds {format_bytes(now.peak_bytes)} at its peak{more}"


def _growth(before: Explanation, now: Explanation) -> list[Growth]:
    """List all that differs in what is held, the largest growth first."""
    groups: defaultdict[_Line, tuple[list[HeldTensor], list[HeldTensor]]] = defaultdict(lambda: ([], []))
    for version, explained in enumerate((before, now)):
        lines = _lines(explained, (one.made.place for one in explained.held))
        for one in explained.held:
            key = ("", one.kind, 0) if one.kind in STATE else lines[one.made.place]
            groups[key][version].append(one)
    found = [
        Growth(
            name=name,
            line="" if (new or old)[0].kind in STATE else str((new or old)[0].made.place),
            modules=tuple(dict.fromkeys(filter(None, (alike(one.module) for one in new)))),
            before_bytes=sum(one.bytes for one in old),
            now_bytes=sum(one.bytes for one in new),
        )
        for (_, name, _), (old, new) in groups.items()
    ]
    found.append(Growth(WORKSPACES, "", (), before.workspace_bytes, now.workspace_bytes))
    return _sorted(found)


def _leak_growth(before: Explanation, now: Explanation) -> list[Growth]:
    """List all that differs in what each step keeps, the largest growth first."""
    sizes: defaultdict[tuple[_Line, str], list[int]] = defaultdict(lambda: [0, 0])
    places: dict[tuple[_Line, str], Place] = {}
    for version, explained in enumerate((before, now)):
        lines = _lines(explained, (leak.place for leak in explained.leaks))
        for leak in explained.leaks:
            key = lines[leak.place], leak.place.operator
            sizes[key][version] += leak.bytes
            places[key] = leak.place
    return _sorted([Growth(places[key].code, str(places[key]), (), old, new) for key, (old, new) in sizes.items()])


def _sorted(growth: list[Growth]) -> list[Growth]:
    return sorted((one for one in growth if one.bytes), key=lambda one: -one.bytes)


def _lines(explained: Explanation, places: Iterable[Place]) -> dict[Place, _Line]:
    """Return the lines of places, the same in two versions; the script's own file may have another name in each."""
    found: dict[tuple[str, str], set[int]] = defaultdict(set)
    named: dict[Place, tuple[str, str, int]] = {}
    for place in places:
        path, _, number = place.line.rpartition(":")
        file = path.rpartition("/")[2]
        file = "" if file == explained.script else file
        named[place] = file, place.code, int(number or 0)
        found[file, place.code].add(int(number or 0))
    order = {key: sorted(numbers) for key, numbers in found.items()}
    return {place: (file, code, order[file, code].index(number)) for place, (file, code, number) in named.items()}


def _where(one: Growth) -> str:
    modules = joined(one.modules[:_MOST_LINES])
    inside = f", in {modules}" if modules else ""
    if not one.line:
        return f" of {one.name}{inside}."
    return f" from {one.line}{inside}{f': {one.name}' if one.name else '.'}"
