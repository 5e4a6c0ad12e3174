"""One sitting: take steps in their order for as long as there is time, and keep what each has found as it finds it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import psutil

from trials import lines
from trials.run import GOES_ON

from .folder import JOURNAL

ROOT = Path(__file__).resolve().parents[2]

Status = Literal["finished", "open", "failed"]
# A step is asked to end so long before the sitting ends, and killed at its end.
TO_END_S = 15.0
# What a step's process takes before it begins to count, imports of torch among it.
_TO_START_S = 5.0
_LOOKS_EVERY_S = 0.25
# Of what a step says, the screen has the end.
_LAST_LINES, _LONGEST_LINE = 12, 200


@dataclasses.dataclass(frozen=True)
class Step:
    """One thing to find out.

    Attributes:
        name: What the journal calls it.
        command: What finds it out; ``{seconds}`` in it becomes the seconds in which it has to end by itself. Exit
            status 0 is finished.
        least_s: With less time than this it is not begun.
        most_s: It is given no more than this in one sitting.
        finished_by: Exit statuses that say that it is finished.
        after: The step whose results it reads: it waits for that one, and is taken again when that one was. Empty for
            none.
        is_after_end: It waits for that one's end; otherwise for its first results only.
        is_of_code: What it finds out holds for the code that it ran, and for no other.
    """

    name: str
    command: tuple[str, ...]
    least_s: float
    most_s: float
    finished_by: frozenset[int] = frozenset({0})
    after: str = ""
    is_after_end: bool = True
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
    """What came of each step so far, and on which device: lines of JSON, written before anything follows from them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self, device: str) -> None:
        """Note that a sitting begins, and on which device.

        Raises:
            SystemExit: what is in the journal was found on another device.
        """
        before = self.device
        if before not in ("", device):
            raise SystemExit(
                f"What was found so far is of {before}, and this is {device}. Begin anew with --folder DIR --from DIR, "
                "in folders that are empty."
            )
        lines.append(self._path, {"device": device, "began_at": round(time.time())})

    @property
    def device(self) -> str:
        """The device that everything in it is of; empty where nothing is."""
        return next((line["device"] for line in lines.read(self._path) if "device" in line), "")

    def entries(self) -> list[Entry]:
        """What came of steps, the earliest first; lines with other fields are left out."""
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
        """Whether what a step comes after has not been taken, or has not ended, yet."""
        entries = self.entries()
        at = _last(entries, step.after)
        return bool(step.after) and (not _is_over(entries, at, code) if step.is_after_end else at < 0)


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
        state: the folder of the journal and the logs; steps run in it.
        ends_at: when it has to be over, by ``time.monotonic``.
        code: the code that runs, as ``code_of`` tells it.
        again: take what has failed with this code again as well, once.
        keep: called some times a second while a step runs, and after each.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        state: Path,
        *,
        ends_at: float,
        code: str,
        again: bool = False,
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        self._steps = steps
        self._state = state
        self._ends_at = ends_at
        self._code = code
        self._again = again
        self._keep = keep
        self.journal = Journal(state / JOURNAL)

    def take(self) -> list[Entry]:
        """Take the steps for which there is time; gives what came of each."""
        taken = []
        # What was known of other code comes last.
        for step in sorted(self._steps, key=self.journal.was_finished):
            if not self.journal.is_open(step, self._code, again=self._again):
                continue
            if self.journal.waits(step, self._code):
                print(f"-- {step.name}: left until {step.after!r} has {'ended' if step.is_after_end else 'begun'}")
                continue
            left_s = self._ends_at - time.monotonic() - TO_END_S
            if left_s < step.least_s:
                print(f"-- {step.name}: left for a sitting with {step.least_s:.0f} s, {max(left_s, 0):.0f} s are left")
                continue
            entry = self._run(step, min(left_s, step.most_s))
            self.journal.add(entry)
            self._keep()
            print(f"== {step.name}: {entry.status} in {entry.seconds:.0f} s", flush=True)
            taken.append(entry)
        return taken

    def _run(self, step: Step, seconds: float) -> Entry:
        """Run a step's command for so long at most; its output goes to a log, the end of it to the screen."""
        own_s = max(1.0, seconds - _TO_START_S)
        command = [part.replace("{seconds}", f"{own_s:.0f}") for part in step.command]
        print(f"== {step.name}, {seconds:.0f} s at most", flush=True)
        log = self._state / "logs" / (re.sub(r"[^\w.]+", "-", step.name) + ".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        beside = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
        began = time.monotonic()
        with log.open("a", encoding="utf-8") as output:
            output.write(f"$ {' '.join(command)}\n")
            output.flush()
            said_from = output.tell()
            process = subprocess.Popen(
                command, cwd=self._state, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                start_new_session=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(beside)},
            )  # fmt: skip
            running = running_in(self._state)
            running.write_text(json.dumps([process.pid, psutil.Process(process.pid).create_time()]))
            try:
                was_asked = self._end(process, seconds)
            except BaseException:
                _kill(process)
                self._keep()
                raise
            finally:
                running.unlink()
        text = log.read_bytes()[said_from:].decode(errors="replace").rstrip()
        print("\n".join(f"   {line[:_LONGEST_LINE]}" for line in text.split("\n")[-_LAST_LINES:]))
        status: Status = "failed"
        if process.returncode in step.finished_by:
            status = "finished"
        elif was_asked or process.returncode == GOES_ON:
            status = "open"
        took_s = round(time.monotonic() - began, 1)
        return Entry(step.name, status, took_s, None if process.returncode < 0 else process.returncode, self._code)

    def _end(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        """Wait for the end of a process, and see to it; True if it had to be asked to end."""
        if self._ends_within(process, seconds):
            return False
        # As Ctrl-C at a terminal: the processes that a step has started have to know as well.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        if not self._ends_within(process, TO_END_S):
            _kill(process)
        return True

    def _ends_within(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        ends_at = time.monotonic() + seconds
        while (left_s := ends_at - time.monotonic()) > 0:
            try:
                process.wait(min(left_s, _LOOKS_EVERY_S))
            except subprocess.TimeoutExpired:
                self._keep()
            else:
                return True
        return False


def running_in(state: Path) -> Path:
    """The file that names the process of the step that runs, while one does."""
    return state / "running.json"


def end_what_was_left(state: Path) -> None:
    """End the step of a sitting that was killed: it would be measured beside the next one."""
    try:
        pid, began = json.loads(running_in(state).read_text())
        if psutil.Process(pid).create_time() == began:
            os.killpg(pid, signal.SIGKILL)
    except (OSError, ValueError, psutil.Error):
        pass  # there is none


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and the processes that it has started, unless these have left its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
