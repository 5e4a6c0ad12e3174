"""The hooks by which an unmodified script trains on a GPU that is not there, up to its second optimizer step."""

from __future__ import annotations

import contextlib
import copyreg
import functools
import importlib.util
import inspect
import io
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ...records.cards import Card
from . import cuda_in_cpp, cuda_in_python
from .attention import choose_attention
from .communication import send_nothing
from .loading import load_by_the_cpu
from .recorder import AllocationRecorder

_NOT_COMPILED = "the script's torch.compile is left out: what is told is for its steps as they run without it"
# No address of this process has this bit.
_NOWHERE = 1 << 56
# Arguments of a DataLoader that say how other processes load; they get their defaults.
_OF_WORKERS = {
    "num_workers",
    "pin_memory",
    "timeout",
    "multiprocessing_context",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory_device",
}


def pretend(card: Card, recorder: AllocationRecorder, note: Callable[[str], None]) -> None:
    """Put the card in the place of this process's GPU; from here on the recorder is active.

    Raises:
        CannotPretendError: this torch or this machine cannot do it.
    """
    cuda_in_cpp.pretend()
    cuda_in_python.answer_for(card, recorder)
    choose_attention(card.capability)
    native: Any = torch._C
    native._set_only_lift_cpu_tensors(True)
    # Autograd's thread for the device would not have the recorder.
    torch.autograd.set_multithreading_enabled(False)
    _hollow_parameters(recorder)
    _draw_once(recorder)
    _answer_questions(recorder)
    _choose_as_on_cuda()
    _leave_out(note)
    _load_here()
    _record_threads(recorder)
    _follow_sizes(recorder)
    send_nothing(card.number)
    load_by_the_cpu()
    _address_storages()
    for name, functions in _IN_LIBRARIES.items():
        _replace(name, functions)
    recorder.__enter__()


def _hollow_parameters(recorder: AllocationRecorder) -> None:
    """Have parameters be fake from the start: a model's weights are never allocated."""
    parameter: Any = nn.Parameter
    make = parameter.__new__

    def make_hollow(cls: Any, data: Any = None, requires_grad: bool = True, *arguments: Any, **keywords: Any) -> Any:
        is_whole = isinstance(data, torch.Tensor) and not is_traceable_wrapper_subclass(data)
        if is_whole and not isinstance(data, FakeTensor) and data.device.type == "cpu":
            data = recorder.hollow(data)
        made = make(cls, data, requires_grad, *arguments, **keywords)
        recorder.is_trained(made)
        return made

    parameter.__new__ = staticmethod(make_hollow)

    def swap(first: Any, second: Any) -> None:
        # torch's own refuses tensors with weak references, and the fake mode keeps some.
        slots = [{name: getattr(one, name) for name in _slots(one)} for one in (second, first)]
        first.__class__, second.__class__ = second.__class__, first.__class__
        first.__dict__, second.__dict__ = second.__dict__, first.__dict__
        native: Any = torch._C
        native._swap_tensor_impl(first, second)
        for one, values in zip((first, second), slots, strict=True):
            for name, value in values.items():
                setattr(one, name, value)

    torch.utils.swap_tensors = swap


def _slots(tensor: Any) -> list[str]:
    """Return what a tensor has in slots, as a DTensor has its local one."""
    slots: Any = copyreg
    return [name for name in slots._slotnames(type(tensor)) if hasattr(tensor, name)]


# To draw a number within bounds takes as long as so many without.
_TRUNCATED = 16


def _draw_once(recorder: AllocationRecorder) -> None:
    """Leave parameters as they are where torch draws until all values are within bounds; draw the random numbers."""
    draw = nn.init.trunc_normal_

    def draw_hollow(tensor: torch.Tensor, *arguments: Any, **keywords: Any) -> torch.Tensor:
        local = getattr(tensor, "_local_tensor", tensor)  # of one that is sharded
        if not isinstance(local, FakeTensor):
            return draw(tensor, *arguments, **keywords)
        recorder.draw(lambda real: draw(real, *arguments, **keywords), local, cost=_TRUNCATED)
        return tensor

    nn.init.trunc_normal_ = draw_hollow


def _answer_questions(recorder: AllocationRecorder) -> None:
    """Answer questions for values that come past the operators."""
    tensor: Any = torch.Tensor
    to_list, to_numpy, to_text = tensor.tolist, tensor.numpy, tensor.__format__

    def format_(one: Any, spec: str) -> str:
        if not isinstance(one, FakeTensor):
            return str(to_text(one, spec))
        return format(recorder.answer(one), spec) if one.dim() == 0 else f"<{tuple(one.shape)}>"

    tensor.tolist = lambda one: to_list(recorder.real(one) if isinstance(one, FakeTensor) else one)
    tensor.numpy = lambda one, **keywords: (
        to_numpy(recorder.real(one), **keywords) if isinstance(one, FakeTensor) else to_numpy(one, **keywords)
    )
    tensor.__format__ = format_
    tensor.pin_memory = lambda one, *_, **__: one
    tensor.is_pinned = lambda *_, **__: False
    tensor.record_stream = lambda *_: None
    fake: Any = FakeTensor
    data = tensor.data

    def set_data(one: Any, other: Any) -> None:
        data.__set__(one, other)
        if isinstance(other, FakeTensor):
            one.fake_device = other.fake_device
        recorder.data_set(one, other)

    fake.data = property(data.__get__, set_data)


def _address_storages() -> None:
    """Have each storage be at an address of its own: libraries tell tied weights by their storages.

    A fake tensor stays at 0, by which torch knows to clone it where it copies another one's storage.
    """
    storage: Any = torch.UntypedStorage
    address = storage.data_ptr
    storage.data_ptr = lambda one: one._cdata | _NOWHERE if one.device.type == "meta" else address(one)


def _choose_as_on_cuda() -> None:
    """Have torch choose by the device where it would choose by the tensors' type."""
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    optimizer._foreach_supported_types.append(FakeTensor)

    def has_foreach(tensors: Any, device: torch.device) -> bool:
        del tensors
        return device.type in ("cuda", "cpu")

    _foreach_utils._has_foreach_support = has_foreach
    nn.utils.clip_grad._has_foreach_support = has_foreach  # type: ignore[attr-defined]
    scaler: Any = torch.amp.GradScaler
    scaler._maybe_opt_step = lambda _, one, __, *arguments, **keywords: one.step(*arguments, **keywords)


def _without_inference_mode(mode: Any = True) -> Any:
    """Keep no gradients: in inference mode operators would come past the recorder whole."""
    if callable(mode):
        return torch.no_grad()(mode)
    return torch.no_grad() if mode else contextlib.nullcontext()


def _leave_out(note: Callable[[str], None]) -> None:
    """Leave out what needs values or generates code."""
    module: Any = torch

    def compile_(model: Any = None, **_: Any) -> Any:
        note(_NOT_COMPILED)
        return (lambda one: one) if model is None else model

    module.compile = compile_
    any_module: Any = nn.Module
    any_module.compile = lambda *_, **__: note(_NOT_COMPILED)
    module.save = _save_values(module.save)
    module.inference_mode = _without_inference_mode


def _save_values(save: Any) -> Callable[..., None]:
    """Save what has values, as data sets do that keep what they have prepared; else leave an empty file."""

    @functools.wraps(save)
    def save_values(obj: Any, f: Any, *arguments: Any, **keywords: Any) -> None:
        buffer = io.BytesIO()
        try:
            save(obj, buffer, *arguments, **keywords)
        except Exception:
            buffer = io.BytesIO()  # fake tensors cannot be pickled
        if isinstance(f, (str, os.PathLike)):
            Path(f).write_bytes(buffer.getbuffer())
        else:
            f.write(buffer.getbuffer())

    return save_values


def _save_nothing(_: Any, file: Any, *__: Any, **___: Any) -> None:
    """Leave an empty file in the place of one with values."""
    if isinstance(file, (str, os.PathLike)):
        Path(file).write_bytes(b"")


def _load_here() -> None:
    """Have loaders load in this process, as only some batches are needed."""
    loader: Any = torch.utils.data.DataLoader
    make = loader.__init__
    signature = inspect.signature(make)

    @functools.wraps(make)
    def make_here(*arguments: Any, **keywords: Any) -> None:
        given = signature.bind(*arguments, **keywords)
        for name in _OF_WORKERS & given.arguments.keys():
            given.arguments[name] = signature.parameters[name].default
        make(*given.args, **given.kwargs)

    loader.__init__ = make_here


def _follow_sizes(recorder: AllocationRecorder) -> None:
    """Tell the recorder where a storage gets another size: FSDP empties those of gathered parameters."""
    storage: Any = torch.UntypedStorage
    resize = storage.resize_

    @functools.wraps(resize)
    def resize_(self: torch.UntypedStorage, size: int) -> Any:
        before = self.nbytes()
        resized = resize(self, size)
        if self.nbytes() != before:
            recorder.resized(self)
        return resized

    storage.resize_ = resize_


def _record_threads(recorder: AllocationRecorder) -> None:
    """Have the recorder be active in threads that the script starts: libraries load weights in some."""
    run = threading.Thread.run

    def run_recorded(self: threading.Thread) -> None:
        with recorder:
            run(self)

    threading.Thread.run = run_recorded  # type: ignore[method-assign]


def _say_no(*_: Any, **__: Any) -> bool:
    return False


def _no_bytes(*_: Any, **__: Any) -> bytes:
    return b""


_IN_LIBRARIES: dict[str, dict[str, Callable[..., Any]]] = {
    # It takes fake tensors for a compiler's, and then builds masks that a run on a GPU does without.
    "transformers.utils.import_utils": {"is_fake_tensor": _say_no, "is_tracing": _say_no},
    # Random numbers of DTensors go by the state of the device's generator.
    "torch.distributed.tensor._random": {"is_rng_supported_mesh": _say_no},
    "torch.distributed.tensor._dispatch": {"is_rng_supported_mesh": _say_no},
    "safetensors.torch": {"save_file": _save_nothing, "save_model": _save_nothing, "save": _no_bytes},
}
"""What stands in for functions of libraries, by their modules."""


def _replace(name: str, functions: Mapping[str, Callable[..., Any]]) -> None:
    """Replace functions of a module, be it imported already or later."""

    def replace(module: Any) -> None:
        for function in functions.keys() & vars(module).keys():
            setattr(module, function, functions[function])

    if name in sys.modules:
        replace(sys.modules[name])
    else:
        sys.meta_path.insert(0, _AfterImport(name, replace))


class _AfterImport:
    """Calls a function with a module as soon as that has been imported."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find the module with the other finders, and wrap its loading."""
        del path, target
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            self._then(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
