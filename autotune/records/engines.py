"""Properties of the engines, in one table: all that the search, the bundle and the texts have to know of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Engine = Literal["aot", "inductor", "ortmodule", "eager", "onnxruntime"]

# Of a run under an engine that generates no code, as a share. A judgement.
_LEAST_GAIN = 0.005

Target = Literal["script", "model"]
"""What is tuned: a training script, or an ONNX model."""


@dataclass(frozen=True, kw_only=True)
class EngineProperties:
    """The properties of an engine, as everything but the worker sees it."""

    does: str  # what it is for, in a line
    title: str  # what a bundle calls it
    in_verdict: str = ""  # what a verdict says behind a configuration's name
    switches: bool = False  # see `SWITCHING_ENGINES`
    forks: bool = True  # its runs may come from a process that has imported torch already
    compiles: bool = False  # see `COMPILING_ENGINES`
    fuses: bool = False  # several operators run as one; their times by themselves are an upper bound
    needs_compiler: bool = False  # on CPUs it takes a C++ compiler
    keeps_casts: bool = True  # its generated code can keep the script's casts, as proofs have it do
    layer: str = ""  # around the model, the first of the optimizer stack; empty for none
    later_layers: dict[str, str] = field(default_factory=dict)  # others of such a stack, with why they are not in ours
    variables: dict[str, str] = field(default_factory=dict)  # for the script to run under it without autotune
    by_hand: tuple[str, ...] = ()  # the lines that put it into a script without autotune
    by_hand_notes: tuple[str, ...] = ()  # what these need, and what to look at
    runs_take: float = 1.0  # the time of a run, as a multiple of that under an engine without code generation
    start_timeout_s: float = 300.0  # of a run until its first training step ends
    trial_timeout_s: float = 120.0  # of each trial from then on; later steps may compile again
    levels: tuple[int, ...] = (0,)  # those that a search tries; above 0 the engine itself chooses what it recomputes
    plain: bool = False  # see `PLAIN_ENGINES`
    worker: Literal["worker", "inference"] = "worker"  # the package that measures under it
    computes: Literal["gradients", "outputs"] = "gradients"  # what a proof compares
    target: Target = "script"  # what it runs
    needs: tuple[str, ...] = ()  # packages in place of torch

    @property
    def least_gain(self) -> float:
        """Return the gain, as a share, below which a run of one trial is not worth its time."""
        return _LEAST_GAIN * self.runs_take


NEEDS_CUDA = "it needs CUDA, and ONNX Runtime Training's last release for it comes with no torch that autotune runs on"

ENGINES: Mapping[Engine, EngineProperties] = {
    "eager": EngineProperties(
        does="the script itself: batch sizes, and choices of torch's", title="eager (as your script has it)", plain=True
    ),
    "aot": EngineProperties(
        does="recompute plans, on the model's graphs run as they are",
        title="aot (PyTorch's AOTAutograd, no code generation)",
        switches=True,
        layer="AOTAutograd",
    ),
    "inductor": EngineProperties(
        does="recompute plans, on graphs that Inductor compiles",
        title="inductor (compiled by PyTorch's Inductor)",
        in_verdict=" compiled by Inductor",
        compiles=True,
        fuses=True,
        needs_compiler=True,
        # Code for a GPU is generated in 30 to 90 s, and in some minutes where processors are busy.
        runs_take=3.0,
        start_timeout_s=900.0,
        trial_timeout_s=300.0,
        layer="Inductor",
    ),
    "ortmodule": EngineProperties(
        does="ONNX Runtime Training with its Memory Optimizer, on CPU",
        title="ortmodule (ONNX Runtime Training)",
        in_verdict=" in ONNX Runtime",
        compiles=True,
        keeps_casts=False,
        layer="ORTModule",
        levels=(0, 1, 2),
        # Its environment repairs torch while that is imported.
        forks=False,
        later_layers={
            "FusedAdam": f"not put in place of the script's optimizer: {NEEDS_CUDA}",
            "DeepSpeedEngine": "the script does not call deepspeed.initialize",
            "FP16_Optimizer": f"not put around the script's optimizer: {NEEDS_CUDA}",
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
    ),
    "onnxruntime": EngineProperties(
        does="an ONNX model in place of a script: batch sizes, and settings of ONNX Runtime's sessions",
        title="onnxruntime (ONNX Runtime, inference)",
        plain=True,
        forks=False,
        worker="inference",
        computes="outputs",
        keeps_casts=False,
        target="model",
        needs=("onnxruntime", "onnx"),
    ),
}

SWITCHING_ENGINES: frozenset[Engine] = frozenset(name for name, engine in ENGINES.items() if engine.switches)
"""The engines that change plans at a step boundary; under others each configuration takes a process of its own."""

COMPILING_ENGINES: frozenset[Engine] = frozenset(name for name, engine in ENGINES.items() if engine.compiles)
"""The engines that run a model faster even without plans, so that the script under them is worth a trial."""

PLAIN_ENGINES: frozenset[Engine] = frozenset(name for name, engine in ENGINES.items() if engine.plain)
"""What a script, or a model, runs in by itself."""

MODEL_ENGINE: Engine = "onnxruntime"
"""What runs an ONNX model."""


def plain_engine_of(engine: Engine) -> Engine:
    """Return what a target that is tuned under an engine runs in by itself."""
    return engine if ENGINES[engine].plain else "eager"
