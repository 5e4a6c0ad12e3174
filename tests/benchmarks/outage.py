"""Take a study's database away for a while, and look for what that lost or had measured twice.

``python tests/benchmarks/outage.py --seconds 60 --json`` starts a PostgreSQL server of its own, and a study that uses
it for each way in which a server can be gone: ``stop`` (it is shut down, and started again), ``crash`` (it is killed,
and started again), ``freeze`` (it takes what is sent to it and does not answer). Exits with 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psycopg

from autotune.records.codec import loads
from autotune.records.run import Line, Result
from tests.benchmarks.kill import SCRIPT, Report, autotune, look_for_leftovers, name, read, wait_for_trials

WAYS = ("stop", "crash", "freeze")
_START = Path(__file__).resolve().parents[1] / "with_postgresql.sh"
_SLOW_S = 50.0
_NEXT_ASKED_S = 90.0
_GONE, _BACK = "does not answer; waiting for it", "answers again"


@dataclass
class Outage:
    """What one study came to; all but the numbers should be empty."""

    way: str
    seconds: float
    trials: int = 0
    measured: int = 0
    took_s: float = 0.0
    said: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Server:
    """A PostgreSQL server of our own, which can be taken away."""

    def __init__(self, url: str) -> None:
        self.url = url
        with psycopg.connect(url) as connection:
            (folder,) = connection.execute("SHOW data_directory").fetchone() or ("",)
            (programs,) = connection.execute("SELECT setting FROM pg_config WHERE name = 'BINDIR'").fetchone() or ("",)
        self._folder, self._control = Path(folder), Path(programs) / "pg_ctl"
        # As it was started; pg_ctl forgets that when it stops a server.
        self._options = shlex.split((self._folder / "postmaster.opts").read_text())[3:]

    @contextmanager
    def gone(self, way: str) -> Iterator[None]:
        """In the block, the server is gone."""
        family = self._processes()
        if way == "freeze":
            self._send(family, signal.SIGSTOP)
            yield
            self._send(family, signal.SIGCONT)
            return
        self._pg_ctl("stop", "--mode", "fast" if way == "stop" else "immediate")
        yield
        options = shlex.join(self._options)
        self._pg_ctl("start", "--wait", "--timeout", "60", "--log", str(self._folder.parent / "log"), "-o", options)

    def _processes(self) -> list[int]:
        """The server, and those that it has started; with the server last, which starts more."""
        main = int((self._folder / "postmaster.pid").read_text().splitlines()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text()
        return [*map(int, children.split()), main]

    @staticmethod
    def _send(processes: list[int], number: signal.Signals) -> None:
        for process in reversed(processes):
            os.kill(process, number)

    def _pg_ctl(self, *words: str) -> None:
        owner = ["runuser", "-u", self._folder.owner(), "--"] if os.geteuid() == 0 else []
        command = [*owner, str(self._control), "--pgdata", str(self._folder), *words]
        subprocess.run(command, check=True, cwd=self._folder.parent, stdout=subprocess.DEVNULL)


@contextmanager
def own_server() -> Iterator[Server | None]:
    """A server that nobody else uses; None where PostgreSQL is not installed."""
    command = [str(_START), "sh", "-c", 'echo "$AUTOTUNE_TEST_POSTGRESQL_URL"; exec cat']
    variables = {key: value for key, value in os.environ.items() if key != "AUTOTUNE_TEST_POSTGRESQL_URL"}
    with subprocess.Popen(
        command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        url = process.stdout.readline().strip()
        try:
            yield Server(url) if url else None
        finally:
            process.stdin.close()


def go_through(folder: Path, server: Server, number: int, way: str, *, seconds: float, chance: random.Random) -> Outage:
    """Run a study to its end, with the database gone for so long in the middle of its search."""
    began_s, outage = time.monotonic(), Outage(way, seconds)
    options = ["--study", name(number), "--storage", server.url, "--batch-sizes", "8:64", "--rounds", "3"]
    budget = f"{round(60 + 2 * seconds)}s"
    script = [str(SCRIPT), "--", "--period-s", "0.005", "--steps", "4000"]
    process = autotune(folder, "run", *options, "--time-budget", budget, *script)
    try:
        wait_for_trials(process, folder, 1)
        time.sleep(chance.uniform(0.0, 1.0))
        with server.gone(way):
            time.sleep(seconds)
            if is_told(way, seconds):
                wait_until_told(process, folder)
        code = process.wait(timeout=180 + 2 * seconds)
    finally:
        process.kill()
        process.wait()
    said = (folder / "stderr.log").read_text()
    outage.said = [line for line in said.splitlines() if _GONE in line or _BACK in line]
    outage.wrong = wrong(folder, server.url, number)
    if code not in (0, 1):  # 1: the script as it is turned out the best
        outage.wrong.append(f"exit code {code}: {said[-2000:]}")
    expected = [True, False] if is_told(way, seconds) else []
    if [_GONE in line for line in outage.said] != expected:
        outage.wrong.append(f"it said {outage.said}")
    record = read(server.url, number)
    outage.trials = 0 if record is None else sum(trial.outcome is not None for trial in record.trials)
    outage.measured = sum(results(folder, number).values())
    outage.took_s = round(time.monotonic() - began_s, 1)
    return outage


def is_told(way: str, seconds: float) -> bool:
    """Whether a study says that its database is gone; a frozen server is waited for like a slow one first."""
    return way != "freeze" or seconds >= _SLOW_S


def wait_until_told(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Return once a study has said that its database is gone: it asks only between runs, which take their time."""
    deadline_s = time.monotonic() + _NEXT_ASKED_S
    while _GONE not in (folder / "stderr.log").read_text() and process.poll() is None:
        if time.monotonic() > deadline_s:
            return
        time.sleep(0.1)


def wrong(folder: Path, url: str, number: int) -> list[str]:
    """What was measured and is not stored, stored twice, or still said to run; empty if all is well."""
    report = Report()
    look_for_leftovers(url, number, report)
    found = [f"running: {one}" for one in report.running] + [f"twice: {one}" for one in report.measured_twice]
    record = read(url, number)
    if record is None or record.verdict is None:
        return [*found, "it came to no verdict"]
    stored = Counter(Path(one.run_directory).name for one in record.trials if one.outcome is not None)
    stored += Counter(Path(one.run_directory).name for one in record.repeats)
    # None of the study's trials: it stands in the answer.
    stored += Counter(["compiled"] if record.verdict.compiled is not None else [])
    measured = results(folder, number)
    found += [
        f"{run}: {measured[run]} measured, {stored[run]} stored" for run in measured if measured[run] != stored[run]
    ]
    return found


def results(folder: Path, number: int) -> Counter[str]:
    """How many outcomes each run of a study has written, but for those of proofs."""
    found: Counter[str] = Counter()
    for path in (folder / ".autotune/runs" / name(number)).glob("*/results.jsonl"):
        lines = [loads(Line, line, where=str(path)) for line in path.read_text().splitlines()]
        found[path.parent.name] += sum(isinstance(line, Result) for line in lines)
    return +found


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the database is gone")
    parser.add_argument("--way", choices=WAYS, action="append", help="one of the ways; all of them by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder, chance = Path(tempfile.mkdtemp(prefix="autotune-outage-")).resolve(), random.Random(options.seed)
    try:
        with own_server() as server:
            if server is None:
                print("PostgreSQL is not installed", file=sys.stderr)
                return 1
            outages = [
                go_through(folder, server, number, way, seconds=options.seconds, chance=chance)
                for number, way in enumerate(options.way or WAYS, start=1)
            ]
    finally:
        shutil.rmtree(folder)
    if options.json:
        print(json.dumps([asdict(one) for one in outages], indent=2))
    else:
        for one in outages:
            counts = f"{one.trials} trials stored, {one.measured} outcomes measured in all, {one.took_s:g} s"
            print(f"{one.way} for {one.seconds:g} s: {counts}")
            for line in [*one.said, *(f"WRONG: {what}" for what in one.wrong)]:
                print(f"  {line}")
    return 1 if any(one.wrong for one in outages) else 0


if __name__ == "__main__":
    sys.exit(main())
