"""How many runs does a search take? The real one, replayed against landscapes whose best is known.

Each landscape is a file (``tests/benchmarks/landscapes/table.py`` says what is in it), synthetic ones written by
``landscapes/synthetic.py``, recorded ones by ``landscapes/record.py``. Every study begins with the measured baseline,
as after discovery; what discovery takes is not counted. Beside it Optuna's TPE runs as it is, with a fresh process for
each trial. ``python tests/benchmarks/search.py --landscapes tests/benchmarks/landscapes --seeds 20 --json``
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import optuna

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from autotune.records import Objective  # noqa: E402
from tests.benchmarks.landscapes.physics import KEPT, OPEN, landscape_of  # noqa: E402
from tests.benchmarks.landscapes.replay import LEVELS, Needed, Replay, Replayed, plain_tpe  # noqa: E402
from tests.benchmarks.landscapes.table import Table, load  # noqa: E402

SHIPPED = ROOT / "tests/benchmarks/landscapes"
HALVES = {"open": OPEN, "kept": KEPT}
NOISE_OF_NOTHING = 0.027
MOST = {
    "runs_median": 5,
    "runs_p90": 9,
    "trials_median_alone": 10,
    "trials_p90_alone": 20,
    "out_of_memory_share": 0.10,
    "loss_median": 0.01,
    "stop_ratio": 1.5,
    "false_win_share": 0.01,
}
LEAST_TIMES_TPE = 8.0


def main() -> int:
    """Replay, print, and give 1 if a figure misses its mark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--landscapes", type=Path, default=SHIPPED, metavar="DIR")
    parser.add_argument(
        "--physics",
        choices=("open", "kept"),
        help="in place of files: steps that are executed; nobody looks at the kept",
    )
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="studies of each landscape")
    parser.add_argument("--sampler", default="model", metavar="model|tpe|random")
    parser.add_argument("--objective", default="throughput", choices=("throughput", "memory"))
    parser.add_argument("--no-switching", action="store_true", help="a fresh process for each trial")
    parser.add_argument("--without-tpe", action="store_true", help="leave out Optuna's TPE, which takes the longest")
    parser.add_argument("--false-wins", type=int, default=50, metavar="N", help="studies where all speeds are alike")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    objective = Objective(options.objective)
    if options.objective == "memory":  # TPE is not told of it, and where all speeds are alike less memory is a true win
        options.without_tpe, options.false_wins = True, 0
    chosen = load(options.landscapes) if options.physics is None else map(landscape_of, HALVES[options.physics])
    tables = [Table(one, switches=not options.no_switching, objective=objective) for one in chosen]
    if not tables:
        parser.error(f"no landscape in {options.landscapes}")
    rows: list[Replayed] = []
    others: list[tuple[Replayed, Needed | None]] = []
    for table in tables:
        for seed in range(options.seeds):
            row = Replay(table, seed, options.sampler).run()
            rows.append(row)
            if not options.without_tpe:
                others.append((row, plain_tpe(table, seed)))
            if not options.json and options.physics != "kept":
                print(describe(row), flush=True)
    wins = false_wins(tables, options.false_wins, options.sampler)
    figures = summary(rows, others, wins)
    missed = judge(figures, alone=options.no_switching)
    if options.json:
        shown = [] if options.physics == "kept" else [asdict(row) for row in rows]
        print(json.dumps({"rows": shown, "summary": figures, "missed": missed}))
    else:
        for name, value in figures.items():
            print(f"{name:32} {value if value is None else format(value, '.4g')}")
        print("missed: " + ", ".join(missed) if missed else "every figure is met")
    return bool(missed)


def describe(row: Replayed) -> str:
    """One line about one study."""
    found = "never" if row.found is None else f"{row.found.runs:3} {row.found.trials:3} {row.found.seconds:6.0f} s"
    errors = (row.peak_error_at_once, row.peak_error_after_three, row.speed_error_at_stop)
    said = " ".join("    -" if one is None else f"{one:5.1%}" for one in errors)
    return (
        f"{row.landscape:24} {row.seed:3}  found {found:>16}  stop {row.stopped.runs:3} {row.stopped.trials:3} "
        f"{row.stopped.seconds:6.0f} s  loss {row.loss:6.2%} {row.answer_loss:6.2%}  "
        f"oom {row.out_of_memory}  twice {row.duplicates}  errors {said}  {row.answer}"
    )


def false_wins(tables: Sequence[Table], count: int, sampler: str) -> list[bool]:
    """Whether something won, in studies where nothing is faster than a baseline that fits."""
    alike = [table.all_alike(NOISE_OF_NOTHING) for table in tables if table.speed(table.facts.baseline)]
    chosen = (alike[number % len(alike)] for number in range(count)) if alike else ()
    return [Replay(table, 1000 + number, sampler).run().answer == "winner" for number, table in enumerate(chosen)]


def summary(
    rows: Sequence[Replayed], others: Sequence[tuple[Replayed, Needed | None]], wins: Sequence[bool]
) -> dict[str, float | None]:
    """Figures over all studies. Percentiles count a study that never found the best as one that takes for ever.

    For the device's seconds, who never found it is taken to have gone on with TPE from there.
    """
    runs = [math.inf if row.found is None else row.found.runs for row in rows]
    trials = [math.inf if row.found is None else row.found.trials for row in rows]
    tried = sum(row.stopped.trials for row in rows)
    hard = [row for row in rows if row.found is None or row.found.runs]
    ratios = [row.stopped.trials / row.found.trials for row in hard if row.found is not None]
    tpe_s = [math.nan if other is None else other.seconds for _, other in others]
    known = [(row, seconds) for (row, _), seconds in zip(others, tpe_s, strict=True) if not math.isnan(seconds)]
    own_s = [row.stopped.seconds + seconds if row.found is None else row.found.seconds for row, seconds in known]
    return {
        "studies": len(rows),
        "found_share": sum(row.found is not None for row in rows) / len(rows),
        "runs_median": percentile(runs, 0.5),
        "runs_p90": percentile(runs, 0.9),
        "trials_median": percentile(trials, 0.5),
        "trials_p90": percentile(trials, 0.9),
        "runs_median_of_not_given": percentile([r for r in runs if r], 0.5),
        "stop_runs_median": percentile([row.stopped.runs for row in rows], 0.5),
        "stop_trials_median": percentile([row.stopped.trials for row in rows], 0.5),
        "stop_ratio": percentile(ratios, 0.5),
        "stop_ratio_of_sums": sum(r.stopped.trials for r in hard if r.found)
        / max(1, sum(r.found.trials for r in hard if r.found)),
        "loss_median": percentile([row.loss for row in rows], 0.5),
        "answer_loss_median": percentile([row.answer_loss for row in rows], 0.5),
        "loss_p90": percentile([row.loss for row in rows], 0.9),
        "loss_under_1_percent_share": sum(row.loss < 0.01 for row in rows) / len(rows),
        "loss_under_3_percent_share": sum(row.loss < 0.03 for row in rows) / len(rows),
        "out_of_memory_share": sum(row.out_of_memory for row in rows) / max(tried, 1),
        "duplicates": sum(row.duplicates for row in rows),
        "peak_error_at_once": percentile(kept(row.peak_error_at_once for row in rows), 0.5),
        "peak_error_after_three": percentile(kept(row.peak_error_after_three for row in rows), 0.5),
        "speed_error_at_stop": percentile(kept(row.speed_error_at_stop for row in rows), 0.5),
        "tpe_trials_median": percentile([math.inf if o is None else o.trials for _, o in others], 0.5),
        "times_tpe": sum(seconds for _, seconds in known) / sum(own_s) if any(own_s) else None,
        "false_win_share": statistics.fmean(wins) if wins else None,
        **coverage(rows),
    }


def coverage(rows: Sequence[Replayed]) -> dict[str, float]:
    """The share of what was compared that lies within intervals of 50, 90 and 99 %, by when and of what."""
    shares: dict[str, float] = {}
    for when in ("before", "after three", "at the stop"):
        found = [one for row in rows for one in row.covered if one.when == when and one.compared]
        whole = sum(one.compared for one in found)
        for place, level in enumerate(LEVELS if whole else ()):
            for what in ("peaks", "speeds"):
                name = f"{what}_within_{level:.0%}_{when.replace(' ', '_')}".replace("%", "")
                shares[name] = sum(getattr(one, what)[place] for one in found) / whole
    return shares


def judge(figures: dict[str, float | None], *, alone: bool) -> list[str]:
    """The names of the figures that miss their marks."""
    runs, trials = ("runs_median", "runs_p90"), ("trials_median", "trials_p90")
    most = {name: most for name, most in MOST.items() if name in figures and not (alone and name in runs)}
    if alone:
        most |= {name: MOST[f"{name}_alone"] for name in trials}
    missed = [name for name, limit in most.items() if (value := figures[name]) is not None and value > limit]
    times = figures["times_tpe"]
    if not alone and times is not None and times < LEAST_TIMES_TPE:
        missed.append("times_tpe")
    return missed + (["duplicates"] if figures["duplicates"] else [])


def percentile(values: Sequence[float], share: float) -> float | None:
    """The least value that this share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else None


def kept(values: Iterable[Any]) -> list[Any]:
    """What is not None."""
    return [value for value in values if value is not None]


if __name__ == "__main__":
    sys.exit(main())
