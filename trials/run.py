"""Run reference studies: ``python trials/run.py gpt2-24GB`` tunes ``trials/gpt2/train.py`` as its ``study.toml`` says.

A *case* is a workload, which is a folder here, under one memory limit. ``study.toml`` has the options of ``autotune
run``: at top level those for every device, in tables ``[cpu]`` and ``[cuda]`` what a device has on top, and in tables
such as ``[cuda.24GB]`` what a limit of it has on top. A device with such tables has a case for each (``gpt2-24GB``),
one without them has a single case (``charlm``). ``arguments`` are the script's own. Instead of ``memory_limit`` a table
may have ``spare``: what trials may take beyond what the script takes as it is. That is for CPUs, as builds of torch
differ by hundreds of MiB there.
``expected.toml`` has the same tables: the facts that must hold.

``--list`` prints the cases and their commands, ``--check`` compares outcomes with ``expected.toml``. ``--within TIME``
is for sittings: studies end by then, and the exit status is 75 if one has to go on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# From a checkout too, where autotune is not installed (make gpu).
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from autotune.records.units import format_bytes, parse_bytes, parse_duration

HERE = Path(__file__).resolve().parent
# EX_TEMPFAIL of sysexits.h: the same command goes on.
GOES_ON = 75
# On top of its time budget a study takes a tenth of that at most (autotune/tuning/budget.py), and starts several times.
_BEYOND_BUDGET = 1.1
_STARTS_S = 30.0
# What scripts took by themselves, in the folder of the studies.
REMEMBERED = Path(".autotune/taken.json")
# The heap has its size after some steps.
_STEPS_FOR_PEAK = 8
_LONGEST_S = 300.0
# A process of its own runs the script: a started process counts its starter's memory as its own peak (execve, Linux).
_MEASURE_PEAK = f"""
import resource, subprocess, sys
status = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL, timeout={_LONGEST_S})
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status != 0)
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A workload under one memory limit of one device: what one study is of.

    ``limit`` is the limit's name, such as ``24GB``; empty where the device has none by name. ``options`` are those of
    ``autotune run``, ``arguments`` the script's own, ``expected`` the facts that must hold.
    """

    workload: str
    device: str
    limit: str
    options: Mapping[str, Any]
    arguments: tuple[str, ...]
    expected: Mapping[str, Any]
    spare: str = ""

    @property
    def name(self) -> str:
        """Unique among the cases of a device: ``gpt2-24GB``, ``charlm``."""
        return f"{self.workload}-{self.limit}" if self.limit else self.workload

    @property
    def script(self) -> Path:
        """From the folder that the user is in, where it is below that."""
        path = HERE / self.workload / "train.py"
        return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path

    @property
    def limit_bytes(self) -> int | None:
        """What a trial may take; None: what the device has."""
        limit = self.options.get("memory_limit")
        return None if limit is None else parse_bytes(limit)

    @property
    def needed_s(self) -> float:
        """How long its study takes at most, if it is given the time budget that it asks for."""
        return parse_duration(self.options["time_budget"]) * _BEYOND_BUDGET + _STARTS_S

    def with_limit(self, remembered: Path = REMEMBERED) -> Case:
        """Give the case a memory limit of its own where ``spare`` asks for one: the script is run, for some steps.

        What it took is remembered, as long as script and interpreter are the same, so that a study can be gone on with.
        """
        if not self.spare:
            return self
        known = json.loads(remembered.read_text()) if remembered.exists() else {}
        key = f"{hashlib.sha256(self.script.read_bytes()).hexdigest()} {sys.executable}"
        if key not in known:
            print(f"Running {self.script} for {_STEPS_FOR_PEAK} steps, to measure its peak memory ...", flush=True)
            known[key] = self._peak_bytes()
            remembered.parent.mkdir(parents=True, exist_ok=True)
            remembered.write_text(json.dumps(known))
        limit_mib = (known[key] + parse_bytes(self.spare)) >> 20
        print(f"It peaks at {format_bytes(known[key])}. The study's limit is {limit_mib} MiB.", flush=True)
        return replace(self, spare="", options={**self.options, "memory_limit": f"{limit_mib}MiB"})

    def _peak_bytes(self) -> int:
        """Measure the largest resident set of the script as it is."""
        script = (sys.executable, str(self.script), *self.arguments, "--steps", str(_STEPS_FOR_PEAK))
        told = subprocess.run(
            (sys.executable, "-c", _MEASURE_PEAK, *script), check=False, text=True, stdout=subprocess.PIPE
        )
        if told.returncode:
            raise SystemExit(
                f"{self.script} failed by itself or took more than {_LONGEST_S:.0f} s: run {shlex.join(script)}"
            )
        return int(told.stdout) * 1024

    def is_for(self, memory_bytes: int | None) -> bool:
        """Whether a device with so much memory can have the limit; None is for the CPU."""
        return memory_bytes is None or (self.limit_bytes or 0) <= memory_bytes

    def command(self, *, output: Path = Path(), prints_json: bool = False, **changed: Any) -> list[str]:
        """The whole command of the case's study; its bundle goes into ``output``.

        ``changed`` are options that differ from ``study.toml``, such as ``time_budget="1m"``; None takes one out.
        """
        options = {**({"study": self.name} if self.limit else {}), **self.options, **changed}
        words = [sys.executable, "-m", "autotune", "run", str(self.script)]
        words += [word for key, value in options.items() if value is not None for word in _option(key, value)]
        words += ["--output", str(output / f"autotune-{self.name}"), *(["--json"] if prints_json else [])]
        return [*words, *(["--", *self.arguments] if self.arguments else [])]


def _option(key: str, value: Any) -> list[str]:
    flag = f"--{key.replace('_', '-')}"
    return [flag] if value is True else [flag, str(value)]


def cases(device: str, names: Iterable[str] = (), *, folder: Path = HERE) -> tuple[Case, ...]:
    """The cases of ``device``, ``cpu`` or ``cuda``, by name of workload and then from the smallest limit.

    ``names`` are of cases, or of workloads for all of their cases; none stands for all but miniatures. Raises
    SystemExit for a name that is neither.
    """
    wanted = tuple(names)
    found = [case for path in sorted(folder.glob("*/study.toml")) for case in _cases_of(path.parent, device)]
    if device == "cpu":
        found += [one for one in miniatures() if one.name in wanted]
    for name in wanted:
        if not any(name in (case.name, case.workload) for case in found):
            raise SystemExit(f"no case {name!r} on {device}; there are {', '.join(case.name for case in found)}")
    return tuple(case for case in found if not wanted or case.name in wanted or case.workload in wanted)


def miniatures() -> tuple[Case, ...]:
    """Workloads in sizes for a CPU, each under a limit that bites."""
    told = tomllib.loads((HERE / "miniature.toml").read_text())
    return tuple(
        Case(
            workload=workload,
            device="cpu",
            limit="miniature",
            arguments=tuple(table.pop("arguments")),
            options=table,
            expected={},
        )
        for workload, table in told.items()
    )


def _cases_of(folder: Path, device: str) -> list[Case]:
    study, expected = (tomllib.loads((folder / name).read_text()) for name in ("study.toml", "expected.toml"))
    here = study.get(device, {})
    limits = [key for key, value in here.items() if isinstance(value, dict)] or [""]
    found = []
    for limit in limits:
        options = {**_own(study), **_own(here), **here.get(limit, {})}
        facts = expected.get(device, {})
        found.append(
            Case(
                workload=folder.name,
                device=device,
                limit=limit,
                arguments=tuple(options.pop("arguments", ())),
                spare=options.pop("spare", ""),
                options=options,
                expected={**_own(facts), **facts.get(limit, {})},
            )
        )
    return sorted(found, key=lambda case: case.limit_bytes or 0)


def _own(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if not isinstance(value, dict)}


def main() -> int:
    """Run the named cases; gives the number of those that failed, or ``GOES_ON``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="cases, or workloads for all of their cases; default: all")
    parser.add_argument("--list", action="store_true", help="print the cases and their commands, and run none")
    parser.add_argument("--check", action="store_true", help="compare with expected.toml")
    parser.add_argument("--output", type=Path, default=Path(), help="where bundles go")
    parser.add_argument("--storage", metavar="URL", help="the database; default: that of autotune run")
    parser.add_argument("--within", type=parse_duration, metavar="TIME", help="each ends by then")
    options = parser.parse_args()
    device = cuda_device()
    memory = None if device is None else device[1]
    failed, goes_on = 0, False
    for case in cases("cpu" if memory is None else "cuda", options.names):
        if options.list:
            beside = f", under a limit of {case.spare} more than the script takes" if case.spare else ""
            print(f"{case.name}: {shlex.join(['autotune', *case.command(output=options.output)[3:]])}{beside}")
        elif not case.is_for(memory):
            print(f"{case.name}: left out, as this device has {format_bytes(memory)}")
        else:
            result = run(
                case, output=options.output, check=options.check, storage=options.storage, within_s=options.within
            )
            failed += result is False
            goes_on |= result is None
    return failed or (GOES_ON if goes_on else 0)


def run(
    case: Case, *, output: Path, check: bool, storage: str | None = None, within_s: float | None = None
) -> bool | None:
    """Run a case's study; True if it ended as it should, None if less time than it asks for was not enough.

    In a database that is named the study has the case's name. What it has come to in ``within_s`` is its answer so far:
    so its time budget leaves room for what comes on top.
    """
    case = case.with_limit()
    is_cut = within_s is not None and within_s < case.needed_s
    changed = {} if storage is None else {"storage": storage, "study": case.name}
    if is_cut:
        changed["time_budget"] = f"{max((within_s - _STARTS_S) / _BEYOND_BUDGET, 1.0):.0f}s"
    command = case.command(output=output, prints_json=check or is_cut, **changed)
    print("$", shlex.join(["autotune", *command[3:]]), flush=True)
    done = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE if check or is_cut else None)
    told = json.loads(done.stdout or "{}")
    # Without a word it has failed: more time would not help. Neither would it where discovery found something else.
    is_wrong = check and bool(told.get("plans")) and bool(compare_facts(case.expected, told))
    if is_cut and told and not is_wrong and not (told["verdict"] or {}).get("is_confirmed"):
        print(f"{case.name} on {case.device}: goes on with the same command")
        return None
    if not check:
        program = Path(sys.executable).with_name("autotune")
        if program.exists() and shutil.which("autotune") is None:
            print(f"Here, `autotune` is {os.path.relpath(program)}")
        return done.returncode == 0
    problems = compare(case.expected, done.returncode, told)
    print(f"{case.name} on {case.device}: " + ("as expected" if not problems else "; ".join(problems)))
    return not problems


def compare(expected: Mapping[str, Any], status: int, told: Mapping[str, Any]) -> list[str]:
    """What differs from the facts of ``expected.toml``, in what ``autotune run --json`` told.

    ``exit_status``; ``answers``, the kinds of answer that may be; ``least_gain`` over the script as it is;
    ``batch_control``, how the batch size is set; ``plans``, clusters that discovery has to find.
    """
    if status != expected.get("exit_status", 0):
        return [f"exit status {status}"]
    answer, problems = told["verdict"]["answer"], compare_facts(expected, told)
    if answer not in expected["answers"]:
        problems.append(f"answered {answer!r}, expected one of {expected['answers']}")
    winner, baseline = told["winner"], told["baseline"]
    if winner is None or baseline is None:
        return [*problems, "nothing was exported"]
    if winner["peak_bytes"] > told["limit_bytes"]:
        problems.append("the winner is over the limit")
    gain = winner["samples_per_s"] / baseline["samples_per_s"]
    if gain < expected["least_gain"]:
        problems.append(f"the winner trains {gain:.2f}x the baseline, expected at least {expected['least_gain']}x")
    return problems


def compare_facts(expected: Mapping[str, Any], told: Mapping[str, Any]) -> list[str]:
    """The same, of what discovery found."""
    problems = []
    control = (told["batch_control"] or {}).get("how")
    if (wanted := expected.get("batch_control", control)) != control:
        problems.append(f"the batch size is set by {control!r}, expected {wanted!r}")
    if missing := set(expected.get("plans", ())) - {plan["cluster_id"] for plan in told["plans"]}:
        problems.append(f"discovery did not find {', '.join(sorted(missing))}")
    return problems


def cuda_device() -> tuple[str, int] | None:
    """Return the name of the GPU that torch sees first, and its memory in bytes; None without one.

    It is asked for in a process that leaves nothing on it.
    """
    code = """
import torch
if torch.cuda.is_available():
    found = torch.cuda.get_device_properties(0)
    print(found.total_memory, found.name)
"""
    done = subprocess.run((sys.executable, "-c", code), check=False, text=True, stdout=subprocess.PIPE)
    memory, _, name = done.stdout.strip().partition(" ")
    return (name, int(memory)) if name else None


if __name__ == "__main__":
    sys.exit(main())
