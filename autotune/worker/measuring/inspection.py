"""Measurement of a model's saved activations in the caller's own process; see ``autotune.inspect_memory``."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from typing import Any, Self

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parameter import is_lazy

from ...errors import UsageError, did_you_mean
from ...metering.host import reset_resident_peak, resident_peak
from ...records.units import format_bytes
from ..argument_checks import check_module
from ..call_stack import in_backward
from ..hooks.compilation import keep_out
from ..hooks.samples import tensors_of
from ..hooks.watch import Lasting, Packed, unpack
from ..plans.layers import own_class
from .saved import OUTSIDE, Module, SavedRow, Snapshot, rows_of, saved_html, saved_sentence, saved_text
from .saved_tensors import group_of

_NEXT = "Next: `autotune run SCRIPT` tries what is worth recomputing, operator by operator, and measures it."


class MemoryInspection:
    """Looks at a model between ``__enter__`` and ``__exit__``, and keeps the moment at which the most was saved.

    ``rows`` are those of that moment, by module; ``saved_bytes`` is what was saved then. ``peak_bytes`` is the highest
    point of the whole memory meanwhile: of ``torch.cuda``'s allocator on a GPU (its peak statistics are reset), of the
    process's resident set on CPU; None where the system does not tell.
    """

    def __init__(self, model: nn.Module) -> None:
        check_module(model, "autotune.inspect_memory")
        self._model = model
        self._name = own_class(model).__name__
        if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
            raise UsageError(
                f"{self._name} has scripted modules, which take no hooks",
                hint="look at the model before it is scripted",
            )
        if any(map(is_lazy, [*model.parameters(), *model.buffers()])):
            raise UsageError(
                f"{self._name} has lazy modules, whose parameters have no shape yet", hint="call the model once before"
            )
        self._seen = _Seen(model)
        self._hooks = ExitStack()
        self.peak_bytes: int | None = None

    @property
    def rows(self) -> tuple[SavedRow, ...]:
        """Return what each module saved: the model, then the modules inside, in the model's order.

        A module that saves nothing has no row.
        """
        return rows_of(self._seen.largest())

    @property
    def saved_bytes(self) -> int:
        """Return what was saved for the backward, parameters and buffers not counted."""
        return self._seen.largest().saved_bytes

    def freed_by_checkpointing(self, *names: str) -> int:
        """Return how many bytes fewer are saved with ``torch.utils.checkpoint`` around the modules of these names.

        Names are those of ``model.named_modules()``. Together they may free more than one by one.

        Raises:
            UsageError: no module of such a name was looked at; one inside of a compiled module is not.
        """
        looked_at = set(self._seen.paths.values())
        for name in names:
            if name not in looked_at:
                hint = did_you_mean(name, looked_at) or "names are those of model.named_modules()"
                raise UsageError(f"{self._name} has no module {name!r} that was looked at", hint=hint)
        return self._seen.largest().freed_by_checkpointing(names)

    def of_call(self, *arguments: Any, **keywords: Any) -> Self:
        """Look at one forward, which is thrown away; random state, buffers and modes are put back.

        A buffer that the forward replaces by one of another shape, such as a cache that grows, stays as it left it, and
        so does one that it makes.
        """
        modes = [(module, module.training) for module in self._model.modules()]
        buffers = [
            (module._buffers, name, buffer, buffer.detach().clone())
            for module, _ in modes
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        devices = sorted({one.device.index for one in self._model.parameters() if one.is_cuda})
        try:
            with torch.random.fork_rng(devices), torch.enable_grad(), self:
                self._model.train()
                self._model(*arguments, **keywords)
        finally:
            for module, mode in modes:
                module.training = mode
            for of_module, name, buffer, before in buffers:
                left = of_module.get(name)
                # How far a cache has grown is known to the module by more than the buffer.
                if left is None or left.shape == before.shape:
                    of_module[name] = buffer
                    # What is expanded cannot be written to, and was not.
                    if buffer.layout != torch.strided or not torch.equal(buffer, before):
                        # By way of `data` it is no new version: a graph that has saved it can still go backward.
                        buffer.data.copy_(before)
        return self

    def __enter__(self) -> Self:
        # Dynamo would trace what a compiled model calls of ours.
        for function in (self._seen.enter, self._seen.leave, self._seen.pack, unpack):
            keep_out(function)
        for module in self._seen.paths:
            before = module.register_forward_pre_hook(self._seen.enter, prepend=True, with_kwargs=True)
            self._hooks.callback(before.remove)
            self._hooks.callback(module.register_forward_hook(self._seen.leave, always_call=True).remove)
        self._device = next((one.device for one in self._model.parameters() if one.is_cuda), None)
        if self._device is not None:
            torch.cuda.reset_peak_memory_stats(self._device)
        self._has_peak = self._device is not None or reset_resident_peak() is None
        self._hooks.enter_context(torch.autograd.graph.saved_tensors_hooks(self._seen.pack, unpack))
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.close()
        self._seen.end()
        if self._has_peak:
            self.peak_bytes = resident_peak() if self._device is None else torch.cuda.max_memory_allocated(self._device)

    def _sentences(self) -> list[str]:
        had_gradients = self._seen.had_gradients
        said = [saved_sentence(self.rows, model=self._name, saved_bytes=self.saved_bytes, had_gradients=had_gradients)]
        if self.peak_bytes is not None:
            where = "the process's resident memory" if self._device is None else f"the memory of {self._device}"
            said.append(f"Meanwhile {where} peaked at {format_bytes(self.peak_bytes)}.")
        if any(map(_is_compiled, self._seen.paths)):
            said.append("What is compiled is seen as a whole: its modules are in one graph.")
        return [*said, _NEXT]

    def __repr__(self) -> str:
        return saved_text(self.rows, self._sentences())

    def _repr_html_(self) -> str:
        return saved_html(self.rows, self._sentences())


class _Seen:
    """The storages that are kept, by module; ``had_gradients``: a call gave something that needs gradients."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.had_gradients = False
        self.paths = _paths(model)
        self._groups = {name: group_of(model, name) for name in self.paths.values()}
        self._stack: list[str] = []
        self._calls: dict[str, int] = {}
        self._inputs: dict[str, set[int]] = {}
        self._sizes: dict[int, int] = {}
        self._savers: dict[int, list[str]] = {}
        self._holders: dict[int, int] = {}
        self._storages: dict[int, StorageWeakRef] = {}
        self._lasting = Lasting()
        self._bytes = 0
        self._best_bytes = 0
        self._best: Snapshot | None = None

    # -- what the hooks call

    def enter(self, module: nn.Module, arguments: Any, keywords: Any) -> None:
        """Note that a module is called."""
        if in_backward():  # the model's own checkpoint runs it again
            return
        if not self._stack:
            self._begin()
        path = self.paths.get(module, OUTSIDE)
        self._stack.append(path)
        self._calls[path] = self._calls.get(path, 0) + 1
        given = (self._number(tensor) for tensor in tensors_of((arguments, keywords)))
        self._inputs.setdefault(path, set()).update(number for number in given if number is not None)

    def leave(self, _: nn.Module, __: Any, results: Any) -> None:
        """Note that a module's call has ended, be it by an exception."""
        if self._stack and not in_backward():
            self._stack.pop()
            self.had_gradients |= any(tensor.requires_grad for tensor in tensors_of(results))

    def pack(self, tensor: torch.Tensor) -> Packed:
        """Count a tensor that autograd saves."""
        kept = Packed(tensor)
        number = None if in_backward() else self._number(tensor)
        if number is None:
            return kept
        path = self._stack[-1] if self._stack else OUTSIDE
        if number not in self._holders:
            self._holders[number] = 0
            self._savers[number] = []
            self._bytes += self._sizes[number]
        self._holders[number] += 1
        if path not in self._savers[number]:
            self._savers[number].append(path)
        weakref.finalize(kept, self._let_go, number)
        return kept

    # -- what is kept

    def _begin(self) -> None:
        self._lasting = Lasting([*self._model.parameters(), *self._model.buffers()])
        if not self._holders:  # the first call of a step: nothing is kept from those before
            for record in (self._calls, self._inputs, self._sizes, self._storages):
                record.clear()

    def _number(self, tensor: torch.Tensor) -> int | None:
        """Return the number of a tensor's storage; None for one that does not count."""
        storage = self._lasting.counted(tensor)
        if storage is None:
            return None
        number = storage.cdata
        if number not in self._storages:
            self._storages[number], self._sizes[number] = storage, tensor.untyped_storage().nbytes()
        return number

    def _let_go(self, number: int) -> None:
        self._note_largest()
        self._holders[number] -= 1
        if not self._holders[number]:
            del self._holders[number], self._savers[number]
            self._bytes -= self._sizes[number]

    def _note_largest(self) -> None:
        if self._bytes > self._best_bytes:
            self._best_bytes = self._bytes
            self._best = Snapshot(
                sizes=dict(self._sizes),
                savers={number: tuple(savers) for number, savers in self._savers.items()},
                inputs={path: frozenset(given) for path, given in self._inputs.items()},
                modules=tuple(
                    Module(path, own_class(module).__name__, self._groups[path], self._calls[path])
                    for module, path in self.paths.items()
                    if path in self._calls
                ),
            )

    def largest(self) -> Snapshot:
        """Return the moment so far at which the most was kept."""
        self._note_largest()
        return self._best or Snapshot()

    def end(self) -> None:
        """End what was under way: nothing more is saved."""
        self._note_largest()
        self._stack.clear()


def _paths(model: nn.Module) -> dict[nn.Module, str]:
    """Return the modules to look at with their names, but none inside of a compiled one, which would compile hooks."""
    found: dict[nn.Module, str] = {}
    left = [("", model)]
    while left:
        name, module = left.pop()
        if module not in found:
            found[module] = name
            if not _is_compiled(module):
                children = [(f"{name}.{own}" if name else own, child) for own, child in module.named_children()]
                left += reversed(children)
    return found


def _is_compiled(module: nn.Module) -> bool:
    # Also by a bundle that was applied.
    return type(module).__name__ == "OptimizedModule" or module._compiled_call_impl is not None
