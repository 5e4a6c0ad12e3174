"""Where a script's memory goes at its peak, in a sentence, as tables, and as a drawing in characters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby, pairwise
from textwrap import shorten

from ..records.explanation import PARTS, STATE, WORKSPACES, Explanation, HeldTensor, Moment
from ..records.memory_changes import CHANGES, ChangeEffect
from ..records.outcome import Phase
from ..records.units import format_bytes, format_share
from ..records.words import alike, sentence
from .batches import batch_sentences
from .cards import asked_sentences, several_sentences
from .tables import Table

_SHORT_PHASES: dict[Phase, str] = {"start": "data", "forward": "forward", "backward": "backward", "optimizer": "rest"}
_MOST_ROWS, _MOST_OPERATORS, _MOST_CODE, _LONGEST_NAME = 10, 2, 48, 20
_COLUMNS, _ROWS = 64, 6
_MOST_BY_HAND = 3
# What a change frees, or costs, is told from such a share of the whole on.
_LEAST_SHARE, _NO_EFFECT = 0.005, "none"
_BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class _Group:
    """Tensors that are held for one reason."""

    name: str
    tensors: tuple[HeldTensor, ...]

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.tensors)


def explanation_sentences(explained: Explanation) -> tuple[str, ...]:
    """Say when the peak is, how much it holds, and what most of that is."""
    size = "" if explained.batch_size is None else f" at batch size {explained.batch_size}"
    holder = f"The step{size}" if explained.batch is None else f"The step with {explained.batch.sizes}"
    if explained.moment.step == 0 and explained.moment.phase == "start":
        holder = "Before its first step, the script"
    told = [f"{holder} holds {format_bytes(explained.peak_bytes)} of tensors at its peak, {_when(explained.moment)}."]
    state, made = _reasons(explained)
    if state and (not made or state[0].bytes > made[0].bytes):
        told.append(f"{format_bytes(state[0].bytes)} of that is {state[0].name}.")
    if made:
        rest = "of that" if len(told) == 1 else "of the rest"
        told.append(f"{format_bytes(made[0].bytes)} {rest} {_what(made[0])}.")
    told += (
        f"Each step that was followed keeps {format_bytes(leak.bytes)} more than the one before, made by "
        f"{leak.place.operator} at {leak.place}."
        for leak in explained.leaks
    )
    return tuple(told)


def closing_sentences(explained: Explanation) -> tuple[str, ...]:
    """Say how much of a card the process needs for that, and what may differ there."""
    process, card = format_bytes(explained.process_bytes), explained.card
    has = f"{'each of ' * (card.number > 1)}{card.name} has {format_bytes(card.memory_bytes)}"
    said = (
        f"With what torch's allocator caches, and CUDA's context, the process needs {process}; {has}.",
        "None of it ran on a GPU: optimizer steps of the script were followed by the sizes of their tensors.",
        *several_sentences([card]),
        *batch_sentences(explained.ahead, explained.batch),
        *asked_sentences(explained.asked, explained.asked_integers),
        *(f"note: {note}" for note in explained.notes),
        *(() if explained.changes else ("the same command with --changes tells what would lower the peak.",)),
    )
    return tuple(map(sentence, said))


def kind_table(explained: Explanation) -> Table:
    """Tabulate what the memory at the peak is held for."""
    rows = [
        (group.name, format_bytes(group.bytes), _share(group.bytes, explained), str(len(group.tensors)))
        for group in _grouped(explained.held, lambda one: one.kind)
    ]
    workspaces = explained.workspace_bytes
    rows.append((WORKSPACES, format_bytes(workspaces), _share(workspaces, explained), ""))
    return Table(("Held for", "Memory", "Share", "Tensors"), tuple(rows), frozenset({1, 2, 3}))


def module_table(explained: Explanation) -> Table:
    """Tabulate the modules that hold most; modules that differ in a number alone are one row."""
    rows = []
    for group in _grouped(explained.held, lambda one: alike(one.module))[:_MOST_ROWS]:
        state = sum(one.bytes for one in group.tensors if one.kind in STATE)
        names = list(dict.fromkeys(one.module for one in group.tensors))
        name = names[0] if len(names) == 1 else f"{group.name} ({len(names)})"
        cells = (format_bytes(part) if part else "" for part in (state, group.bytes - state))
        rows.append((name or "outside of modules", format_bytes(group.bytes), *cells))
    columns = ("Module", "Memory", "Model and optimizer", "Activations and others")
    return Table(columns, tuple(rows), frozenset({1, 2, 3}))


def line_table(explained: Explanation) -> Table:
    """Tabulate the lines that have made most of what is held."""
    rows = []
    for group in _reasons(explained)[1][:_MOST_ROWS]:
        operators = Counter[str]()
        for one in group.tensors:
            operators[one.made.place.operator] += one.bytes
        names = ", ".join(_cut(name) for name, _ in operators.most_common(_MOST_OPERATORS))
        place = group.tensors[0].made.place
        # A library's line is long by its path alone.
        code = shorten(place.code, _MOST_CODE, placeholder="…") if place.line == place.script_line else ""
        rows.append((_short(group.name), format_bytes(group.bytes), str(len(group.tensors)), names, code))
    return Table(("Line", "Memory", "Tensors", "Operators", ""), tuple(rows), frozenset({1, 2}))


def tensor_table(explained: Explanation) -> Table:
    """Tabulate the largest tensors with where they were made and until when they are held; alike ones are one row."""

    def name(one: HeldTensor) -> str:
        made = one.made.place
        return " ".join((_form(one), one.kind, alike(_owner(one)), made.operator, made.line, _until(one, explained)))

    rows = []
    for group in _grouped(explained.held, name)[:_MOST_ROWS]:
        first, count = group.tensors[0], len(group.tensors)
        rows.append(
            (
                f"{count} x" if count > 1 else "",
                _form(first),
                format_bytes(group.bytes),
                first.kind.removesuffix(" activations"),
                _owner(first) if count == 1 else alike(_owner(first)),
                "" if first.kind in STATE else _cut(first.made.place.operator),
                _until(first, explained, whole=count == 1),
            )
        )
    columns = ("", "Tensor", "Memory", "Held for", "Of", "Made by", "Held until")
    return Table(columns, tuple(rows), frozenset({0, 2}))


def change_table(explained: Explanation) -> Table:
    """Tabulate what each change of the script does to its peak, the lowest peak first."""
    rows = [
        (
            one.change,
            format_bytes(one.peak_bytes),
            _effect(one, explained),
            format_bytes(one.process_bytes),
            ", ".join(_prices(one)),
        )
        for one in _by_peak(explained)
    ]
    return Table(("Change", "Peak", "Effect", "Process needs", "Price"), tuple(rows), frozenset({1, 2, 3}))


def change_sentences(explained: Explanation) -> tuple[str, ...]:
    """Say how the changes that lower the peak most are made, which cost and free nothing, and which cannot be made."""
    useful = [one for one in _by_peak(explained) if one.peak_bytes < (1 - _LEAST_SHARE) * explained.peak_bytes]
    told = [f"`{one.change}`: {CHANGES[one.change].by_hand}." for one in useful[:_MOST_BY_HAND]]
    for one in (one for one in _by_peak(explained) if one not in useful):
        effect = _effect(one, explained)
        if effect != _NO_EFFECT:
            told.append(f"`{one.change}` raises the peak by {effect.removeprefix('+')}.")
        elif prices := _prices(one):
            told.append(f"`{one.change}` frees nothing at the peak. Its price: {', '.join(prices)}.")
    told += (f"No `{one.change}`: {one.reason.rstrip('.')}." for one in explained.untried)
    return tuple(map(sentence, told))


def _by_peak(explained: Explanation) -> list[ChangeEffect]:
    return sorted(explained.changes, key=lambda one: (one.peak_bytes, one.process_bytes))


def _effect(one: ChangeEffect, explained: Explanation) -> str:
    change = one.peak_bytes / explained.peak_bytes - 1 if explained.peak_bytes else 0.0
    return _NO_EFFECT if abs(change) < _LEAST_SHARE else f"{'+' if change > 0 else '-'}{format_share(abs(change))}"


def _prices(one: ChangeEffect) -> list[str]:
    """Return what a change costs."""
    counted = []
    if one.more_flops >= _LEAST_SHARE:
        counted.append(f"{format_share(one.more_flops)} more arithmetic")
    if one.moved_bytes:
        counted.append(f"{format_bytes(one.moved_bytes)} between GPU and CPU")
    return [*counted, *filter(None, [CHANGES[one.change].price])]


def draw_timeline(explained: Explanation) -> tuple[str, ...]:
    """Draw the allocated memory over the step that has the peak, line by line."""
    count = len(explained.timeline)
    if not count:
        return ()
    columns = min(_COLUMNS, count)
    edges = [column * count // columns for column in range(columns + 1)]
    levels = [max(level for _, level in explained.timeline[low:high]) for low, high in pairwise(edges)]
    phases = [explained.timeline[low][0] for low in edges[:-1]]
    most = max(levels)
    lines = []
    for row in range(_ROWS - 1, -1, -1):
        heights = (level / most * _ROWS - row for level in levels)
        bars = "".join(_BARS[max(0, min(8, round(8 * height)))] for height in heights)
        label = format_bytes(most * (row + 1) / _ROWS) if row in (_ROWS - 1, _ROWS // 2 - 1) else ""
        lines.append(f"{label:>9} {bars}".rstrip())
    names = (
        f"{_SHORT_PHASES[phase] if len(_SHORT_PHASES[phase]) < size else '':<{size}}"
        for phase, size in ((phase, len(list(same))) for phase, same in groupby(phases))
    )
    return (*lines, f"{'':>9} {''.join(names)}".rstrip())


def _reasons(explained: Explanation) -> tuple[list[_Group], list[_Group]]:
    """Group what model and optimizer have by kind, and everything else by the line that made it."""
    state = _grouped((one for one in explained.held if one.kind in STATE), lambda one: one.kind)
    return state, _grouped(
        (one for one in explained.held if one.kind not in STATE), lambda one: one.made.place.line or str(one.made.place)
    )


def _grouped(held: Iterable[HeldTensor], name_of: Callable[[HeldTensor], str]) -> list[_Group]:
    """Group tensors by a name, the largest group first."""
    groups: defaultdict[str, list[HeldTensor]] = defaultdict(list)
    for one in held:
        groups[name_of(one)].append(one)
    found = [_Group(name, tuple(tensors)) for name, tensors in groups.items()]
    return sorted(found, key=lambda group: -group.bytes)


def _what(group: _Group) -> str:
    """Say what tensors of one line are: `comes from train.py:66: 3 tensors of 8192x50257 float32`."""
    forms = Counter[str]()
    for one in group.tensors:
        forms[_form(one)] += one.bytes
    form, size = forms.most_common(1)[0]
    count = len(group.tensors)
    number = "a tensor" if count == 1 else f"{count} tensors"
    most = f" of {form}" if size == group.bytes else f", most of them {form}" if 2 * size > group.bytes else ""
    return f"comes from {group.tensors[0].made.place}: {number}{most}"


def _until(one: HeldTensor, explained: Explanation, *, whole: bool = False) -> str:
    """Say which part of a step frees a tensor; modules that differ in a number alone are the same, unless ``whole``."""
    if one.freed is None:
        return "the end"
    phase, module = one.freed.phase, one.freed.place.module
    if one.freed.step > explained.moment.step:
        return "the next step"
    if not _has_module(one.freed):
        return f"the {PARTS[phase]}"
    if module == one.made.place.module and not one.parameter:
        return f"its {phase}"
    return f"{phase} of {module if whole else alike(module)}"


def _has_module(moment: Moment) -> bool:
    return moment.phase in ("forward", "backward") and bool(moment.place.module)


def _when(moment: Moment) -> str:
    """Say which part of a step a moment is in: `in the backward of lm_head at train.py:66`."""
    place, phase, has_module = moment.place, PARTS[moment.phase], _has_module(moment)
    of = f" of {'module ' if place.module.isdigit() else ''}{place.module}" if has_module else ","
    return f"in the {phase}{of} at {place.line or place}"


def _cut(operator: str) -> str:
    return operator if len(operator) <= _LONGEST_NAME else f"{operator[: _LONGEST_NAME - 1]}…"


def _short(line: str) -> str:
    """Return a line with its file and the folder of that alone."""
    return "/".join(line.split("/")[-2:])


def _form(one: HeldTensor) -> str:
    return f"{'x'.join(map(str, one.shape)) or '1'} {one.dtype}"


def _owner(one: HeldTensor) -> str:
    return one.parameter or one.made.place.module


def _share(part: int, explained: Explanation) -> str:
    return format_share(part / explained.peak_bytes) if explained.peak_bytes else ""
