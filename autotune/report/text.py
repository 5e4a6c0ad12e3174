"""The report document as rows and sentences: what the terminal and the page both show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..records import (
    GROUPS,
    Fit,
    GroupDifference,
    MemoryPhase,
    Objective,
    PhaseMemory,
    Proof,
    difference_of,
    from_json,
    highest,
)
from ..records.figures import format_rate
from ..records.units import format_bytes, format_duration

__all__ = [
    "Table",
    "batch_sentences",
    "calibration_sentence",
    "environment_rows",
    "figures_sentence",
    "finalist_table",
    "fit_sentence",
    "fit_table",
    "front_table",
    "matrix_table",
    "outcome_text",
    "peak_sentence",
    "plan_table",
    "proof_sentence",
    "proof_table",
    "recomputed_in",
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


# What a step does up to each row of the memory matrix.
_BEFORE: dict[MemoryPhase, str] = {
    "pre_forward": "the optimizer's step, or else outside forward and backward",
    "post_forward": "the forward",
    "pre_backward": "the loss, between forward and backward",
    "post_backward": "the backward",
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


def recomputed_in(described: Mapping[str, Any]) -> tuple[str, ...]:
    """The level, where there is one, and the plans of the document's ``baseline`` or ``winner``, as strings."""
    configuration = described["configuration"]
    level = (f"level {configuration['level']}",) if configuration["level"] else ()
    plans = configuration["plans"]
    return (*level, *(f"{plan['cluster_id']}:{plan['strategy']}:{plan['count']}" for plan in plans))


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
    objective: Objective = from_json(Objective, settings["objective"])
    rows = [
        ("Memory limit", "" if document["limit_bytes"] is None else format_bytes(document["limit_bytes"])),
        ("Objective", str(objective)),
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


def peak_sentence(document: Document) -> str:
    """Which phase of a step holds the memory's peak, and how high it is; empty where no memory matrix was taken."""
    rows = _memory_matrix(document)
    row = highest(rows)
    if row is None or row.peak is None:
        return ""
    kind = "allocated" if row.cached is not None else "resident with the heap trimmed between phases"
    # A resident set is told in pages, and other threads of the process have a part in it.
    is_level = min(other.peak or 0 for other in rows) > 0.99 * row.peak
    return f"{format_bytes(row.peak)} {kind}, in {'all phases alike' if is_level else _BEFORE[row.phase]}"


def matrix_table(document: Document) -> Table:
    """The memory at each phase of the steps that were looked at; a peak is the highest since the row before."""
    rows = tuple(
        (str(row.step), row.phase.replace("_", " "), *("" if size is None else format_bytes(size) for size in sizes))
        for row in _memory_matrix(document)
        for sizes in [(row.peak, row.allocated, row.cached, row.inactive, row.parameters, row.gradients, row.buffers)]
    )
    columns = ("Step", "Phase", "Peak", "Allocated", "Cached", "Inactive", "Parameters", "Gradients", "Buffers")
    return Table(columns, rows, frozenset({0, *range(2, 9)}))


def plan_table(document: Document) -> Table:
    """The plans that discovery found. Their savings do not add up: two of them may save the same tensors."""
    rows = tuple(
        (
            f"{row['cluster_id']}:{row['strategy']}:-1",
            f"{row['frequency']}" + (f" ({row['calls_per_step']:g} calls/step)" if row["calls_per_step"] != 1 else ""),
            format_bytes(row["saving_bytes"]),
            row["saving_formula"],
            format_duration(row["recompute_time_s"]) if row["recompute_time_s"] else "",
            "; ".join(filter(None, ["whole layer" if row["is_layer"] else "", row["note"]])),
        )
        for row in document["plans"]
    )
    return Table(("Plan", "Occurs", "Saves", "Formula (bytes)", "Recompute time", ""), rows, frozenset({1, 2, 4}))


def fit_sentence(fits: Sequence[Fit], *, limit_bytes: int) -> str:
    """What should fit, in one sentence."""
    if not fits:
        return f"Nothing should fit {format_bytes(limit_bytes)}: neither smaller batches nor all plans together."
    limit, largest = format_bytes(limit_bytes), fits[-1]
    plans = largest.configuration.recomputed
    if largest.batch_size is None:
        return f"The script should fit {limit} {f'with {plans}' if plans else 'as it is'}, at its own batch size."
    if not plans:
        return f"Batch {largest.batch_size} should fit {limit} without plans."
    plain = max((one.batch_size or 0 for one in fits if not one.configuration.recomputed), default=0)
    alone = f"batch {plain} without" if plain else "nothing without"
    return f"Batch {largest.batch_size} should fit {limit} with {plans}, {alone}."


def fit_table(fits: Iterable[Fit]) -> Table:
    """The largest batch size at each depth of plans, with what is expected there."""
    rows = tuple(
        (
            "own" if one.batch_size is None else str(one.batch_size),
            format_rate(one.samples_per_s),
            "measured" if one.is_measured else f"± {one.rate_sd:.0%}",
            format_bytes(one.peak_bytes),
            "measured" if one.is_measured else f"± {one.peak_sd:.0%}",
            one.configuration.recomputed or "no plans",
        )
        for one in fits
    )
    return Table(("Batch", "Samples/s", "", "Peak", "", "Plans"), rows, frozenset({0, 1, 3}))


def calibration_sentence(document: Document) -> str:
    """How far simulated memory is from measured memory, or why there is none to simulate; empty if it was not tried."""
    calibration = document["calibration"]
    if calibration is None:
        return ""
    if calibration["error"] is None:
        return f"memory is not predicted: {calibration['reason'] or 'no graph was captured'}"
    # Code is generated once, as that takes long.
    is_generated = calibration.get("engine") == "inductor"
    where = "in generated code without plans" if is_generated else "without plans and with the most recomputed"
    return f"simulated memory of a step is within {calibration['error']:.1%} of what was measured, {where}"


def front_table(document: Document) -> Table:
    """What samples/s each amount of memory buys, as measured once: the Pareto front, baseline and winner marked.

    From least to most memory. Baseline and winner are in it wherever they lie.
    """
    measured = (point for point in document["points"] if point["peak_bytes"] is not None)
    shown = [point for point in measured if point["on_front"] or point["is_baseline"] or point["is_winner"]]
    rows = tuple(
        (
            format_bytes(point["peak_bytes"]),
            format_rate(point["samples_per_s"]),
            point["configuration"],
            ", ".join(
                word
                for word, holds in (
                    ("your script", point["is_baseline"]),
                    ("winner", point["is_winner"]),
                    ("not on the front", not point["on_front"]),
                    (_over(point, document), not point["fits"]),
                )
                if holds
            ),
        )
        for point in sorted(shown, key=lambda point: (point["peak_bytes"], -point["samples_per_s"]))
    )
    return Table(("Peak", "Samples/s", "Setting", ""), rows, frozenset({0, 1}))


def finalist_table(document: Document) -> Table:
    """The finalists against the baseline, measured again in turns; what the objective goes by first."""
    if document["settings"]["objective"]["goal"] == "memory":
        return _smallest_table(document)
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


def _smallest_table(document: Document) -> Table:
    rows = tuple(
        (
            one["text"],
            format_bytes(one["peak_bytes"]),
            format_bytes(one["baseline_peak_bytes"]),
            f"{one['peak_ratio']:.3f}x",
            f"{one['peak_ratio_low']:.3f}x to {one['peak_ratio_high']:.3f}x",
            f"{one['p_value']:.3f}",
            format_rate(one["samples_per_s"]),
            f"{one['speedup']:.3f}x",
            f"{one['speedup_low']:.3f}x to {one['speedup_high']:.3f}x",
        )
        for one in document["finalists"]
    )
    columns = ("Finalist", "Peak", "Your script", "Memory", "Spread", "p", "Samples/s", "Speed", "Spread")
    return Table(columns, rows, frozenset(range(1, 9)))


def proof_sentence(document: Document) -> str:
    """Whether the winner's gradients are the script's; empty where there was nothing to compare."""
    verdict, winner = document["verdict"], document["winner"]
    if verdict is None or winner is None:
        return ""
    if winner["configuration"]["engine"] == "eager" and not winner["configuration"]["choices"]:
        return ""
    proof = verdict["proof"]
    return str(proof["statement"]) if proof is not None else "Not proven: its gradients were not compared yet."


def proof_table(proof: Proof) -> Table:
    """What a proof compared: how many values of each kind, and how far they are apart."""
    rows = []
    for group in GROUPS:
        pairs = [difference_of(one, group) for one in (proof.to_engine, proof.to_script, proof.engine_to_script)]
        if any(pair.compared for pair in pairs):
            rows.append((group, f"{max(pair.compared for pair in pairs):,}", *map(_difference, pairs)))
    columns = ("Values", "Compared", "From the engine without plans", "From the script", "The engine from the script")
    return Table(columns, tuple(rows), frozenset({1}))


def _difference(one: GroupDifference) -> str:
    if not one.differing:
        return "equal" if one.compared else "not compared"
    size = "" if one.absolute is None else f", by up to {one.absolute:.1e}"
    size += "" if one.relative is None else f" ({one.relative:.1e} of the largest)"
    return f"{one.differing:,} differ{size}: {one.name}, step {one.step}"


def trial_table(document: Document) -> Table:
    """All trials, in the order in which they were run."""
    rows = tuple(
        (
            str(point["number"]),
            "your script as it is" if point["is_baseline"] else point["configuration"],
            "" if point["samples_per_s"] is None else format_rate(point["samples_per_s"]),
            "" if point["low"] is None else f"{format_rate(point['low'])} to {format_rate(point['high'])}",
            "" if point["peak_bytes"] is None else format_bytes(point["peak_bytes"]),
            outcome_text(point, document),
        )
        for point in document["points"]
    )
    return Table(("Trial", "Setting", "Samples/s", "Spread", "Peak", "Result"), rows, frozenset({0, 2, 3, 4}))


def outcome_text(point: Mapping[str, Any], document: Document) -> str:
    """How a trial ended, in a few words; a failure with its cause."""
    if point["outcome"] != "measured":
        name = _OUTCOMES.get(point["outcome"], point["outcome"])
        return f"{name}: {point['cause']}" if point["cause"] else name
    words = ["fits" if point["fits"] else _over(point, document)]
    words += ["winner"] if point["is_winner"] else []
    words += ["on the front"] if point["on_front"] else []
    words += ["the allocator thrashed, so it cannot win"] if point["thrashed"] else []
    return ", ".join([*words, *point["notes"]])


def _over(point: Mapping[str, Any], document: Document) -> str:
    """Why a measured trial does not fit."""
    if point["peak_bytes"] is None:
        return "peak not measured"
    return "over the limit" if point["peak_bytes"] > document["limit_bytes"] else "over the target"


def _memory_matrix(document: Document) -> list[PhaseMemory]:
    return [from_json(PhaseMemory, row) for row in document["memory_matrix"]]


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
