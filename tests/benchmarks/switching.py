"""Plans switched in one process against a fresh process for each: the same gradients, peaks and step times, sooner?

Each script is run under sets of plans with engine ``aot``: all sets in one run, a fresh run for each, and all in one
run again, so that a machine that slows down slows both. A trial has as many steps as it has at least. One of its
warm-up steps tells the digest of its gradients and the most bytes of tensors that it held, as torch counts them; the
resident peak is that of the trial. ``python tests/benchmarks/switching.py --json``
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from autotune.launch.port import RunResult  # noqa: E402
from autotune.launch.process import ProcessLauncher  # noqa: E402
from autotune.records.configuration import Configuration  # noqa: E402
from autotune.records.facts import BatchControl, Facts  # noqa: E402
from autotune.records.measurement import Measurement, median_interval  # noqa: E402
from autotune.records.measuring import Measuring  # noqa: E402
from autotune.records.outcome import Measured  # noqa: E402
from autotune.records.plan import ALL, Plan  # noqa: E402
from autotune.records.run import Request  # noqa: E402

SCRIPTS = ROOT / "tests/benchmarks/scripts"
CASES: dict[str, tuple[Path, tuple[str, ...]]] = {
    "charlm": (ROOT / "trials/charlm/train.py", ("--lr", "0", "--batch-size", "4", "--max-chars", "700")),
    "bert": (SCRIPTS / "bert.py", ("--lr", "0", "--batch-size", "8", "--samples", "8", "--layers", "12")),
}
"""Scripts with arguments for steps that compute the same: no learning, and one batch in an epoch."""

WARMUP, STEPS = 3, 5
MEASURING = Measuring(
    min_warmup_steps=WARMUP, max_warmup_steps=WARMUP, min_steps=STEPS, max_steps=STEPS, min_measure_s=0.0
)

LARGEST_PEAK_ERROR = 0.02
LARGEST_TIME_ERROR = 0.03
LEAST_SPEED_UP = 8.0


@dataclass(frozen=True)
class Trial:
    """One configuration measured."""

    gradients: str
    peak_bytes: int
    resident_bytes: int
    step_time_s: float


@dataclass(frozen=True)
class Row:
    """A set of plans: ratios are of the switched trial to the one in a fresh process."""

    script: str
    configuration: str
    equal_gradients: bool
    peak_bytes: int
    peak_ratio: float
    resident_bytes: int
    resident_ratio: float
    step_time_s: float
    time_ratio: float
    repeated_time_ratio: float


@dataclass(frozen=True)
class Case:
    """A script: seconds of wall time for all sets, and of a trial beyond its steps."""

    script: str
    sets: int
    switched_s: float
    fresh_s: float
    speed_up: float
    switched_trial_overhead_s: float
    fresh_trial_overhead_s: float


class Runs:
    """Starts runs of one script."""

    def __init__(self, folder: Path, script: Path, arguments: tuple[str, ...]) -> None:
        self._folder = folder
        self._script = script
        self._arguments = arguments
        self._device = 0 if torch.cuda.is_available() else None
        self._launcher = ProcessLauncher(
            python=sys.executable,
            root=folder,
            working_directory=folder,
            start_timeout_s=300.0,
            trial_timeout_s=300.0,
            variables=os.environ | {"PYTHONPATH": str(ROOT)},
        )

    def discover(self) -> Facts:
        """The script's plans."""
        facts = self._run(Request("discover", str(self._script), self._arguments, (Configuration(),))).facts
        assert facts is not None
        return facts

    def measure(self, configurations: Sequence[Configuration]) -> tuple[list[Trial], float]:
        """Measure configurations in one run; gives its seconds of wall time, too."""
        told = self._folder / "told"
        told.unlink(missing_ok=True)
        arguments = (str(told), str(WARMUP + STEPS), str(self._script), *self._arguments)
        request = Request(
            "measure",
            str(SCRIPTS / "same_steps.py"),
            arguments,
            tuple(configurations),
            measuring=MEASURING,
            batch_control=BatchControl("none"),
        )
        began_s = time.perf_counter()
        result = self._run(request)
        elapsed_s = time.perf_counter() - began_s
        lines = [json.loads(line) for line in told.read_text().splitlines()]
        found = [trial(line, measurement(result, index)) for index, line in enumerate(lines)]
        if len(found) != len(configurations):
            raise SystemExit(f"{len(found)} of {len(configurations)} trials: {result.reason}")
        return found, elapsed_s

    def _run(self, request: Request) -> RunResult:
        return self._launcher.run(request, device=self._device, on_event=lambda event: None, cancel=threading.Event())


def measurement(result: RunResult, index: int) -> Measurement:
    """What a run measured."""
    outcome = result.outcomes[index]
    if not isinstance(outcome, Measured):
        raise SystemExit(f"trial {index} was not measured ({result.reason}): {outcome}")
    return outcome.measurement


def trial(line: dict[str, str | int], measured: Measurement) -> Trial:
    """What the script told and what the run measured."""
    return Trial(str(line["gradients"]), int(line["peak_bytes"]), measured.peaks.resident or 0, measured.step_time_s)


def plan_sets(facts: Facts, count: int, draw: random.Random) -> list[Configuration]:
    """No plans, both levels, and random plans with random counts, each set once, in random order."""
    rows = {row.cluster_id: row for row in facts.clusters}
    found = {one.key: one for one in (Configuration("aot", (), level) for level in (0, 1, 2))}
    while len(found) < count:
        chosen = draw.sample(sorted(rows), draw.randint(1, min(5, len(rows))))
        plans = tuple(
            Plan(each, rows[each].strategy, draw.choice((ALL, draw.randint(1, rows[each].frequency))))
            for each in chosen
        )
        one = Configuration("aot", plans, draw.choice((0, 0, 0, 1, 2)))
        found[one.key] = one
    return draw.sample(list(found.values()), len(found))


def examine(name: str, folder: Path, count: int) -> tuple[Case, list[Row]]:
    """Compare on one script."""
    runs = Runs(folder, *CASES[name])
    configurations = plan_sets(runs.discover(), count, random.Random(name))
    switched, switched_s = runs.measure(configurations)
    fresh, fresh_s = [], 0.0
    for configuration in configurations:
        (one,), elapsed_s = runs.measure([configuration])
        fresh.append(one)
        fresh_s += elapsed_s
    again, again_s = runs.measure(configurations)
    rows = []
    for configuration, first, second, own in zip(configurations, switched, again, fresh, strict=True):
        row = Row(
            script=name,
            configuration=str(configuration),
            equal_gradients=first.gradients == second.gradients == fresh[0].gradients == own.gradients,
            peak_bytes=own.peak_bytes,
            peak_ratio=max(first.peak_bytes, second.peak_bytes) / own.peak_bytes,
            resident_bytes=own.resident_bytes,
            resident_ratio=max(first.resident_bytes, second.resident_bytes) / own.resident_bytes,
            step_time_s=own.step_time_s,
            time_ratio=(first.step_time_s + second.step_time_s) / 2 / own.step_time_s,
            repeated_time_ratio=second.step_time_s / first.step_time_s,
        )
        rows.append(row)
        print(told(row), file=sys.stderr, flush=True)
    steps = WARMUP + STEPS
    case = Case(
        script=name,
        sets=count,
        switched_s=round((switched_s + again_s) / 2, 1),
        fresh_s=round(fresh_s, 1),
        speed_up=round(fresh_s / ((switched_s + again_s) / 2), 2),
        switched_trial_overhead_s=round(
            ((switched_s + again_s) / 2 - steps * sum(one.step_time_s for one in switched)) / count, 2
        ),
        fresh_trial_overhead_s=round((fresh_s - steps * sum(one.step_time_s for one in fresh)) / count, 2),
    )
    return case, rows


def told(row: Row) -> str:
    """A line for people."""
    return (
        f"{row.script}: gradients {'equal' if row.equal_gradients else 'DIFFER'}, peak {row.peak_bytes:,} "
        f"x {row.peak_ratio:.4f}, resident {row.resident_bytes:,} x {row.resident_ratio:.4f}, "
        f"step {1e3 * row.step_time_s:.1f} ms x {row.time_ratio:.3f} (repeated x {row.repeated_time_ratio:.3f}): "
        f"{row.configuration[:120]}"
    )


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, its 95 % interval, and the tenth and ninetieth percentile."""
    low, high = median_interval(list(values))
    tenths = statistics.quantiles(values, n=10)
    found = {"median": statistics.median(values), "low": low, "high": high, "p10": tenths[0], "p90": tenths[-1]}
    return {name: round(value, 4) for name, value in found.items()}


def summary(cases: Sequence[Case], rows: Sequence[Row]) -> dict[str, object]:
    """A number per claim."""
    peak = max(abs(row.peak_ratio - 1) for row in rows)
    resident = [abs(row.resident_ratio - 1) for row in rows]
    times = spread([row.time_ratio for row in rows])
    speed_up = min(case.speed_up for case in cases)
    equal = sum(row.equal_gradients for row in rows)
    return {
        "sets": len(rows),
        "equal_gradients": equal,
        "largest_peak_error": round(peak, 5),
        "largest_resident_error": round(max(resident), 4),
        "median_resident_error": round(statistics.median(resident), 4),
        "time_ratio": times,
        "repeated_time_ratio": spread([row.repeated_time_ratio for row in rows]),
        "least_speed_up": speed_up,
        "holds": equal == len(rows)
        and peak <= LARGEST_PEAK_ERROR
        and abs(times["median"] - 1) <= LARGEST_TIME_ERROR
        and speed_up >= LEAST_SPEED_UP,
    }


def main() -> int:
    """Run the benchmark; exit status 1 where a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scripts", nargs="*", choices=sorted(CASES), default=sorted(CASES))
    parser.add_argument("--sets", type=int, default=30, help="of plans, for each script")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases: list[Case] = []
    rows: list[Row] = []
    for name in options.scripts:
        with tempfile.TemporaryDirectory(prefix="autotune-switching-") as folder:
            case, found = examine(name, Path(folder), options.sets)
        cases.append(case)
        rows += found
        print(case, file=sys.stderr, flush=True)
    result = summary(cases, rows)
    if options.json:
        print(json.dumps({"cases": [*map(asdict, cases)], "rows": [*map(asdict, rows)], "summary": result}, indent=2))
    else:
        print(json.dumps(result, indent=2))
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
