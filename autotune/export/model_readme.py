"""``README.txt`` of a model's bundle, in plain words, for somebody who has never heard of autotune."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..records.chosen import converted_by, made_choices
from ..records.command import launch_command
from ..records.figures import format_figures
from ..records.printable import printable
from ..records.stack import Stack
from ..records.units import format_bytes
from .paragraphs import bullets, measured_on, rows, sections, wrapped
from .session import CONVERTED_NAME, SESSION_JSON_NAME, SESSION_PY_NAME


def render_model_readme(stack: Stack, directory_name: str, *, has_report: bool) -> str:
    """The file's contents, wrapped for a terminal."""
    return sections(
        (
            (f"What autotune found for {_name(stack)}", _found(stack)),
            ("How to run it", _how_to_run(stack, directory_name)),
            ("What the numbers are", _numbers(stack)),
            ("What was checked", _checked(stack)),
            ("What was not checked", _not_checked(stack)),
            ("What is in this folder", _files(stack, has_report=has_report)),
        )
    )


def _name(stack: Stack) -> str:
    return printable(Path(stack.script_name).name)


def _found(stack: Stack) -> Iterator[str]:
    yield wrapped(stack.verdict)
    own = stack.script_batch_size
    size = f"{stack.batch_size}" + ("" if own in (None, stack.batch_size) else f" (the study began at {own})")
    yield rows(
        {
            "settings": ", ".join(stack.choices) or "ONNX Runtime's defaults",
            "batch size": size,
            "this setting": format_figures(stack.figures) if stack.choices or own != stack.batch_size else "",
            "your model": format_figures(stack.baseline_figures),
            "memory limit": format_bytes(stack.memory_limit_bytes),
        }
    )
    for choice in made_choices(stack.engine, stack.choices):
        if choice.changes:
            yield wrapped(f"{choice.name} changes what is computed: {choice.changes}")


def _how_to_run(stack: Stack, directory_name: str) -> Iterator[str]:
    yield wrapped(
        f"Without autotune: {SESSION_PY_NAME} makes the session as it was measured, and has a function `run` that "
        f"takes a dict of arrays. Give it batches of {stack.batch_size}."
    )
    yield wrapped("With autotune, which runs the model as it was fed in the study, and prints what that comes to:")
    yield f"    {launch_command(directory_name, stack.script_name, stack.arguments, module=stack.module)}"


def _numbers(stack: Stack) -> Iterator[str]:
    yield wrapped(
        "samples/s is the number of samples in a run over its median time, after the first runs. Over several rounds "
        "it is the median round, in brackets the slowest and the fastest; of one round the brackets are the 95 % "
        "interval."
    )
    yield wrapped(
        "Peak memory is the high-water mark of the process, from before the session is made: loading the model and "
        "preparing its weights is in it."
    )
    yield wrapped(measured_on(stack.environment, stack.autotune))


def _checked(stack: Stack) -> Iterator[str]:
    if stack.proof is not None and stack.proof.answer != "unknown":
        yield wrapped(stack.proof.statement)
        yield wrapped("`autotune verify` with this folder and the model does that again, on any machine.")


def _not_checked(stack: Stack) -> Iterator[str]:
    fed = " ".join(stack.arguments) or "the shapes that the model has"
    doubts = [
        f"Inputs of other shapes than these, which may take more memory, and values that others have: {fed}.",
        "Several requests at the same time.",
        "Other machines, and other versions of ONNX Runtime: figures move with them.",
    ]
    if converted_by(stack.engine, stack.choices) is not None:
        doubts.insert(0, "How good the converted model's answers are: only how far its outputs are from the model's.")
    if stack.choices and (stack.proof is None or stack.proof.answer == "unknown"):
        why = "" if stack.proof is None else f" {stack.proof.statement}"
        doubts.append(
            f"The model's outputs, side by side with those under ONNX Runtime's defaults.{why} `autotune verify` with "
            "this folder and the model compares them."
        )
    yield bullets(doubts)


def _files(stack: Stack, *, has_report: bool) -> Iterator[str]:
    converted = converted_by(stack.engine, stack.choices)
    yield rows(
        {
            SESSION_PY_NAME: "makes the session as it was measured, in a few lines and without autotune",
            SESSION_JSON_NAME: "the same for programs, with the hashes of the models",
            CONVERTED_NAME: "" if converted is None else f"the model, converted to {converted}",
            "stack.json": "what autotune reads, with the figures",
            "report.html": "the whole search on one page, for a browser; it loads nothing" if has_report else "",
        }
    )
