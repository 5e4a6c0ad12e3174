"""Sessions of ONNX Runtime, made as a ``Session`` record says, and whether they are what was asked for."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from ..records import Session
from ..records.session import ENUMERATIONS, MALLOC_PARAMETERS
from .feeds import Feed
from .model import ModelError

__all__ = ["Runner"]

_PROVIDERS = ["CPUExecutionProvider"]
_ENUMERATIONS: dict[str, Any] = {name: getattr(onnxruntime, kind) for name, kind in ENUMERATIONS.items()}
# Arenas that a process makes for its sessions are asked for by this entry of a session's configuration.
_SHARED_ARENA = "session.use_env_allocators"


class Runner:
    """A session on the CPU, and how its runs are made.

    Args:
        model: the model's file.
        settings: how the session is made.
        profile_prefix: what the profile's file begins with; empty for no profile.

    Raises:
        ModelError: the system does not take a setting.
    """

    def __init__(self, model: Path, settings: Session, *, profile_prefix: str = "") -> None:
        for parameter, number in settings.malloc.items():
            _set_malloc(parameter, number)
        options = onnxruntime.SessionOptions()
        if profile_prefix:
            options.enable_profiling = True
            options.profile_file_prefix = profile_prefix
        options.log_severity_level = 3
        for name, value in settings.options.items():
            kind = _ENUMERATIONS.get(name)
            setattr(options, name, value if kind is None else kind.__members__[str(value)])
        for key, entry in settings.config.items():
            options.add_session_config_entry(key, entry)
        if settings.arena:
            memory = onnxruntime.OrtMemoryInfo(
                "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
            )
            onnxruntime.create_and_register_allocator(memory, onnxruntime.OrtArenaCfg(settings.arena))
            options.add_session_config_entry(_SHARED_ARENA, "1")
        self._run_options = onnxruntime.RunOptions()
        for key, entry in settings.run_config.items():
            self._run_options.add_run_config_entry(key, entry)
        self._settings = settings
        self.session = onnxruntime.InferenceSession(str(model), options, providers=_PROVIDERS)
        self._outputs = [one.name for one in self.session.get_outputs()]

    def run(self, feed: Feed) -> list[Any]:
        """Run the model once; its outputs."""
        if not self._settings.io_binding:
            return list(self.session.run(self._outputs, feed, self._run_options))
        binding = self.session.io_binding()
        for name, array in feed.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(array))
        for name in self._outputs:
            binding.bind_output(name, "cpu")
        self.session.run_with_iobinding(binding, self._run_options)
        return list(binding.copy_outputs_to_cpu())

    def shrink(self, feed: Feed) -> None:
        """Run the model once more, and have the arena give back what it does not need."""
        options = onnxruntime.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self.session.run(self._outputs, feed, options)

    def fallback(self) -> str:
        """What runs in the place of the provider that was asked for; empty where none does."""
        found = self.session.get_providers()
        return "" if found[:1] == _PROVIDERS[:1] else ", ".join(found)


def _set_malloc(parameter: str, number: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or not mallopt(MALLOC_PARAMETERS[parameter], number):
        raise ModelError(f"the C library does not take {parameter}", "leave the setting out")
