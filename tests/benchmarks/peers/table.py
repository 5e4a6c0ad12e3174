"""The table of a record: every peer, those that lose and those that cannot be had too."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.records.outcome import Measured
from autotune.records.printable import printable
from autotune.records.proof import difference_of
from autotune.records.units import format_bytes

from .batches import Chosen, why_not
from .entrants import PEERS, REFERENCE, Peer
from .record import COMPUTED, NOTHING, Check, Record, Run, Setting
from .sitting import choice_of, settings_of, sizes_of

HEADINGS = (
    "peer",
    "batch",
    "samples/s",
    "spread",
    "to best batch",
    "spread of ratios",
    "repetitions",
    "peak",
    "gradients",
)
# Of what is told in a cell.
_LONGEST = 150


@dataclass(frozen=True)
class Row:
    """A peer in its repetitions, with ``why_not`` where something speaks against it.

    ``samples_per_s`` is the median of the repetitions, ``ratio`` the geometric mean of the ratios to the best batch
    without recompute within repetitions; both have their least and largest beside them. The peak is the largest.
    """

    peer: str
    batch_size: int | None = None
    samples_per_s: float | None = None
    samples_per_s_between: tuple[float, float] | None = None
    ratio: float | None = None
    ratio_between: tuple[float, float] | None = None
    repetitions: int = 0
    peak_bytes: int | None = None
    gradients: str = ""
    why_not: str = ""


def rows_of(record: Record) -> list[Row]:
    """A row for each peer that was asked for."""
    reference = reference_of(record)
    return [_row(record, PEERS[name], reference) for name in record.asked]


def reference_of(record: Record) -> Setting | None:
    """The batch size without recompute that was the best in the repetitions, whoever came to it; None before there are
    any.

    Held against each other are those that fitted in each repetition, by the repetitions that they share with one that
    has most.
    """
    runs = [one for one in record.runs if one.purpose == "repetition" and one.setting.what == NOTHING]
    settings = [
        one for one in dict.fromkeys(run.setting for run in runs) if not _flaws(record, record.repetitions(one))
    ]
    if not settings:
        return None
    beside = max(settings, key=lambda one: len(record.repetitions(one)))
    return max(settings, key=lambda one: _mean(_ratios(record, record.repetitions(one), beside)) or 0.0)


def _row(record: Record, peer: Peer, reference: Setting | None) -> Row:
    """The row of the best of a peer's settings."""
    chosen = choice_of(record, peer)
    if not isinstance(chosen, Chosen):
        return Row(peer.name, why_not="not measured yet")
    settings = settings_of(record, peer)
    if settings and reference is not None and peer.name == REFERENCE:
        settings = (reference,)
    rows = [_setting_row(record, peer, setting, reference) for setting in settings]
    if not rows:
        return Row(peer.name, why_not=_short(chosen.reason))
    return max(rows, key=lambda row: (not row.why_not, row.ratio or 0.0))


def _setting_row(record: Record, peer: Peer, setting: Setting, reference: Setting | None) -> Row:
    runs = record.repetitions(setting)
    measured = [run for run in runs if isinstance(run.outcome, Measured)]
    row = Row(
        peer.name,
        setting.batch_size,
        repetitions=len({run.repetition for run in measured}),
        gradients=_gradients(record.check(setting.what), is_script=setting.what == NOTHING),
        why_not=_flaws(record, runs),
    )
    if not measured:
        return row
    rates = [run.outcome.measurement.samples_per_s for run in measured]
    ratios = [] if reference is None else _ratios(record, measured, reference)
    return replace(
        row,
        samples_per_s=statistics.median(rates),
        samples_per_s_between=(min(rates), max(rates)),
        ratio=_mean(ratios),
        ratio_between=(min(ratios), max(ratios)) if ratios else None,
        peak_bytes=max(run.outcome.measurement.peaks.fit_bytes or 0 for run in measured),
    )


def _mean(ratios: Sequence[float]) -> float | None:
    return statistics.geometric_mean(ratios) if ratios else None


def _ratios(record: Record, runs: Sequence[Run], reference: Setting) -> list[float]:
    """Each run's rate over the reference's of its repetition; of its own sitting, where a repetition was cut in two."""
    found = []
    for run in runs:
        if not isinstance(run.outcome, Measured):
            continue
        beside = [
            one
            for one in record.repetitions(reference)
            if one.repetition == run.repetition and isinstance(one.outcome, Measured)
        ]
        of_sitting = [one for one in beside if one.sitting == run.sitting] or beside[-1:]
        if of_sitting:
            found.append(run.outcome.measurement.samples_per_s / of_sitting[0].outcome.measurement.samples_per_s)
    return found


def _flaws(record: Record, runs: Sequence[Run]) -> str:
    """Say why the repetitions of a setting do not count, though it fitted when it was chosen."""
    sizes = sizes_of(record)
    flawed = [] if sizes is None else [one for one in runs if not sizes.fits(one.outcome)]
    return f"in {len(flawed)} of {len(runs)} repetitions {_short(why_not(flawed[0].outcome))}" if flawed else ""


def _gradients(check: Check | None, *, is_script: bool) -> str:
    if check is None:
        return "not compared"
    if check.answer == "not comparable":
        return _short(f"not comparable: {check.reason or 'no gradient was seen'}")
    if check.answer == "equal bits":
        return "the script" if is_script else "equal bits"
    apart = [one for one in (difference_of(check.differences, group) for group in COMPUTED) if one.differing]
    words = [f"{one.group} " + ("beyond measure" if one.relative is None else f"{one.relative:.1e}") for one in apart]
    return f"{'rounding' if check.answer == 'rounding' else 'OTHERS'}: {', '.join(words)}"


def cells_of(row: Row) -> tuple[str, ...]:
    """A row as the table has it; what cannot be had says why in the last cell."""
    says = "; ".join(filter(None, [row.gradients, row.why_not]))
    if row.samples_per_s is None:
        return (row.peer, str(row.batch_size or ""), "", "", "", "", "", "", says)
    assert row.samples_per_s_between is not None
    assert row.peak_bytes is not None
    ratio = "" if row.ratio is None else f"{row.ratio:.3f}x"
    between = "" if row.ratio_between is None else "{:.3f}-{:.3f}".format(*row.ratio_between)
    return (
        row.peer,
        str(row.batch_size),
        _rate(row.samples_per_s),
        "-".join(map(_rate, row.samples_per_s_between)),
        ratio,
        between,
        str(row.repetitions),
        format_bytes(row.peak_bytes),
        says,
    )


def sentences_of(record: Record) -> list[str]:
    """What the table is of, and who is ahead in it."""
    own = next((one for one in record.runs if one.purpose == "own"), None)
    where = record.environment
    found = []
    if where is not None:
        threads = f", {where.num_threads} threads" if where.device_kind == "cpu" else ""
        found.append(f"{where.device_name}{threads}, {where.library}, Python {where.python}.")
    if own is not None and isinstance(own.outcome, Measured):
        one = own.outcome.measurement
        fits = "fits" if one.peaks.fit_bytes <= record.limit_bytes else "is over the limit"
        found.append(
            f"The script as it stands, without a limit: {_rate(one.samples_per_s)} samples/s at batch "
            f"{one.batch_size}, {format_bytes(one.peaks.fit_bytes)}, which {fits}."
        )
    rows = [row for row in rows_of(record) if row.ratio is not None and not row.why_not]
    reference = choice_of(record, PEERS[REFERENCE])
    if isinstance(reference, Chosen) and reference.batch_size is None and record.own_batch_size:
        found.append("No batch size without recompute fits, so there is nothing to hold the others against.")
    elif rows:
        ahead = max(rows, key=lambda row: row.ratio or 0.0)
        if ahead.ratio_between is not None and ahead.ratio_between[0] > 1:
            found.append(f"Ahead: {_ahead(ahead)} the script's best batch without recompute.")
        elif ahead.ratio is not None and ahead.ratio > 1:
            found.append(f"Not told apart from the script's best batch without recompute: {_ahead(ahead)}.")
        else:
            found.append("Nobody is ahead of the script's best batch without recompute.")
        own_gradients = [row for row in rows if not row.gradients.startswith(("OTHERS", "not"))]
        if own_gradients and ahead not in own_gradients:
            exact = max(own_gradients, key=lambda row: row.ratio or 0.0)
            found.append(f"Ahead of those with the script's gradients: {_ahead(exact)}.")
    found.append(f"{len(record.runs)} runs and {len(record.checks)} comparisons in {record.device_seconds:.0f} s.")
    return found


def _ahead(row: Row) -> str:
    assert row.ratio_between is not None
    least, most = row.ratio_between
    repetitions = f"{row.repetitions} repetition{'' if row.repetitions == 1 else 's'}"
    return f"{row.peer}, {row.ratio:.3f}x ({least:.3f} to {most:.3f} in {repetitions})"


def title_of(record: Record) -> str:
    """The record's heading."""
    arguments = f" ({' '.join(record.arguments)})" if record.arguments else ""
    return f"{record.workload}{arguments} under {format_bytes(record.limit_bytes)}"


def as_text(record: Record) -> str:
    """For a terminal."""
    lines = [HEADINGS, *map(cells_of, rows_of(record))]
    widths = [max(len(line[at]) for line in lines) for at in range(len(HEADINGS))]
    is_left = [at in (0, len(HEADINGS) - 1) for at in range(len(HEADINGS))]
    shown = [
        "  ".join(
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(line, widths, is_left, strict=True)
        ).rstrip()
        for line in lines
    ]
    return "\n".join([title_of(record), "", *shown, "", *sentences_of(record)])


def as_markdown(record: Record) -> str:
    """For a page."""
    rule = ["---" if at in (0, len(HEADINGS) - 1) else "---:" for at in range(len(HEADINGS))]
    lines = [HEADINGS, tuple(rule), *map(cells_of, rows_of(record))]
    shown = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return "\n".join([f"### {title_of(record)}", "", *shown, "", *sentences_of(record)])


def _rate(value: float) -> str:
    return f"{value:.4g}"


def _short(text: str) -> str:
    one_line = printable(" ".join(text.removeprefix("NotApplicableError: ").split()))
    return one_line if len(one_line) <= _LONGEST else f"{one_line[: _LONGEST - 1]}…"
