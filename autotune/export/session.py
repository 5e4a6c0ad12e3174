"""``session.json`` and ``session.py``: a model's session as it was measured, to be made without autotune."""

from __future__ import annotations

import json
from pathlib import Path

from ..records import MODEL_ENGINE, SessionSetting, Stack, made_choices, session_of, to_json
from ..records.figures import format_rate
from ..records.printable import printable
from ..records.session import MALLOC_PARAMETERS

__all__ = ["SESSION_JSON_NAME", "SESSION_PY_NAME", "session_files"]

SESSION_JSON_NAME = "session.json"
SESSION_PY_NAME = "session.py"
_VERSION = 1
_PROVIDERS = ["CPUExecutionProvider"]
_ENUMERATIONS = {"graph_optimization_level": "GraphOptimizationLevel", "execution_mode": "ExecutionMode"}


def session_files(stack: Stack) -> dict[str, str]:
    """The files by name; none for a script."""
    if stack.engine != MODEL_ENGINE:
        return {}
    made = made_choices(stack.engine, stack.choices)
    session = session_of((one, value) for one, value in made.items() if isinstance(one, SessionSetting))
    model = Path(stack.script_name).name
    document = {
        "version": _VERSION,
        "model": model,
        "sha256": stack.script_sha256,
        "providers": _PROVIDERS,
        "batch_size": stack.batch_size,
        "arguments": list(stack.arguments),
        **to_json(session),
    }
    return {
        SESSION_JSON_NAME: json.dumps(document, indent=2) + "\n",
        SESSION_PY_NAME: "\n".join([*_program(stack, model), ""]),
    }


def _program(stack: Stack, model: str) -> list[str]:
    made = made_choices(stack.engine, stack.choices)
    session = session_of((one, value) for one, value in made.items() if isinstance(one, SessionSetting))
    rate = "" if stack.figures is None else f", measured at {format_rate(stack.figures.samples_per_s)} samples/s"
    title = f"{printable(model)} in batches of {stack.batch_size}{rate}; run it with the path of the model."
    lines = [
        json.dumps(title),
        *(["import ctypes"] if session.malloc else []),
        "import sys",
        "",
        "import onnxruntime",
        "",
    ]
    for parameter, number in session.malloc.items():
        lines.append(f"ctypes.CDLL(None).mallopt({MALLOC_PARAMETERS[parameter]}, {number})  # {parameter}, of malloc.h")
    lines.append("options = onnxruntime.SessionOptions()")
    for name, value in session.options.items():
        kind = _ENUMERATIONS.get(name)
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
    lines += [
        f"session = onnxruntime.InferenceSession(sys.argv[1], options, providers={_PROVIDERS!r})",
        "run_options = onnxruntime.RunOptions()",
        *(f"run_options.add_run_config_entry({key!r}, {value!r})" for key, value in session.run_config.items()),
        "",
        "",
        "def run(feed):",
        '    """The outputs for a dict of arrays, one for each input by its name."""',
    ]
    if session.io_binding:
        lines += [
            "    binding = session.io_binding()",
            "    for name, array in feed.items():",
            "        binding.bind_cpu_input(name, array)",
            "    for output in session.get_outputs():",
            '        binding.bind_output(output.name, "cpu")',
            "    session.run_with_iobinding(binding, run_options)",
            "    return binding.copy_outputs_to_cpu()",
        ]
    else:
        lines.append("    return session.run(None, feed, run_options)")
    lines += [
        "",
        "",
        'if __name__ == "__main__":',
        "    for one in [*session.get_inputs(), *session.get_outputs()]:",
        "        print(one.name, one.type, one.shape)",
    ]
    return lines
