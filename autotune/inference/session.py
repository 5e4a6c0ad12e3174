"""Sessions of ONNX Runtime, made as a ``Session`` record says, and whether they are what was asked for."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from ..records.session import ENUMERATIONS, MALLOC_PARAMETERS, Session, providers_of
from .feeds import Feed
from .model import ModelError

# What ONNX Runtime calls a GPU where it is told where arrays lie.
_GPU = "cuda"
# The entry of a run's configuration that names the CUDA graph that it is captured into; -1 for none.
_GRAPH = "gpu_graph_id"
_ENUMERATIONS: dict[str, Any] = {name: getattr(onnxruntime, kind) for name, kind in ENUMERATIONS.items()}
# Arenas that a process makes for its sessions are asked for by this entry of a session's configuration.
_SHARED_ARENA = "session.use_env_allocators"


class Runner:
    """A session, and how its runs are made; ModelError where the system does not take a setting.

    With ``on_gpu`` it runs on the first GPU that this process sees, else on the CPU. ``profile_prefix`` is what the
    profile's file begins with; empty for no profile.
    """

    def __init__(self, model: Path, settings: Session, *, on_gpu: bool = False, profile_prefix: str = "") -> None:
        for parameter, number in settings.malloc.items():
            mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
            if mallopt is None or not mallopt(MALLOC_PARAMETERS[parameter], number):
                raise ModelError(f"the C library does not take {parameter}", "leave the setting out")
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
        self._settings, self._on_gpu = settings, on_gpu
        self._run_options = self._options({})
        self._providers = providers_of("cuda" if on_gpu else "cpu", settings)
        if on_gpu:
            onnxruntime.preload_dlls()  # CUDA's libraries, where pip has installed them
        self.session = onnxruntime.InferenceSession(str(model), options, providers=self._providers)
        # It would go over to the CPU in the middle of what is measured, and say so on standard output alone.
        self.session.disable_fallback()
        self._outputs = [one.name for one in self.session.get_outputs()]
        self._captured: dict[tuple[tuple[int, ...], ...], _Captured] = {}

    def run(self, feed: Feed) -> list[Any]:
        """Run the model once; return its outputs, which lie on the GPU where the settings leave them there."""
        if not self._settings.io_binding:
            return list(self.session.run(self._outputs, feed, self._run_options))
        feed = {name: np.ascontiguousarray(array) for name, array in feed.items()}
        if self._settings.is_captured:
            captured = self._capture(feed)
            binding, options = captured.binding, captured.options
            for name, array in feed.items():
                captured.inputs[name].update_inplace(array)
        else:
            binding, options = self.session.io_binding(), self._run_options
            for name, array in feed.items():
                binding.bind_cpu_input(name, array)
            for name in self._outputs:
                binding.bind_output(name, _GPU if self._on_gpu else "cpu")
        self.session.run_with_iobinding(binding, options)
        return list(binding.get_outputs() if self._settings.outputs_on_device else binding.copy_outputs_to_cpu())

    def outputs(self, feed: Feed) -> list[Any]:
        """Run the model once; return its outputs as arrays."""
        return [one.numpy() if isinstance(one, onnxruntime.OrtValue) else one for one in self.run(feed)]

    def _capture(self, feed: Feed) -> _Captured:
        """Return the memory of a CUDA graph, for each shape its own; it must stay where it was at the capture."""
        shapes = tuple(array.shape for array in feed.values())
        if shapes not in self._captured:
            binding = self.session.io_binding()
            inputs = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array, _GPU, 0) for name, array in feed.items()}
            for name, value in inputs.items():
                binding.bind_ortvalue_input(name, value)
            # A run that is not captured tells the shapes of what is written.
            written = self.session.run(self._outputs, feed, self._options({_GRAPH: "-1"}))
            for name, array in zip(self._outputs, written, strict=True):
                kind = array.dtype.type
                value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(array.shape, kind, _GPU, 0)
                binding.bind_ortvalue_output(name, value)
            options = self._options({_GRAPH: str(len(self._captured) + 1)})
            self._captured[shapes] = _Captured(binding, inputs, options)
        return self._captured[shapes]

    def _options(self, more: Mapping[str, str]) -> Any:
        """Return the options of a run: those of the settings, and more."""
        options = onnxruntime.RunOptions()
        for key, entry in {**self._settings.run_config, **more}.items():
            options.add_run_config_entry(key, entry)
        return options

    def shrink(self, feed: Feed) -> None:
        """Run the model once more, and have the arena give back what it does not need."""
        where = {"memory.enable_memory_arena_shrinkage": "gpu:0" if self._on_gpu else "cpu:0"}
        self.session.run(self._outputs, feed, self._options(where))

    def fallback(self) -> str:
        """Return the provider, or its options, that run in place of the requested ones; empty where none do."""
        asked = [one if isinstance(one, str) else one[0] for one in self._providers]
        found = self.session.get_providers()
        if found[:1] != asked[:1]:
            return f"{', '.join(found)} in place of {asked[0]}"
        made = self.session.get_provider_options().get(asked[0], {})
        others = [f"{key}={made.get(key)}" for key, text in self._settings.provider.items() if made.get(key) != text]
        return f"{', '.join(others)} in place of what was asked for" if others else ""


@dataclass(frozen=True)
class _Captured:
    """A CUDA graph: ``inputs`` are copied into, ``options`` name the graph."""

    binding: Any
    inputs: dict[str, Any]
    options: Any
