"""Saved activations of a model, from forward to backward, as rows by module: plain data, and its text and HTML."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ...records.units import format_bytes, format_share

OUTSIDE = "(outside of the model)"
"""The path of what is saved while no module of the model runs, such as by the loss."""

# Rows that a person reads; the others are added up in the last one.
_MOST_ROWS = 24
_HEADINGS = ("Module", "Class", "Calls", "Saves", "Of it itself", "Tensors", "Checkpointing it frees")


@dataclass(frozen=True)
class Module:
    """A module of the model: its path in it, its class, and how often it was called in the steps that are looked at.

    ``group`` is the path with ``*`` for the index of each list around it whose modules are of one class.
    """

    path: str
    kind: str
    group: str
    calls: int


@dataclass(frozen=True)
class Snapshot:
    """The storages that were kept at one moment, each by a number of its own.

    ``sizes`` are the bytes of each storage that is kept, or that a module was given. ``savers`` has, of what is kept,
    the paths of the modules that keep it, the first one first. ``inputs`` are the storages that a module was given, by
    its path. ``modules`` are those that were called, in the order of the model.
    """

    sizes: Mapping[int, int] = field(default_factory=dict)
    savers: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    inputs: Mapping[str, frozenset[int]] = field(default_factory=dict)
    modules: tuple[Module, ...] = ()

    @property
    def saved_bytes(self) -> int:
        """Return the bytes of all that is kept."""
        return sum(self.sizes[storage] for storage in self.savers)

    def freed_by_checkpointing(self, paths: Collection[str]) -> int:
        """Return how many bytes fewer are kept with checkpoints around these modules; below zero where it is more."""
        inside = {module.path for module in self.modules if _is_below(module.path, paths)}
        # What others save of what is inside stays, and what the modules were given has to be kept.
        kept = {storage for storage, savers in self.savers.items() if not inside.issuperset(savers)}
        kept.update(*(self.inputs.get(path, ()) for path in paths))
        return self.saved_bytes - sum(self.sizes[storage] for storage in kept)


@dataclass(frozen=True)
class SavedRow:
    """The saved activations of a module, or of all modules of a list that are of one class.

    ``name`` is the module's path in the model, with ``*`` for each of several; empty for the model itself.
    ``saved_bytes`` counts with the modules inside, ``own_bytes`` and ``tensors`` without. A storage counts for the
    module that saved it first. ``freed_by_checkpointing`` is how many bytes fewer are kept with
    ``torch.utils.checkpoint`` around the module, or around each of several; 0 where that frees nothing.
    """

    name: str
    kind: str
    modules: int
    calls: int
    saved_bytes: int
    own_bytes: int
    tensors: int
    freed_by_checkpointing: int


def rows_of(snapshot: Snapshot) -> tuple[SavedRow, ...]:
    """Return the rows: the model, then what is inside of it in its order; what saves nothing has none."""
    groups: dict[str, list[Module]] = {}
    for module in snapshot.modules:
        groups.setdefault(module.group, []).append(module)
    rows = [_row(snapshot, group, members) for group, members in groups.items()]
    outside = [storage for storage, savers in snapshot.savers.items() if savers[0] == OUTSIDE]
    if outside:
        size = sum(snapshot.sizes[storage] for storage in outside)
        rows.append(SavedRow(OUTSIDE, "", 0, 0, size, size, len(outside), 0))
    return tuple(row for row in rows if row.saved_bytes)


def _row(snapshot: Snapshot, group: str, members: list[Module]) -> SavedRow:
    paths = {module.path for module in members}
    own = [storage for storage, savers in snapshot.savers.items() if savers[0] in paths]
    all_of_it = [storage for storage, savers in snapshot.savers.items() if _is_below(savers[0], paths)]
    return SavedRow(
        name=group,
        kind=members[0].kind,
        modules=len(members),
        calls=sum(module.calls for module in members),
        saved_bytes=sum(snapshot.sizes[storage] for storage in all_of_it),
        own_bytes=sum(snapshot.sizes[storage] for storage in own),
        tensors=len(own),
        freed_by_checkpointing=max(0, snapshot.freed_by_checkpointing(paths)),
    )


def _is_below(path: str, above: Collection[str]) -> bool:
    if path == OUTSIDE:
        return False
    if "" in above or path in above:
        return True
    return any(path[:end] in above for end, letter in enumerate(path) if letter == ".")


def saved_sentence(rows: Iterable[SavedRow], *, model: str, saved_bytes: int, had_gradients: bool) -> str:
    """Return the answer in one sentence: how much is kept, and what frees most of it."""
    if not saved_bytes and had_gradients:
        # Hooks that are entered later take what would come to ours.
        return (
            f"{model} kept nothing from forward to backward that can be seen here. What other hooks on saved tensors "
            "take, such as save_on_cpu in the model or an inspect_memory inside of this one, is not seen."
        )
    if not saved_bytes:
        return f"{model} kept nothing from forward to backward: no forward with gradients was seen."
    shown = [row for row in rows if row.name != OUTSIDE]
    found = [row for row in shown if row.name and row.freed_by_checkpointing]
    # Around several blocks one is recomputed at a time; around the whole model all of it is, at once.
    best = max(found, key=lambda row: (row.modules > 1, row.freed_by_checkpointing), default=None)
    said = f"{model} keeps {format_bytes(saved_bytes)} from forward to backward"
    if best is None:
        return f"{said}; checkpointing a module of it frees nothing." if len(shown) > 1 else f"{said}."
    freed = best.freed_by_checkpointing
    frees = f"{format_bytes(freed)} ({format_share(round(freed / saved_bytes, 2))})"
    if best.modules == 1:
        return f"{said}; checkpointing {best.name} ({best.kind}) would free {frees} and run its forward twice."
    alike = f"the {best.modules} {best.kind}s ({best.name})"
    return f"{said}; checkpointing {alike} would free {frees} and run their forwards twice."


def saved_text(rows: tuple[SavedRow, ...], sentences: Iterable[str]) -> str:
    """Return sentences and rows for a terminal."""
    cells = [_HEADINGS, *_cells(rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADINGS))]
    lines = [
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    first, *others = sentences
    return "\n".join([first, "", *lines, "", *others] if rows else [first, *others])


def saved_html(rows: tuple[SavedRow, ...], sentences: Iterable[str]) -> str:
    """Return sentences and rows for a notebook."""

    def line(cells: Iterable[str], tag: str) -> str:
        written = (f'<{tag} style="text-align: left">{html.escape(one)}</{tag}>' for one in cells)
        return f"<tr>{''.join(written)}</tr>"

    body = "".join(line(cells, "td") for cells in _cells(rows))
    first, *others = (f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
    table = f"<table><thead>{line(_HEADINGS, 'th')}</thead><tbody>{body}</tbody></table>" if rows else ""
    return "".join([first, table, *others])


def _cells(rows: tuple[SavedRow, ...]) -> list[tuple[str, ...]]:
    largest = sorted(rows, key=lambda row: -row.saved_bytes)[:_MOST_ROWS]
    shown = [row for row in rows if row in largest]
    cells: list[tuple[str, ...]] = [
        (
            row.name or "(the model)",
            f"{row.modules} x {row.kind}" if row.modules > 1 else row.kind,
            str(row.calls or ""),
            format_bytes(row.saved_bytes),
            format_bytes(row.own_bytes),
            str(row.tensors),
            format_bytes(row.freed_by_checkpointing) if row.freed_by_checkpointing else "",
        )
        for row in shown
    ]
    left = [row for row in rows if row not in largest]
    if left:
        own = format_bytes(sum(row.own_bytes for row in left))
        cells.append((f"{len(left)} smaller ones", "", "", "", own, str(sum(row.tensors for row in left)), ""))
    return cells
