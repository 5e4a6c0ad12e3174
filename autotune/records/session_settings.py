"""The settings of ONNX Runtime's sessions that a search may make, in one table.

Names and values are those of ONNX Runtime's Python API, of ``onnxruntime_session_options_config_keys.h`` and
``onnxruntime_run_options_config_keys.h``, and of CUDA's provider. They change how results are rounded, and nothing else
of what is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .choice_types import Choice, StackLine
from .environment import DeviceKind
from .facts import Facts

Part = Literal["options", "config", "run_config", "arena", "binding", "malloc", "provider", "outputs"]

_WHERE = {"cpu": "the CPU", "cuda": "GPUs"}
_GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class SessionSetting(Choice):
    """A setting of sessions."""

    part: Part  # where it is set, a field of `Session`
    key: str = ""  # its name there
    texts: tuple[bool | int | str, ...] = ()  # what each value is written as, from 0 on; empty for a number
    least: int = 1  # the smallest number that is tried, beside 0
    on: DeviceKind | None = None  # where it changes something; None for everywhere
    is_free = True

    def takes(self, value: str) -> bool:
        """Return whether this is one of its values, as written."""
        return value.isdecimal() and len(value) < 5 and (not self.texts or int(value) < len(self.texts))

    def values_for(self, facts: Facts) -> tuple[int, ...]:
        """Return the values that change something: of threads powers of two, and 0, by which ONNX Runtime chooses."""
        if self.texts:
            idle = () if facts.inference is None else facts.inference.idle
            without = {value for one in idle if one.setting == self.name for value in one.values}
            return tuple(value for value in range(len(self.texts)) if value not in without)
        most = facts.environment.num_threads
        return (0, *(1 << n for n in range(most.bit_length()) if self.least <= 1 << n < most))

    def refusal_for(self, facts: Facts) -> str:
        """Refuse a setting of another device or system, and shared threads where there is one processor."""
        kind = facts.environment.device_kind
        if self.on not in (None, kind):
            return f"the model runs on {_WHERE[kind]}, and it is a setting of {_WHERE[self.on or kind]}"
        if self.part == "malloc" and "glibc" not in facts.environment.platform:
            return "it is a setting of glibc, which this Python does not run on"
        if self.part == "options" and "threads" in self.key and facts.environment.num_threads < 2:
            return "this machine has one processor"
        return ""

    def text(self, value: str) -> bool | int | str:
        """Return a value as it is written."""
        return self.texts[int(value)] if self.texts else int(value)

    def stack_line(self, value: str) -> StackLine:
        """Say it beside the engine."""
        return StackLine("engine", {self.key or self.name: str(self.text(value))})


@dataclass(frozen=True, kw_only=True)
class ArenaLimit(SessionSetting):
    """A limit on the size of an arena, in GiB; 0 for no limit."""

    def values_for(self, facts: Facts) -> tuple[int, ...]:
        """Return the least that holds all that discovery saw the model take, and twice that, where there is so much."""
        moments = () if facts.inference is None else facts.inference.moments
        least = -(-max((one.peak for one in moments), default=0) // _GIB)
        return (0, *(size for size in (least, 2 * least) if 0 < size * _GIB < facts.environment.device_memory_bytes))

    def text(self, value: str) -> int:
        """Return the limit in bytes."""
        return int(value) * _GIB


@dataclass(frozen=True, kw_only=True)
class AllowedSetting(SessionSetting):
    """A setting that changes what a caller gets, so that it is tried only where that was allowed."""

    is_free = False


SESSION_SETTINGS: tuple[SessionSetting, ...] = (
    SessionSetting(
        name="cpu-arena",
        does="keep freed memory of the CPU in an arena, for the next run",
        part="options",
        key="enable_cpu_mem_arena",
        texts=(False, True),
        default=1,
        on="cpu",
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
        on="cpu",
    ),
    SessionSetting(
        name="inter-op-threads",
        does="threads that run operators at the same time; 0: as many as there are processors",
        part="options",
        key="inter_op_num_threads",
        needs="parallel",
        least=2,  # with one, ONNX Runtime turns `parallel` off
        on="cpu",
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
        does="weights lie outside of the arena, which then has only what runs need",
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
        on="cpu",
    ),
    SessionSetting(
        name="shrink-arena",
        does="give the arena's free memory back after each run",
        part="run_config",
        key="memory.enable_memory_arena_shrinkage",
        needs="cpu-arena",
        texts=("", "cpu:0"),
        on="cpu",
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
        on="cpu",
    ),
    SessionSetting(
        name="gpu-arena-as-requested",
        does="the GPU's arena grows by what is asked for, not by doubling",
        part="provider",
        key="arena_extend_strategy",
        texts=("kNextPowerOfTwo", "kSameAsRequested"),
        on="cuda",
    ),
    ArenaLimit(
        name="gpu-mem-limit",
        does="how large the GPU's arena may become, in GiB; 0: as large as it likes",
        part="provider",
        key="gpu_mem_limit",
        on="cuda",
    ),
    SessionSetting(
        name="shrink-gpu-arena",
        does="give the free memory of the GPU's arena back after each run",
        part="run_config",
        key="memory.enable_memory_arena_shrinkage",
        texts=("", "gpu:0"),
        on="cuda",
    ),
    SessionSetting(
        name="conv-search",
        does="how kernels of convolutions are chosen: by trying all, by a rule, or always the same",
        part="provider",
        key="cudnn_conv_algo_search",
        texts=("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
        on="cuda",
    ),
    SessionSetting(
        name="cuda-graph",
        does="runs are captured into a CUDA graph, and replayed",
        part="provider",
        key="enable_cuda_graph",
        texts=("0", "1"),
        needs="io-binding",
        on="cuda",
    ),
    AllowedSetting(
        name="outputs-on-device",
        does="bound outputs stay on the GPU (changes what a caller gets)",
        part="outputs",
        texts=(False, True),
        needs="io-binding",
        on="cuda",
    ),
)


def setting_named(name: str) -> SessionSetting:
    """Return the setting of that name; KeyError if there is none."""
    return {one.name: one for one in SESSION_SETTINGS}[name]
