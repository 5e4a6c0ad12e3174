"""Peers on the same script, limit, device and meter: ``python -m tests.benchmarks.peers charlm --limit 860MiB``.

A workload is a case of ``trials/run.py`` or a script that takes ``--batch-size``. Everything is stored as it ends, in
``RECORDS/DEVICE/WORKLOAD-LIMIT.json``, raw samples included; the same command goes on where it stopped. So a sitting
may be as short as ``--budget`` says, do one thing (``--tasks 1``) or one peer (``--peer NAME``); ``--table`` measures
nothing. The script's own arguments but for its batch size follow after ``--``.

What each peer does to the script is in ``drive.py``, how it comes to its batch size in ``entrants.py``. Batch sizes are
looked at first, then gradients are compared, then everybody is measured in repetitions, in random order.

Exit status: 0 if all that was asked for is measured, 75 if more is left.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.cli.local_launcher import interruption
from autotune.errors import StorageError
from autotune.export.bundle import Bundle, read_bundle
from autotune.launch.port import Launcher
from autotune.launch.process import ProcessLauncher
from autotune.machine.devices import find_device
from autotune.machine.interpreter import find_interpreter
from autotune.machine.meters.nvidia import read_gpus
from autotune.metering.host import processor_name
from autotune.pipeline import write_bundle
from autotune.records.engines import ENGINES
from autotune.records.measuring import Measuring
from autotune.records.study import StudyRecord
from autotune.records.units import format_bytes, parse_bytes, parse_duration, parse_range
from autotune.store.database import open_store
from trials.run import GOES_ON, cases

from .entrants import PEERS, REFERENCE
from .measuring import Runs, Workload
from .record import AUTOTUNE, Found, Record, file_of, read_record, write_record
from .sitting import Sitting
from .table import as_markdown, as_text, rows_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
ASKED = [name for name in PEERS if name != "autotune"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is left, and print the table."""
    options = parse(arguments)
    workload, settings, limit_name = workload_of(options.workload, options.device, options.script_arguments)
    limit_text = options.limit or settings.get("memory_limit")
    if limit_text is None:
        raise SystemExit(f"{workload.name} has no limit for this device in its settings: give one with --limit")
    limit_bytes = parse_bytes(limit_text)
    if options.batch_sizes is not None:
        least, most = parse_range(options.batch_sizes)
    else:
        least, most = 1, int(str(settings.get("batch_sizes", "0:4096")).partition(":")[2])
    device_name = processor_name() if options.device is None else find_device(options.device, read_gpus()).name
    path = file_of(options.records, device_name, f"{workload.name}-{limit_name or format_bytes(limit_bytes)}")
    sha256 = hashlib.sha256(workload.script.read_bytes()).hexdigest()
    new = Record(workload.name, sha256, workload.arguments, limit_bytes, (least, most), libraries=installed())
    record = read_record(path) or new
    for name in ("script_sha256", "arguments", "batch_sizes"):
        if getattr(record, name) != getattr(new, name) and not options.table:
            raise SystemExit(f"{path} has another {name}: {getattr(record, name)!r}; --records DIR begins elsewhere")
    if options.again:
        record = record.without_failures()
    bundle = None if options.bundle is None else read_bundle(options.bundle)
    if options.study is not None:
        try:
            with open_store(options.storage, create=False) as store:
                study = store.open(options.study).record()
        except StorageError as error:
            print(f"autotune is not among the peers: {error}", file=sys.stderr)
        else:
            record = record.with_study(study)
            write_record(path, record)
            bundle = bundle or answer_of(study)
    if bundle is not None:
        record = with_bundle(record, bundle)
    names = [*(options.peer or ASKED), *(["autotune"] if bundle else [])]
    asked = [PEERS[name] for name in dict.fromkeys([REFERENCE, *names])]
    is_done = True
    if not options.table:
        with interruption() as interrupted:
            ends_at = time.monotonic() + options.budget
            runs = (options.runs / f"{path.parent.name}-{path.stem}").absolute()
            python = find_interpreter(options.python)

            measurer = Runs(
                workload,
                functools.partial(launcher_with, workload, runs, python, options.start_timeout),
                device=options.device,
                folder=runs,
                measuring=measuring_of(options.seconds, is_miniature=limit_name == "miniature"),
                interruption=interrupted,
                ends_at=ends_at,
                bundle=bundle,
                python=python,
            )
            sitting = Sitting(
                record,
                path,
                [one for one in PEERS.values() if one in asked],
                measurer,
                repetitions=options.repetitions,
                interruption=interrupted,
                ends_at=ends_at,
                told=lambda what: print(what, file=sys.stderr, flush=True),
            )
            try:
                is_done = sitting.go_on(options.tasks)
            finally:
                measurer.close()
            record = sitting.record
    if options.json:
        print(json.dumps({"file": str(path), "done": is_done, "rows": [*map(dataclasses.asdict, rows_of(record))]}))
    else:
        print(as_markdown(record) if options.markdown else as_text(record))
    return 0 if is_done else GOES_ON


def launcher_with(
    workload: Workload, runs: Path, python: str, start_timeout_s: float, variables: Mapping[str, str]
) -> Launcher:
    """What runs a workload, with variables on top of the environment's."""
    return ProcessLauncher(
        python=python,
        root=runs,
        working_directory=workload.script.parent,
        start_timeout_s=start_timeout_s,
        trial_timeout_s=ENGINES["inductor"].trial_timeout_s,  # some peers compile
        variables=os.environ | variables,
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line; what follows ``--`` is the script's."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__.splitlines()[0])
    parser.add_argument("workload", help="a case of trials/run.py, or a script")
    parser.add_argument("--limit", metavar="SIZE", help="of memory; default: that of study.toml")
    parser.add_argument("--batch-sizes", metavar="LOW:HIGH", help="what peers may choose; default: 1 to study.toml's")
    parser.add_argument("--peer", action="append", choices=ASKED, metavar="NAME", help=f"default: all of {ASKED}")
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="autotune's answer, as one more peer")
    parser.add_argument("--study", metavar="NAME", help="autotune's own: its answer is one more peer")
    parser.add_argument("--storage", metavar="URL", help="the database of --study")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, help="a run is measured for, at most; default: 3, or 1 in miniature")
    parser.add_argument("--budget", type=parse_duration, default=float("inf"), metavar="TIME", help="as in 9m")
    parser.add_argument("--tasks", type=int, metavar="N", help="do so many things at most")
    parser.add_argument("--again", action="store_true", help="try again what failed for another reason than memory")
    parser.add_argument("--start-timeout", type=parse_duration, default=300.0, metavar="TIME", help="to the first step")
    parser.add_argument("--device", type=int, help="index of a GPU; default: the CPU, or the first GPU there is")
    parser.add_argument("--cpu", action="store_true", help="leave GPUs alone")
    parser.add_argument("--python", metavar="PATH", help="the interpreter of the scripts")
    parser.add_argument("--records", type=Path, default=ROOT / "build/peers")
    parser.add_argument("--runs", type=Path, default=ROOT / "build/peers-runs", help="logs and compile caches")
    parser.add_argument("--table", action="store_true", help="of what was measured; measure nothing")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", action="store_true")
    typed = list(sys.argv[1:] if arguments is None else arguments)
    at = typed.index("--") if "--" in typed else len(typed)
    options = parser.parse_args(typed[:at])
    options.script_arguments = typed[at + 1 :]
    if options.device is None and not options.cpu and read_gpus().devices:
        options.device = 0
    return options


def measuring_of(seconds: float | None, *, is_miniature: bool) -> Measuring:
    """When a run was measured enough; in miniature after a few steps, as busy machines make all of them uneven."""
    if is_miniature:
        few = Measuring(max_warmup_steps=3, min_steps=4, max_steps=8, min_measure_s=0.2)
        return dataclasses.replace(few, max_measure_s=seconds or 1.0)
    return Measuring(max_measure_s=seconds or 3.0)


def workload_of(named: str, device: int | None, arguments: Sequence[str]) -> tuple[Workload, Mapping[str, Any], str]:
    """A case of trials/ by its name or a script by its path, with its study's options and the name of its limit."""
    script = Path(named).absolute()
    if script.is_file():
        name = script.parent.name if script.stem == "train" else script.stem
        return Workload(name, script, tuple(arguments)), {}, ""
    (case, *others) = cases("cpu" if device is None else "cuda", [named])
    if others:
        raise SystemExit(f"{named!r} has several limits: name one of {', '.join(one.name for one in (case, *others))}")
    script = ROOT / "trials" / case.workload / "train.py"
    return Workload(case.workload, script, tuple(arguments or case.arguments)), case.options, case.limit


def installed() -> dict[str, str]:
    """Packages that peers need to be there, as far as they are."""
    needed = {one.needs[0] for one in PEERS.values() if one.needs}
    return {name: "installed" for name in needed if importlib.util.find_spec(name)}


def answer_of(study: StudyRecord) -> Bundle | None:
    """What a study came to, None where that is nothing that could be run."""
    if study.verdict is None or study.verdict.winner is None:
        return None
    with tempfile.TemporaryDirectory(prefix="autotune-answer-") as folder:
        return read_bundle(write_bundle(study, Path(folder) / "bundle"))


def with_bundle(record: Record, bundle: Bundle) -> Record:
    """The record with the bundle as what autotune comes to; what was measured of another one stays in it."""
    key = hashlib.sha256(bundle.configuration.key.encode()).hexdigest()[:8]
    found = Found("autotune", bundle.stack.batch_size or 0, str(bundle.configuration), f"{AUTOTUNE}:{key}")
    return dataclasses.replace(record, found=(*(one for one in record.found if one.peer != "autotune"), found))


if __name__ == "__main__":
    sys.exit(main())
