"""What autotune adds: to a trial beyond the script's own time, to a launched step, and to the command line's start.

A trial's own time is what plain Python takes to run the same script for the same number of steps and no further. Steps
are compared in turns: those under ``autotune launch`` with those of plain Python, where the bundle changes nothing; and
with those of a trial under the same engine, where it has plans.
``python tests/benchmarks/overhead.py --json``
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from autotune import pipeline  # noqa: E402
from autotune.export.bundle import export_bundle  # noqa: E402
from autotune.launch.process import ProcessLauncher  # noqa: E402
from autotune.records.configuration import Configuration  # noqa: E402
from autotune.records.facts import BatchControl  # noqa: E402
from autotune.records.fingerprint import script_sha256  # noqa: E402
from autotune.records.measuring import Measuring  # noqa: E402
from autotune.records.outcome import Measured  # noqa: E402
from autotune.records.plan import Plan  # noqa: E402
from autotune.records.run import Request  # noqa: E402
from autotune.records.study import StudySpec  # noqa: E402
from autotune.store.database import open_store  # noqa: E402
from autotune.tuning.budget import Interruption  # noqa: E402
from tests.benchmarks.sidebyside import ratio  # noqa: E402
from tests.fakes.landscape import ENVIRONMENT, Landscape  # noqa: E402
from tests.fakes.launcher import FakeLauncher  # noqa: E402
from tests.fakes.study_record import FACTS, study_record  # noqa: E402
from tests.fakes.watcher import FakeWatcher  # noqa: E402

SCRIPT = ROOT / "tests/e2e/scripts/known_rate.py"
PERIOD = ("--period-s", "0.005")
STEPS = ROOT / "tests/benchmarks/scripts/timed_steps.py"
SHARDED = ROOT / "tests/benchmarks/scripts/timed_sharded.py"
WIDTHS = (16, 64, 256)
VARIABLES = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "CUDA_VISIBLE_DEVICES": ""}


def _launcher(folder: Path) -> ProcessLauncher:
    return ProcessLauncher(
        python=sys.executable,
        root=folder,
        working_directory=folder,
        start_timeout_s=120.0,
        trial_timeout_s=120.0,
        variables=VARIABLES,
    )


def trial_overheads(folder: Path, *, times: int) -> list[float]:
    """Seconds that a run of one configuration takes longer than plain Python with as many steps."""
    launcher = _launcher(folder)
    request = Request("measure", str(SCRIPT), (*PERIOD, "--steps", "100000"), (Configuration(),))
    overheads = []
    for _ in range(times):
        began_s = time.perf_counter()
        result = launcher.run(request, devices=(), on_event=lambda event: None, cancel=threading.Event())
        trial_s = time.perf_counter() - began_s
        (outcome,) = result.outcomes
        if not isinstance(outcome, Measured):
            raise SystemExit(f"the trial was not measured: {outcome}")
        steps = outcome.measurement.warmup_steps + len(outcome.measurement.step_times_s)
        plain_s = seconds(sys.executable, str(SCRIPT), *PERIOD, "--steps", str(steps))
        overheads.append(trial_s - plain_s)
    return overheads


def launched_steps(folder: Path, *, width: int, repetitions: int) -> dict[str, float]:
    """Measure how many times as long steps take under ``autotune launch``: the median of the repetitions' ratios.

    Args:
        folder: where bundles and runs go.
        width: of the model.
        repetitions: how often each way is run.
    """
    untouched, planned = Configuration(batch_size=64), Configuration("aot", (Plan("gelu+", 1, -1),), batch_size=64)
    options = ("--width", str(width))
    ways: dict[str, Callable[[], str]] = {
        "plain": lambda: _printed(sys.executable, str(STEPS), *options),
        "launched": lambda: _printed(*_launch(folder, untouched), *options),
        "trial": lambda: _trial(folder, planned, options),
        "launched with plans": lambda: _printed(*_launch(folder, planned), *options),
    }
    found: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(repetitions):
        for way in sorted(ways, reverse=bool(number % 2)):
            found[way].append(float(ways[way]().split("STEP_S")[1]))
    return {
        "plain_ms": round(1e3 * statistics.median(found["plain"]), 3),
        "launched": round(ratio(found, "launched", "plain"), 3),
        "launched_with_plans": round(ratio(found, "launched with plans", "trial"), 3),
    }


def sharded_steps(folder: Path, *, processes: int, repetitions: int) -> list[tuple[float, float]]:
    """Measure a step in trials of several processes, and hooks' part of it, both in seconds; the shortest step first.

    Hooks are timed by themselves: steps of several processes scatter by more than hooks take.
    """
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    command = ("--standalone", "--nproc-per-node", str(processes), str(SHARDED))
    request = Request("measure", torchrun, command, (Configuration(),))
    printed = [_measured(folder, request).split("STEP_S")[1].split()[:2] for _ in range(repetitions)]
    return sorted((float(step_s), float(hooks_s)) for step_s, hooks_s in printed)


def _launch(folder: Path, configuration: Configuration) -> tuple[str, ...]:
    bundle = folder / f"bundle-{configuration.engine}"
    if not bundle.exists():
        facts = replace(
            FACTS,
            script_sha256=script_sha256(str(STEPS)),
            environment=replace(FACTS.environment, torch=importlib.metadata.version("torch"), variables={}),
        )
        record = study_record(spec=StudySpec(script=str(STEPS)), facts=facts, trials=(), repeats=())
        export_bundle(record, bundle, configuration=configuration)
    return (str(Path(sys.executable).with_name("autotune")), "launch", str(bundle), str(STEPS), "--")


def _trial(folder: Path, configuration: Configuration, options: tuple[str, ...]) -> str:
    measuring = Measuring(min_steps=300, max_steps=300, max_measure_s=60.0)
    request = Request("measure", str(STEPS), options, (configuration,), measuring, BatchControl("loaders", (0,)))
    return _measured(folder, request)


def _measured(folder: Path, request: Request) -> str:
    result = _launcher(folder).run(request, devices=(), on_event=lambda event: None, cancel=threading.Event())
    return (result.directory / "stdout.log").read_text()


def _printed(*command: str) -> str:
    done = subprocess.run(
        command, env=VARIABLES, stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=True, text=True
    )
    return done.stdout


def controller_seconds(folder: Path) -> float:
    """Seconds per trial that asking, storing and telling take: a study of a formula in a real database."""
    script = folder / "train.py"
    script.write_text("import torch\n")
    landscape = Landscape()
    facts = replace(landscape.facts, script_sha256=script_sha256(str(script)))
    launcher = FakeLauncher(landscape.measure, environment=ENVIRONMENT, facts=facts, root=folder)
    with open_store(str(folder / "studies.db")) as store:
        study = store.create("overhead", StudySpec(script=str(script), max_trials=40, finalist_repetitions=1))
        began_s = time.perf_counter()
        record = pipeline.tune(
            study, launcher=launcher, watcher=FakeWatcher(), interruption=Interruption(), runs=folder
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
    parser.add_argument("--launched", action="store_true", help="launched steps only")
    parser.add_argument("--processes", type=int, help="hooks of a trial in so many processes only")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.processes:
        with tempfile.TemporaryDirectory(prefix="autotune-overhead-") as folder:
            trials = sharded_steps(Path(folder), processes=options.processes, repetitions=options.times)
        for step_s, hooks_s in trials:
            print(f"{1e3 * step_s:.2f} ms a step, of which hooks take {1e3 * hooks_s:.3f} ms: {hooks_s / step_s:.2%}")
        return 0
    if options.launched:
        with tempfile.TemporaryDirectory(prefix="autotune-overhead-") as folder:
            steps = {width: launched_steps(Path(folder), width=width, repetitions=options.times) for width in WIDTHS}
        for width, one in steps.items():
            print(
                f"width {width:3}, {one['plain_ms']:6.2f} ms a step: {one['launched']:.3f}x of plain Python when "
                f"launched; with plans {one['launched_with_plans']:.3f}x of a trial"
            )
        return 0
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
