"""The part of a CUDA device that scripts ask for: the functions of ``torch.cuda``, answered for a card."""

from __future__ import annotations

import functools
import itertools
import threading
from collections import defaultdict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol, Self

import torch

from ...records.cards import Card
from .communication import on_machine

# What a process has of the device before its first tensor. Scripts that size themselves by it see a fresh card.
_CONTEXT_BYTES = 512 << 20
_CUDNN = 91900
_NO_BYTES = (
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "memory_cached",
    "max_memory_cached",
)
_NOTHING = (
    "_lazy_init",
    "init",
    "_lazy_call",
    "set_device",
    "synchronize",
    "ipc_collect",
    "set_per_process_memory_fraction",
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_accumulated_memory_stats",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
)


# What torch.accelerator has of torch.cuda, besides counts of bytes.
_OF_ACCELERATOR = (
    "current_stream",
    "set_stream",
    "synchronize",
    "empty_cache",
    "memory_stats",
    "get_memory_info",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
)


class Watch(Protocol):
    """Is told what a script does that allocations depend on."""

    def cache_emptied(self) -> None:
        """See the script give unused memory back to the device."""

    def stream_used(self, number: int) -> None:
        """See this thread of the script go on in a stream; 0 is the device's own."""


class _Nothing:
    """Stands for an event and for a device that is made current: both do nothing."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        del arguments, keywords
        self.device, self.idx, self.prev_idx = torch.device("cuda:0"), 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Leave."""

    def query(self) -> bool:
        """Return that everything is done."""
        return True

    def elapsed_time(self, other: Any) -> float:
        """Return a millisecond."""
        del other
        return 1.0

    def record_event(self, event: Any = None) -> Any:
        """Return the event."""
        return event or _Nothing()

    def record(self, *arguments: Any) -> None:
        """Do nothing."""

    wait = wait_stream = wait_event = synchronize = record


class _Stream(_Nothing):
    """Stands for a stream, to which nothing is given but the memory that is allocated while it is current."""

    # torch hands out the streams of a pool in turn (c10/cuda/CUDAStream.cpp).
    numbers: ClassVar = itertools.cycle(range(1, 33))
    streams: ClassVar[_Streams]
    device_index, device_type = 0, 1

    def __init__(self, device: Any = None, priority: int = 0, *, stream_id: int | None = None, **others: Any) -> None:
        super().__init__(device, **others)
        self.priority = priority
        self.cuda_stream = self.stream_id = next(self.numbers) if stream_id is None else stream_id
        self._before: list[_Stream] = []

    def is_capturing(self) -> bool:
        """Return that no graph is captured."""
        return False

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the least and the greatest priority, as CUDA has them."""
        return 0, -5

    def __enter__(self) -> Self:
        self._before.append(self.streams.current())
        self.streams.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        """Make the stream current again that was so before."""
        self.streams.set(self._before.pop())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stream) and self.stream_id == other.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)


def _external_stream(stream_ptr: int, device: Any = None, **others: Any) -> _Stream:
    return _Stream(device, stream_id=stream_ptr, **others)


class _StreamContext:
    """Has a stream be current for a while; none changes nothing."""

    def __init__(self, stream: _Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *error: object) -> None:
        """Leave the stream."""
        if self.stream is not None:
            self.stream.__exit__()


class _Streams(threading.local):
    """Keeps which stream is current in each thread."""

    def __init__(self, watch: Watch, default: _Stream) -> None:
        self.default, self._current = default, default
        self._watch = watch

    def current(self, *arguments: Any, **keywords: Any) -> _Stream:
        """Return the stream that is current."""
        del arguments, keywords
        return self._current

    def set(self, stream: _Stream | None) -> None:
        """Make a stream current; none changes nothing."""
        if stream is not None:
            self._current = stream
            self._watch.stream_used(stream.stream_id)


def _set(module: Any, answers: Mapping[str, Any]) -> None:
    for name, answer in answers.items():
        if hasattr(module, name):
            setattr(module, name, answer)


class _Generator(torch.Generator):
    """Stands for a generator on the device: one for the CPU, as nothing is drawn there."""

    _device: torch.device

    def __new__(cls, device: Any = "cpu") -> Self:
        """Make a generator for the CPU that names the device."""
        given = torch.device(device)
        make: Any = super().__new__
        generator: Self = make(cls, "cpu" if given.type == "cuda" else given)
        generator._device = torch.device("cuda", given.index or 0) if given.type == "cuda" else given
        return generator

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Return the device that was asked for."""
        return self._device


def _scatter(tensor: torch.Tensor, devices: Any, sizes: Any, dim: int, streams: Any) -> list[torch.Tensor]:
    """Copy a batch to the device, in the stream that DataParallel gives (csrc/cuda/comm.cpp)."""
    del devices, sizes, dim
    with _StreamContext(streams[0] if streams else None):
        return [tensor.to("cuda")]


def answer_for(card: Card, watch: Watch) -> None:
    """Have ``torch.cuda`` answer as on this card; ``watch`` is told what the script does."""
    cuda = torch.cuda
    major, minor = card.capability
    properties = SimpleNamespace(
        name=card.title,
        major=major,
        minor=minor,
        total_memory=card.memory_bytes,
        multi_processor_count=card.num_processors,
        warp_size=32,
        is_integrated=False,
        is_multi_gpu_board=False,
        L2_cache_size=40 << 20,
        max_threads_per_multi_processor=card.threads_per_processor,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_multiprocessor=102400,
        gcnArchName="",
        uuid=f"absent-{card.name}",
    )
    state = torch.zeros(16, dtype=torch.uint8)
    streams = _Stream.streams = _Streams(watch, _Stream(stream_id=0))
    answers: dict[str, Any] = {
        **{name: lambda *_, **__: 0 for name in _NO_BYTES},
        **{name: lambda *_, **__: None for name in _NOTHING},
        "is_available": lambda: True,
        "_is_compiled": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: on_machine(card.number),
        "_device_count_nvml": lambda: on_machine(card.number),
        "current_device": lambda: 0,
        "_exchange_device": lambda *_: 0,
        "_maybe_exchange_device": lambda *_: 0,
        "get_device_name": lambda *_, **__: card.title,
        "get_device_capability": lambda *_, **__: card.capability,
        "get_device_properties": lambda *_, **__: properties,
        "is_bf16_supported": lambda including_emulation=True: including_emulation or major >= 8,
        "is_tf32_supported": lambda: major >= 8,
        "get_arch_list": lambda: [f"sm_{major}{minor}"],
        "empty_cache": watch.cache_emptied,
        "mem_get_info": lambda *_, **__: (card.memory_bytes - _CONTEXT_BYTES, card.memory_bytes),
        "get_memory_info": lambda *_, **__: (card.memory_bytes - _CONTEXT_BYTES, card.memory_bytes),
        "memory_stats": lambda *_, **__: defaultdict(int),
        "memory_summary": lambda *_, **__: "",
        "initial_seed": lambda: 0,
        "get_rng_state": lambda *_, **__: state.clone(),
        "get_rng_state_all": lambda: [state.clone()],
        "Stream": _Stream,
        "ExternalStream": _external_stream,
        "Event": _Nothing,
        "current_stream": streams.current,
        "default_stream": lambda *_, **__: streams.default,
        "stream": _StreamContext,
        "StreamContext": _StreamContext,
        "set_stream": streams.set,
        "device": _Nothing,
        "is_current_stream_capturing": lambda: False,
        "utilization": lambda *_: 0,
    }
    for module in (cuda, cuda.memory, cuda.random, cuda.streams):
        _set(module, answers)
    # Dynamo knows functions by what they are, and refuses one that stands under two names.
    others = {name: functools.partial(answers[name]) for name in (*_OF_ACCELERATOR, *_NO_BYTES)}
    for module in (torch.accelerator, torch.accelerator.memory):
        _set(module, others)
    package: Any = torch
    package.Generator, package.Stream, package.Event = _Generator, _Stream, _Nothing
    cuda.default_generators = (_Generator("cuda"),)
    # In torch 2.11 a fake tensor has the device allocate a real one first.
    package._subclasses.fake_tensor.init_gpu_context = lambda *_: None
    torch.backends.cuda.is_built = lambda: True
    torch.backends.cudnn.is_available = lambda: True
    torch.backends.cudnn.version = lambda: _CUDNN
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        setattr(torch.cuda.nvtx, name, lambda *_, **__: 0)
    native: Any = torch._C
    native._scatter = _scatter
    native._cuda_getDeviceCount = lambda: on_machine(card.number)
    native._cuda_isCurrentStreamCapturing = lambda: False
