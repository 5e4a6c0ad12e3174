"""The spec of a study: what a command's options ask for, the name that goes with it, and what may not change of it."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..launch.requests import discovery_request, has_placeholder
from ..machine.environments import engine_interpreter
from ..records.choices import allowed_choices, converted_by, engine_choices
from ..records.codec import dumps
from ..records.engines import ENGINES, MODEL_ENGINE, PLAIN_ENGINES, Engine
from ..records.printable import printable, shell_line, shell_word
from ..records.study import Objective, StudySpec
from ..records.units import format_bytes
from ..tuning.checks import MODEL_SUFFIX, check_model, check_module, check_script
from .places import working_directory

# What a study's measurements depend on, and the options that set it.
_FIXED = {
    "script": "SCRIPT",
    "module": "-m",
    "arguments": "script arguments",
    "engine": "--engine",
    "python": "--python",
    "memory_limit_bytes": "--memory-limit",
    "objective": "objective",
    "batch_sizes": "--batch-sizes",
    "own_batch_size": "--batch-size",
    "keep_global_batch": "--keep-global-batch",
    "plans_first": "--plans-from",
    "choices": "--allow",
    "look_ahead": "--look-ahead",
    "max_error": "--max-error",
    "gpus_of_run": "--gpus-per-run",
}


def spec_of(
    options: Mapping[str, Any], *, engine: Engine | None = None, bundle_batch_size: int | None = None
) -> StudySpec:
    """Return what a command's options ask for; UsageError where they do not go together, or the script cannot be run.

    An option is named as the field of the spec, or of its objective, that it sets, and None stands for a default. Of
    the others only ``scratch`` counts, which makes a folder for the script to run in. ``engine`` and
    ``bundle_batch_size`` (the script's own) stand in where no option says them.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if "gpus_per_run" not in options and "devices" in given:
        given["gpus_per_run"] = len(given["devices"])  # a command without the option makes one run
    given["script"] = Path(given["script"])  # older typers make it a path only as they call the command
    given["engine"] = _engine_for(given["script"], engine or given["engine"])
    allowed = (engine_choices(given["engine"]).get(name) for name in given.get("choices", ()))
    engines = [ENGINES[name] for name in (given["engine"], *(one.engine for one in allowed if one is not None))]
    timeouts = {name: max(getattr(one, name) for one in engines) for name in ("start_timeout_s", "trial_timeout_s")}
    given = timeouts | given
    # Mistakes in the options are told before it is asked whether the engine is installed.
    choices, objective = _choices(given), _objective(given)
    python = engine_interpreter(given["engine"], named=options.get("python"))
    script, module = find_script(given["script"], is_module=given.get("is_module", False), python=python)
    spec = StudySpec(**{**_fields(StudySpec, given), "script": script, "module": module})
    spec = dataclasses.replace(
        spec,
        arguments=target_arguments(given["script"], spec.arguments, given.get("shapes"), given.get("inputs")),
        choices=choices,
        objective=objective,
        python=python,
        working_directory=str(working_directory(scratch=given.get("scratch", False))),
    )
    if spec.own_batch_size and not has_placeholder(spec.arguments):
        raise UsageError(
            "--batch-size gives the script's own size for {batch_size}, but its arguments do not contain that",
            hint="put it there, as in `-- --batch {batch_size}`, or leave --batch-size out",
        )
    if spec.look_ahead and ENGINES[spec.engine].target == "model":
        raise UsageError(
            f"--look-ahead reads the batches of a training script, and {str(given['script'])!r} is a model",
            hint="leave --look-ahead out",
        )
    _check_devices(spec)
    spec = dataclasses.replace(spec, own_batch_size=spec.own_batch_size or bundle_batch_size)
    discovery_request(spec)  # knows what {batch_size} and {accumulation} in the arguments need
    return spec


def _check_devices(spec: StudySpec) -> None:
    number, size = len(spec.devices), spec.gpus_of_run
    # Processes of a launcher may share what there is.
    if number % size and (number > size or spec.gpus_per_run):
        several = f"{number} device{'s' * (number > 1)}"
        raise UsageError(
            f"--devices names {several}, and each run has {size} GPUs",
            hint=f"name a multiple of {size}, or give another --gpus-per-run",
        )


def _engine_for(target: Path, named: Engine) -> Engine:
    is_model = target.suffix == MODEL_SUFFIX
    if is_model and named in (StudySpec.engine, MODEL_ENGINE):
        return MODEL_ENGINE
    if is_model or named == MODEL_ENGINE:
        what, runs = ("an ONNX model", MODEL_ENGINE) if is_model else ("a script", "the others")
        raise UsageError(f"engine {named!r} does not run {what}", hint=f"leave --engine out: {runs} will")
    return named


def target_arguments(
    named: Path, arguments: Sequence[str] | None, shapes: Sequence[str] | None, inputs: Path | None
) -> tuple[str, ...]:
    """The arguments of what is to be run; a model's say what it is fed. UsageError where a script is to be fed."""
    feeding = [word for shape in shapes or () for word in ("--shape", shape)]
    feeding += [] if inputs is None else ["--inputs", str(inputs)]
    if feeding and named.suffix != MODEL_SUFFIX:
        raise UsageError(
            f"{feeding[0]} is for ONNX models, and {str(named)!r} is none",
            hint=f"put what the script itself takes behind --: -- {feeding[0]} …",
        )
    return (*feeding, *(arguments or ()))


def find_script(named: Path, *, is_module: bool, python: str) -> tuple[str, str]:
    """The absolute path of what is to be run, and its name if it is a module; UsageError if it cannot be."""
    if named.suffix == MODEL_SUFFIX and not is_module:
        return str(check_model(named)), ""
    if is_module:
        return str(check_module(str(named), python=python)), str(named)
    return str(check_script(named, python=python)), ""


def _choices(given: Mapping[str, Any]) -> tuple[str, ...]:
    engine = given["engine"]
    if engine in PLAIN_ENGINES and given.get("plans_first"):
        raise UsageError(
            f"--plans-from: engine {engine!r} has no plans", hint="choose another --engine, or leave it out"
        )
    try:
        choices = allowed_choices(engine, given.get("choices", ()))
    except UsageError as error:
        raise UsageError(f"--allow: {error}", hint=error.hint) from None
    if "max_error" in given and not any(converted_by(engine, [f"{choice}=1"]) for choice in choices):
        raise UsageError(
            "--max-error is for a model that --allow converts", hint="add --allow int8, or leave --max-error out"
        )
    return choices


def _objective(given: Mapping[str, Any]) -> Objective:
    objective = Objective(**_fields(Objective, given))
    memory_limit_bytes = given.get("memory_limit_bytes")
    target = objective.target_memory_bytes
    if target is not None and objective.goal == "memory":
        raise UsageError(
            "--target-memory asks for the fastest setting below it, --objective memory for the smallest one",
            hint="give one of them",
        )
    if target is not None and memory_limit_bytes is not None and target > memory_limit_bytes:
        raise UsageError(
            f"--target-memory {format_bytes(target)} is more than --memory-limit {format_bytes(memory_limit_bytes)}",
            hint="the target is what the answer may peak at, the limit what trials may use: give a lower target",
        )
    if "max_slowdown" in given and objective.goal != "memory":
        raise UsageError("--max-slowdown goes with --objective memory", hint="add it, or leave --max-slowdown out")
    return objective


def _fields(record: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: given[field.name] for field in dataclasses.fields(record) if field.name in given}


def default_study_name(spec: StudySpec) -> str:
    """A name that the same command on the same script finds again: the script's stem, and a hash of what matters."""
    parts = [
        spec.script,
        *spec.arguments,
        spec.engine,
        spec.python,
        str(spec.memory_limit_bytes),
        str(spec.batch_sizes),
        str(spec.own_batch_size),
        spec.script_sha256(),
        *spec.choices,
        *([str(spec.max_error)] if spec.max_error != StudySpec.max_error else []),
        *spec.plans_first,
        *(["keep_global_batch"] if spec.keep_global_batch else []),
        *([f"look_ahead={spec.look_ahead}"] if spec.look_ahead else []),
        *([dumps(spec.objective)] if spec.objective != Objective() else []),
        *([spec.module] if spec.module else []),
        *([f"gpus_per_run={spec.gpus_per_run}"] if spec.gpus_per_run is not None else []),
    ]
    script = Path(spec.module.replace(".", "/")) if spec.module else Path(spec.title)
    stem = script.parent.name if script.stem in ("train", "main") and script.parent.name else script.stem
    digest = hashlib.sha256(os.fsencode(chr(0).join(parts))).hexdigest()
    # A study's name has to print, is no option, and is not as long as a file's.
    usable = printable(stem).strip(" -")[:100] or "study"
    return f"{usable}-{digest[:8]}"


def _shown(value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return repr(shell_line(map(str, value)))
    return str(value) if isinstance(value, Objective) else repr(value)


def check_same(name: str, earlier: StudySpec, spec: StudySpec, *, script_sha256: str = "") -> None:
    """Raise UsageError if a study is asked for something else than it has measured, by a script of that hash."""
    # A script that has moved is the same if its content is, and nothing is left at the earlier place.
    if not Path(earlier.script).exists() and script_sha256 == spec.script_sha256():
        earlier = dataclasses.replace(earlier, script=spec.script)
    for field, option in _FIXED.items():
        before, now = getattr(earlier, field), getattr(spec, field)
        if before != now:
            is_bytes = field == "memory_limit_bytes"
            shown = (format_bytes(one) if one and is_bytes else _shown(one) for one in (before, now))
            raise UsageError(
                f"study {name!r} was begun with another {option}: {', not '.join(shown)}",
                hint=f"choose another --study NAME, or go on as it was: autotune resume {shell_word(name)}",
            )
