"""What the engines are like, in one table: what the search, the bundle and the texts have to know of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..errors import UsageError
from .choices import TORCH_CHOICES, Choice

__all__ = [
    "COMPILING_ENGINES",
    "ENGINES",
    "SWITCHING_ENGINES",
    "Engine",
    "EngineProperties",
    "allowed_choices",
    "choice_settings",
    "made_choices",
]

Engine = Literal["eager", "aot", "inductor", "ortmodule"]


@dataclass(frozen=True, kw_only=True)
class EngineProperties:
    """An engine, as everything but the worker sees it.

    Attributes:
        does: what it is for, in a line.
        title: what a bundle calls it.
        in_verdict: what a verdict says behind a configuration's name.
        switches: it changes plans at a step boundary; under others each configuration takes a process of its own.
        forks: its runs may come from a process that has imported torch already.
        compiles: it runs a model faster even without plans, so that the script under it is worth a trial.
        fuses: it runs several operators as one, whose times by themselves are then an upper bound.
        layer: what it puts around the model, the first layer of the optimizer stack; empty where it is nothing.
        later_layers: names of what else such a stack can have, in order, with why it is not in ours. A script's own
            wrapper of that name is there.
        variables: to be set for the script to run under it without autotune.
        by_hand: the lines that put it into a script without autotune.
        by_hand_notes: what they need, and what to look at.
        choices: by name.
        levels: those that a search tries. One above 0 goes without plans: the engine chooses by itself what it
            recomputes.
    """

    does: str
    title: str
    in_verdict: str = ""
    switches: bool = False
    forks: bool = True
    compiles: bool = False
    fuses: bool = False
    layer: str = ""
    later_layers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    by_hand: tuple[str, ...] = ()
    by_hand_notes: tuple[str, ...] = ()
    choices: dict[str, Choice] = field(default_factory=dict)
    levels: tuple[int, ...] = (0,)


_NEEDS_CUDA = "it needs CUDA, and ONNX Runtime Training's last release for it comes with no torch that autotune runs on"

ENGINES: Mapping[Engine, EngineProperties] = {
    "eager": EngineProperties(
        does="the script itself: batch sizes, and choices of torch's",
        title="eager (as your script has it)",
        choices=TORCH_CHOICES,
    ),
    "aot": EngineProperties(
        does="recompute plans, on the model's graphs run as they are",
        title="aot (PyTorch's AOTAutograd, no code generation)",
        switches=True,
        layer="AOTAutograd",
        choices=TORCH_CHOICES,
    ),
    "inductor": EngineProperties(
        does="recompute plans, on graphs that Inductor compiles",
        title="inductor (compiled by PyTorch's Inductor)",
        in_verdict=" compiled by Inductor",
        compiles=True,
        fuses=True,
        layer="Inductor",
        choices=TORCH_CHOICES,
    ),
    "ortmodule": EngineProperties(
        does="ONNX Runtime Training with its Memory Optimizer, on CPU",
        title="ortmodule (ONNX Runtime Training)",
        in_verdict=" in ONNX Runtime",
        compiles=True,
        layer="ORTModule",
        levels=(0, 1, 2),
        # Its environment repairs torch while that is imported.
        forks=False,
        later_layers={
            "FusedAdam": f"not put in place of the script's optimizer: {_NEEDS_CUDA}",
            "DeepSpeedEngine": "the script does not call deepspeed.initialize",
            "FP16_Optimizer": f"not put around the script's optimizer: {_NEEDS_CUDA}",
        },
        # Else a failed export trains in PyTorch, in silence.
        variables={"ORTMODULE_FALLBACK_POLICY": "FALLBACK_DISABLE"},
        by_hand=(
            "from ortmodule_compat import import_ortmodule",
            "ortmodule = import_ortmodule()",
            "model = ortmodule.ORTModule(model)",
        ),
        by_hand_notes=(
            (
                "The first line needs the Python environment that `autotune engines install ortmodule` made, which "
                "`autotune engines` names; with torch before 2.9 and ONNX Runtime Training 1.19 elsewhere, `from "
                "onnxruntime.training import ortmodule` takes the place of the first two lines."
            ),
            (
                "ONNX Runtime passes over plans that it does not know, without a word; ORTMODULE_LOG_LEVEL=INFO has it "
                "log the table of its plans, ON and OFF."
            ),
        ),
        choices={
            "compute-optimizer": Choice(
                does="shrink operators' inputs early (on unless told otherwise)",
                variables=("ORTMODULE_ENABLE_COMPUTE_OPTIMIZER",),
                default=1,
            ),
            "embedding-sparse-optimizer": Choice(
                does="leave out padding, and words without a label (on unless told otherwise)",
                variables=("ORTMODULE_ENABLE_EMBEDDING_SPARSE_OPTIMIZER",),
                default=1,
            ),
            "mem-efficient-grad-mgmt": Choice(
                does="give gradients to parameters as they are computed",
                variables=("ORTMODULE_ENABLE_MEM_EFFICIENT_GRAD_MGMT",),
                refusal="it needs custom autograd functions, whose extension does not compile on the torch that "
                "autotune runs on",
            ),
            "fused-adam": Choice(does="ONNX Runtime's FusedAdam in place of Adam", refusal=_NEEDS_CUDA),
            "fp16-optimizer": Choice(
                does="ONNX Runtime's FP16_Optimizer around DeepSpeed's, Megatron's or Apex's optimizer",
                refusal=_NEEDS_CUDA,
            ),
        },
    ),
}

SWITCHING_ENGINES: frozenset[Engine] = frozenset(name for name, engine in ENGINES.items() if engine.switches)
"""The engines that change plans at a step boundary; under others each configuration takes a process of its own."""

COMPILING_ENGINES: frozenset[Engine] = frozenset(name for name, engine in ENGINES.items() if engine.compiles)
"""The engines that run a model faster even without plans, so that the script under them is worth a trial."""


def allowed_choices(engine: Engine, names: Iterable[str]) -> tuple[str, ...]:
    """The choices of an engine that a search may try both ways, each once; UsageError for one that cannot be had."""
    known = ENGINES[engine].choices
    for name in names:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise UsageError(f"engine {engine!r} has no choice {name!r}", hint=has)
        if known[name].refusal:
            raise UsageError(f"{name!r} cannot be had: {known[name].refusal}", hint="leave it out")
    return tuple(dict.fromkeys(names))


def made_choices(engine: Engine, choices: Iterable[str]) -> dict[Choice, str]:
    """Choices that were made otherwise than by default, of some each ``name=0`` or ``name=1``, with their values.

    UsageError for one that the engine does not have, that cannot be had or is there twice, and for two that exclude
    each other.
    """
    known = ENGINES[engine].choices
    made = {}
    for choice in choices:
        name, _, value = choice.partition("=")
        allowed_choices(engine, [name])
        if value not in ("0", "1"):
            raise UsageError(f"a choice is name=0 or name=1, this is {choice!r}", hint="correct it where it comes from")
        if name in made:
            raise UsageError(f"{name!r} is chosen twice", hint="correct it where it comes from")
        made[name] = value
    on = [name for name, value in made.items() if value == "1"]
    for name in on:
        both = next((other for other in on if other in known[name].excludes), None)
        if both is not None:
            raise UsageError(f"{name!r} and {both!r} exclude each other", hint="correct it where it comes from")
    return {known[name]: value for name, value in made.items() if int(value) != known[name].default}


def choice_settings(engine: Engine, choices: Iterable[str], before: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of choices that were made; those that are set ``before`` keep what else they hold.

    UsageError as in ``made_choices``.
    """
    settings: dict[str, str] = {}
    for choice, value in made_choices(engine, choices).items():
        settings |= choice.variables_for(value, before)
    return settings
