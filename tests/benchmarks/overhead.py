"""What autotune adds: to a trial beyond the script's own time, and to the start of the command line.

A trial's own time is what plain Python takes to run the same script for the same number of steps and no further.
``python tests/benchmarks/overhead.py --json``
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
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from autotune import pipeline  # noqa: E402
from autotune.launch import ProcessLauncher  # noqa: E402
from autotune.records import Configuration, Measured, Request, StudySpec  # noqa: E402
from autotune.records.sources import script_sha256  # noqa: E402
from autotune.store import open_store  # noqa: E402
from autotune.tuning.budget import Interruption  # noqa: E402
from tests.fakes.landscape import ENVIRONMENT, Landscape  # noqa: E402
from tests.fakes.launcher import FakeLauncher  # noqa: E402
from tests.fakes.watcher import FakeWatcher  # noqa: E402

SCRIPT = ROOT / "tests/e2e/scripts/known_rate.py"
PERIOD = ("--period-s", "0.005")
VARIABLES = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "CUDA_VISIBLE_DEVICES": ""}


def trial_overheads(folder: Path, *, times: int) -> list[float]:
    """Seconds that a run of one configuration takes longer than plain Python with as many steps."""
    launcher = ProcessLauncher(
        python=sys.executable,
        root=folder,
        working_directory=folder,
        start_timeout_s=120.0,
        trial_timeout_s=120.0,
        variables=VARIABLES,
    )
    request = Request("measure", str(SCRIPT), (*PERIOD, "--steps", "100000"), (Configuration(),))
    overheads = []
    for _ in range(times):
        began_s = time.perf_counter()
        result = launcher.run(request, device=None, on_event=lambda event: None, cancel=threading.Event())
        trial_s = time.perf_counter() - began_s
        (outcome,) = result.outcomes
        if not isinstance(outcome, Measured):
            raise SystemExit(f"the trial was not measured: {outcome}")
        steps = outcome.measurement.warmup_steps + len(outcome.measurement.step_times_s)
        plain_s = seconds(sys.executable, str(SCRIPT), *PERIOD, "--steps", str(steps))
        overheads.append(trial_s - plain_s)
    return overheads


def controller_seconds(folder: Path) -> float:
    """Seconds per trial that asking, storing and telling take: a study of a formula in a real database."""
    script = folder / "train.py"
    script.write_text("import torch\n")
    landscape = Landscape()
    facts = replace(landscape.facts, script_sha256=script_sha256(str(script)))
    launcher = FakeLauncher(landscape.measure, environment=ENVIRONMENT, facts=facts, root=folder)
    with open_store(str(folder / "studies.db")) as store:
        study = store.create("overhead", StudySpec(script=str(script), max_trials=40, finalist_rounds=1))
        began_s = time.perf_counter()
        record = pipeline.tune(
            study, store=store, launcher=launcher, watcher=FakeWatcher(), interruption=Interruption(), runs=folder
        )
        return (time.perf_counter() - began_s) / len(record.trials)


def start_seconds(folder: Path, *, times: int) -> tuple[float, float]:
    """Medians of `autotune --help` and of `python -c 'import typer'`, in turns, with all modules compiled."""
    autotune = str(Path(sys.executable).with_name("autotune"))
    # Where Python is told to write no bytecode, a checkout's modules would be compiled each time, and typer's not.
    variables = VARIABLES | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    helped, imported = [], []
    for _ in range(1 + times):
        helped.append(seconds(autotune, "--help", variables=variables))
        imported.append(seconds(sys.executable, "-c", "import typer", variables=variables))
    return statistics.median(helped[1:]), statistics.median(imported[1:])


def seconds(*command: str, variables: dict[str, str] = VARIABLES) -> float:
    """The wall time of a command."""
    began_s = time.perf_counter()
    subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=True)
    return time.perf_counter() - began_s


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotune-overhead-") as folder:
        overheads = trial_overheads(Path(folder), times=options.times)
        controller_s = controller_seconds(Path(folder))
        help_s, typer_s = start_seconds(Path(folder), times=options.times)
    figures = {
        "trial_s": round(statistics.median(overheads) + controller_s, 3),
        "run_s": [round(one, 3) for one in overheads],
        "controller_s": round(controller_s, 4),
        "help_s": round(help_s, 4),
        "import_typer_s": round(typer_s, 4),
        "help_ratio": round(help_s / typer_s, 3),
    }
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print(f"a trial takes {figures['trial_s']:.2f} s beside the script's own time (at most 1 s)")
        print(f"autotune --help takes {figures['help_ratio']:.2f}x of importing typer (at most 2x)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
