"""What a user had before a study is the same after it: compile caches, through kills, and files, through studies.

``python tests/benchmarks/untouched.py --kills 20 --studies 20 --json``; exits with 1 if anything was harmed. A kill is
in the middle of a compilation: of the controller, of the run, or of everything. After each of them the user's caches
are compared and the plain script is run. Of the studies, every fourth has its controller killed and is not resumed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1] / "e2e/scripts"
COMPILES, WRITES = SCRIPTS / "compiled_by_script.py", SCRIPTS / "checkpoints.py"
# How long after the first sign of a compiler it is killed; on a core of today g++ takes seconds for a kernel.
MOST_S = 2.0
DEADLINE_S = 120.0
_COMPILERS = (b"cc1plus", b"g++", b"clang", b"collect2")


@dataclass
class Report:
    """What was found; the lists should be empty."""

    kills: int = 0
    studies: int = 0
    killed_studies: int = 0
    changed_caches: list[str] = field(default_factory=list)
    failed_scripts: list[str] = field(default_factory=list)
    failed_studies: list[str] = field(default_factory=list)
    changed_files: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Whether nothing was harmed."""
        return not (self.changed_caches or self.failed_scripts or self.failed_studies or self.changed_files)


def kill_compilations(folder: Path, report: Report, *, times: int, seed: int) -> None:
    """Kill runs of a script that compiles, and see what that did to the user's own caches."""
    chance = random.Random(seed)
    user = folder / "user"
    (user / "tmp").mkdir(parents=True)
    # Where torch compiles to, and where it keeps headers whatever it is told.
    variables = {"TORCHINDUCTOR_CACHE_DIR": str(user / "inductor"), "TMPDIR": str(user / "tmp")}
    assert plain(COMPILES, user, variables).returncode == 0
    before = contents(user)
    assert any("inductor" in name for name in before), "the script does not compile: the benchmark shows nothing"
    for number in range(times):
        victim = ("controller", "run", "everything")[number % 3]
        process = autotune(user, variables, "discover", COMPILES)
        if not wait_for_compiler(process, user):
            report.failed_studies.append((user / "stderr.log").read_text())
            break
        time.sleep(chance.uniform(0.0, MOST_S))
        kill(process, user, victim)
        process.wait(timeout=DEADLINE_S)
        wait_for_end(user)
        report.kills += 1
        report.changed_caches += [f"after kill {number} of {victim}: {name}" for name in differences(before, user)]
        print(f"kill {number} of {victim}: {report.changed_caches or 'nothing harmed'}", file=sys.stderr)
        if number % 5 == 4:
            after = plain(COMPILES, user, variables)
            if after.returncode != 0:
                report.failed_scripts.append(f"after kill {number} of {victim}: {after.stderr[-2000:]}")
            before = contents(user)  # the script itself may add to its cache
    process = autotune(user, variables, "discover", COMPILES)
    if process.wait(timeout=DEADLINE_S) != 0:
        report.failed_studies.append((user / "stderr.log").read_text())


def study_checkpoints(folder: Path, report: Report, *, times: int, seed: int) -> None:
    """Run studies of a script that writes checkpoints, logs and tables, and compare every file."""
    chance = random.Random(seed)
    user = folder / "files"
    user.mkdir()
    assert plain(WRITES, user, {}).returncode == 0
    (user / "checkpoints/previous.pt").write_bytes(b"precious")
    before = contents(user)
    options = ["--engine", "eager", "--max-trials", "1", "--repetitions", "1", "--batch-sizes", "8:16"]
    for number in range(times):
        process = autotune(user, {}, "run", "--study", f"study-{number}", *options, WRITES)
        if number % 4 == 3:
            time.sleep(chance.uniform(3.0, 12.0))
            kill(process, user, "controller")
            wait_for_end(user)
            report.killed_studies += 1
        elif process.wait(timeout=DEADLINE_S) not in (0, 1):  # 1: nothing better was found in so little time
            report.failed_studies.append((user / "stderr.log").read_text())
        process.wait(timeout=DEADLINE_S)
        report.studies += 1
        report.changed_files += [f"after study {number}: {name}" for name in differences(before, user)]
        print(f"study {number}: {report.changed_files or 'nothing changed'}", file=sys.stderr)


def contents(folder: Path) -> dict[str, str]:
    """Every file, link and folder but for our own, and what is in it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        # A compiler that is killed leaves its own temporary files, whose names nobody uses again.
        if name.startswith((".autotune", "autotune-", "stderr.log", "tmp/autotune", "tmp/cc")) or "/locks/" in name:
            continue
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest() + f" {path.stat().st_mtime_ns}"
        else:
            found[name] = "" if path.is_dir() else "other"
    return found


def differences(before: dict[str, str], folder: Path) -> list[str]:
    """What is not as it was."""
    after = contents(folder)
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def plain(script: Path, folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """``python script.py``, as its user runs it."""
    command = [sys.executable, str(script)]
    return subprocess.run(
        command, cwd=folder, env=environment(variables), capture_output=True, text=True, timeout=300, check=False
    )


def autotune(folder: Path, variables: dict[str, str], *arguments: str | Path) -> subprocess.Popen[bytes]:
    """The command line in a process group of its own, as a terminal would start it."""
    with (folder / "stderr.log").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "autotune", *map(str, arguments)],
            cwd=folder,
            env=environment(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )


def environment(variables: dict[str, str]) -> dict[str, str]:
    """What a process runs in."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "CUDA_VISIBLE_DEVICES": "", **variables}


def wait_for_compiler(process: subprocess.Popen[bytes], folder: Path) -> bool:
    """Wait until a compiler is at work in a run; False if the command has ended before."""
    deadline_s = time.monotonic() + DEADLINE_S
    while process.poll() is None and time.monotonic() < deadline_s:
        if any(name in command for command in processes_of(folder).values() for name in _COMPILERS):
            return True
        time.sleep(0.02)
    return False


def kill(process: subprocess.Popen[bytes], folder: Path, victim: str) -> None:
    """Kill the controller, all of the run but not the controller and its guard, or all of them."""
    for pid, command in processes_of(folder).items():
        is_controller, is_guard = pid == process.pid, b"autotune-guard" in command
        if victim == "everything" or is_controller == (victim == "controller"):
            if victim == "run" and is_guard:
                continue
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it went with another


def wait_for_end(folder: Path) -> None:
    """Wait until nothing of a run is left, and its guard has done its work."""
    deadline_s = time.monotonic() + DEADLINE_S
    while processes_of(folder) and time.monotonic() < deadline_s:
        time.sleep(0.05)


def processes_of(folder: Path) -> dict[int, bytes]:
    """The processes with the folder in their command line or environment, this one aside, and their command lines."""
    wanted, found = os.fsencode(folder), {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            about = command + (process / "environ").read_bytes() + os.fsencode((process / "cwd").readlink())
        except OSError:
            continue  # gone meanwhile, or somebody else's
        if wanted in about and process.name != str(os.getpid()):
            found[int(process.name)] = command
    return found


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--studies", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    report, began_s = Report(), time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    folder = Path(tempfile.mkdtemp(prefix="untouched-")).resolve()
    try:
        if options.kills:
            kill_compilations(folder, report, times=options.kills, seed=options.seed)
        if options.studies:
            study_checkpoints(folder, report, times=options.studies, seed=options.seed)
    finally:
        for pid in processes_of(folder):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
    report.seconds = round(time.monotonic() - began_s, 1)
    if options.json:
        print(json.dumps(asdict(report), indent=2))
    else:
        print(f"{report.kills} kills, {report.studies} studies ({report.killed_studies} killed), {report.seconds:g} s")
        for what in ("changed_caches", "failed_scripts", "failed_studies", "changed_files"):
            print(f"  {what.replace('_', ' ')}: {getattr(report, what) or 'none'}")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
