"""The report in sentences, which the terminal and the page both show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..records.engines import Target
from ..records.facts import ClusterFacts
from ..records.global_batch import global_batch_sentences
from ..records.matrix import MemoryPhase, highest
from ..records.outcome import Died, Measured, TimedOut
from ..records.printable import first_line
from ..records.study import LIKELY, Fit, format_chance
from ..records.units import format_bytes, format_duration, format_rate, format_speed
from ..records.words import cut_names, joined, recomputed_words, sentence
from .formulas import first_name, folded_names, names_in
from .record import DescribedScript, ModelPart, Report, ReportedSetting

# What a step does up to each row of the memory matrix.
_BEFORE: dict[MemoryPhase, str] = {
    "pre_forward": "the optimizer's step, or else outside forward and backward",
    "post_forward": "the forward",
    "pre_backward": "the loss, between forward and backward",
    "post_backward": "the backward",
}


def model_sentences(report: Report) -> tuple[str, ...]:
    """Say what the tree of the model counts, and what it does not; empty where there is no tree."""
    model = report.model
    if model is None:
        return ()
    where = f" at batch {model.batch_size}" if model.batch_size else ""
    said = [f"Bytes that each part hands from the forward to the backward{where}, simulated from the script's graphs."]
    if model.whole.planned_bytes is not None:
        said.append("Both columns are at this batch size, so what differs is recomputed.")
        own = None if report.winner is None else report.winner.batch_size
        if model.planned_bytes_at_own_batch is not None and own and own != model.batch_size:
            said.append(f"At its own batch {own} the setting keeps {format_bytes(model.planned_bytes_at_own_batch)}.")
    if report.outside:
        names = joined([f"{row.number} {row.name}" for row in report.outside])
        size = format_bytes(sum(row.saved_bytes for row in report.outside))
        said.append(f"Not included: {size} that {names} keep outside of graphs.")
    return tuple(said)


def part_words(part: ModelPart) -> str:
    """Name a part of the model: ``Block 1 to 4``, ``Block x 12``, ``gelu``, ``3 smaller ones``."""
    if part.kind == "outside":
        return "outside of blocks"
    if part.kind == "others":
        if not part.kept_bytes and not part.planned_bytes:
            return f"{part.number} that keep{'s' if part.number == 1 else ''} nothing"
        return f"{part.number} smaller one{'s' if part.number > 1 else ''}"
    if part.of == 1:
        return cut_names(part.name)
    if part.number == 1:
        return f"{part.name} {part.first}"
    if part.number == part.of:
        return f"{part.name} x {part.of}"
    if part.last - part.first + 1 == part.number:
        return f"{part.name} {part.first} to {part.last}"
    return f"{part.name} x {part.number}, between {part.first} and {part.last}"


def rerun_words(part: ModelPart) -> str:
    """Say how much of a part the backward runs again."""
    if not part.num_recomputed:
        return "nothing"
    if part.num_operators == 1:
        return "its one operator"
    if part.num_recomputed == part.num_operators:
        return f"all {part.num_operators} operators"
    return f"{part.num_recomputed} of {part.num_operators} operators"


def batch_sentences(report: Report) -> tuple[str, ...]:
    """Say what the winner does to the global batch, and the speed in tokens; empty where neither is to be told."""
    winner = report.winner
    if winner is None or report.target == "model":
        return _tokens(report, report.baseline)
    before, after = report.global_batch.before, report.global_batch.after
    kept = winner.accumulation_for_same_global_batch
    said = global_batch_sentences(winner.batch_size, report.batch_size, before, after, kept)
    return (*said, *report.cautions, *_tokens(report, winner))


def _tokens(report: Report, setting: ReportedSetting | None) -> tuple[str, ...]:
    """Say how many tokens a second a setting's samples are."""
    number = report.tokens_per_sample
    if not number or setting is None or not setting.samples_per_s:
        return ()
    speed, tokens = format_speed(setting.samples_per_s), format_rate(number * setting.samples_per_s)
    has = f"{number:,.1f}".removesuffix(".0")
    return (f"A sample has {has} tokens, padding included: {speed} are {tokens} tokens/s.",)


def peak_sentence(described: DescribedScript) -> str:
    """Say in which phase of a step memory has its peak, and how high; empty where no memory matrix was taken."""
    rows = described.memory_matrix
    row = highest(rows)
    if row is None or row.peak is None:
        return ""
    kind = "allocated" if row.cached is not None else "resident with the heap trimmed between phases"
    # A resident set is told in pages, and other threads of the process have a part in it.
    is_level = min(other.peak or 0 for other in rows) > 0.99 * row.peak
    return f"{format_bytes(row.peak)} {kind}, in {'all phases alike' if is_level else _BEFORE[row.phase]}"


def fit_sentence(
    fits: Sequence[Fit], *, limit_bytes: int, clusters: Iterable[ClusterFacts] = (), target: Target = "script"
) -> str:
    """Say in one sentence what is likely to fit, or what is likeliest to; ``clusters`` can be recomputed."""
    limit, without = format_bytes(limit_bytes), " without plans" if target == "script" else ""
    if not fits:
        return f"Nothing but the {target} as it is can be tried, and that does not fit {limit}."
    likely = [one for one in fits if one.chance >= LIKELY]
    if not likely:
        least = min(fits, key=lambda one: one.peak_bytes)
        low, high = map(format_bytes, least.peak_interval)
        where = least.configuration.batch or f"the {target}'s own batch size"
        words = recomputed_words(least.configuration, clusters)
        return (
            f"Nothing is likely to fit {limit}, but that is predicted, not measured. {sentence(where)}"
            f"{f' recomputing {words}' if words else without} should need the least: between {low} and {high}, with a "
            f"chance of {format_chance(least.chance)} to fit."
        )
    largest = likely[-1].configuration
    words = recomputed_words(largest, clusters)
    if largest.batch_size is None:
        return (
            f"The {target} should fit {limit} {f'recomputing {words}' if words else 'as it is'}, at its own batch size."
        )
    if not words:
        return f"Batch {largest.batch_size} should fit {limit}{without}."
    plain = max((one.configuration.batch_size or 0 for one in likely if not one.configuration.recomputed), default=0)
    alone = f"batch {plain} without" if plain else "nothing likely to without"
    return f"Batch {largest.batch_size} should fit {limit} recomputing {words}, {alone}."


def calibration_sentence(described: DescribedScript) -> str:
    """Say how far simulated memory is from measured memory, or why there is none; empty if it was not tried."""
    calibration = described.calibration
    if calibration is None:
        return ""
    if calibration.error is None:
        if undescribed_sentence(described):
            return ""  # that sentence says so
        return f"memory is not predicted: {calibration.reason or 'no graph was captured'}"
    within = f"is within {calibration.error:.1%} of what was measured"
    if calibration.engine == "inductor":
        # Code is generated once, as that takes long.
        return (
            f"memory of a step, simulated operator by operator, {within} in generated code without plans, and is "
            "scaled by that; with plans it may be off by a fifth"
        )
    return f"simulated memory of a step {within}, without plans and with the most recomputed"


def dimensions_sentence(described: DescribedScript, formulas: Iterable[str] | None = None) -> str:
    """Say the values of the names in formulas, and how much a sample brings of those that grow with the batch.

    Only the names in ``formulas`` are told; None for all.
    """
    shares, folded = described.per_sample, folded_names(described.dimensions)
    names = described.dimensions if formulas is None else names_in(formulas)
    shown = {first_name(name) for name in names}
    values = [
        f"{name} = {value:,}" + (f" (at most {shares[name]:.3g} a sample)" if name in shares else "")
        for name, value in described.dimensions.items()
        if first_name(name) in shown - folded.keys()
    ]
    for name in sorted(folded.keys() & shown):
        sizes = folded[name]
        values.append(f"{name} = {min(sizes):,} to {max(sizes):,} in {len(sizes)} graphs")
    batch = described.batch_size
    if shares and batch and "batch" not in described.dimensions:
        values.append(f"in a batch of {batch}")
    return ", ".join(values)


def undescribed_sentence(described: DescribedScript) -> str:
    """Say what could not be described of a measured script, why, and what is left; empty if nothing is missing."""
    failure = described.undescribed
    if failure is None or isinstance(failure, Measured):
        return ""
    control = described.batch_control
    can_vary = control is not None and control.how != "none"
    left = f"{'batch sizes and ' if can_vary else ''}choices can still be searched"
    lost = f"there are no plans, and memory is not predicted; {left}"
    if described.plans:
        lost = "plans are known, but what they cost may not be, and memory is not predicted"
    advice = f" {failure.advice}" if isinstance(failure, (TimedOut, Died)) and failure.advice else ""
    cause = first_line(failure.cause).rstrip(".")
    return f"The script was measured, but could not be described: {cause}. So {lost}.{advice}"


def spent_sentence(report: Report) -> str:
    """Say how long the answer took, and what most of it went into; empty where that was not stored."""
    spent = report.spent
    if spent is None or not spent.total_s:
        return ""
    runs = sum(one.runs for one in spent.stages)
    fresh = runs - sum(one.forked for one in spent.stages)
    start_s, compile_s = (math.fsum(getattr(one, name) for one in spent.stages) for name in ("start_s", "compile_s"))
    compiling = f", {format_duration(compile_s)} into compiling" if compile_s else ""
    return (
        f"The answer took {format_duration(spent.total_s)}, of which {format_duration(start_s)} went into the starts "
        f"of {runs} run{'s' * (runs != 1)} (fresh processes: {fresh}){compiling}."
    )
