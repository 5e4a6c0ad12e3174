"""The memory matrix: rows taken at the phases of training steps, in a run and in a person's own script."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Self

import torch
from torch import nn

from ...metering.host import reset_resident_peak, resident_bytes, resident_peak, trim_heap
from ...records.matrix import MemoryPhase, PhaseMemory
from ..argument_checks import check_module
from ..call_stack import in_backward
from ..hooks.compilation import keep_out
from ..hooks.samples import tensors_of
from .memory_split import memory_split
from .peaks import release_memory


class MemoryMatrix:
    """Takes a row at each phase it is told of; ``step`` is the one under way, and at first that of the first row.

    Caches are emptied before the first row, and high-water marks reset at each: on CUDA those of
    ``torch.cuda.max_memory_allocated`` and its like, on CPU that of the resident set. ``modules`` gives the modules
    whose parameters, gradients and buffers count; the first one's device is looked at.
    """

    def __init__(self, modules: Callable[[], Iterable[nn.Module]], *, step: int = 0, rank: int = 0) -> None:
        self._modules = modules
        self._rank = rank
        self._rows: dict[tuple[int, MemoryPhase], PhaseMemory] = {}
        self._last: MemoryPhase | None = None
        self._highest: dict[str, int] = {}
        self.first_step = self.step = step
        # What was freed before would be a part of the first peaks.
        release_memory()
        self._peaks_are_reset = _reset_peaks(self._device())

    @property
    def rows(self) -> tuple[PhaseMemory, ...]:
        """Return the rows so far: one for each step and phase, of several calls that of the highest peak."""
        return tuple(self._rows.values())

    def take(self, phase: MemoryPhase) -> PhaseMemory | None:
        """Take a row now; None where this phase does not follow on the last: a module called outside a step."""
        if phase == "post_forward" and self._last != "pre_forward":
            return None
        self._last = phase
        device = self._device()
        now, peaks = _device_memory(device) if device is not None else _resident_memory()
        for name, value in peaks.items():
            self._highest[name] = max(value, self._highest.get(name, 0))
        split = memory_split(self._modules(), ())
        row = PhaseMemory(
            phase=phase,
            step=self.step,
            peak=peaks["allocated"] if self._peaks_are_reset else None,
            parameters=split.parameters,
            gradients=split.gradients,
            buffers=split.buffers,
            rank=self._rank,
            **now,
            **{f"max_{name}": value for name, value in self._highest.items()},
        )
        self._peaks_are_reset = _reset_peaks(device)
        known = self._rows.get((self.step, phase))
        if known is None or (row.peak or 0) > (known.peak or 0):
            self._rows[self.step, phase] = row
        return row

    def _device(self) -> torch.device | None:
        """Return the CUDA device of the model's first parameter; None on CPU."""
        first = next((parameter for module in self._modules() for parameter in module.parameters()), None)
        return first.device if first is not None and first.is_cuda else None


def _reset_peaks(device: torch.device | None) -> bool:
    if device is None:
        return reset_resident_peak() is None
    torch.cuda.reset_peak_memory_stats(device)
    return True


def _device_memory(device: torch.device) -> tuple[dict[str, int], dict[str, int]]:
    """Return what torch's allocator holds now, and its high-water marks."""
    statistics = torch.cuda.memory_stats(device)
    names = {"allocated": "allocated_bytes", "cached": "reserved_bytes", "inactive": "inactive_split_bytes"}
    # The statistics are empty before the first allocation.
    now, peaks = (
        {name: int(statistics.get(f"{counter}.all.{kind}", 0)) for name, counter in names.items()}
        for kind in ("current", "peak")
    )
    return now, peaks


def _resident_memory() -> tuple[dict[str, int], dict[str, int]]:
    """Return the resident set now, and its high-water mark."""
    peak = resident_peak()
    # Else what the model has freed stays in the heap, and no phase differs from another.
    trim_heap()
    return {"allocated": resident_bytes()}, {"allocated": peak}


class ModelMatrix:
    """The memory matrix of one model in a script of one's own; see ``autotune.memory_matrix``."""

    def __init__(self, model: nn.Module, write: Callable[[str], object] | None) -> None:
        check_module(model, "autotune.memory_matrix")
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        self._matrix = MemoryMatrix(lambda: [model], rank=torch.distributed.get_rank() if distributed else 0)
        # In one write: several processes have one output, and `print` writes the end of a line by itself.
        self._write = write or (lambda line: sys.stdout.write(f"{line}\n"))
        self._in_backward = False
        for hook in (self._before_forward, self._after_forward):
            # Of a model that was compiled in place they would be traced.
            keep_out(hook)
        self._hooks = [
            model.register_forward_pre_hook(self._before_forward, prepend=True),
            model.register_forward_hook(self._after_forward),
        ]

    @property
    def rows(self) -> tuple[PhaseMemory, ...]:
        """Return the rows that were written so far."""
        return self._matrix.rows

    def close(self) -> None:
        """Take the hooks away; what was written stays in ``rows``."""
        for hook in self._hooks:
            hook.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _before_forward(self, model: nn.Module, *_: Any) -> None:
        if model.training and torch.is_grad_enabled() and not in_backward():
            self._in_backward = False
            self._take("pre_forward")

    def _after_forward(self, model: nn.Module, _: Any, outputs: Any) -> None:
        if not model.training or not torch.is_grad_enabled() or in_backward():
            return
        self._take("post_forward")
        watched = [tensor for tensor in tensors_of(outputs) if tensor.requires_grad]
        if watched:
            torch.autograd.graph.register_multi_grad_hook(watched, self._before_backward, mode="any")

    def _before_backward(self, _: torch.Tensor) -> None:
        if self._in_backward:
            return  # by way of another output
        self._in_backward = True
        self._take("pre_backward")
        # Runs when the whole backward is done; DistributedDataParallel waits for its reductions in the same way.
        torch.autograd.Variable._execution_engine.queue_callback(self._after_backward)

    def _after_backward(self) -> None:
        self._in_backward = False
        self._take("post_backward")
        self._matrix.step += 1

    def _take(self, phase: MemoryPhase) -> None:
        step = self._matrix.step
        # As ORTModule does: a long training would be nothing but these lines.
        if step < 10 or step & (step - 1) == 0:
            row = self._matrix.take(phase)
            if row is not None:
                self._write(str(row))
