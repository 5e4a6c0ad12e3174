"""``session.json`` and ``session.py``: a model's session as it was measured, to be made without autotune."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from ..errors import ExportError
from ..records.choices import converted_by, made_choices
from ..records.codec import to_json
from ..records.configuration import Configuration
from ..records.printable import printable
from ..records.session import (
    CONVERTED_JSON_NAME,
    CONVERTED_MODEL_NAME,
    ENUMERATIONS,
    MALLOC_PARAMETERS,
    Session,
    converted_folder,
    providers_of,
    session_of,
)
from ..records.stack import Stack
from ..records.study import StudyRecord
from ..records.units import format_speed
from .stack import measured_at

SESSION_JSON_NAME = "session.json"
SESSION_PY_NAME = "session.py"
CONVERTED_NAME = CONVERTED_MODEL_NAME
_VERSION = 1


def converted_files(record: StudyRecord, configuration: Configuration) -> list[Path]:
    """Return the files of a configuration's converted model, the model first; ExportError where they are gone."""
    conversion = converted_by(configuration.engine, configuration.choices)
    if conversion is None:
        return []
    runs = [one.run_directory for one in measured_at(record, configuration) if one.run_directory]
    for run in runs:
        folder = converted_folder(Path(run)) / conversion
        model = folder / CONVERTED_MODEL_NAME
        if model.is_file():
            others = (one for one in sorted(folder.iterdir()) if one.name not in (model.name, CONVERTED_JSON_NAME))
            return [model, *others]
    raise ExportError(
        f"the model that was converted to {conversion} is not on this machine",
        hint="export where the study ran, or begin a study here: autotune run with the same --allow",
    )


def session_files(stack: Stack, converted: Path | None) -> dict[str, str]:
    """Return the texts by name, for the stack of a model; ``converted`` is the converted model's file."""
    session, model = session_of(made_choices(stack.engine, stack.choices).items()), Path(stack.script_name).name
    providers = providers_of(stack.environment.device_kind, session)
    document = {
        "version": _VERSION,
        "model": model,
        "sha256": stack.script_sha256,
        "providers": [one if isinstance(one, str) else one[0] for one in providers],
        "converted": _about(converted, stack),
        "batch_size": stack.batch_size,
        "arguments": list(stack.arguments),
        **to_json(session),
    }
    return {
        SESSION_JSON_NAME: json.dumps(document, indent=2) + "\n",
        SESSION_PY_NAME: "\n".join([*_program(stack, session, model), ""]),
    }


def _about(converted: Path | None, stack: Stack) -> dict[str, object] | None:
    if converted is None:
        return None
    with converted.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"file": CONVERTED_NAME, "sha256": digest, "max_error": stack.max_error}


def _program(stack: Stack, session: Session, model: str) -> list[str]:
    rate = "" if stack.figures is None else f", measured at {format_speed(stack.figures.samples_per_s)}"
    conversion = session.conversion
    providers = providers_of(stack.environment.device_kind, session)
    on_gpu = len(providers) > 1
    file = "sys.argv[1]" if conversion is None else f'str(pathlib.Path(__file__).with_name("{CONVERTED_NAME}"))'
    what = printable(model) + (f", converted to {conversion}," if conversion else "")
    how = "" if conversion else "; run it with the path of the model"
    title = f"{what} in batches of {stack.batch_size}{rate}{how}."
    lines = [
        json.dumps(title),
        *(["import ctypes"] if session.malloc else []),
        f"import {'sys' if conversion is None else 'pathlib'}",
        "",
        "import onnxruntime",
        "",
    ]
    for parameter, number in session.malloc.items():
        lines.append(f"ctypes.CDLL(None).mallopt({MALLOC_PARAMETERS[parameter]}, {number})  # {parameter}, of malloc.h")
    lines.append("options = onnxruntime.SessionOptions()")
    for name, value in session.options.items():
        kind = ENUMERATIONS.get(name)
        lines.append(f"options.{name} = {value!r}" if kind is None else f"options.{name} = onnxruntime.{kind}.{value}")
    config = dict(session.config)
    if session.arena:
        lines += [
            "memory = onnxruntime.OrtMemoryInfo(",
            '    "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT',
            ")",
            f"onnxruntime.create_and_register_allocator(memory, onnxruntime.OrtArenaCfg({session.arena!r}))",
        ]
        config["session.use_env_allocators"] = "1"
    lines += [f"options.add_session_config_entry({key!r}, {value!r})" for key, value in config.items()]
    if on_gpu:
        lines.append("onnxruntime.preload_dlls()  # the libraries of CUDA, where pip has installed them")
    lines += [
        f"session = onnxruntime.InferenceSession({file}, options, providers={providers!r})",
        *(['assert session.get_providers()[0] == "CUDAExecutionProvider", "it fell back"'] if on_gpu else []),
        "run_options = onnxruntime.RunOptions()",
        *(f"run_options.add_run_config_entry({key!r}, {value!r})" for key, value in session.run_config.items()),
        *(_CAPTURED_BEFORE if session.is_captured else []),
        "",
        "",
        "def run(feed):",
        '    """The outputs for a dict of arrays, one for each input by its name."""',
        *_run(session, on_gpu=on_gpu),
        "",
        "",
        'if __name__ == "__main__":',
        "    for one in [*session.get_inputs(), *session.get_outputs()]:",
        "        print(one.name, one.type, one.shape)",
    ]
    return lines


def _run(session: Session, *, on_gpu: bool) -> list[str]:
    if not session.io_binding:
        return ["    return session.run(None, feed, run_options)"]
    results = "get_outputs" if session.outputs_on_device else "copy_outputs_to_cpu"
    if session.is_captured:
        return [*_CAPTURED_RUN, f"    return binding.{results}()"]
    return [
        "    binding = session.io_binding()",
        "    for name, array in feed.items():",
        "        binding.bind_cpu_input(name, array)",
        "    for output in session.get_outputs():",
        f'        binding.bind_output(output.name, "{"cuda" if on_gpu else "cpu"}")',
        "    session.run_with_iobinding(binding, run_options)",
        f"    return binding.{results}()",
    ]


# A CUDA graph reads and writes where it did when it was captured, so inputs are copied there.
_CAPTURED_BEFORE = [
    'run_options.add_run_config_entry("gpu_graph_id", "1")',
    "plain_options = onnxruntime.RunOptions()",
    'plain_options.add_run_config_entry("gpu_graph_id", "-1")',
    "binding, inputs = session.io_binding(), {}",
]
_CAPTURED_RUN = [
    "    if not inputs:  # the first batch, whose shapes all others must have",
    "        for name, array in feed.items():",
    '            inputs[name] = onnxruntime.OrtValue.ortvalue_from_numpy(array, "cuda", 0)',
    "            binding.bind_ortvalue_input(name, inputs[name])",
    "        written = session.run(None, feed, plain_options)",
    "        for output, array in zip(session.get_outputs(), written):",
    '            value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(array.shape, array.dtype.type, "cuda", 0)',
    "            binding.bind_ortvalue_output(output.name, value)",
    "    for name, array in feed.items():",
    "        inputs[name].update_inplace(array)",
    "    session.run_with_iobinding(binding, run_options)",
]
