"""The report in tables and rows, one function for each, which the terminal and the page both show."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..records.cards import CARD_ERROR, smallest_card
from ..records.engines import Target
from ..records.facts import OptimizerFacts, PrecisionFacts, ShardingFacts
from ..records.figures import figure_cells
from ..records.matrix import PhaseMemory
from ..records.outcome import OUTCOMES
from ..records.proof import GROUPS, GroupDifference, Proof, difference_of
from ..records.study import Fit, Found, format_chance
from ..records.units import format_bytes, format_duration, format_rate, format_ratio, format_share
from ..records.words import cut_names
from ..verdict.memory_limit import passed
from .formulas import readable_formula
from .record import DescribedScript, Point, Report, ReportedSetting, winner_word

Rows = tuple[tuple[str, str], ...]

# The states of a trial without an outcome.
_STATES = {"running": "running", "finished": "no result"}


@dataclass(frozen=True)
class Table:
    """A table of text. Columns in ``numeric``, by index, are set flush right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()


def recomputed_in(described: ReportedSetting) -> tuple[str, ...]:
    """Return the level, where there is one, and the plans of the report's ``baseline`` or ``winner``."""
    configuration = described.configuration
    level = (f"level {configuration.level}",) if configuration.level else ()
    return (*level, *map(str, configuration.plans))


def environment_rows(described: DescribedScript) -> Rows:
    """Tabulate what the study ran on."""
    environment = described.environment
    if environment is None:
        return ()
    count = f"{environment.num_devices} x " if environment.num_devices > 1 else ""
    versions = f"Python {environment.python}, {environment.library}"
    versions += f", CUDA {environment.cuda}" if environment.cuda else ""
    versions += f", driver {environment.driver}" if environment.driver else ""
    variables = environment.variables or {}
    rows = [
        ("Device", f"{count}{environment.device_name}, {format_bytes(environment.device_memory_bytes)}"),
        ("Threads", str(environment.num_threads)),
        ("Host", f"{environment.hostname}, {environment.platform}"),
        ("Versions", versions),
        ("Variables", "  ".join(f"{name}={value}" for name, value in sorted(variables.items()))),
        ("Model", ", ".join(f"{root.name} ({root.num_parameters:,} parameters)" for root in described.roots)),
        ("Optimizer", ", ".join(_optimizer(optimizer) for optimizer in described.optimizers)),
        ("Precision", _precision(described.precision)),
        ("Sharding", _sharding(described.sharding)),
    ]
    return tuple((name, value) for name, value in rows if value)


def setting_rows(report: Report) -> Rows:
    """Tabulate what the study was asked for."""
    settings = report.settings
    sizes = settings.batch_sizes
    rows = [
        ("Memory limit", "" if report.limit_bytes is None else format_bytes(report.limit_bytes)),
        ("Objective", str(settings.objective)),
        ("Engine", settings.engine),
        ("Batch sizes", f"{sizes[0]} to {sizes[1]}" if sizes else f"around the {report.target}'s own"),
        ("Global batch", "stays what the script's is" if settings.keep_global_batch else ""),
        ("Look ahead", f"{settings.look_ahead} batches" if settings.look_ahead else ""),
        ("Time budget", format_duration(settings.time_budget_s)),
        ("Trials at most", str(settings.max_trials)),
        ("Sampler", f"{settings.sampler}, seed {settings.seed}"),
        ("Search ended", "" if report.verdict is None else report.verdict.stop_reason),
    ]
    return tuple((name, value) for name, value in rows if value)


def split_rows(described: DescribedScript) -> tuple[tuple[str, int], ...]:
    """Return the memory of a training step as (what, bytes), largest first; empty where it was not seen."""
    split = described.split
    if split is None:
        return ()
    parts = [(name.replace("_", " "), size) for name, size in dataclasses.asdict(split).items() if size]
    return tuple(sorted(parts, key=lambda part: -part[1]))


def rest_bytes(described: DescribedScript, peak_bytes: int | None) -> int:
    """Return what of the script's measured peak is none of the parts that are known."""
    return max(0, (peak_bytes or 0) - sum(size for _, size in split_rows(described)))


def rest_words(described: DescribedScript) -> str:
    """Say what that is; where no engine looked at the activations, they are in it too."""
    is_told_apart = described.split is not None and described.split.activations is not None
    return f"{'' if is_told_apart else 'activations, '}Python, libraries, contexts, caches, operators at work"


def matrix_table(matrix: Sequence[PhaseMemory]) -> Table:
    """Tabulate the memory at each phase of steps, without columns that are empty; a peak is since the row before."""
    columns: dict[str, list[str]] = {
        "Rank": [str(row.rank) if any(other.rank for other in matrix) else "" for row in matrix],
        "Step": [str(row.step) for row in matrix],
        "Phase": [row.phase.replace("_", " ") for row in matrix],
    }
    most = "max_allocated" if all(row.peak is None for row in matrix) else "peak"
    for name in (most, "allocated", "cached", "inactive", "parameters", "gradients", "buffers"):
        sizes = [getattr(row, name) for row in matrix]
        columns[name.replace("_", " ").capitalize()] = ["" if size is None else format_bytes(size) for size in sizes]
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    numeric = frozenset(place for place, name in enumerate(shown) if name != "Phase")
    return Table(tuple(shown), tuple(zip(*shown.values(), strict=True)), numeric)


def moment_table(described: DescribedScript) -> Table:
    """Tabulate the resident set of a model phase by phase, from before its session is made."""
    moments = () if described.inference is None else described.inference.moments
    rows = tuple((one.phase, format_bytes(one.peak), format_bytes(one.resident)) for one in moments)
    return Table(("Phase", "Peak", "At its end"), rows, frozenset({1, 2}))


def operator_table(described: DescribedScript) -> Table:
    """Tabulate the kinds of operators of a model, the slowest first, as ONNX Runtime's profile has one run."""
    operators = () if described.inference is None else described.inference.operators
    whole_s = sum(one.time_s for one in operators)
    rows = tuple(
        (
            cut_names(one.kind),
            f"{one.number:,}",
            format_duration(one.time_s),
            format_share(one.time_s / whole_s if whole_s else 0.0),
            format_bytes(one.output_bytes),
        )
        for one in operators
    )
    return Table(("Operator", "Occurs", "Time", "Share", "Writes"), rows, frozenset({1, 2, 3, 4}))


def conversion_table(described: DescribedScript) -> Table:
    """Tabulate the conversions of a model that were allowed and can be had: bytes of files, and errors of outputs."""
    found = () if described.inference is None else described.inference.conversions
    rows = tuple((one.name, format_bytes(one.bytes), format_share(one.error)) for one in found if one.error is not None)
    return Table(("Converted to", "Files", "Outputs off by up to"), rows, frozenset({1, 2}))


_PLAN_COLUMNS = ("Plan", "Occurs", "Saves", "Formula (bytes)", "Recompute time", "")
FORMULA_COLUMN = _PLAN_COLUMNS.index("Formula (bytes)")


def plan_table(described: DescribedScript) -> Table:
    """Tabulate the plans that discovery found, and the modules that no plan reaches, by bytes, which do not add up."""
    rows = [
        (
            row.saving_bytes,
            (
                cut_names(f"{row.cluster_id}:{row.strategy}:-1"),
                f"{row.frequency}" + (f" ({row.calls_per_step:g} calls/step)" if row.calls_per_step != 1 else ""),
                format_bytes(row.saving_bytes),
                readable_formula(row.saving_formula, described.dimensions, described.per_sample),
                format_duration(row.recompute_time_s) if row.recompute_time_s else "",
                "; ".join(filter(None, ["whole layer" if row.is_layer else "", row.note])),
            ),
        )
        for row in described.plans
    ]
    rows += [
        (
            row.saved_bytes,
            (
                *(cut_names(row.name), str(row.number), "no plan", "", ""),
                f"runs outside of any graph and keeps {format_bytes(row.saved_bytes)}",
            ),
        )
        for row in described.outside
    ]
    ordered = tuple(cells for _, cells in sorted(rows, key=lambda row: -row[0]))
    return Table(_PLAN_COLUMNS, ordered, frozenset({1, 2, 4}))


def fit_table(fits: Iterable[Fit], *, target: Target = "script") -> Table:
    """Tabulate the largest batch size at each depth of plans, with what is expected there, and its chance to fit."""
    rows = tuple(
        (
            str(one.configuration.batch_size or "own"),
            format_rate(one.samples_per_s),
            "measured" if one.is_measured else f"± {one.rate_sd:.0%}",
            format_bytes(one.peak_bytes),
            "measured" if one.is_measured else " to ".join(map(format_bytes, one.peak_interval)),
            "measured" if one.is_measured else format_chance(one.chance),
            *([cut_names(one.configuration.recomputed) or "no plans"] if target == "script" else []),
        )
        for one in fits
    )
    columns = ("Batch", "Samples/s", "", "Peak", "", "Fits", *(["Plans"] if target == "script" else []))
    return Table(columns, rows, frozenset({0, 1, 3}))


def front_table(report: Report) -> Table:
    """Tabulate the Pareto front of samples/s and memory, as measured once, with baseline and winner in any case."""
    measured = (point for point in report.points if point.peak_bytes is not None)
    on_gpu = report.environment is not None and report.environment.device_kind == "cuda"
    shown = [point for point in measured if point.on_front or point.is_baseline or point.is_winner]
    rows = tuple(
        (
            *figure_cells(point.figures).values(),
            cut_names(point.configuration),
            ", ".join(
                word
                for word, holds in (
                    (f"your {report.target}", point.is_baseline),
                    (winner_word(report), point.is_winner),
                    ("not on the front", not point.on_front),
                    (_over(point, report), not point.fits),
                )
                if holds
            ),
            *((_card_for(point),) if on_gpu else ()),
        )
        for point in sorted(shown, key=lambda point: (point.peak_bytes or 0, -(point.samples_per_s or 0.0)))
    )
    figures = (*figure_cells(None),)
    columns = (*figures, "Setting", "", *(("Smallest card",) if on_gpu else ()))
    return Table(columns, rows, frozenset(range(len(figures))))


def _card_for(point: Point) -> str:
    card = None if point.peak_bytes is None else smallest_card(point.peak_bytes, CARD_ERROR)
    return "" if card is None else card.name


def finalist_table(report: Report) -> Table:
    """Tabulate the script and the finalists, measured again in turns; what the objective goes by first."""
    is_memory, own = report.settings.objective.goal == "memory", report.baseline
    ratios = ("Memory", "Range", "Speed", "Range") if is_memory else ("Speed-up", "Range")
    columns = ("Finalist", *figure_cells(None), *ratios, "Repetitions", "Shown")
    # Where the script does not fit, no finalist has to be better.
    decides = report.verdict is not None and report.verdict.answer != "baseline_does_not_fit"
    rows = []
    for one in report.finalists:
        speed = (f"{one.speedup:.3f}x" if one.repetitions else "", _range(one.speedup_low, one.speedup_high))
        told: tuple[str, ...] = speed
        shown = _shown(one.found, "faster")
        if is_memory:
            memory = f"{one.peak_ratio:.3f}x" if one.repetitions else ""
            told = (memory, _range(one.peak_ratio_low, one.peak_ratio_high), *speed)
            shown = ", ".join(filter(None, [_shown(one.found, "smaller"), _shown(one.found_fast, "fast enough")]))
        rows.append(
            (
                cut_names(one.text),
                *figure_cells(one.figures).values(),
                *told,
                str(one.repetitions or ""),
                shown if decides else "",
            )
        )
    if rows and own is not None:
        rows.insert(0, (f"your {report.target}", *figure_cells(own).values(), *("" for _ in ratios), "", ""))
    return Table(columns, tuple(rows), frozenset(range(1, len(columns) - 1)))


def spent_table(report: Report) -> Table:
    """Tabulate where the time went, a row for each stage; no rows where that was not stored."""
    spent = report.spent
    columns = ("Stage", "Time", "Runs", "Forked", "Start", "Compile", "Warm-up", "Measure", "Describe", "Rest")
    if spent is None:
        return Table(columns, ())
    rows = []
    for one in spent.stages:
        parts_s = (one.start_s, one.compile_s, one.warmup_s, one.measure_s, one.describe_s, one.rest_s)
        parts = (format_duration(seconds) if seconds else "" for seconds in parts_s)
        rows.append((one.stage, format_duration(one.total_s), str(one.runs), str(one.forked or ""), *parts))
    rows.append(("between runs", format_duration(spent.between_s), *[""] * (len(columns) - 2)))
    return Table(columns, tuple(rows), frozenset(range(1, len(columns))))


def _range(low: float | None, high: float | None) -> str:
    """Write the interval of a ratio; empty where repetitions are too few to tell."""
    return "" if low is None or high is None else f"{format_ratio(low)} to {format_ratio(high)}"


def _shown(found: Found | None, better: str) -> str:
    """Say what repetitions show, in a word or two; empty where that is not looked at."""
    words: dict[Found | None, str] = {
        "win": better,
        "no_better": f"not {better}",
        "futile": f"unlikely {better}",
        "unresolved": "open",
        "open": "open",
        "failed": "failed",
    }
    return words.get(found, "")


def proof_table(proof: Proof) -> Table:
    """Tabulate what a proof compared: how many values of each kind, and how far they are apart."""
    rows = []
    for group in GROUPS:
        compared = (proof.to_engine, proof.to_script, proof.engine_to_script, proof.exported)
        pairs = [difference_of(one, group) for one in compared]
        if any(pair.compared for pair in pairs):
            rows.append((group, f"{max(pair.compared for pair in pairs):,}", *map(_difference, pairs)))
    if difference_of(proof.to_script, "outputs").compared:
        # There is no engine beside the model's own.
        only = tuple((values, number, to_model) for values, number, _, to_model, *_ in rows)
        return Table(("Values", "Compared", "From the model's"), only, frozenset({1}))
    columns = (
        *("Values", "Compared", "From the engine without plans", "From the script", "The engine from the script"),
        *(("As exported, from the engine without plans",) if proof.exported else ()),
    )
    return Table(columns, tuple(row[: len(columns)] for row in rows), frozenset({1}))


def _difference(one: GroupDifference) -> str:
    if not one.differing:
        return "equal" if one.compared else "not compared"
    size = "" if one.absolute is None else f", by up to {one.absolute:.1e}"
    size += "" if one.relative is None else f" ({one.relative:.1e} of the largest)"
    return f"{one.differing:,} differ{size}: {one.place}"


def trial_table(report: Report) -> Table:
    """Tabulate all trials, in the order in which they were run."""
    rows = tuple(
        (
            str(point.number),
            f"your {report.target} as it is" if point.is_baseline else cut_names(point.configuration),
            *figure_cells(point.figures).values(),
            outcome_text(point, report),
        )
        for point in report.points
    )
    columns = ("Trial", "Setting", *figure_cells(None), "Result")
    return Table(columns, rows, frozenset({0, *range(2, len(columns) - 1)}))


def outcome_label(outcome: str) -> str:
    """Return the word for an outcome's kind, or for the state of a trial that has none."""
    return OUTCOMES[outcome].label if outcome in OUTCOMES else _STATES[outcome]


def outcome_text(point: Point, report: Report) -> str:
    """Return how a trial ended, in a few words; a failure with its cause."""
    if point.outcome != "measured":
        name = outcome_label(point.outcome)
        return f"{name}: {point.cause}" if point.cause else name
    words = ["fits" if point.fits else _over(point, report)]
    words += [winner_word(report)] if point.is_winner else []
    words += ["on the front"] if point.on_front else []
    words += ["the allocator had to free memory and retry, so it cannot win"] if point.thrashed else []
    words += ["the loss is NaN or infinite, so it cannot win"] if point.diverged else []
    return ", ".join([*words, *point.notes])


def _over(point: Point, report: Report) -> str:
    if point.peak_bytes is None:
        return "peak not measured"
    return f"over the {passed(point.peak_bytes, report.limit_bytes)}"


def _optimizer(optimizer: OptimizerFacts) -> str:
    # Switches that are off say nothing.
    on = {name: value for name, value in optimizer.settings.items() if value not in ("None", "False")}
    settings = ", ".join(f"{name}={value}" for name, value in on.items())
    return f"{optimizer.name}({settings})"


def _precision(precision: PrecisionFacts | None) -> str:
    if precision is None:
        return ""
    autocast = f", autocast to {precision.autocast}" if precision.autocast else ""
    return f"{precision.parameters}{autocast}{', gradient scaler' if precision.grad_scaler else ''}"


def _sharding(sharding: ShardingFacts | None) -> str:
    if sharding is None:
        return ""
    twice = sharding.gathered_twice
    again = f", {twice} of them gathered again for the backward" if twice else ""
    modules = f"{sharding.modules} module{'s' * (sharding.modules > 1)}"
    return f"{modules} with fully_shard{again}{', mixed precision' if sharding.has_policy else ''}"
