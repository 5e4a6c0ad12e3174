"""Two studies beside each other: what differs, and what that says."""

from __future__ import annotations

from ..records.environment import device_differences
from ..records.figures import format_figures
from ..records.units import format_bytes
from ..report.answer import headline
from ..report.record import Report
from ..report.tables import setting_rows


def beside(left: Report, right: Report) -> list[tuple[str, str, str]]:
    """Return everything that is known of both, or of one, in the order of interest: its name and the two values."""
    first, second = _known_of(left), _known_of(right)
    rows = [(name, first.get(name, ""), second.get(name, "")) for name in first | second]
    return [row for row in rows if any(row[1:])]


def compared_sentences(left: Report, right: Report) -> list[str]:
    """Return what the two answers come to against each other, and how far that can be trusted."""
    names = _quoted(left), _quoted(right)
    first, second = left.winner, right.winner
    if first is None or second is None:
        without = " and ".join(_quoted(one) for one in (left, right) if one.winner is None)
        return [f"There is no setting yet to compare of {without}."]
    if left.environment is not None and right.environment is not None:
        differences = device_differences(left.environment, right.environment)
        if differences:
            what = "; ".join(f"{name} {there} and {here}" for name, there, here in differences)
            apart = f"{names[0]} and {names[1]} were measured on different machines, so their figures say nothing"
            return [f"{apart} of each other. Each against its own script does.", f"What differs: {what}."]
    told = []
    if first.samples_per_s and second.samples_per_s:
        told.append(f"{second.samples_per_s / first.samples_per_s:.2f}x the samples per second")
    if first.peak_bytes and second.peak_bytes:
        told.append(f"{second.peak_bytes / first.peak_bytes:.2f}x the peak memory")
    said = [f"{names[1]} found {' and '.join(told)} of what {names[0]} found."] if told else []
    if left.study.script != right.study.script:
        said.append("The scripts have different names: they may do different work.")
    said.append(
        "The two were not measured in turns, so a difference of some percent may be that of two days. Each against its "
        "own script was."
    )
    return said


def _quoted(report: Report) -> str:
    return f"\u201c{report.study.name}\u201d"


def _gain(report: Report) -> str:
    if report.gain is None:
        return ""
    what = "the samples per second" if report.gain.quantity == "samples_per_s" else "less memory"
    return f"{report.gain.factor:.2f}x {what}"


def _known_of(report: Report) -> dict[str, str]:
    found = report.environment
    return {
        "Answer": headline(report),
        "Over its own script": _gain(report),
        "Setting": "" if report.winner is None else report.winner.text,
        "Measured of it": "" if report.winner is None else format_figures(report.winner),
        "Measured of the script": "" if report.baseline is None else format_figures(report.baseline),
        "Script": report.study.script,
        "Trials": str(len(report.points)),
        "Device": "" if found is None else f"{found.device_name}, {format_bytes(found.device_memory_bytes)}",
        "torch": "" if found is None else found.torch,
        "autotune": report.study.autotune,
        **dict(setting_rows(report)),
    }
