"""``README.txt``: the bundle in plain words, for somebody who has never heard of autotune."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..records.choice import Choice
from ..records.chosen import choices_of, made_choices
from ..records.command import launch_command
from ..records.configuration import keeps_batch_size
from ..records.engines import ENGINES, PLAIN_ENGINES
from ..records.figures import format_count, format_figures
from ..records.plan import ALL, Plan, parse_plans
from ..records.printable import printable
from ..records.sources import script_title
from ..records.stack import Stack
from ..records.units import format_bytes
from ..records.words import cut_names
from .env_sh import ENV_SH_NAME
from .mem_opt import MEM_OPT_NAME
from .paragraphs import bullets, measured_on, rows, sections, wrapped
from .stack import STACK_NAME
from .variables import allowed

README_NAME = "README.txt"
_LINES = "Put these lines into the script, behind the one that makes the model, then start it:"
_STRATEGIES = {1: "recomputed in backward", 2: "replaced by smaller ones, the rest recomputed in backward"}


def render_readme(stack: Stack, directory_name: str, *, has_report: bool) -> str:
    """The file's contents, wrapped for a terminal."""
    titled = (
        (f"What autotune found for {_script(stack)}", _found(stack)),
        ("How to run it", _how_to_run(stack, directory_name)),
        ("Batch size and accumulation", _batch(stack)),
        ("How to apply it by hand", _by_hand(stack)),
        ("What the numbers are", _numbers(stack)),
        ("What was checked", _checked(stack)),
        ("What was not checked", _not_checked(stack)),
        ("What is in this folder", _files(has_report=has_report)),
    )
    return sections(titled)


def _found(stack: Stack) -> Iterator[str]:
    yield wrapped(stack.verdict)
    named = {
        "engine": _engine(stack),
        "recompute": stack.recomputed or ", ".join(stack.plans) or "nothing",
        "plans": ", ".join(map(cut_names, stack.plans)) if stack.recomputed else "",
        "level": str(stack.level) if stack.level else "",
        "choices": ", ".join(stack.choices),
        "batch size": _batch_size(stack),
        "this setting": format_figures(stack.figures) if _changes_something(stack) else "",
        "your script": format_figures(stack.baseline_figures),
        "memory limit": format_bytes(stack.memory_limit_bytes),
    }
    yield rows(named)
    for choice in _made(stack):
        if choice.changes:
            yield wrapped(f"{choice.name} changes what is computed: {choice.changes}")


def _how_to_run(stack: Stack, directory_name: str) -> Iterator[str]:
    yield f"    {launch_command(directory_name, stack.script_name, stack.arguments, module=stack.module)}"
    yield wrapped(
        "with the paths of this folder and of the script as seen from where you are. It runs the script to its own end "
        "with the setting applied, and measures nothing; output and exit status are the script's own. It refuses, and "
        "says why, when it cannot apply the setting."
    )
    if stack.batch_control.how == "arguments":
        yield wrapped("autotune puts the batch size in the place of {batch_size} in the arguments.")
    if stack.accumulation_control is not None and stack.accumulation_control.how == "arguments":
        yield wrapped("autotune puts the accumulation in the place of {accumulation} in the arguments.")


def _batch(stack: Stack) -> Iterator[str]:
    own, seen = stack.script_batch_size, stack.accumulation
    if own is None:
        yield wrapped(
            "The script's own batch size is not known. It was seen to take "
            f"{_micro_batches(seen)} per optimizer step in each process."
        )
        return
    now, taken = stack.batch_size or own, stack.accumulation_set or seen
    yield wrapped(
        f"Your script takes {_micro_batches(seen)} of {own} = {own * seen:g} samples per optimizer step in each "
        "process; times the number of processes, that is its global batch."
    )
    kept = stack.accumulation_for_same_global_batch
    if now == own:
        yield wrapped("This setting leaves that as it is.")
        return
    same = "the global batch stays the same" if stack.accumulation_set else "the global batch is not the same"
    yield wrapped(f"This setting takes {_micro_batches(taken)} of {now} = {now * taken:g} samples: {same}.")
    if stack.accumulation_set:
        return
    before, after = stack.script_global_batch, stack.global_batch
    if before is not None and after is not None and before.steps_per_epoch and after.steps_per_epoch:
        steps = f"{format_count(before.steps_per_epoch)} to {format_count(after.steps_per_epoch)}"
        yield wrapped(f"An epoch goes from {steps} optimizer steps.")
    if kept is None:
        yield wrapped(
            f"No whole number of micro-batches of {now} makes {own * seen:g} samples, so your global batch cannot be "
            "kept exactly. A larger global batch usually wants another learning rate; autotune did not change it."
        )
    else:
        yield wrapped(
            f"To keep your global batch, accumulate gradients over {_micro_batches(kept)} instead of {seen:g}. "
            "autotune did not change the script's accumulation or its learning rate."
        )


def _by_hand(stack: Stack) -> Iterator[str]:
    steps = []
    if not keeps_batch_size(stack.batch_size, stack.script_batch_size):
        steps.append(f"Set the script's batch size to {stack.batch_size} per process.")
    if stack.accumulation_set:
        steps.append(f"Have it accumulate gradients over {_micro_batches(stack.accumulation_set)} per optimizer step.")
    engine = ENGINES[stack.engine]
    steps += dict.fromkeys(step for choice in _made(stack) if (step := choice.by_hand.format(ENV_SH_NAME)))
    if engine.by_hand:
        # It applies the plans by hand as well: how to do without it is not what its users ask.
        yield bullets([*steps, f"Read {ENV_SH_NAME} in the shell: `. ./{ENV_SH_NAME}`. It names the plans.", _LINES])
        yield "\n".join(f"    {line}" for line in engine.by_hand)
        yield from map(wrapped, engine.by_hand_notes)
        return
    steps += [_plan_by_hand(plan) for plan in parse_plans(stack.plans)]
    if stack.plans or stack.level:
        steps.append(
            f"With ONNX Runtime's ORTModule: read {ENV_SH_NAME} in the shell (`. ./{ENV_SH_NAME}`), then start the "
            "script. ORTModule names operators in its own way and passes over plans that it does not know, without a "
            "word: look at the plan table that it logs with ORTMODULE_LOG_LEVEL=INFO."
        )
    yield bullets(steps) if steps else wrapped("There is nothing to apply: the script runs as it is.")


def _plan_by_hand(plan: Plan) -> str:
    which = "every" if plan.count == ALL else f"the first {plan.count}"
    how = _STRATEGIES.get(plan.strategy)
    if how is None:
        return f"{plan}: leave {plan.cluster_id.rstrip('+')} as it is."
    text = f"{plan}: the activations of {which} `{plan.cluster_id}`, in the order of execution, are {how}."
    operators = plan.cluster_id.removesuffix("+")
    if operators[:1].isupper() and "+" not in operators:
        text += f" If {operators} is a module of yours: call {which} of them through torch.utils.checkpoint.checkpoint."
    return text


def _numbers(stack: Stack) -> Iterator[str]:
    environment = stack.environment
    yield wrapped(
        "samples/s is the number of samples per optimizer step over the median time of a step, after warm-up. Over "
        "several rounds it is the median round, in brackets the slowest and the fastest; of one round the brackets "
        "are the 95 % interval of the median step."
    )
    if environment.device_kind == "cuda":
        yield wrapped(
            "Peak memory is what the process takes away from the card: what torch's allocator reserved, and what the "
            "process holds outside of it."
        )
    else:
        yield wrapped("Peak memory is the high-water mark of the resident set, summed over the training processes.")
    yield wrapped(measured_on(environment, stack.autotune))


def _checked(stack: Stack) -> Iterator[str]:
    if stack.proof is not None and stack.proof.answer != "unknown":
        yield wrapped(stack.proof.statement)
        yield wrapped("`autotune verify` with this folder and the script does that again, on any machine.")


def _not_checked(stack: Stack) -> Iterator[str]:
    doubts = [
        "Whether the model learns as well: only first steps of training were run, the learning rate was left as it is.",
        "What the script does later: evaluation, checkpoints, longer inputs. Memory may peak there.",
        "Other machines, and other versions of torch, drivers and libraries: figures move with them.",
    ]
    if not _is_untouched(stack) and (stack.proof is None or stack.proof.answer == "unknown"):
        why = "" if stack.proof is None else f" {stack.proof.statement}"
        doubts.append(
            "Your model's gradients, side by side with those of the unmodified script."
            f"{why} `autotune verify` with this folder and the script compares them."
        )
    left_out = sorted(name for name, value in (stack.environment.variables or {}).items() if not allowed(name, value))
    if left_out:
        doubts.append(
            "Runs without these environment variables, which were set when this was measured and which a bundle never "
            f"sets: {', '.join(left_out)}."
        )
    yield bullets(doubts)


def _files(*, has_report: bool) -> Iterator[str]:
    named = {
        MEM_OPT_NAME: "the recompute plans, in the format of ONNX Runtime's Memory Optimizer",
        STACK_NAME: "everything else that is needed to run this setting, with the figures",
        ENV_SH_NAME: "the environment variables, for a shell",
        "report.html": "the whole search on one page, for a browser; it loads nothing from a network",
    }
    yield rows({name: what for name, what in named.items() if has_report or name != "report.html"})


def _changes_something(stack: Stack) -> bool:
    return not (_is_untouched(stack) and keeps_batch_size(stack.batch_size, stack.script_batch_size))


def _is_untouched(stack: Stack) -> bool:
    return stack.engine in PLAIN_ENGINES and not stack.choices


def _made(stack: Stack) -> list[Choice]:
    """The choices that were made, in the engine's order."""
    made = made_choices(stack.engine, stack.choices)
    return [choice for choice in choices_of(stack.engine).values() if choice in made]


def _micro_batches(count: float) -> str:
    return f"{count:g} micro-batch{'' if count == 1 else 'es'}"


def _script(stack: Stack) -> str:
    return printable(Path(script_title(stack.script_name, stack.module, stack.arguments)).name)


def _engine(stack: Stack) -> str:
    return ENGINES[stack.engine].title


def _batch_size(stack: Stack) -> str:
    if keeps_batch_size(stack.batch_size, stack.script_batch_size):
        return f"the script's own{'' if stack.script_batch_size is None else f' ({stack.script_batch_size})'}"
    own = "" if stack.script_batch_size is None else f" (your script: {stack.script_batch_size})"
    return f"{stack.batch_size} per process{own}"
