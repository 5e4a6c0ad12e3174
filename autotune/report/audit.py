"""Findings of an audit, in sentences and rows: the verdict first, then its reason, then the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..records.audit import Audit, Holder, RegionProof
from ..records.proof import GroupDifference, differing
from ..records.units import format_bytes, format_duration, format_share
from ..records.words import joined
from ..verdict.auditing import blocks_would_free, judge_audit
from .tables import Rows, Table

# So many of what holds most are named in a sentence.
_MOST_NAMED = 3
_KINDS = {
    "non_reentrant": "checkpoint, use_reentrant=False",
    "reentrant": "checkpoint, use_reentrant=True",
    "hooks": "hooks on saved tensors",
}


def audit_sentences(audit: Audit) -> tuple[str, ...]:
    """Say the verdict, then its reason, what every block would free, and what ``torch.compile`` does."""
    verdict, counted = judge_audit(audit), audit.eager
    name = _name(audit)
    kept = f"{format_bytes(counted.saving_bytes)} of the {format_bytes(counted.without_bytes)}"
    cost = f"{format_share(counted.cost_share)} of the step"
    said = {
        "good": f"{name} is done well: it frees {kept} that a step would keep for its backward, for {cost}.",
        "little": f"{name} has little effect: it frees {kept} that a step would keep for its backward, for {cost}.",
        "none": f"{name} has no effect: it frees none of the {format_bytes(counted.without_bytes)} that a step keeps "
        "for its backward.",
        "costly": f"{name} costs more than it gives: for {cost} it frees {kept} that a step would keep for its "
        "backward."
        if counted.saving_bytes > 0
        else f"{name} costs more than it gives: for {cost} it adds {format_bytes(-counted.saving_bytes)} to the "
        f"{format_bytes(counted.without_bytes)} that a step would keep for its backward.",
        "unused": "Your script uses neither activation checkpointing nor offloading: a step keeps "
        f"{format_bytes(audit.counted.kept_bytes)} for its backward.",
    }[verdict]
    reason = "" if verdict in ("good", "unused") else _reason(audit)
    proof, told = audit.proof, [said, reason, _possible(audit), _compiled(audit), *_idle(audit)]
    if proof is not None:
        proven = _proven(proof, name)
        told = [*proven, *told] if proof.is_wrong else [*told, *proven]
    return tuple(filter(None, told))


def audit_rows(audit: Audit) -> Rows:
    """Return the figures, by name."""
    counted, peaks, has_regions = audit.counted, audit.peaks, judge_audit(audit) != "unused"
    rows = [
        ("Kept for the backward", format_bytes(counted.kept_bytes)),
        # What a graph computes again is in no region.
        (
            "The most at once",
            ""
            if audit.compiled or not has_regions
            else f"{format_bytes(counted.peak_bytes)}, with what is computed again",
        ),
        ("Without regions", format_bytes(audit.eager.without_bytes) if has_regions else ""),
        ("Kept elsewhere", format_bytes(counted.elsewhere_bytes) if counted.elsewhere_bytes else ""),
        ("A step", format_duration(counted.step_s) if counted.step_s else ""),
        ("Computing again", _time(audit.eager.recompute_s, audit.eager.step_s)),
        ("Hooks", _time(audit.eager.hooks_s, audit.eager.step_s)),
    ]
    if peaks is not None:
        highest = peaks.resident if peaks.allocated is None else peaks.allocated
        kind = "resident" if peaks.allocated is None else "allocated"
        rows.append(("Measured peak", f"{format_bytes(highest)} {kind}, of all that the step keeps" if highest else ""))
    return tuple(row for row in rows if row[1])


def region_table(audit: Audit) -> Table:
    """Tabulate the regions of a step: what autograd would have kept for them, and what of it was freed."""
    rows = tuple(
        (
            one.name or "(unnamed)",
            _KINDS[one.kind],
            str(one.calls),
            format_bytes(one.offered_bytes),
            format_bytes(one.freed_bytes),
            f"{one.calls_without_gradients} calls without gradients" if one.calls_without_gradients else "",
        )
        for one in audit.regions
    )
    return Table(("Region", "Kind", "Calls", "Would keep", "Frees", ""), rows, frozenset({2, 3, 4}))


def holder_table(audit: Audit) -> Table:
    """Tabulate what keeps most for the backward, by module."""
    total = audit.eager.kept_bytes
    kept = [(_place(one), one.name, one.saved_bytes) for one in audit.holders]
    rest = total - sum(size for _, _, size in kept)
    if kept and rest > 0:
        kept.append(("(all others)", "", rest))
    rows = tuple((*who, format_bytes(size), format_share(size / total) if total else "") for *who, size in kept)
    return Table(("Kept by", "Class", "Keeps", "Share"), rows, frozenset({2, 3}))


def _name(audit: Audit) -> str:
    kinds = {one.kind for one in audit.regions}
    if kinds == {"hooks"}:
        is_offloading = any(one.name == "save_on_cpu" for one in audit.regions)
        return "Your offloading" if is_offloading else "Your saved-tensor hooks"
    return "Your checkpointing with its offloading" if "hooks" in kinds else "Your checkpointing"


def _proven(proof: RegionProof, name: str) -> list[str]:
    """Say whether the script trains with its regions as it does without."""
    groups = {one.group: one for one in proof.differences if one.differing}
    differ = joined([_difference(one) for one in differing(proof.differences)])
    told: list[str] = []
    if proof.answer == "unknown":
        return [f"Whether {name[0].lower()}{name[1:]} changes what is computed is not known: {proof.reason}."]
    if proof.answer == "lost":
        if proof.lost:
            told.append(f"{name} loses gradients: {_get_none(proof.lost)}. Without it there are some.")
        told += (
            f"{name} loses gradients: {_get_none(names)}. The graph is cut where {region} begins, or in it."
            for region, names in proof.cut.items()
        )
    elif proof.answer == "changed":
        told.append(f"{name} changes what is computed: {differ}.")
        if "counters" in groups or "buffers" in groups:
            told.append("A buffer may be updated again as its region is computed again.")
    elif proof.answer == "rounding":
        told.append(f"{name} changes no more than rounding: {differ}.")
    else:
        same = "losses, gradients and buffers have the same bits without it"
        told.append(f"{name} changes nothing that is computed: in {proof.steps} steps from the same seeds, {same}.")
    if "random" in groups:
        told.append(
            f"It leaves the random generator {groups['random'].name} in another state. `preserve_rng_state` of a "
            "checkpoint preserves torch's own."
        )
    return told


def _get_none(names: Sequence[str]) -> str:
    named = joined([*names[:_MOST_NAMED], *(["others"] if len(names) > _MOST_NAMED else [])])
    count = f"{len(names)} trained parameters get" if len(names) > 1 else "a trained parameter gets"
    return f"{count} none ({named})"


def _difference(one: GroupDifference) -> str:
    if one.relative is None:
        return f"{one.group} ({one.place})"
    percent = 100 * one.relative
    size = f"{percent:.0f}" if percent >= 10 else f"{percent:.2g}"
    return f"{one.group} by up to {size} % of the largest value ({one.place})"


def _reason(audit: Audit) -> str:
    """Say why regions free as little as they do."""
    counted, regions = audit.eager, audit.regions
    if regions and all(one.calls == one.calls_without_gradients for one in regions):
        calls = sum(one.calls for one in regions)
        return f"All {calls} calls of its regions in a step run where no gradient is computed: nothing is kept there."
    if not regions:
        return ""
    if all(one.kind == "hooks" for one in regions) and not counted.elsewhere_bytes:
        return f"What its hooks hand out is kept on the same device ({audit.device}), as a copy or as it was."
    if counted.peak_bytes - counted.kept_bytes > counted.without_bytes / 2:
        largest = regions[0]
        return (
            f"Its region {largest.name} holds nearly all of it and is computed again at once: as the backward begins "
            f"{format_bytes(counted.kept_bytes)} are kept, and in it {format_bytes(counted.peak_bytes)}."
        )
    inside = counted.between_bytes > counted.kept_bytes / 2
    holders = _named(one for one in audit.holders if one.in_blocks or not inside)
    where = "inside of the blocks, between its regions" if inside else "outside of its regions"
    return f"The rest is saved {where}: {holders}."


def _possible(audit: Audit) -> str:
    free, blocks = blocks_would_free(audit), audit.blocks
    if blocks is None or free <= 0:
        return ""
    names = joined(blocks.names) if len(blocks.names) <= _MOST_NAMED else f"{len(blocks.names)} classes"
    own = audit.eager.saving_bytes
    if own >= 0.95 * free:
        return f"Checkpointing every one of the {blocks.number} repeated blocks ({names}) would free no more."
    return f"Every one of the {blocks.number} repeated blocks ({names}) checkpointed would free {format_bytes(free)}."


def _compiled(audit: Audit) -> str:
    compiled = audit.compiled
    if compiled is None:
        return ""
    made = f"{compiled.graphs} graph{'' if compiled.graphs == 1 else 's'}"
    breaks = f"{compiled.graph_breaks} graph break{'' if compiled.graph_breaks == 1 else 's'}"
    if compiled.eager is None:
        return f"torch.compile made {made} with {breaks}; a step without it was not seen: {compiled.reason}."
    own, eager = audit.counted, compiled.eager
    regions = " What is said of regions is of the step without it." if audit.regions else ""
    return (
        f"torch.compile ({made}, {breaks}) keeps {format_bytes(own.kept_bytes)} for the backward and takes "
        f"{format_duration(own.step_s)} a step; without it that is {format_bytes(eager.kept_bytes)} and "
        f"{format_duration(eager.step_s)}.{regions}"
    )


def _idle(audit: Audit) -> tuple[str, ...]:
    return tuple(
        f"{one.name} is set on {one.number} module{'' if one.number == 1 else 's'}, and does nothing: {one.reason}."
        for one in audit.idle
    )


def _named(holders: Iterable[Holder]) -> str:
    shown = list(holders)[:_MOST_NAMED]
    return joined([f"{_place(one)} {format_bytes(one.saved_bytes)}" for one in shown])


def _place(holder: Holder) -> str:
    if holder.enters_regions:
        return "what enters the regions"
    return holder.path or ("the model itself" if holder.name else "outside of the model")


def _time(seconds: float, step_s: float) -> str:
    return f"{format_duration(seconds)}, {format_share(seconds / step_s)} of the step" if seconds and step_s else ""
