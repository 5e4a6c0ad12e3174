"""The settings of ONNX Runtime's sessions that a search may make, and the document that says which were made.

Names and values are those of ONNX Runtime's Python API and of ``onnxruntime_session_options_config_keys.h`` and
``onnxruntime_run_options_config_keys.h``. None of the settings changes what is computed, but for how the graph's
optimization has it rounded; what a model is converted to does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from .choice import Choice, StackLine
from .conversion import ConversionChoice
from .facts import Facts
from .inference import Conversion

__all__ = [
    "CONVERTED_JSON_NAME",
    "CONVERTED_MODEL_NAME",
    "ENUMERATIONS",
    "MALLOC_PARAMETERS",
    "SESSION_SETTINGS",
    "Session",
    "SessionSetting",
    "converted_folder",
    "session_of",
    "setting_named",
]

Part = Literal["options", "config", "run_config", "arena", "binding", "malloc"]


MALLOC_PARAMETERS = {"M_MMAP_THRESHOLD": -3}
"""Numbers of ``malloc.h`` of glibc."""

ENUMERATIONS = {
    "graph_optimization_level": "GraphOptimizationLevel",
    "execution_mode": "ExecutionMode",
    "execution_order": "ExecutionOrder",
}
"""Options whose values are members of an enumeration of ONNX Runtime's, by the option's name."""

CONVERTED_MODEL_NAME = "model.onnx"
"""A converted model, in its folder; large weights are in a file beside it."""

CONVERTED_JSON_NAME = "converted.json"
"""What it came to, beside it."""


@dataclass(frozen=True)
class Session:
    """How a session is made and run: what ``session.json`` holds beside the model.

    ``options`` are attributes of ``SessionOptions``; an enumeration's member is written by its name. ``config`` are
    entries of its configuration, ``run_config`` of each run's. ``arena`` is the configuration of an arena that the
    process makes for all of its sessions; empty for the session's own. ``io_binding``: inputs and outputs are bound, so
    that outputs are written where they are to be. ``malloc`` are parameters of ``mallopt(3)``, which the process takes
    for all that it allocates. ``conversion`` is what the model is made into before; None for the model as it is.
    """

    options: dict[str, bool | int | str] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)
    run_config: dict[str, str] = field(default_factory=dict)
    arena: dict[str, int] = field(default_factory=dict)
    io_binding: bool = False
    malloc: dict[str, int] = field(default_factory=dict)
    conversion: Conversion | None = None


@dataclass(frozen=True, kw_only=True)
class SessionSetting(Choice):
    """One setting.

    Attributes:
        part: where it is set, a field of ``Session``.
        key: its name there.
        texts: what each value is written as, from 0 on; empty for a number, which is written as it is.
        least: the smallest number that is tried, beside 0.
    """

    part: Part
    key: str = ""
    texts: tuple[bool | int | str, ...] = ()
    least: int = 1
    is_free = True

    @property
    def form(self) -> str:
        """How it is written."""
        values = " to ".join(str(one) for one in (0, len(self.texts) - 1)) if self.texts else "a whole number"
        return f"{self.name}=, with {values}"

    def takes(self, value: str) -> bool:
        """Whether this is one of its values, as written."""
        return value.isdecimal() and len(value) < 5 and (not self.texts or int(value) < len(self.texts))

    def values_for(self, facts: Facts) -> tuple[int, ...]:
        """Those that change something; of threads the numbers that there are, and 0, by which ONNX Runtime chooses."""
        if self.texts:
            idle = () if facts.inference is None else facts.inference.idle
            without = {value for one in idle if one.setting == self.name for value in one.values}
            return tuple(value for value in range(len(self.texts)) if value not in without)
        most = facts.environment.num_threads
        return (0, *(1 << n for n in range(most.bit_length()) if self.least <= 1 << n < most))

    def refusal_for(self, facts: Facts) -> str:
        """Where there is one processor, threads have nothing to share."""
        if self.part == "malloc" and "glibc" not in facts.environment.platform:
            return "it is a setting of glibc, which this Python does not run on"
        if self.part == "options" and "threads" in self.key and facts.environment.num_threads < 2:
            return "this machine has one processor"
        return ""

    def text(self, value: str) -> bool | int | str:
        """What a value is written as."""
        return self.texts[int(value)] if self.texts else int(value)

    def stack_line(self, value: str) -> StackLine:
        """Say it beside the engine."""
        return StackLine("engine", {self.key or self.name: str(self.text(value))})


SESSION_SETTINGS: tuple[SessionSetting, ...] = (
    SessionSetting(
        name="cpu-arena",
        does="keep freed memory of the CPU in an arena, for the next run",
        part="options",
        key="enable_cpu_mem_arena",
        texts=(False, True),
        default=1,
    ),
    SessionSetting(
        name="mem-pattern",
        does="allocate what a run needs in one piece, where its shapes were seen before",
        part="options",
        key="enable_mem_pattern",
        texts=(False, True),
        default=1,
    ),
    SessionSetting(
        name="mem-reuse",
        does="put a tensor where one lies that is not needed any more",
        part="options",
        key="enable_mem_reuse",
        texts=(False, True),
        default=1,
    ),
    SessionSetting(
        name="optimization",
        does="how far the graph is rewritten: not, basic, extended, all",
        part="options",
        key="graph_optimization_level",
        texts=("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"),
        default=3,
    ),
    SessionSetting(
        name="parallel",
        does="run operators that do not need each other at the same time",
        part="options",
        key="execution_mode",
        texts=("ORT_SEQUENTIAL", "ORT_PARALLEL"),
    ),
    SessionSetting(
        name="inter-op-threads",
        does="threads that run operators at the same time; 0: as many as there are processors",
        part="options",
        key="inter_op_num_threads",
        needs="parallel",
        least=2,  # with one, ONNX Runtime turns `parallel` off
    ),
    SessionSetting(
        name="order",
        does="the order of operators: as they depend on each other, or what others wait for first",
        part="options",
        key="execution_order",
        texts=("DEFAULT", "PRIORITY_BASED"),
    ),
    SessionSetting(
        name="intra-op-threads",
        does="threads that share an operator; 0: as many as there are processors",
        part="options",
        key="intra_op_num_threads",
    ),
    SessionSetting(
        name="spinning",
        does="threads that wait keep their processor",
        part="config",
        key="session.intra_op.allow_spinning",
        texts=("0", "1"),
        default=1,
    ),
    SessionSetting(
        name="prepacking",
        does="copy weights into the order that kernels like best",
        part="config",
        key="session.disable_prepacking",
        texts=("1", "0"),
        default=1,
    ),
    SessionSetting(
        name="weights-outside-arena",
        does="weights lie outside of the arena, which so holds what runs need only",
        part="config",
        key="session.use_device_allocator_for_initializers",
        needs="cpu-arena",
        texts=("0", "1"),
    ),
    SessionSetting(
        name="arena-as-requested",
        does="the arena grows by what is asked for, not by doubling",
        part="arena",
        key="arena_extend_strategy",
        needs="cpu-arena",
        texts=(0, 1),
    ),
    SessionSetting(
        name="shrink-arena",
        does="give the arena's free memory back after each run",
        part="run_config",
        key="memory.enable_memory_arena_shrinkage",
        needs="cpu-arena",
        texts=("", "cpu:0"),
    ),
    SessionSetting(
        name="io-binding",
        does="bind inputs and outputs, so that outputs are not copied",
        part="binding",
        texts=(False, True),
    ),
    SessionSetting(
        name="mmap-threshold",
        does="memory of 256 KiB or more goes back to the system as soon as it is freed (glibc)",
        part="malloc",
        key="M_MMAP_THRESHOLD",
        texts=(0, 256 * 1024),
    ),
)


def converted_folder(run_directory: Path) -> Path:
    """Where runs of a study keep converted models, given the folder of one of them."""
    return run_directory.parent / "converted"


def setting_named(name: str) -> SessionSetting:
    """The setting of that name; KeyError if there is none."""
    return {one.name: one for one in SESSION_SETTINGS}[name]


def session_of(made: Iterable[tuple[Choice, str]]) -> Session:
    """The session of settings and conversions, each with its value as written."""
    session = Session()
    for setting, value in made:
        if isinstance(setting, ConversionChoice):
            session = replace(session, conversion=setting.conversion)
            continue
        assert isinstance(setting, SessionSetting), "the engine has no other"
        text = setting.text(value)
        if setting.part == "options":
            session.options[setting.key] = text
        elif setting.part == "config":
            session.config[setting.key] = str(text)
        elif setting.part == "run_config" and text:
            session.run_config[setting.key] = str(text)
        elif setting.part == "arena":
            session.arena[setting.key] = int(text)
        elif setting.part == "binding":
            session = replace(session, io_binding=bool(text))
        elif setting.part == "malloc" and text:
            session.malloc[setting.key] = int(text)
    return session
