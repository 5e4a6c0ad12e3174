"""What running commands share: the spec from the options, the launcher, Ctrl-C, and where things are kept."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from .options import DEFAULT_STORAGE

if TYPE_CHECKING:
    from ..launch import Launcher
    from ..pipeline import Interruption
    from ..records import StudySpec

__all__ = [
    "Options",
    "default_study_name",
    "interpreter",
    "interruption",
    "make_launcher",
    "make_spec",
    "prepare_storage",
    "runs_of",
]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `run` and `discover`, as typed."""

    script: Path
    arguments: tuple[str, ...] = ()
    engine: str = "aot"
    memory_limit: str | None = None
    time_budget: str = "10m"
    max_trials: int = 60
    batch_sizes: str | None = None
    batch_size: int | None = None
    devices: str | None = None
    sampler: str = "tpe"
    seed: int = 0
    python: str | None = None
    start_timeout: str = "5m"
    trial_timeout: str = "2m"
    rounds: int = 3
    scratch: bool = False


def make_spec(options: Options) -> StudySpec:
    """Check the options and give the spec; UsageError for the first that is wrong."""
    from ..discovery import check_script
    from ..records import StudySpec, from_json
    from ..records.units import parse_bytes, parse_duration, parse_range

    working_directory = Path.cwd()
    if options.scratch:
        working_directory = _state_folder() / "scratch"
        working_directory.mkdir(parents=True, exist_ok=True)
    fields = {
        "script": str(check_script(options.script)),
        "arguments": list(options.arguments),
        "working_directory": str(working_directory),
        "python": interpreter(options.python),
        "engine": options.engine,
        "memory_limit_bytes": parse_bytes(options.memory_limit) if options.memory_limit else None,
        "time_budget_s": parse_duration(options.time_budget),
        "max_trials": options.max_trials,
        "own_batch_size": options.batch_size,
        "batch_sizes": list(parse_range(options.batch_sizes)) if options.batch_sizes else None,
        "devices": list(_device_indices(options.devices)),
        "sampler": options.sampler,
        "seed": options.seed,
        "start_timeout_s": parse_duration(options.start_timeout),
        "trial_timeout_s": parse_duration(options.trial_timeout),
        "finalist_rounds": options.rounds,
    }
    return from_json(StudySpec, fields, where="options")


def default_study_name(spec: StudySpec) -> str:
    """A name that the same command on the same script finds again: the script's stem, and a hash of what matters."""
    from ..discovery import script_sha256

    parts = [
        spec.script,
        *spec.arguments,
        spec.engine,
        spec.python,
        str(spec.memory_limit_bytes),
        str(spec.batch_sizes),
        str(spec.own_batch_size),
        script_sha256(Path(spec.script)),
    ]
    script = Path(spec.script)
    stem = script.parent.name if script.stem in ("train", "main") and script.parent.name else script.stem
    return f"{stem}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:8]}"


def make_launcher(spec: StudySpec, runs: Path) -> Launcher:
    """The launcher of a study's runs; checks that devices and interpreter are there."""
    from ..launch import ProcessLauncher, find_device, meter_for, read_gpus

    gpus = read_gpus()
    for device in spec.devices:
        find_device(device, gpus)
    # A script that picks its device itself takes the first; its memory is then the one to watch.
    first = 0 if gpus.devices else None
    return ProcessLauncher(
        python=spec.python,
        root=runs,
        working_directory=Path(spec.working_directory),
        start_timeout_s=spec.start_timeout_s,
        trial_timeout_s=spec.trial_timeout_s,
        meter_factory=lambda device: meter_for(first if device is None else device),
    )


def runs_of(study: str) -> Path:
    """Where a study's runs keep their requests, results and logs."""
    return _state_folder() / "runs" / study


def prepare_storage(url: str) -> str:
    """Make the folder of the default database; any other location is the user's to make."""
    if url == DEFAULT_STORAGE:
        try:
            Path(url).parent.mkdir(exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot make the folder {str(Path(url).parent)!r} here: {error.strerror}",
                hint="run from a folder you can write to, or name a database with --storage",
            ) from None
    return url


@contextlib.contextmanager
def interruption() -> Iterator[Interruption]:
    """Ctrl-C once: start nothing new, export what is known. Twice: stop now. SIGTERM counts as twice."""
    from ..pipeline import Interruption

    state = Interruption(threading.Event(), threading.Event())

    def handle(number: int, _: object) -> None:
        if number == signal.SIGTERM or state.finish.is_set():
            state.finish.set()
            state.cancel.set()
            return
        state.finish.set()
        sys.stderr.write("\nautotune: finishing what runs, then exporting; Ctrl-C again stops now\n")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield state
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _state_folder() -> Path:
    return Path(".autotune").resolve()


def interpreter(python: str | None) -> str:
    chosen = python or sys.executable
    found = shutil.which(chosen)
    if found is None:
        raise UsageError(f"there is no interpreter {chosen!r}", hint="give --python the path of a Python with torch")
    # Not resolved: a virtual environment's python is a link, and its own path is what makes it that environment's.
    return os.path.abspath(found)  # noqa: PTH100


def _device_indices(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        indices = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"not a list of devices: {text!r}", hint="indices with commas, as in --devices 0,1") from None
    if len(set(indices)) != len(indices):
        raise UsageError(f"a device is named twice: {text!r}", hint="name each once, as in --devices 0,1")
    return indices
