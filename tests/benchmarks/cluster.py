"""Studies on a Ray cluster whose nodes are processes of this machine: what nodes that vanish cost, and what more bring.

Two parts. ``studies``: two `autotune run` at once on four nodes and one database, each of two runs at a time, while the
nodes are killed at random moments and others take their place; a controller is killed too, and `autotune resume` goes
on from another folder. Then the same script on this machine alone, for its figures. ``nodes``: trials per minute with
1, 2 and 4 nodes of a landscape whose trials wait instead of computing, so that nodes of one machine do not disturb each
other.

``python tests/benchmarks/cluster.py --kills 10 --json``; exits with 1 if anything was lost, measured twice or left.
With PostgreSQL: ``tests/with_postgresql.sh sh -c 'python tests/benchmarks/cluster.py --storage
"$AUTOTUNE_TEST_POSTGRESQL_URL"'``. Needs the extra ``ray``.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from autotune import pipeline  # noqa: E402
from autotune.records.outcome import Measured  # noqa: E402
from autotune.records.study import StudySpec  # noqa: E402
from autotune.store.database import open_store  # noqa: E402
from autotune.tuning.budget import Interruption  # noqa: E402
from tests.benchmarks import kill  # noqa: E402
from tests.fakes.landscape import Landscape  # noqa: E402
from tests.fakes.ray_cluster import RayCluster  # noqa: E402
from tests.fakes.watcher import FakeWatcher  # noqa: E402

PERIOD_S = 0.1
MOST_S = 900.0
# Time between two kills: most fall into a trial, some into a start.
KILLED_EVERY_S = (4.0, 16.0)
WAITING = """
from tests.fakes.landscape import Landscape, ENVIRONMENT as WHERE
landscape = Landscape()
for index, configuration in enumerate(run.request.configurations):
    run.progress("forward", index=index, steps=index)
    time.sleep({seconds})
    outcome = landscape.measure(configuration)
    run.progress("optimizer", index=index, steps=index + 1)
    run.line(Result(index, outcome, WHERE, os.getpid(), 0))
    if not isinstance(outcome, Measured):
        break
if run.request.mode == "discover":
    import dataclasses
    facts = dataclasses.replace(
        landscape.facts, script_sha256=run.request.script_sha256, fork_refusal="this worker cannot"
    )
    run.line(Described(facts, os.getpid()))
run.ended()
"""


@dataclass
class Report:
    """What was found; ``damage`` should have nothing in it."""

    nodes_killed: int = 0
    controllers_killed: int = 0
    seconds: float = 0.0
    trials: dict[str, int] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    damage: kill.Report = field(default_factory=kill.Report)


def studies(folder: Path, storage: str, *, kills: int, seed: int) -> Report:
    """Two studies at once whose nodes vanish, and one controller's end in the middle."""
    chance, report, began_s = random.Random(seed), Report(), time.monotonic()
    cluster = RayCluster(num_nodes=4)
    try:
        running: dict[int, subprocess.Popen[bytes]] = {}
        for number in (1, 2):
            (folder / str(number)).mkdir()
            running[number] = start(folder / str(number), storage, number, cluster.address)
        next_s = time.monotonic() + chance.uniform(*KILLED_EVERY_S)
        stored: dict[int, dict[int, Any]] = {1: {}, 2: {}}
        while running and time.monotonic() - began_s < MOST_S:
            time.sleep(0.5)
            for number, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[number]
                place = folder / str(number)
                if process.returncode == -signal.SIGKILL or is_for_lost_nodes(place):
                    # Somebody else goes on, elsewhere.
                    place = folder / f"{number}-{time.monotonic_ns()}"
                    place.mkdir()
                    running[number] = resume(place, storage, number, cluster.address)
                    (folder / str(number)).rename(folder / f"{number}-before-{time.monotonic_ns()}")
                    place.rename(folder / str(number))
                elif process.returncode != 0:
                    report.damage.failed_resumes.append((place / "stderr.log").read_text()[-2000:])
            if running and time.monotonic() > next_s and report.nodes_killed < kills:
                next_s = time.monotonic() + chance.uniform(*KILLED_EVERY_S)
                for number in running:
                    stored[number] = kill.compare(folder, storage, number, stored[number], report.damage)
                if report.nodes_killed == kills // 2 and not report.controllers_killed:
                    running[min(running)].kill()
                    report.controllers_killed += 1
                victim = cluster.nodes.pop(chance.randrange(len(cluster.nodes)))
                cluster.kill(victim)
                cluster.nodes.append(cluster.add())
                report.nodes_killed += 1
        for number, process in running.items():
            process.kill()
            report.damage.failed_resumes.append(f"study {number} did not end within {MOST_S:.0f} s")
    finally:
        cluster.close()
    report.seconds = round(time.monotonic() - began_s, 1)
    for number in (1, 2):
        kill.compare(folder, storage, number, stored[number], report.damage)
        kill.look_for_leftovers(storage, number, report.damage)
        note(storage, number, "cluster", report)
    report.damage.orphans += kill.orphans(folder)
    return report


def alone(folder: Path, storage: str, report: Report) -> None:
    """The same study on this machine, without a cluster."""
    (folder / "3").mkdir()
    start(folder / "3", storage, 3, None).wait(timeout=MOST_S)
    note(storage, 3, "alone", report)


def note(storage: str, number: int, where: str, report: Report) -> None:
    """What a study has measured: how many trials, how far its rates are from the script's, and what it answers."""
    record = kill.read(storage, number)
    if record is None:
        return
    name = f"{where}, study {number}"
    measured = [one.outcome.measurement for one in record.trials if isinstance(one.outcome, Measured)]
    shares = [
        statistics.fmean(one.samples_per_step) / statistics.median(one.step_times_s) / one.batch_size * PERIOD_S
        for one in measured
    ]
    report.trials[name] = sum(one.outcome is not None for one in record.trials)
    report.rates[name] = round(statistics.median(shares), 4)
    report.answers[name] = "none" if record.verdict is None else record.verdict.reason.text


def start(folder: Path, storage: str, number: int, address: str | None) -> subprocess.Popen[bytes]:
    """Start a study."""
    options = ["--study", kill.name(number), "--storage", storage, "--batch-sizes", "8:512", "--repetitions", "3"]
    options += ["--time-budget", "4m", "--max-trials", "16"]
    if address is not None:
        options += ["--cluster", address, "--cluster-files", "shared", "--devices", "0,1"]
    script = [str(kill.SCRIPT), "--", "--period-s", str(PERIOD_S)]
    return kill.autotune(folder, "run", *options, *script)


def resume(folder: Path, storage: str, number: int, address: str) -> subprocess.Popen[bytes]:
    """Go on with a study, from another folder."""
    on = ["--cluster", address, "--cluster-files", "shared"]
    return kill.autotune(folder, "resume", kill.name(number), "--storage", storage, *on)


def is_for_lost_nodes(folder: Path) -> bool:
    """Whether a command ended as it says that it should where nodes vanish one after the other."""
    text = (folder / "stderr.log").read_text()
    return "the node of a run was lost" in text or "room for 1 runs at once" in text


def nodes(folder: Path, counts: Sequence[int], *, wait_s: float, trials: int) -> dict[int, float]:
    """Trials per minute of a search on so many nodes, whose trials only wait."""
    found = {}
    for count in counts:
        place = folder / f"nodes-{count}"
        place.mkdir()
        cluster = RayCluster(num_nodes=count)
        try:
            found[count] = round(trials_per_minute(place, cluster, count, wait_s=wait_s, trials=trials), 1)
        finally:
            cluster.close()
    return found


class Clock(FakeWatcher):
    """Notes when the search began and ended, and ends the study with it."""

    def __init__(self, interruption: Interruption) -> None:
        super().__init__()
        self.interruption = interruption
        self.began_s = self.ended_s = 0.0

    def searching(self, space: Any) -> None:
        """The search begins."""
        super().searching(space)
        self.began_s = time.monotonic()

    def trial_ended(self, number: int, configuration: Any, outcome: Any) -> None:
        """A trial ended."""
        super().trial_ended(number, configuration, outcome)
        self.ended_s = time.monotonic()

    def search_ended(self, reason: str) -> None:
        """The search is over: confirmations are not what is timed here."""
        super().search_ended(reason)
        self.interruption.finish.set()


def trials_per_minute(folder: Path, cluster: RayCluster, count: int, *, wait_s: float, trials: int) -> float:
    """One search, from its beginning to the last trial's end."""
    script = folder / "train.py"
    script.write_text("import torch\n")
    spec = StudySpec(
        str(script),
        working_directory=str(folder),
        devices=tuple(range(count)),
        max_trials=trials,
        time_budget_s=3600.0,
        memory_limit_bytes=Landscape().limit_bytes,
    )
    interruption = Interruption()
    clock = Clock(interruption)
    with (
        contextlib.closing(
            cluster.launcher(folder, WAITING.format(seconds=wait_s), num_posts=count, leaves_files=False)
        ) as launcher,
        open_store(str(folder / "studies.db")) as store,
    ):
        pipeline.tune(
            store.create("waiting", spec),
            launcher=launcher,
            watcher=clock,
            interruption=interruption,
            runs=folder / "runs",
        )
    return 60 * len(clock.trials) / (clock.ended_s - clock.began_s)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("studies", "nodes"), action="append")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--storage", metavar="URL", help="a database for the studies, as of PostgreSQL")
    parser.add_argument("--wait-s", type=float, default=5.0, help="what a trial of the second part takes")
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    parts = options.part or ["studies", "nodes"]
    found: dict[str, Any] = {}
    good = True
    os.environ.pop("OMP_NUM_THREADS", None)
    with tempfile.TemporaryDirectory(prefix="autotune-cluster-") as made:
        folder = Path(made).resolve()
        if "studies" in parts:
            storage = options.storage or str(folder / "studies.db")
            report = studies(folder, storage, kills=options.kills, seed=options.seed)
            alone(folder, storage, report)
            found["studies"] = dataclasses.asdict(report)
            good = report.damage.good
        if "nodes" in parts:
            found["trials per minute"] = nodes(folder, (1, 2, 4), wait_s=options.wait_s, trials=options.trials)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        for part, values in found.items():
            print(part)
            for name, value in values.items():
                print(f"  {name}: {value}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
