"""Engine ``ortmodule``: resident peak and step time of its levels and of some plans, in turns with none; and dropout.

``python tests/benchmarks/ortmodule.py --json``. The script is ``trials/bert``. Each configuration is measured in
processes of its own, every repetition all of them, in alternating order. Recomputed dropout is held against PyTorch's
with the same masks.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from autotune.launch.process import ProcessLauncher
from autotune.machine.environments import environment_python
from autotune.records.configuration import Configuration
from autotune.records.facts import BatchControl, Facts
from autotune.records.measurement import Measurement
from autotune.records.measuring import Measuring
from autotune.records.outcome import Measured
from autotune.records.plan import Plan
from autotune.records.run import Request
from autotune.records.study import StudySpec
from autotune.search.space import build_space

SCRIPT = Path(__file__).resolve().parents[2] / "trials" / "bert" / "train.py"
MASKS = Path(__file__).parent / "scripts" / "ortmodule_masks.py"
MEASURING = Measuring(min_steps=12, max_steps=20, min_measure_s=2.0)
MIB = 2**20


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    found_python = environment_python()
    if found_python is None:
        raise SystemExit(
            "the engine's environment is not there: run `autotune engines install ortmodule`; "
            "`make bench` looks where `make setup-ortmodule` puts it"
        )
    python = str(found_python)
    with tempfile.TemporaryDirectory() as folder:
        facts = discover(python, Path(folder))
        found = measure(python, Path(folder), configurations(facts), facts.batch_control, options.repetitions)
    rows = {name: figures(name, found) for name in found}
    masks = json.loads(subprocess.run((python, str(MASKS)), check=True, capture_output=True, text=True).stdout)
    if options.json:
        print(json.dumps({"rows": rows, "dropout": masks}, indent=2))
        return
    print(f"{'setting':44} {'peak MiB':>9} {'saved':>6} {'step ms':>8} {'to off':>7}")
    for name, row in rows.items():
        print(
            f"{name:44} {row['peak_mib']:9.0f} {row['saved_mib']:6.0f} {row['step_ms']:8.1f} {row['time_ratio']:6.3f}x"
        )
    for name, row in masks.items():
        print(f"dropout, {name}: {row}")


def discover(python: str, folder: Path) -> Facts:
    """What ONNX Runtime can recompute in the script."""
    request = Request("discover", str(SCRIPT), (), (Configuration(),), MEASURING, describe_engine="ortmodule")
    facts = run(python, folder, request).facts
    assert facts is not None
    return facts


def configurations(facts: Facts) -> dict[str, Configuration]:
    """None, the levels, and three sets of the plans that a search would take: the one that saves most, three, all."""
    space = build_space(facts, StudySpec(script=str(SCRIPT), engine="ortmodule"))
    rows = sorted(space.clusters, key=lambda row: -row.saving_bytes)
    plans = [Plan(row.cluster_id, row.strategy, -1) for row in rows]
    chosen = {f"{len(some)} plans: {' '.join(map(str, some))}": some for some in (plans[:1], plans[:3], plans)}
    return {
        "off": Configuration("ortmodule"),
        "level 1": Configuration("ortmodule", level=1),
        "level 2": Configuration("ortmodule", level=2),
        **{name: Configuration("ortmodule", tuple(some)) for name, some in chosen.items()},
    }


def measure(
    python: str, folder: Path, settings: dict[str, Configuration], control: BatchControl, repetitions: int
) -> dict[str, list[Measurement]]:
    """Every configuration once a repetition."""
    found: dict[str, list[Measurement]] = {name: [] for name in settings}
    for number in range(repetitions):
        for name in sorted(settings, reverse=bool(number % 2)):
            request = Request("measure", str(SCRIPT), (), (settings[name],), MEASURING, control)
            (outcome,) = run(python, folder, request).outcomes
            if not isinstance(outcome, Measured):
                raise SystemExit(f"{name}: {outcome}")
            found[name].append(outcome.measurement)
            print(f"repetition {number + 1}: {name[:60]}", file=sys.stderr)
    return found


def figures(name: str, found: dict[str, list[Measurement]]) -> dict[str, Any]:
    """Peaks are medians over the repetitions; times are the fastest one's, as other work on a machine only slows."""
    peaks = {one: [(m.peaks.resident or 0) / MIB for m in found[one]] for one in (name, "off")}
    time_s, off_s = (min(m.step_time_s for m in found[one]) for one in (name, "off"))
    saved = statistics.median(off - own for own, off in zip(peaks[name], peaks["off"], strict=True))
    return {
        "peak_mib": statistics.median(peaks[name]),
        "saved_mib": saved,
        "step_ms": 1000 * time_s,
        "time_ratio": time_s / off_s,
    }


def run(python: str, folder: Path, request: Request) -> Any:
    """A run as the controller makes it."""
    launcher = ProcessLauncher(
        python=python,
        root=folder,
        working_directory=folder,
        start_timeout_s=300,
        trial_timeout_s=300,
        variables=os.environ,
    )
    return launcher.run(request, devices=(), on_event=lambda event: None, cancel=threading.Event())


if __name__ == "__main__":
    main()
