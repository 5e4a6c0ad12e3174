"""Recording of a script's allocations on a GPU that is not there, and answers to the script's questions for values."""

from __future__ import annotations

import functools
import itertools
import re
import sys
import sysconfig
import threading
import weakref
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ...predict.kernels import KERNELS
from ...records.allocations import AllocationTrace, EventKind, Layout, OperatorCall, TensorForm

Phase = Literal["start", "forward", "backward", "optimizer"]

_HERE = str(Path(__file__).parent.parent.parent)
_LIBRARIES = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sysconfig.get_path("stdlib"))
_PACKAGES = re.compile(r"/(?:site|dist)-packages/")
_IMAGE_DIMENSIONS = 4
# No value is infinite or no number. What is computed from such an answer says no too.
_SAYS_NO = frozenset({"isnan", "isinf"})
_PASSES_NO_ON = frozenset(
    {"any", "logical_or", "bitwise_or", "_to_copy", "sum", "ne", "detach", "alias", "view", "max", "stack", "cat"}
)
_MOST_LINES = 20
# More questions from one line, before the few steps that are followed have ended, are a loop that waits for a value.
_MOST_QUESTIONS = 10_000


class NeedsValuesError(RuntimeError):
    """Sizes, or the end of a loop, depend on the values of tensors, which are not computed."""


class AllocationRecorder(TorchDispatchMode):
    """Records what tensors on CUDA allocate and free while it is active; such tensors are fake ones.

    Tensors on the CPU are real, apart from those that ``hollow`` has made. A question for a fake tensor's value is
    answered by 1 or True, but after a test for infinite values by False.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()
        self.asked_integers: Counter[str] = Counter()
        self._questions: Counter[str] = Counter()
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        # Modes belong to a thread, and the fake mode keeps a state that threads would share.
        self._lock = threading.RLock()
        self._kinds: list[EventKind] = []
        self._numbers: list[int] = []
        self._storage_bytes: list[int] = []
        self._operators: list[OperatorCall] = []
        self._known: dict[int, int] = {}  # a storage's address to its number
        self._references: dict[int, Any] = {}

    def begin(self, phase: Phase) -> None:
        """Note that a phase of a step begins."""
        self._add("p", AllocationTrace.PHASES.index(phase))

    def cache_emptied(self) -> None:
        """Note that the script gives unused memory back to the device."""
        self._add("e", 0)

    def stream_used(self, number: int) -> None:
        """Note that the script goes on in another stream."""
        self._add("s", number)

    def trace(self) -> AllocationTrace:
        """Return what was recorded."""
        events: list[tuple[EventKind, int]] = []
        # Storages that go together do so in the order of their addresses, which is another one in each process.
        for kind, group in itertools.groupby(zip(self._kinds, self._numbers, strict=True), lambda event: event[0]):
            together = list(group)
            events += sorted(together) if kind == "f" else together
        kinds, numbers = zip(*events, strict=True) if events else ((), ())
        return AllocationTrace("".join(kinds), numbers, tuple(self._storage_bytes), tuple(self._operators))

    def hollow(self, tensor: torch.Tensor) -> torch.Tensor:
        """Make a fake tensor in the form of a real one, on the same device."""
        with self._lock, self._fake:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)

    def answer(self, tensor: torch.Tensor) -> bool | int | float:
        """Return what a question for the value of a fake tensor is told.

        Raises:
            NeedsValuesError: a loop asks again and again.
        """
        line = _asking_line()
        is_integer = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
        for asked in (self.asked, self.asked_integers) if is_integer else (self.asked,):
            if len(asked) < _MOST_LINES or line in asked:
                asked[line] += 1
        self._questions[line] += 1
        if self._questions[line] > _MOST_QUESTIONS:
            raise NeedsValuesError(f"a loop goes on until the values of tensors end it, at {line}")
        value = 0 if getattr(tensor, "_autotune_says_no", False) else 1
        if tensor.dtype == torch.bool:
            return bool(value)
        return float(value) if tensor.is_floating_point() else value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator: on fake tensors where one of them, or its result, is on CUDA."""
        keywords = kwargs or {}
        device = keywords.get("device")
        is_fake = any(issubclass(each, FakeTensor) for each in types)
        if not is_fake and (device is None or torch.device(device).type != "cuda"):
            return func(*args, **keywords)
        name = func.overloadpacket.__name__
        if name == "_local_scalar_dense":
            return self.answer(args[0])
        if name in ("equal", "is_pinned"):
            return name == "equal"
        if name == "_pin_memory":
            return args[0]
        if name == "_to_copy" and not isinstance(args[0], FakeTensor):
            args = (self.hollow(args[0]), *args[1:])
        call = _described(name, args, keywords)
        try:
            with self._lock, self._fake:
                result = func(*args, **keywords)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise NeedsValuesError(
                f"the size of what {name} returns depends on the values of tensors, at {_asking_line()}"
            ) from error
        leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, FakeTensor)]
        given = (leaf for leaf in tree_leaves(args) if isinstance(leaf, FakeTensor))
        if name in _SAYS_NO or (
            name in _PASSES_NO_ON and any(getattr(one, "_autotune_says_no", False) for one in given)
        ):
            for leaf in leaves:
                leaf._autotune_says_no = True  # type: ignore[attr-defined]
        leaves = [leaf for leaf in leaves if leaf.device.type == "cuda"]
        storages = {leaf.untyped_storage()._cdata for leaf in leaves}
        if leaves and call is not None:
            self._add("o", len(self._operators))
            self._operators.append(replace(call, num_results=len(storages - self._known.keys())))
        for leaf in leaves:
            self._see(leaf)
        return result

    def _see(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        number = self._known[key] = len(self._storage_bytes)
        self._storage_bytes.append(storage.nbytes())
        self._add("a", number)
        # The Python object of a storage lives as long as the storage.
        self._references[number] = weakref.ref(storage, functools.partial(self._gone, key, number))

    def _gone(self, key: int, number: int, _: Any) -> None:
        self._references.pop(number, None)
        if self._known.get(key) == number:
            del self._known[key]
        self._add("f", number)

    def _add(self, kind: EventKind, number: int) -> None:
        self._kinds.append(kind)
        self._numbers.append(number)


def _described(name: str, args: Any, keywords: Any) -> OperatorCall | None:
    """Return an operator with what its kernel's allocations depend on; None where it has none."""
    wanted = KERNELS.get(name)
    if wanted is None:
        return None
    tensors = tuple(
        _form(leaf) for leaf in tree_leaves((args, keywords)) if isinstance(leaf, torch.Tensor) and leaf.dim()
    )
    given = {option: args[place] for option, place in wanted.options.items() if place < len(args)}
    options = {option: _numbers(value) for option, value in given.items() if value is not None}
    if wanted.tries_algorithms:
        options["benchmark"] = _numbers(torch.backends.cudnn.benchmark)
    return OperatorCall(name, tensors, options)


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(int(each) for each in value) if isinstance(value, (list, tuple)) else (int(value),)


def _form(tensor: torch.Tensor) -> TensorForm:
    layout: Layout = "strided"
    if tensor.is_contiguous():
        layout = "contiguous"
    elif tensor.dim() == _IMAGE_DIMENSIONS and tensor.is_contiguous(memory_format=torch.channels_last):
        layout = "channels_last"
    return TensorForm(tuple(tensor.shape), tensor.element_size(), layout)


def _asking_line() -> str:
    """Return the innermost line of the script's own; failing that, of a library other than torch."""
    frame: Any = sys._getframe(1)
    outside = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_HERE, "<")):
            line = f"{file}:{frame.f_lineno}"
            if not file.startswith(_LIBRARIES) and not _PACKAGES.search(file):
                return line
            if "/torch/" not in file:
                outside = outside or line
        frame = frame.f_back
    return outside or "a line that cannot be told"
