"""The report document as rows and sentences: what the terminal and the page both show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..records.figures import format_rate
from ..records.units import format_bytes, format_duration

__all__ = [
    "Table",
    "batch_sentences",
    "calibration_sentence",
    "environment_rows",
    "figures_sentence",
    "finalist_table",
    "outcome_text",
    "plan_table",
    "plans_of",
    "setting_rows",
    "split_rows",
    "trial_table",
    "verdict_sentence",
]

Document = Mapping[str, Any]
Rows = tuple[tuple[str, str], ...]

_OUTCOMES = {
    "running": "running",
    "finished": "no result",
    "out_of_memory": "out of memory",
    "script_error": "script error",
    "invalid_plan": "invalid plan",
    "no_training_step": "no training step",
    "fallback": "plan not applied",
    "timed_out": "timed out",
    "died": "died",
    "host_out_of_memory": "host out of memory",
}


@dataclass(frozen=True)
class Table:
    """A table of text. Columns in ``numeric``, by index, are set flush right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()


def verdict_sentence(document: Document) -> str:
    """The answer in one sentence, or how far the study is."""
    if document["verdict"] is not None:
        return str(document["verdict"]["reason"])
    done = sum(point["outcome"] != "running" for point in document["points"])
    if document["environment"] is None:
        return "Nothing is known yet: discovery has not finished."
    return f"No answer yet: {done} trial{'' if done == 1 else 's'} so far."


def figures_sentence(described: Mapping[str, Any] | None) -> str:
    """Samples/s with its spread, and the peak, of the document's ``baseline`` or ``winner``."""
    if described is None:
        return "not measured"
    low, high = format_rate(described["samples_per_s_low"]), format_rate(described["samples_per_s_high"])
    rounds = f", {described['rounds']} rounds" if described["rounds"] > 1 else ""
    peak = described["peak_bytes"]
    memory = "" if peak is None else f" at a peak of {format_bytes(peak)}"
    return f"{format_rate(described['samples_per_s'])} samples/s ({low} to {high}{rounds}){memory}"


def plans_of(described: Mapping[str, Any]) -> tuple[str, ...]:
    """The plans of the document's ``baseline`` or ``winner``, as strings."""
    plans = described["configuration"]["plans"]
    return tuple(f"{plan['cluster_id']}:{plan['strategy']}:{plan['count']}" for plan in plans)


def batch_sentences(document: Document) -> tuple[str, ...]:
    """What the winner does to the global batch; empty where it leaves the batch size alone."""
    winner, own = document["winner"], document["batch_size"]
    if winner is None or winner["batch_size"] in (None, own):
        return ()
    seen, size = winner["accumulation"], winner["batch_size"]
    if own is None:
        return (f"Batch size {size} per process; the script's own is not known.",)
    before, after = f"{own * seen:g}", f"{size * seen:g}"
    sentences = [f"The global batch changes: {after} samples per optimizer step and process instead of {before}."]
    kept = winner["accumulation_for_same_global_batch"]
    if kept is None:
        sentences.append(f"No whole number of micro-batches of {size} keeps it, so look at the learning rate.")
    else:
        sentences.append(f"To keep it, accumulate gradients over {kept:g} micro-batches instead of {seen:g}.")
    return tuple(sentences)


def environment_rows(document: Document) -> Rows:
    """What the study ran on."""
    environment = document["environment"]
    if environment is None:
        return ()
    count = f"{environment['num_devices']} x " if environment["num_devices"] > 1 else ""
    versions = f"Python {environment['python']}, torch {environment['torch']}"
    versions += f", CUDA {environment['cuda']}" if environment["cuda"] else ""
    versions += f", driver {environment['driver']}" if environment["driver"] else ""
    variables = environment["variables"] or {}
    rows = [
        ("Device", f"{count}{environment['device_name']}, {format_bytes(environment['device_memory_bytes'])}"),
        ("Threads", str(environment["num_threads"])),
        ("Host", f"{environment['hostname']}, {environment['platform']}"),
        ("Versions", versions),
        ("Variables", "  ".join(f"{name}={value}" for name, value in sorted(variables.items()))),
        ("Model", ", ".join(f"{root['name']} ({root['num_parameters']:,} parameters)" for root in document["roots"])),
        ("Optimizer", ", ".join(_optimizer(optimizer) for optimizer in document["optimizers"])),
        ("Precision", _precision(document["precision"])),
    ]
    return tuple((name, value) for name, value in rows if value)


def setting_rows(document: Document) -> Rows:
    """What the study was asked for."""
    settings = document["settings"]
    sizes = settings["batch_sizes"]
    rows = [
        ("Memory limit", "" if document["limit_bytes"] is None else format_bytes(document["limit_bytes"])),
        ("Engine", settings["engine"]),
        ("Batch sizes", f"{sizes[0]} to {sizes[1]}" if sizes else "around the script's own"),
        ("Time budget", format_duration(settings["time_budget_s"])),
        ("Trials at most", str(settings["max_trials"])),
        ("Sampler", f"{settings['sampler']}, seed {settings['seed']}"),
        ("Search ended", "" if document["verdict"] is None else document["verdict"]["stop_reason"]),
    ]
    return tuple((name, value) for name, value in rows if value)


def split_rows(document: Document) -> tuple[tuple[str, int], ...]:
    """The memory of a training step as (what, bytes), largest first; empty where it was not seen."""
    split = document["split"]
    if split is None:
        return ()
    parts = [(name.replace("_", " "), size) for name, size in split.items() if size]
    return tuple(sorted(parts, key=lambda part: -part[1]))


def plan_table(document: Document) -> Table:
    """The plans that discovery found. Their savings do not add up: two of them may save the same tensors."""
    rows = tuple(
        (
            f"{row['cluster_id']}:{row['strategy']}:-1",
            f"{row['frequency']}" + (f" ({row['calls_per_step']:g} calls/step)" if row["calls_per_step"] != 1 else ""),
            format_bytes(row["saving_bytes"]),
            row["saving_formula"],
            format_duration(row["recompute_time_s"]),
            "; ".join(filter(None, ["whole layer" if row["is_layer"] else "", row["note"]])),
        )
        for row in document["plans"]
    )
    return Table(("Plan", "Occurs", "Saves", "Formula (bytes)", "Recompute time", ""), rows, frozenset({1, 2, 4}))


def calibration_sentence(document: Document) -> str:
    """How far simulated memory is from measured memory, or why there is none to simulate; empty if it was not tried."""
    calibration = document["calibration"]
    if calibration is None:
        return ""
    if calibration["error"] is None:
        return f"memory is not predicted: {calibration['reason'] or 'no graph was captured'}"
    return (
        f"simulated memory of a step is within {calibration['error']:.1%} of what was measured, "
        "without plans and with the most recomputed"
    )


def finalist_table(document: Document) -> Table:
    """The finalists against the baseline, measured again in turns."""
    rows = tuple(
        (
            one["text"],
            format_rate(one["samples_per_s"]),
            format_rate(one["baseline_samples_per_s"]),
            f"{one['speedup']:.3f}x",
            f"{one['speedup_low']:.3f}x to {one['speedup_high']:.3f}x",
            f"{one['p_value']:.3f}",
            format_bytes(one["peak_bytes"]),
        )
        for one in document["finalists"]
    )
    columns = ("Finalist", "Samples/s", "Your script", "Speed-up", "Spread", "p", "Peak")
    return Table(columns, rows, frozenset(range(1, 7)))


def trial_table(document: Document) -> Table:
    """All trials, in the order in which they were run."""
    rows = tuple(
        (
            str(point["number"]),
            "your script as it is" if point["is_baseline"] else point["configuration"],
            "" if point["samples_per_s"] is None else format_rate(point["samples_per_s"]),
            "" if point["low"] is None else f"{format_rate(point['low'])} to {format_rate(point['high'])}",
            "" if point["peak_bytes"] is None else format_bytes(point["peak_bytes"]),
            outcome_text(point),
        )
        for point in document["points"]
    )
    return Table(("Trial", "Setting", "Samples/s", "Spread", "Peak", "Result"), rows, frozenset({0, 2, 3, 4}))


def outcome_text(point: Mapping[str, Any]) -> str:
    """How a trial ended, in a few words; a failure with its cause."""
    if point["outcome"] != "measured":
        name = _OUTCOMES.get(point["outcome"], point["outcome"])
        return f"{name}: {point['cause']}" if point["cause"] else name
    words = ["fits" if point["fits"] else "peak not measured" if point["peak_bytes"] is None else "over the limit"]
    words += ["winner"] if point["is_winner"] else []
    words += ["on the front"] if point["on_front"] else []
    words += ["the allocator thrashed, so it cannot win"] if point["thrashed"] else []
    return ", ".join([*words, *point["notes"]])


def _optimizer(optimizer: Mapping[str, Any]) -> str:
    # Switches that are off say nothing.
    on = {name: value for name, value in optimizer["settings"].items() if value not in ("None", "False")}
    settings = ", ".join(f"{name}={value}" for name, value in on.items())
    return f"{optimizer['name']}({settings})"


def _precision(precision: Mapping[str, Any] | None) -> str:
    if precision is None:
        return ""
    autocast = f", autocast to {precision['autocast']}" if precision["autocast"] else ""
    return f"{precision['parameters']}{autocast}{', gradient scaler' if precision['grad_scaler'] else ''}"
