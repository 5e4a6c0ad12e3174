"""``README.txt``: the bundle in plain words, for a reader who has never heard of autotune."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from ..records.choice_types import Choice
from ..records.choices import choices_of, converted_by, made_choices
from ..records.configuration import keeps_batch_size
from ..records.engines import ENGINES, PLAIN_ENGINES
from ..records.figures import format_figures
from ..records.fingerprint import script_title
from ..records.global_batch import global_batch_sentences
from ..records.printable import launch_command, printable, shell_word
from ..records.stack import Stack
from ..records.units import format_bytes
from ..records.words import cut_names, sized_words
from .session import CONVERTED_NAME, SESSION_JSON_NAME, SESSION_PY_NAME
from .stack import STACK_NAME
from .variables import ENV_SH_NAME, MEM_OPT_NAME, allowed

README_NAME = "README.txt"
REPORT_NAME = "report.html"
_WIDTH = 96
FILES = {
    MEM_OPT_NAME: "the recompute plans, in the format of ONNX Runtime's Memory Optimizer",
    SESSION_PY_NAME: "makes the session as it was measured, in a few lines and without autotune",
    SESSION_JSON_NAME: "the same for programs, with the hashes of the models",
    CONVERTED_NAME: "the converted model",
    STACK_NAME: "everything else that is needed to run this setting, with the figures",
    ENV_SH_NAME: "the environment variables, for a shell",
    REPORT_NAME: "the whole search on one page, for a browser; it loads nothing from a network",
}
_LINES = "Put these lines into the script, behind the one that makes the model, then start it:"


def render_readme(stack: Stack, directory_name: str, files: Collection[str]) -> str:
    """The file's contents, wrapped for a terminal; ``files`` are the names of those beside it."""
    is_model = _target(stack) == "model"
    title = script_title(stack.script_name, stack.module, stack.arguments)
    return _sections(
        (
            (f"What autotune found for {printable(Path(title).name)}", _found(stack)),
            ("How to run it", _how_to_run(stack, directory_name)),
            ("Batch size and accumulation", () if is_model else _batch(stack)),
            ("How to apply it by hand", () if is_model else _by_hand(stack)),
            ("What the numbers are", _numbers(stack)),
            ("What was checked", _checked(stack)),
            ("What was not checked", _not_checked(stack)),
            ("What is in this folder", [_rows({name: what for name, what in FILES.items() if name in files})]),
        )
    )


def _found(stack: Stack) -> Iterator[str]:
    yield _wrapped(stack.verdict)
    target = _target(stack)
    plans = ", ".join(map(cut_names, stack.plans))
    is_same = _is_untouched(stack) and keeps_batch_size(stack.batch_size, stack.script_batch_size)
    yield _rows(
        {
            "engine": ENGINES[stack.engine].title,
            "recompute": (stack.recomputed or plans or "nothing") if target == "script" else "",
            "by size": sized_words(stack.sized),
            "plans": plans if stack.recomputed else "",
            "level": str(stack.level) if stack.level else "",
            "choices": ", ".join(stack.choices),
            "batch size": _batch_size(stack),
            "this setting": "" if is_same else format_figures(stack.figures),
            f"your {target}": format_figures(stack.baseline_figures),
            "memory limit": format_bytes(stack.memory_limit_bytes),
        }
    )
    for choice in _made(stack):
        if choice.changes:
            yield _wrapped(f"{choice.name} changes what is computed: {choice.changes}")


def _how_to_run(stack: Stack, directory_name: str) -> Iterator[str]:
    command = launch_command(directory_name, stack.script_name, stack.arguments, module=stack.module)
    if _target(stack) == "model":
        yield _wrapped(
            f"Without autotune: {SESSION_PY_NAME} makes the session as it was measured, and has a function `run` that "
            f"takes a dict of arrays. Give it batches of {stack.batch_size}."
        )
        yield _wrapped("With autotune, which runs the model on the inputs of the study, and prints the figures:")
        yield f"    {command}"
        return
    yield f"    {command}"
    yield _wrapped(
        "with the paths of this folder and of the script as seen from where you are. It runs the script to its own end "
        "with the setting applied, and measures nothing; output and exit status are the script's own. It refuses, and "
        "says why, when it cannot apply the setting."
    )
    if stack.batch_control.how == "arguments":
        yield _wrapped("autotune puts the batch size in the place of {batch_size} in the arguments.")
    if stack.accumulation_control is not None and stack.accumulation_control.how == "arguments":
        yield _wrapped("autotune puts the accumulation in the place of {accumulation} in the arguments.")


def _batch(stack: Stack) -> Iterator[str]:
    own, kept = stack.script_batch_size, stack.accumulation_for_same_global_batch
    before, after = stack.script_global_batch, stack.global_batch
    said = global_batch_sentences(stack.batch_size, own, before, after, kept)
    yield _wrapped(" ".join(said) or "This setting leaves your batch size and accumulation as they are.")
    yield from map(_wrapped, stack.cautions)
    if said and not stack.accumulation_set:
        yield _wrapped("autotune changed neither the script's accumulation nor its learning rate.")


def _by_hand(stack: Stack) -> Iterator[str]:
    steps = []
    if not keeps_batch_size(stack.batch_size, stack.script_batch_size):
        steps.append(f"Set the script's batch size to {stack.batch_size} per process.")
    if stack.accumulation_set:
        steps.append(f"Have it accumulate gradients over {stack.accumulation_set} micro-batches per optimizer step.")
    engine = ENGINES[stack.engine]
    steps += dict.fromkeys(step for choice in _made(stack) if (step := choice.by_hand.format(ENV_SH_NAME)))
    if engine.by_hand:
        yield _bullets([*steps, f"Read {ENV_SH_NAME} in the shell: `. ./{ENV_SH_NAME}`. It names the plans.", _LINES])
        yield "\n".join(f"    {line}" for line in engine.by_hand)
        yield from map(_wrapped, engine.by_hand_notes)
        return
    if stack.plans or stack.level:
        steps.append(
            "In a training loop of your own: call `autotune.apply(model, FOLDER)` with the path of this folder, before "
            "the first step."
        )
        steps.append(
            f"Without autotune: `autotune export {shell_word(stack.study)} --as torch` writes plain PyTorch code that "
            "checkpoints whole blocks, or says what it cannot do."
        )
    yield _bullets(steps) if steps else _wrapped("There is nothing to apply: the script runs as it is.")


def _numbers(stack: Stack) -> Iterator[str]:
    environment, is_model = stack.environment, _target(stack) == "model"
    over = "a run over its median time" if is_model else "an optimizer step over the median time of a step"
    yield _wrapped(
        f"samples/s is the number of samples of {over}, after warm-up. Over several repetitions it is their median, "
        "with the slowest and the fastest in brackets. Of one repetition they hold the 95 % confidence interval."
    )
    if is_model:
        peak = "the high-water mark of the process, loading the model and preparing its weights included"
    elif environment.device_kind == "cuda":
        peak = "what the process takes away from the card, what torch's allocator has reserved included"
    else:
        peak = "the high-water mark of the resident set, summed over the training processes"
    yield _wrapped(f"Peak memory is {peak}.")
    if stack.measured_batch is not None:
        yield _wrapped(
            f"An epoch was read before: the largest batch measured has {stack.measured_batch.sizes}. The peak is that "
            "with this batch, the speed that of batches that stand for the epoch."
        )
    yield _wrapped(
        f"Measured on {environment.num_devices} x {environment.device_name} "
        f"({format_bytes(environment.device_memory_bytes)}), {environment.num_threads} threads, Python "
        f"{environment.python}, {environment.library}"
        + (f", CUDA {environment.cuda}" if environment.cuda else "")
        + f", with autotune {stack.autotune}. {STACK_NAME} has the rest."
    )


def _checked(stack: Stack) -> Iterator[str]:
    if stack.proof is not None and stack.proof.answer != "unknown":
        yield _wrapped(stack.proof.statement)
        yield _wrapped(f"`autotune verify` with this folder and the {_target(stack)} does that again, on any machine.")


def _not_checked(stack: Stack) -> Iterator[str]:
    if _target(stack) == "model":
        fed = " ".join(stack.arguments) or "the shapes that the model has"
        doubts = [
            f"Inputs of other shapes than these, which may take more memory, and values that others have: {fed}.",
            "Several requests at the same time.",
            "Other machines, and other versions of ONNX Runtime: figures move with them.",
        ]
        if converted_by(stack.engine, stack.choices) is not None:
            doubts.append("How good the converted model's answers are: only how far its outputs are from the model's.")
    else:
        doubts = [
            "Whether the model learns as well: only first steps were run, and the learning rate was left as it is.",
            "What the script does later: evaluation, checkpoints, longer inputs. Memory may peak there.",
            "Other machines, and other versions of torch, drivers and libraries: figures move with them.",
        ]
    if not _is_untouched(stack) and (stack.proof is None or stack.proof.answer == "unknown"):
        target, computes = _target(stack), ENGINES[stack.engine].computes
        why = "" if stack.proof is None else f" {stack.proof.statement}"
        doubts.append(
            f"Your model's {computes}, side by side with those of the {target} as it is.{why} `autotune verify` with "
            f"this folder and the {target} compares them."
        )
    left_out = sorted(name for name, value in (stack.environment.variables or {}).items() if not allowed(name, value))
    if left_out and _target(stack) == "script":
        doubts.append(
            "Runs without these environment variables, which were set when this was measured and which a bundle never "
            f"sets: {', '.join(left_out)}."
        )
    yield _bullets(doubts)


def _target(stack: Stack) -> str:
    return ENGINES[stack.engine].target


def _is_untouched(stack: Stack) -> bool:
    return not stack.choices and (stack.engine in PLAIN_ENGINES or _target(stack) == "model")


def _made(stack: Stack) -> list[Choice]:
    """The choices that were made, in the engine's order."""
    made = made_choices(stack.engine, stack.choices)
    return [choice for choice in choices_of(stack.engine).values() if choice in made]


def _batch_size(stack: Stack) -> str:
    own = stack.script_batch_size
    if _target(stack) == "model":
        return f"{stack.batch_size}" + ("" if own in (None, stack.batch_size) else f" (the study began at {own})")
    if keeps_batch_size(stack.batch_size, own):
        return f"the script's own{'' if own is None else f' ({own})'}"
    return f"{stack.batch_size} per process{'' if own is None else f' (your script: {own})'}"


def _sections(titled: Iterable[tuple[str, Iterable[str]]]) -> str:
    """Write blocks under titles, the first of which is the text's own; leave out a title without blocks."""
    texts = {title: "\n\n".join(blocks) for title, blocks in titled}
    lines = {title: ("-" if number else "=") * len(title) for number, title in enumerate(texts)}
    return "\n\n".join(f"{title}\n{lines[title]}\n{text}" for title, text in texts.items() if text) + "\n"


def _wrapped(text: str, *, first: str = "", later: str = "") -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(_wrapped(item, first="  * ", later="    ") for item in items)


def _rows(named: Mapping[str, str]) -> str:
    """Names with their values, one below the other; those without a value are left out."""
    filled = (f"{name:<14}{value}" for name, value in named.items() if value)
    return "\n".join(_wrapped(text, first=" " * 4, later=" " * 18) for text in filled)
