"""Trials that run out of memory between good ones: are the good ones' figures the same as without them?

Out of memory, good, good, out of memory, good, good, ...: the first good trial of each pair follows one that ran out of
memory, the second follows a good one and is the comparison, measured on the same machine a few seconds later. Each
trial is a run of its own, as in a study whose batch sizes differ. ``python tests/benchmarks/oom_alternating.py --json``
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

from autotune.launch.process import ProcessLauncher
from autotune.records.configuration import Configuration
from autotune.records.measuring import Measuring
from autotune.records.outcome import Measured, Outcome, OutOfMemory
from autotune.records.run import Request

SCRIPT = Path(__file__).resolve().parents[1] / "e2e/scripts/bad/oom_forward.py"
MEASURING = Measuring(min_steps=100, max_steps=200, min_measure_s=0.0)
GOOD, TOO_LARGE, ABOVE = 8, 32, 16


@dataclass
class Figures:
    """Rates and peaks of good trials, in the order in which they were measured."""

    samples_per_s: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Take a trial in, which must have been measured."""
        if not isinstance(outcome, Measured):
            raise SystemExit(f"a good trial was not measured: {outcome}")
        self.samples_per_s.append(outcome.measurement.samples_per_s)
        self.peak_bytes.append(outcome.measurement.peaks.fit_bytes)


@dataclass
class Report:
    """What was measured; ``rate_ratio`` and ``peak_ratio`` are of medians, after out of memory over after good."""

    out_of_memory: int
    after_out_of_memory: Figures
    after_good: Figures

    @property
    def rate_ratio(self) -> float:
        """Samples/s after a trial that ran out of memory, over those after a good one."""
        return _ratio(self.after_out_of_memory.samples_per_s, self.after_good.samples_per_s)

    @property
    def peak_ratio(self) -> float:
        """The same of the peaks."""
        return _ratio(self.after_out_of_memory.peak_bytes, self.after_good.peak_bytes)


def alternate(folder: Path, *, pairs: int) -> Report:
    """Run ``pairs`` times out of memory, good, good."""
    report = Report(0, Figures(), Figures())
    for _ in range(pairs):
        outcome = run(folder, TOO_LARGE)
        if not isinstance(outcome, OutOfMemory) or outcome.phase != "forward":
            raise SystemExit(f"the trial did not run out of memory in forward: {outcome}")
        report.out_of_memory += 1
        report.after_out_of_memory.add(run(folder, GOOD))
        report.after_good.add(run(folder, GOOD))
    return report


def run(folder: Path, batch_size: int) -> Outcome:
    """One trial in a fresh process."""
    launcher = ProcessLauncher(
        python=sys.executable,
        root=folder,
        working_directory=folder,
        start_timeout_s=120.0,
        trial_timeout_s=120.0,
        variables=os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "CUDA_VISIBLE_DEVICES": ""},
    )
    arguments = ("--really", "--batch-size", str(batch_size), "--above", str(ABOVE))
    request = Request("measure", str(SCRIPT), arguments, (Configuration(batch_size=batch_size),), MEASURING)
    result = launcher.run(request, devices=(), on_event=lambda event: None, cancel=threading.Event())
    (outcome,) = result.outcomes
    assert outcome is not None, "nobody cancelled it"
    return outcome


def _ratio(some: list[float] | list[int], others: list[float] | list[int]) -> float:
    return statistics.median(some) / statistics.median(others)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10, help="10 make 20 alternating trials")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotune-oom-") as folder:
        report = alternate(Path(folder), pairs=options.pairs)
    if options.json:
        figures = {
            "out_of_memory": report.out_of_memory,
            "rate_ratio": round(report.rate_ratio, 4),
            "peak_ratio": round(report.peak_ratio, 4),
            "after_out_of_memory": vars(report.after_out_of_memory),
            "after_good": vars(report.after_good),
        }
        print(json.dumps(figures, indent=2))
    else:
        print(
            f"{report.out_of_memory} trials ran out of memory; good ones after them against good ones after good ones:"
        )
        print(f"  samples/s {report.rate_ratio:.3f}x, peak {report.peak_ratio:.3f}x (medians)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
