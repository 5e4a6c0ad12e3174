"""What running commands share: the spec from the options, the launcher, Ctrl-C, and where things are kept."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, cast, get_args, get_type_hints
from urllib.parse import quote

from ..errors import RunError, UsageError
from .options import DEFAULT_STORAGE

if TYPE_CHECKING:
    from ..launch import Launcher
    from ..records import Engine, Objective, StudySpec
    from ..store import Store
    from ..tuning.budget import Interruption

__all__ = [
    "Options",
    "check_platform",
    "check_same",
    "default_study_name",
    "folder_of",
    "interpreter",
    "interpreter_of",
    "interruption",
    "make_launcher",
    "make_spec",
    "parsed",
    "prepare_storage",
    "runs_of",
    "shown_storage",
]

S = TypeVar("S")
T = TypeVar("T")

_LONGEST_FOLDER = 160  # of the 255 that file systems have; names of more than ASCII are quoted, three for one

# What a study's measurements depend on, and the options that set it.
_FIXED = {
    "script": "SCRIPT",
    "arguments": "script arguments",
    "engine": "--engine",
    "python": "--python",
    "memory_limit_bytes": "--memory-limit",
    "objective": "objective",
    "batch_sizes": "--batch-sizes",
    "own_batch_size": "--batch-size",
    "plans_first": "--plans-from",
    "choices": "--allow",
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `run`, `fit` and `discover`, as typed."""

    script: Path
    arguments: tuple[str, ...] = ()
    engine: str = "aot"
    memory_limit: str | None = None
    objective: str = "throughput"
    max_slowdown: str | None = None
    target_memory: str | None = None
    time_budget: str = "10m"
    max_trials: int = 60
    batch_sizes: str | None = None
    batch_size: int | None = None
    devices: str | None = None
    sampler: str = "model"
    seed: int = 0
    python: str | None = None
    start_timeout: str = "5m"
    trial_timeout: str = "2m"
    rounds: int = 3
    scratch: bool = False
    plans_from: Path | None = None
    allow: str | None = None


def make_spec(options: Options) -> StudySpec:
    """Check the options and give the spec; UsageError for the first that is wrong."""
    from ..discovery import check_script
    from ..launch import discovery_request
    from ..records import StudySpec, allowed_choices, from_json, to_json
    from ..records.units import parse_bytes, parse_duration, parse_range

    limit, sizes = options.memory_limit, options.batch_sizes
    engine = cast("Engine", _chosen("--engine", StudySpec, "engine", options.engine))
    allowed = [name.strip() for name in (options.allow or "").split(",") if name.strip()]
    choices = parsed("--allow", lambda names: allowed_choices(engine, names), allowed)
    fields = {
        "script": str(check_script(options.script)),
        "arguments": list(options.arguments),
        "working_directory": str(_made(_state_folder() / "scratch") if options.scratch else _here()),
        "python": interpreter_of(engine, options.python),
        "engine": engine,
        "memory_limit_bytes": None if limit is None else parsed("--memory-limit", parse_bytes, limit),
        "objective": to_json(_objective(options)),
        "time_budget_s": parsed("--time-budget", parse_duration, options.time_budget),
        "max_trials": options.max_trials,
        "own_batch_size": options.batch_size,
        "batch_sizes": None if sizes is None else list(parsed("--batch-sizes", parse_range, sizes)),
        "devices": list(_device_indices(options.devices)),
        "sampler": _chosen("--sampler", StudySpec, "sampler", options.sampler),
        "seed": options.seed,
        "start_timeout_s": parsed("--start-timeout", parse_duration, options.start_timeout),
        "trial_timeout_s": parsed("--trial-timeout", parse_duration, options.trial_timeout),
        "finalist_rounds": options.rounds,
        "plans_first": list(_plans_first(options)),
        "choices": list(choices),
    }
    spec: StudySpec = from_json(StudySpec, fields, where="options")
    discovery_request(spec)  # knows what a {batch_size} in the arguments needs
    return spec


def default_study_name(spec: StudySpec) -> str:
    """A name that the same command on the same script finds again: the script's stem, and a hash of what matters."""
    from ..discovery import script_sha256
    from ..records import Objective, dumps

    parts = [
        spec.script,
        *spec.arguments,
        spec.engine,
        spec.python,
        str(spec.memory_limit_bytes),
        str(spec.batch_sizes),
        str(spec.own_batch_size),
        script_sha256(Path(spec.script)),
        *spec.choices,
        *spec.plans_first,
        *([dumps(spec.objective)] if spec.objective != Objective() else []),
    ]
    script = Path(spec.script)
    stem = script.parent.name if script.stem in ("train", "main") and script.parent.name else script.stem
    return f"{stem}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:8]}"


def check_same(name: str, earlier: StudySpec, spec: StudySpec) -> None:
    """UsageError if a study that has measured something is asked for something else than what it measured."""
    for field, option in _FIXED.items():
        before, now = getattr(earlier, field), getattr(spec, field)
        if before != now:
            shown = (f"{one}" if option == "objective" else repr(one) for one in (before, now))
            raise UsageError(
                f"study {name!r} was begun with another {option}: {', not '.join(shown)}",
                hint=f"choose another --study NAME, or go on as it was: autotune resume {shlex.quote(name)}",
            )


def make_launcher(spec: StudySpec, runs: Path, variables: Mapping[str, str] = MappingProxyType({})) -> Launcher:
    """The launcher of a study's runs; checks that this platform, devices and the interpreter will do.

    ``variables`` go into the runs' environment beside this process's own.
    """
    from ..launch import ProcessLauncher, check_interpreter, find_device, read_gpus

    check_platform()
    if spec.python != interpreter(None):
        check_interpreter(spec.python)
    gpus = read_gpus()
    for device in spec.devices:
        find_device(device, gpus)
    return ProcessLauncher(
        python=spec.python,
        root=runs,
        working_directory=Path(spec.working_directory),
        start_timeout_s=spec.start_timeout_s,
        trial_timeout_s=spec.trial_timeout_s,
        variables={**os.environ, **variables},
    )


def check_platform() -> None:
    """RunError where the worker's process groups, signals and /proc are not what Linux has."""
    if not sys.platform.startswith("linux"):
        raise RunError(
            f"autotune runs scripts on Linux only, this is {sys.platform!r}",
            hint="on Windows use WSL 2, elsewhere a Linux container; studies, show and export work here too",
        )


def folder_of(study: str) -> str:
    """A study's name as the name of one folder."""
    folder = quote(study, safe=" +,=@").replace("..", "%2E%2E")
    if len(folder) > _LONGEST_FOLDER:
        folder = f"{folder[:_LONGEST_FOLDER]}-{hashlib.sha256(study.encode()).hexdigest()[:8]}"
    return folder


def runs_of(study: str) -> Path:
    """Where a study's runs keep their requests, results and logs."""
    return _state_folder() / "runs" / folder_of(study)


def prepare_storage(url: str) -> str:
    """Make the folder of the default database; any other location is the user's to make."""
    if url == DEFAULT_STORAGE:
        _made(Path(url).parent)
    return url


def shown_storage(store: Store, storage: str) -> str:
    """The database as it was typed, but for a password in it."""
    return storage if "://" not in storage else store.url


@contextlib.contextmanager
def interruption() -> Iterator[Interruption]:
    """Ctrl-C once: start nothing new, export what is known. Twice: stop now. SIGTERM counts as twice."""
    from ..tuning.budget import Interruption

    state = Interruption()

    def handle(number: int, _: object) -> None:
        again = number == signal.SIGTERM or state.finish.is_set()
        state.finish.set()
        if again:
            state.cancel.set()
            message = "stopping"
        else:
            message = "finishing the trial that runs, then exporting; Ctrl-C again stops now"
        # Not through sys.stderr, which may be in the middle of a write that this handler interrupted.
        with contextlib.suppress(OSError):  # whoever read it is gone: `tee` meets the same Ctrl-C
            os.write(2, f"\nautotune: {message}\n".encode())

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield state
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interpreter(python: str | None) -> str:
    """The absolute path of an interpreter, this one by default; UsageError if it is not there."""
    chosen = python or sys.executable
    found = shutil.which(chosen)
    if found is None:
        raise UsageError(f"there is no interpreter {chosen!r}", hint="give --python the path of a Python with torch")
    # Not resolved: a virtual environment's python is a link, and its own path is what makes it that environment's.
    return os.path.abspath(found)  # noqa: PTH100


def interpreter_of(engine: str, python: str | None) -> str:
    """The interpreter that runs a script under an engine: the one that was named, the engine's own, or this one.

    UsageError if it is not there, or the engine's own environment was not made yet.
    """
    from ..launch.environments import engine_interpreter

    return interpreter(python or engine_interpreter(engine))


def _state_folder() -> Path:
    return _here() / ".autotune"


def _here() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError(
            f"the folder you are in is gone: {error.strerror}", hint="change to one that is there"
        ) from None


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {str(folder)!r}: {error.strerror}",
            hint="run from a folder you can write to: logs and the default database go to .autotune in it",
        ) from None
    return folder


def parsed(option: str, parse: Callable[[S], T], text: S) -> T:
    try:
        return parse(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error}", hint=error.hint) from None


def _objective(options: Options) -> Objective:
    from ..records import Goal, Objective
    from ..records.units import parse_bytes, parse_share

    goal = cast("Goal", _chosen("--objective", Objective, "goal", options.objective))
    target = None if options.target_memory is None else parsed("--target-memory", parse_bytes, options.target_memory)
    limit = None if options.memory_limit is None else parsed("--memory-limit", parse_bytes, options.memory_limit)
    if target is not None and goal == "memory":
        raise UsageError(
            "--target-memory asks for the fastest setting below it, --objective memory for the smallest one",
            hint="give one of them",
        )
    if target is not None and limit is not None and target > limit:
        raise UsageError(
            f"--target-memory {options.target_memory} is more than --memory-limit {options.memory_limit}",
            hint="the target is what the answer may peak at, the limit what trials may use: give a lower target",
        )
    if options.max_slowdown is None:
        return Objective(goal, target_memory_bytes=target)
    if goal != "memory":
        raise UsageError("--max-slowdown goes with --objective memory", hint="add it, or leave --max-slowdown out")
    return Objective(goal, parsed("--max-slowdown", parse_share, options.max_slowdown))


def _chosen(option: str, record: type, field: str, text: str) -> str:
    choices: Sequence[str] = get_args(get_type_hints(record)[field])
    if text not in choices:
        raise UsageError(f"{option} takes one of {', '.join(choices)}, not {text!r}", hint="autotune run --help")
    return text


def _plans_first(options: Options) -> tuple[str, ...]:
    from ..formats import read_first

    if options.plans_from is None:
        return ()
    if options.engine == "eager":
        raise UsageError("--plans-from: engine 'eager' has no plans", hint="choose another --engine, or leave it out")
    return parsed("--plans-from", lambda path: read_first(Path(path)), str(options.plans_from))


def _device_indices(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        indices = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"--devices: not a list of devices: {text!r}", hint="indices with commas, as in --devices 0,1"
        ) from None
    if len(set(indices)) != len(indices):
        raise UsageError(f"--devices: a device is named twice: {text!r}", hint="name each once, as in --devices 0,1")
    return indices
