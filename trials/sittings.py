"""Sittings on a GPU: measure what is not known yet, the most valuable first, for as long as there is time.

``python trials/sittings.py --budget 9m``, or ``make gpu BUDGET=9m``: a sitting takes the steps of ``steps`` in their
order. A step that is finished is never taken again, but for tests once the code has changed, after everything else. One
that failed is taken again once the code has changed, or with ``--again``. One that is cut off goes on at the next
sitting: each keeps what it has found as it finds it. All of that lies in the folder ``--state``, which may be carried
to another machine with such a device; the records that are to stay are written below ``--records``. Without a GPU the
same steps are taken in miniature on the CPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from autotune.records.units import parse_duration
from tests.fingerprint import code_of
from trials import lines
from trials.run import GOES_ON, Case, cases, cuda_memory_bytes, miniatures

ROOT = Path(__file__).resolve().parents[1]

Status = Literal["finished", "open", "failed"]
# The cases that answer most, in the order in which they are taken; the others follow.
FIRST = ("gpt2-24GB", "bert-large-40GB", "deberta-40GB")
# The peers of a CPU's sittings: those that compile take minutes for each batch size there.
ON_CPU = ("script", "checkpoint all", "checkpoint every 2nd", "by hand", "accelerate", "lightning", "transformers")
# A step is asked to end so long before the sitting ends, and killed at its end.
TO_END_S = 15.0


@dataclasses.dataclass(frozen=True)
class Step:
    """One thing to find out.

    Attributes:
        name: What the journal calls it.
        command: What finds it out; ``{seconds}`` in it becomes the seconds that are left. Exit status 0 is finished.
        least_s: With less time than this it is not begun.
        most_s: It is given no more than this in one sitting.
        finished_by: Exit statuses that say that it is finished.
        after: The step of which it needs what that has found: it waits for that one's end, and is taken again when that
            one was. Empty for none.
        is_of_code: What it finds out holds for the code that it ran, and for no other.
    """

    name: str
    command: tuple[str, ...]
    least_s: float
    most_s: float
    finished_by: frozenset[int] = frozenset({0})
    after: str = ""
    is_of_code: bool = False


@dataclasses.dataclass(frozen=True)
class Entry:
    """A line of the journal: what came of a step in one sitting.

    Attributes:
        step: Its name.
        status: ``open`` where it goes on at the next sitting.
        seconds: How long it took.
        exit_status: Of its command; None where it was killed.
        code: The code that it ran, as ``code_of`` tells it.
    """

    step: str
    status: Status
    seconds: float
    exit_status: int | None
    code: str


class Journal:
    """What came of each step so far: one line of JSON each in a file, written before anything follows from it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def entries(self) -> list[Entry]:
        """All of them, the earliest first; those of another version's fields are left out."""
        found = []
        for line in lines.read(self._path):
            try:
                found.append(Entry(**line))
            except TypeError:
                continue
        return found

    def add(self, entry: Entry) -> None:
        """Write one, on the disk when this returns."""
        lines.append(self._path, dataclasses.asdict(entry))

    def is_open(self, step: Step, code: str, *, again: bool = False) -> bool:
        """Whether there is anything left to find out by a step with that code; ``again``: failures are to be."""
        entries = self.entries()
        at = _last(entries, step.name)
        return (
            not _is_over(entries, at, None if again else code)
            or (step.is_of_code and entries[at].code != code)
            or _last(entries, step.after) > at
        )

    def was_finished(self, step: Step) -> bool:
        """Whether it was finished at its end, with whatever code."""
        entries = self.entries()
        at = _last(entries, step.name)
        return at >= 0 and entries[at].status == "finished"

    def waits(self, step: Step, code: str) -> bool:
        """Whether what a step comes after has not ended yet."""
        entries = self.entries()
        return bool(step.after) and not _is_over(entries, _last(entries, step.after), code)


def _last(entries: Sequence[Entry], step: str) -> int:
    """Where the latest entry of a step is, -1 without one."""
    return max((at for at, entry in enumerate(entries) if entry.step == step), default=-1)


def _is_over(entries: Sequence[Entry], at: int, code: str | None) -> bool:
    if at < 0:
        return False
    return entries[at].status == "finished" or (entries[at].status == "failed" and entries[at].code == code)


class Sitting:
    """One sitting.

    Args:
        steps: in their order.
        state: the folder of the journal and the logs.
        budget_s: how long it may take.
        code: the code that runs, as ``code_of`` tells it.
        again: take what has failed with this code again as well, once.
    """

    def __init__(self, steps: Sequence[Step], state: Path, *, budget_s: float, code: str, again: bool = False) -> None:
        self._steps = steps
        self._state = state
        self._ends_at = time.monotonic() + budget_s
        self._code = code
        self._again = again
        self._running = state / "running.json"
        self.journal = Journal(state / "journal.jsonl")

    def take(self) -> list[Entry]:
        """Take the steps for which there is time; gives what came of each."""
        self._end_what_was_left()
        taken = []
        # What was known of other code comes last.
        for step in sorted(self._steps, key=self.journal.was_finished):
            if not self.journal.is_open(step, self._code, again=self._again):
                continue
            if self.journal.waits(step, self._code):
                print(f"-- {step.name}: left until {step.after!r} has ended")
                continue
            left_s = self._ends_at - time.monotonic() - TO_END_S
            if left_s < step.least_s:
                print(f"-- {step.name}: left for a sitting with {step.least_s:.0f} s, {max(left_s, 0):.0f} s are left")
                continue
            entry = self._run(step, min(left_s, step.most_s))
            self.journal.add(entry)
            print(f"== {step.name}: {entry.status} in {entry.seconds:.0f} s", flush=True)
            taken.append(entry)
        return taken

    def _end_what_was_left(self) -> None:
        """End the step of a sitting that was killed: it would be measured beside the next one."""
        try:
            pid, began = json.loads(self._running.read_text())
            if psutil.Process(pid).create_time() == began:
                os.killpg(pid, signal.SIGKILL)
        except (OSError, ValueError, psutil.Error):
            pass  # there is none

    def _run(self, step: Step, seconds: float) -> Entry:
        """Run a step's command for so long at most; its output goes to a log and to the screen."""
        command = [part.replace("{seconds}", f"{seconds:.0f}") for part in step.command]
        print(f"== {step.name}, {seconds:.0f} s at most\n$ {' '.join(command)}", flush=True)
        log = self._state / "logs" / (re.sub(r"[^\w.]+", "-", step.name) + ".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        beside = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))  # packages that were brought along
        began = time.monotonic()
        with log.open("a", encoding="utf-8") as output:
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                start_new_session=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(beside)},
            )  # fmt: skip
            self._running.write_text(json.dumps([process.pid, psutil.Process(process.pid).create_time()]))
            try:
                was_asked = _ended(process, seconds)
            except BaseException:
                _kill(process)
                raise
            finally:
                self._running.unlink()
        text = log.read_text(encoding="utf-8", errors="replace").rstrip()
        print("\n".join(text.split("\n")[-8:]))
        status: Status = "failed"
        if process.returncode in step.finished_by:
            status = "finished"
        elif was_asked or process.returncode == GOES_ON:
            status = "open"
        took_s = round(time.monotonic() - began, 1)
        return Entry(step.name, status, took_s, None if process.returncode < 0 else process.returncode, self._code)


def _ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the end of a process, and see to it; True if it had to be asked to end."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(TO_END_S)
        except subprocess.TimeoutExpired:
            _kill(process)
        return True
    return False


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and the processes that it has started, unless these have left its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def test_step(name: str, state: Path, *selection: str, least_s: float, most_s: float) -> Step:
    """Run tests that have not passed yet, with the interpreter and the packages that are there."""
    # Warnings of other versions than those that CI has are no failures here.
    options = ("-q", "-o", "filterwarnings=default", "-p", "no:cacheprovider")
    remember = ("-p", "tests.remembering", "--remember", str(state / "tests.jsonl"), "--longest", "240")
    command = (sys.executable, "-m", "pytest", *options, *remember, "-m", "gpu", *selection)
    # 5: all of them have passed before.
    return Step(name, command, least_s, most_s, frozenset({0, 5}), is_of_code=True)


def steps(state: Path, records: Path, *, memory_bytes: int | None) -> list[Step]:
    """What there is to find out on a GPU with so much memory, the most valuable first; None is for the CPU."""
    of_meter = "tests/contract/test_memory_meter.py"
    if memory_bytes is None:
        noise = noise_step("charlm-miniature", "4,32", records, "--rounds", "3")
        on_cpu = [word for name in ON_CPU for word in ("--peer", name)]
        studies = [study_step(case, state) for case in miniatures()]
        return [noise, *studies, *(peers_step(case, state, records, *on_cpu) for case in miniatures())]
    first = ("-k", "nvml or forked or reports_the_device or memory_meter", "tests/gpu", of_meter)
    fitting = [case for case in cases("cuda") if case.is_for(memory_bytes)]
    fitting.sort(key=lambda case: FIRST.index(case.name) if case.name in FIRST else len(FIRST))
    return [
        test_step("tests: fork server and NVML", state, *first, least_s=60.0, most_s=150.0),
        test_step("tests: plans and gradients", state, "tests/gpu", of_meter, least_s=60.0, most_s=500.0),
        # Small batches are bound by launches, large ones by the GPU.
        noise_step("charlm", "4,512", records, "--rounds", "6"),
        *(study_step(case, state) for case in fitting),
        *(peers_step(case, state, records) for case in fitting),
        landscape_step(state),
        *(more_peers_step(case, state, records) for case in fitting),
    ]


def study_step(case: Case, state: Path) -> Step:
    """A case's study, which goes on where it stopped."""
    command = (sys.executable, "trials/run.py", case.name, "--within", "{seconds}s")
    command += (*(["--check"] if case.expected else []), "--storage", _storage(state), "--output", str(state))
    return Step(f"study: {case.name}", command, min(150.0, case.needed_s / 2), case.needed_s)


def peers_step(case: Case, state: Path, records: Path, *options: str) -> Step:
    """A case's peers in as few rounds as tell anything, with its study's answer among them."""
    command = (*_peers(case, state, records), "--rounds", "3", *options)
    return Step(f"peers: {case.name}", command, 60.0, 500.0, after=f"study: {case.name}")


def more_peers_step(case: Case, state: Path, records: Path) -> Step:
    """The rest of the rounds of a case's peers."""
    after = f"peers: {case.name}"
    return Step(f"more rounds of {after}", _peers(case, state, records), 60.0, 500.0, after=after)


def _peers(case: Case, state: Path, records: Path) -> tuple[str, ...]:
    command = (sys.executable, "-m", "tests.benchmarks.peers", case.name, "--budget", "{seconds}s")
    return (*command, "--records", str(records), "--study", case.name, "--storage", _storage(state))


def _storage(state: Path) -> str:
    return f"sqlite:///{state / 'studies.db'}"


def noise_step(workload: str, batch_sizes: str, records: Path, *options: str) -> Step:
    """How far runs of one and the same thing scatter."""
    command = (sys.executable, "-m", "tests.benchmarks.noise", workload, "--batch-sizes", batch_sizes)
    command += ("--records", str(records), "--budget", "{seconds}s", *options)
    return Step(f"noise: {workload}", command, 60.0, 200.0)


def landscape_step(state: Path) -> Step:
    """Every configuration of a small space, really run, for the benchmark of the search."""
    record = "tests/benchmarks/landscapes/record.py"
    script = ("trials/gpt2/train.py", "--", "--steps", "100000")
    options = ("--batch-sizes", "4,8,16,32", "--fits", "0.7", "--passes", "2", "--output", str(state))
    options += ("--keep", str(state / "landscape-gpt2.json"), "--within", "{seconds}s")
    return Step("landscape: gpt2", (sys.executable, record, "recorded-gpt2-gpu", *options, *script), 120.0, 520.0)


def main() -> int:
    """Hold a sitting; gives how many of its steps failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", default="9m", metavar="TIME", help="how long it may take, as in 9m; default: 9m")
    parser.add_argument(
        "--state", type=Path, default=ROOT / "build/sittings", metavar="DIR", help="what it goes on from"
    )
    parser.add_argument("--records", type=Path, default=ROOT / "trials/records", metavar="DIR", help="what is to stay")
    parser.add_argument("--list", action="store_true", help="only say what is left")
    parser.add_argument("--again", action="store_true", help="take what failed again, though the code is the same")
    options = parser.parse_args()
    state, code = options.state.resolve(), code_of(ROOT / "autotune", ROOT / "trials", ROOT / "tests")
    left = steps(state, options.records.resolve(), memory_bytes=cuda_memory_bytes())
    if options.list:
        journal = Journal(state / "journal.jsonl")
        print("\n".join(f"{step.name}: {'left' if journal.is_open(step, code) else 'known'}" for step in left))
        return 0
    taken = Sitting(left, state, budget_s=parse_duration(options.budget), code=code, again=options.again).take()
    return sum(entry.status == "failed" for entry in taken)


if __name__ == "__main__":
    sys.exit(main())
