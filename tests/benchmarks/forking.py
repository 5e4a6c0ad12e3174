"""Runs forked from a process that has imported what the script imports, in turns with fresh ones: what they save, and
that they agree.

Gradients are compared by the losses that a script prints to the last bit, each of which depends on all gradients before
it; peaks by the resident set's high-water mark; speed by the median step. A ratio is that of the medians, forked over
fresh; its spread is that of the fresh runs, the largest over the smallest.
``python tests/benchmarks/forking.py --json``; exits with 1 if losses differ, or peaks by more than 1 % and the spread.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from autotune.launch.port import RunResult  # noqa: E402
from autotune.launch.process import ProcessLauncher  # noqa: E402
from autotune.records.configuration import Configuration  # noqa: E402
from autotune.records.engines import Engine  # noqa: E402
from autotune.records.facts import Preload  # noqa: E402
from autotune.records.outcome import Measured  # noqa: E402
from autotune.records.run import Request  # noqa: E402

VARIABLES = os.environ | {"CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Case:
    """A script to run under an engine, with as many threads."""

    script: str
    arguments: tuple[str, ...]
    engine: Engine
    threads: int


CASES = (
    Case("tests/e2e/scripts/known_rate.py", ("--period-s", "0.005", "--steps", "100000"), "eager", 1),
    Case("tests/e2e/scripts/transformer_encoder_root.py", (), "aot", 1),
    Case("trials/charlm/train.py", (), "eager", 2),
    Case("tests/e2e/scripts/hf_trainer.py", (), "eager", 1),
)


@dataclass(frozen=True)
class Seen:
    """One run."""

    seconds: float
    resident_bytes: int
    step_s: float
    losses: tuple[str, ...]


def compare(case: Case, folder: Path, *, times: int) -> dict[str, Any]:
    """Run a case in turns, fresh and forked."""
    launchers = [launcher(case, folder) for _ in range(2)]  # one that runs afresh ends its idle fork servers
    seen: tuple[list[Seen], list[Seen]] = [], []
    preload = discover(launchers[True], case)
    run(launchers[True], case, preload)  # its first run waits for the server
    for _ in range(times):
        for is_forked in (False, True):
            seen[is_forked].append(run(launchers[is_forked], case, preload if is_forked else None))
    fresh, forked = seen
    steps = min(len(one.losses) for one in (*fresh, *forked))
    return {
        "script": case.script,
        "engine": case.engine,
        "threads": case.threads,
        "imported_ahead": ["torch", *preload.modules],
        "saved_s": round(middle(fresh, "seconds") - middle(forked, "seconds"), 3),
        "run_s": round(middle(fresh, "seconds"), 3),
        "resident_ratio": round(middle(forked, "resident_bytes") / middle(fresh, "resident_bytes"), 5),
        "resident_spread": round(spread(fresh, "resident_bytes"), 5),
        "step_ratio": round(middle(forked, "step_s") / middle(fresh, "step_s"), 4),
        "step_spread": round(spread(fresh, "step_s"), 4),
        "losses_compared": steps,
        "losses_equal": len({one.losses[:steps] for one in (*fresh, *forked)}) == 1 if steps else None,
    }


def launcher(case: Case, folder: Path) -> ProcessLauncher:
    """What runs a case."""
    return ProcessLauncher(
        python=sys.executable,
        root=folder,
        working_directory=folder,
        start_timeout_s=240.0,
        trial_timeout_s=240.0,
        variables=VARIABLES | {"OMP_NUM_THREADS": str(case.threads)},
    )


def discover(launcher: ProcessLauncher, case: Case) -> Preload:
    """What may be imported ahead of a case; ends the benchmark if its runs may not be forked."""
    request = Request("discover", str(ROOT / case.script), case.arguments, (Configuration(),))
    found = launcher.run(request, devices=(), on_event=lambda event: None, cancel=threading.Event()).facts
    if found is None or found.fork_refusal:
        raise SystemExit(f"{case.script} is not forked: {found and found.fork_refusal}")
    return found.preload


def run(launcher: ProcessLauncher, case: Case, preload: Preload | None) -> Seen:
    """One run of a case, fresh without ``preload``; ends the benchmark if it was not measured, or not as asked."""
    configurations = (Configuration(case.engine),)
    request = Request("measure", str(ROOT / case.script), case.arguments, configurations)
    if preload is not None:
        request = dataclasses.replace(request, may_fork=True, preload=preload)
    began_s = time.perf_counter()
    result = launcher.run(request, devices=(), on_event=lambda event: None, cancel=threading.Event())
    seconds = time.perf_counter() - began_s
    (outcome,) = result.outcomes
    if not isinstance(outcome, Measured) or any(
        "fresh" in note or "ahead" in note for note in outcome.measurement.notes
    ):
        raise SystemExit(f"{case.script} was not measured as it was meant to: {outcome}")
    peak = outcome.measurement.peaks.resident
    assert peak is not None
    return Seen(seconds, peak, outcome.measurement.step_time_s, losses(result))


def losses(result: RunResult) -> tuple[str, ...]:
    """What a run has printed of its losses, exactly."""
    lines = (result.directory / "stdout.log").read_text().splitlines()
    return tuple(line.split()[1] for line in lines if line.startswith("LOSS "))


def middle(seen: list[Seen], field: str) -> float:
    """The median of a figure."""
    return statistics.median(getattr(one, field) for one in seen)


def spread(seen: list[Seen], field: str) -> float:
    """The largest figure over the smallest."""
    return float(max(getattr(one, field) for one in seen) / min(getattr(one, field) for one in seen))


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotune-forking-") as folder:
        found = [compare(case, Path(folder), times=options.times) for case in CASES]
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        said = {True: "equal", False: "DIFFER", None: "not printed"}
        for one in found:
            print(
                f"{one['script']} ({one['engine']}): {one['saved_s']} s of {one['run_s']} s saved, resident peak "
                f"{one['resident_ratio']}x (spread {one['resident_spread']}x), step {one['step_ratio']}x (spread "
                f"{one['step_spread']}x), losses {said[one['losses_equal']]}"
            )
    return 0 if all(is_good(one) for one in found) else 1


def is_good(found: dict[str, Any]) -> bool:
    """Whether forked runs and fresh ones agree."""
    allowed = max(1.01, found["resident_spread"])
    return found["losses_equal"] is not False and 1 / allowed < found["resident_ratio"] < allowed


if __name__ == "__main__":
    sys.exit(main())
