"""Kill -9 a study's processes at random moments, resume it each time, and look for what that lost or left.

``python tests/benchmarks/kill.py --times 20 --json``; exits with 1 if anything was lost or left. Every other kill hits
the controller, the others a worker or a fork server. The database is an SQLite file, or with ``--storage URL`` another:
``tests/with_postgresql.sh sh -c 'python tests/benchmarks/kill.py --storage "$AUTOTUNE_TEST_POSTGRESQL_URL"'``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
from optuna.trial import TrialState

from autotune.errors import StorageError
from autotune.machine.interpreter import WORKER
from autotune.records.outcome import Outcome
from autotune.records.study import StudyRecord
from autotune.store.database import open_store

SCRIPT = Path(__file__).resolve().parents[1] / "e2e/scripts/known_rate.py"
# A moment is so many trials of the search after the start, and then a part of the time that one takes. None at all
# is in the start-up, before the database is there, or in discovery.
MOST_TRIALS, MOST_S = 3, 2.5
_TRIAL_LINE = re.compile(rb"^ +\d+ ", re.MULTILINE)
# The guard sweeps twice, a second apart.
PATIENCE_S = 15.0


@dataclass
class Report:
    """What was found; all but the numbers should be empty."""

    kills: int = 0
    workers: int = 0
    stored: int = 0
    lost: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    measured_twice: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    failed_resumes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Whether nothing was lost or left."""
        return not (self.lost or self.running or self.measured_twice or self.orphans or self.failed_resumes)


def kill_studies(folder: Path, storage: str, *, times: int, seed: int, share_of_workers: float) -> Report:
    """Kill processes of a study ``times`` times; a study that gets to its end is followed by another one."""
    chance, report, began_s = random.Random(seed), Report(), time.monotonic()
    number = 1
    stored: dict[int, Outcome] = {}
    while report.kills < times and not report.failed_resumes:
        process = start(folder, storage, number)
        workers_before, shown = report.workers, 0
        while process.poll() is None and report.kills < times:
            shown += chance.randint(0, MOST_TRIALS)
            wait_for_trials(process, folder, shown)
            try:
                process.wait(timeout=chance.uniform(0.0, MOST_S))
            except subprocess.TimeoutExpired:
                report.kills += 1
                if chance.random() < share_of_workers and kill_worker(process.pid, chance):
                    report.workers += 1
                    continue
                process.send_signal(signal.SIGKILL)
                process.wait()
        if process.poll() is None:  # the last kill hit a worker
            process.send_signal(signal.SIGKILL)
            process.wait()
        ended = process.returncode != -signal.SIGKILL
        # A script whose own run was killed could not be measured as it stands; the next start measures it.
        if ended and process.returncode != 0 and report.workers == workers_before:
            report.failed_resumes.append((folder / "stderr.log").read_text())
        report.orphans += orphans(folder)
        stored = compare(folder, storage, number, stored, report)
        if (ended and process.returncode == 0) or report.kills == times:
            if read(storage, number) is None:
                break  # the last kill came before there was a study
            finish(folder, storage, number, report)
            compare(folder, storage, number, stored, report)
            look_for_leftovers(storage, number, report)
            stored = {}
            number += 1
    report.seconds = round(time.monotonic() - began_s, 1)
    return report


def kill_worker(controller: int, chance: random.Random) -> bool:
    """Kill one of the processes that the controller has started to run the script; False if there is none."""
    try:
        family = psutil.Process(controller).children(recursive=True)
        workers = [one for one in family if any(str(WORKER) in word for word in one.cmdline())]
        if not workers:
            return False
        chance.choice(workers).kill()
    except psutil.Error:  # gone meanwhile
        return False
    return True


def wait_for_trials(process: subprocess.Popen[bytes], folder: Path, number: int) -> None:
    """Wait until so many trials were shown, or until there is nothing more to wait for."""
    deadline_s = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline_s:
        if len(_TRIAL_LINE.findall((folder / "stderr.log").read_bytes())) >= number:
            return
        time.sleep(0.02)


def start(folder: Path, storage: str, number: int) -> subprocess.Popen[bytes]:
    """Start or resume a study."""
    options = ["--study", name(number), "--storage", storage, "--batch-sizes", "8:64", "--repetitions", "1"]
    script = [str(SCRIPT), "--", "--period-s", "0.005", "--steps", "4000"]
    return autotune(folder, "run", *options, *script)


def finish(folder: Path, storage: str, number: int, report: Report) -> None:
    """Resume a study once more, and let it end by itself."""
    process = autotune(folder, "resume", name(number), "--storage", storage, "--time-budget", "20s")
    if process.wait(timeout=180) != 0:
        report.failed_resumes.append((folder / "stderr.log").read_text())
    report.orphans += orphans(folder)


def autotune(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """The command line in a process group of its own, as a terminal would start it."""
    quiet = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "CUDA_VISIBLE_DEVICES": ""}
    with (folder / "stderr.log").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "autotune", *arguments],
            cwd=folder,
            env=os.environ | quiet,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )


def compare(folder: Path, storage: str, number: int, before: dict[int, Outcome], report: Report) -> dict[int, Outcome]:
    """Note what is no longer as it was stored; gives what is stored now."""
    record = read(storage, number)
    now = {} if record is None else {one.number: one.outcome for one in record.trials if one.outcome is not None}
    report.lost += [f"{name(number)}, trial {trial}" for trial, outcome in before.items() if now.get(trial) != outcome]
    report.stored += len(now.keys() - before.keys())
    return now


def look_for_leftovers(storage: str, number: int, report: Report) -> None:
    """Look for trials that nobody runs any more and that say otherwise, and for configurations measured twice."""
    record = read(storage, number)
    if record is None:
        report.failed_resumes.append(f"{name(number)} is not there")
        return
    report.running += [f"{record.name}, trial {one.number}" for one in record.trials if one.state == "running"]
    keys = [one.configuration.key for one in record.trials if one.outcome is not None]
    report.measured_twice += [f"{record.name}, {key}" for key in sorted({key for key in keys if keys.count(key) > 1})]
    with open_store(storage, create=False) as store:
        trials = store.open(record.name).optuna.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        report.running += [f"{record.name}, Optuna's trial {one.number}" for one in trials]


def read(storage: str, number: int) -> StudyRecord | None:
    """The study as it is stored; None if the controller was killed before it had made it."""
    try:
        with open_store(storage, create=False) as store:
            return store.open(name(number)).record()
    except StorageError:
        return None


def name(number: int) -> str:
    """The name of one of the studies."""
    return f"killed-{number}"


def orphans(folder: Path) -> list[str]:
    """The processes that still work in the folder's runs, once the guard had its time."""
    deadline_s = time.monotonic() + PATIENCE_S
    while (left := processes_of(folder)) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return left


def processes_of(folder: Path) -> list[str]:
    """Every process that has the folder in its command line or its environment, this one aside."""
    wanted, found = os.fsencode(folder), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            about = command + (process / "environ").read_bytes()
        except OSError:
            continue  # gone meanwhile, or somebody else's
        if wanted in about and process.name != str(os.getpid()):
            found.append(f"{process.name}: {command.replace(bytes(1), b' ').decode(errors='replace').strip()}")
    return found


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--storage", metavar="URL", help="a database whose studies may be killed")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotune-kill-") as folder:
        storage = options.storage or str(Path(folder).resolve() / "killed.db")
        report = kill_studies(
            Path(folder).resolve(), storage, times=options.times, seed=options.seed, share_of_workers=0.5
        )
    if options.json:
        print(json.dumps(asdict(report), indent=2))
    else:
        kills = f"{report.kills} kills, {report.workers} of them of workers"
        print(f"{kills}, {report.stored} trials stored, {report.seconds:g} s")
        for what in ("lost", "running", "measured_twice", "orphans", "failed_resumes"):
            print(f"  {what.replace('_', ' ')}: {getattr(report, what) or 'none'}")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
