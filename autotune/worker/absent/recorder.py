"""Recording of a script's allocations on a GPU that is not there, and answers to the script's questions for values."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Self

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry

from ...predict.kernels import KERNELS
from ...records.allocations import (
    AllocationTrace,
    EventKind,
    FirstTensor,
    Layout,
    OperatorCall,
    TensorForm,
    TensorRole,
)
from ...records.outcome import Phase
from ..measuring.memory_split import parts_of
from .accumulation import Accumulation
from .frames import asking_line, way_here
from .known_values import KnownValues, are_small
from .places import Places

_COPIES = frozenset({"_to_copy", "clone", "copy_"})
_IMAGE_DIMENSIONS = 4
# No value is infinite or no number. What is computed from such an answer says no too.
_SAYS_NO = frozenset({"isnan", "isinf"})
_PASSES_NO_ON = frozenset(
    {"any", "logical_or", "bitwise_or", "_to_copy", "sum", "ne", "detach", "alias", "view", "max", "stack", "cat"}
)
_MOST_LINES = 20
# As many from one place may be a loop over a data set. A loop that waits for a value asks without an end.
_MOST_QUESTIONS = 300_000
# Random numbers that are drawn for parameters: each takes some nanoseconds.
_MOST_DRAWN, _DRAWN_AT_ONCE = 1 << 30, 1 << 22


def _ones_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).fill_(1)


class CannotFollowError(RuntimeError):
    """The script does on the device what only values, or more than the sizes of dense tensors, can tell."""


class AllocationRecorder(TorchDispatchMode):
    """Records what tensors on CUDA allocate and free while it is active; such tensors are fake ones.

    Tensors on the CPU are real, apart from those that ``hollow`` has made. A question for a fake tensor's value is
    answered by 1 or True, but after a test for infinite values by False; and by the value itself if the script's data
    alone decide it.
    """

    def __init__(self, places: Places | None = None) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()
        self.asked_integers: Counter[str] = Counter()
        self._questions: Counter[tuple[tuple[str, int], ...]] = Counter()
        self._values = KnownValues()
        self._accumulation: Accumulation | None = None
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        # Modes belong to a thread, and the fake mode keeps a state that threads would share.
        self._lock = threading.RLock()
        self._events: list[tuple[EventKind, int]] = []
        self._storage_bytes: list[int] = []
        self._operators: list[OperatorCall] = []
        self._stream = 0  # of the last event
        self._places, self._place = places, -1  # of the last event
        self._tensors: list[FirstTensor] = []  # by the number of the storage
        self._thread = threading.local()
        self._known: dict[int, int] = {}  # a storage's address to its number
        self._emptied: dict[int, tuple[weakref.ref[torch.UntypedStorage], FirstTensor]] = {}  # by the same
        self._origins: dict[int, int] = {}  # storages that are watched, and their copies: the number of the first
        self._forgotten: set[int] = set()
        self._readers: dict[int, str] = {}  # of storages that are watched: the first operator that takes one, and where
        self.flops = 0  # of matrix products, convolutions and attention
        self.moved_bytes = 0  # between the device and the CPU
        self._references: dict[int, Any] = {}
        self.draws = False
        """Set where the random numbers of parameters are drawn, so that later ones are those of a run on the device."""
        self.left_to_draw = _MOST_DRAWN
        """So many more are drawn; below zero where some were not."""
        self._is_aside = False

    def __enter__(self) -> Self:
        """Record from here on in this thread."""
        if self._accumulation is None:
            # It starts autograd's engine, which then knows the devices that there are. The card must be one of them.
            self._accumulation = Accumulation()
        super().__enter__()
        return self

    def begin(self, phase: Phase) -> None:
        """Note that a phase of a step begins."""
        self._add("p", AllocationTrace.PHASES.index(phase))

    def take_back_start(self) -> None:
        """Have what follows the last step be a part of that step: no other one begins."""
        phases = AllocationTrace.PHASES
        last = max((place for place, (kind, _) in enumerate(self._events) if kind == "p"), default=None)
        if last is not None and self._events[last][1] == phases.index("start"):
            self._events[last] = ("p", phases.index("optimizer"))

    def cache_emptied(self) -> None:
        """Note that the script gives unused memory back to the device."""
        self._add("e", 0)

    def stream_used(self, number: int) -> None:
        """Note that the script goes on in another stream, in this thread."""
        self._thread.stream = number

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Record nothing that is made meanwhile, and later nothing of it but its clones."""
        before, self._is_aside = self._is_aside, True
        try:
            yield
        finally:
            self._is_aside = before

    @property
    def num_storages(self) -> int:
        """Return how many storages have been recorded; the next one has this number."""
        return len(self._storage_bytes)

    def bytes_since(self, number: int) -> int:
        """Return the bytes of the storages from a number on."""
        return sum(self._storage_bytes[number:])

    def trace(self) -> AllocationTrace:
        """Return what was recorded."""
        events: list[tuple[EventKind, int]] = []
        # Storages that go together do so in the order of their addresses, which is another one in each process.
        kept, operators = self._without_forgotten()
        for kind, group in itertools.groupby(kept, lambda event: event[0]):
            together = list(group)
            events += sorted(together) if kind == "f" else together
        kinds, numbers = zip(*events, strict=True) if events else ((), ())
        return AllocationTrace(
            "".join(kinds),
            numbers,
            tuple(self._storage_bytes),
            tuple(operators),
            places=() if self._places is None else self._places.all(),
            tensors=() if self._places is None else tuple(self._tensors),
        )

    def note_role(self, role: TensorRole, parameter: str, tensor: torch.Tensor | None) -> None:
        """Note what the storage of a tensor is used for, if places are told."""
        number = None if tensor is None else self.number_of(tensor)
        if number is not None:
            self._tensors[number] = replace(self._tensors[number], role=role, parameter=parameter)

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """Return the number of the storage of a tensor; None if the tensor is not on the device."""
        return self._known.get(next(parts_of(tensor)).untyped_storage()._cdata)

    def watch(self, number: int) -> None:
        """See what becomes of a storage, and of its copies: the script may then be told to have made none of them."""
        self._origins[number] = number

    def forget(self, number: int) -> None:
        """Leave out a storage that is watched, and its copies, as if the script had not made them."""
        self._forgotten.update(copy for copy, origin in self._origins.items() if origin == number)

    @property
    def reader(self) -> str:
        """Return an operator that takes what is forgotten, and its line; empty if there is none."""
        return next((reader for read, reader in self._readers.items() if read in self._forgotten), "")

    def hollow(self, tensor: torch.Tensor) -> torch.Tensor:
        """Make a fake tensor in the form of a real one, on the same device."""
        with self._lock, self._fake:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)

    def data_set(self, tensor: torch.Tensor, data: torch.Tensor) -> None:
        """Note that a tensor has the storage of another from here on."""
        self._values.take_over(tensor, data)

    def is_trained(self, tensor: torch.Tensor) -> None:
        """Note that a tensor is a parameter: nothing is computed of it."""
        self._values.forget(tensor)

    def real(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the CPU with the values of a fake one; with the same answer everywhere if not known."""
        value = self._values.of(tensor)
        if value is not None:
            return value.clone()
        return torch.full(tuple(tensor.shape), self.answer(tensor), dtype=tensor.dtype)

    def answer(self, tensor: torch.Tensor) -> bool | int | float | complex:
        """Return what a question for the value of a fake tensor is told.

        Raises:
            CannotFollowError: a line asks again and again.
        """
        known = self._values.of(tensor)
        if known is not None and known.numel() == 1:
            return known.item()
        line = asking_line()
        is_integer = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
        for asked in (self.asked, self.asked_integers) if is_integer else (self.asked,):
            if len(asked) < _MOST_LINES or line in asked:
                asked[line] += 1
        way = way_here()
        self._questions[way] += 1
        if self._questions[way] > _MOST_QUESTIONS:
            raise CannotFollowError(
                f"values of tensors were asked for {_MOST_QUESTIONS:,} times, and may be what ends a loop, at {line}"
            )
        value = 0 if getattr(tensor, "_autotune_says_no", False) else 1
        if tensor.dtype == torch.bool:
            return bool(value)
        return float(value) if tensor.is_floating_point() else value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator: on fake tensors where one of them, or its result, is on CUDA."""
        if any(map(is_traceable_wrapper_subclass_type, types)):
            return NotImplemented  # as with DTensor, which comes back with the tensors that it holds
        fake_mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
        if fake_mode not in (None, self._fake):
            return func(*args, **(kwargs or {}))  # a library wants to know shapes
        keywords = {**(kwargs or {})}
        assert self._accumulation is not None, "it has been entered"
        if self._accumulation.is_in_place(func, args):
            func = torch.ops.aten.add_.Tensor
        if keywords.get("pin_memory"):
            keywords["pin_memory"] = False
        name = func.overloadpacket.__name__
        if name == "is_pinned":
            return True  # DistributedDataParallel insists on it
        device = keywords.get("device")
        is_fake = any(issubclass(each, FakeTensor) for each in types)
        if not is_fake and (device is None or torch.device(device).type != "cuda"):
            return func(*args, **keywords)
        place = -1 if self._places is None else self._places.here(name)
        given = [leaf for leaf in tree_leaves((args, keywords)) if isinstance(leaf, torch.Tensor)]
        if any(one.layout != torch.strided for one in given):
            raise CannotFollowError(f"only dense tensors are followed, and one is sparse, at {asking_line()}")
        if name == "_local_scalar_dense":
            return self.answer(args[0])
        if name == "equal":
            is_known, value = self._values.compute(func, args, keywords)
            return value if is_known else True
        if name == "_pin_memory":
            return args[0]
        if name == "_to_copy" and device is not None and torch.device(device).type == "cpu":
            is_known, value = self._values.compute(func, args, keywords)
            if is_known:
                return value
        passed = args
        if name == "_to_copy" and not isinstance(args[0], FakeTensor):
            passed = (self.hollow(args[0]), *args[1:])
        if self.draws and torch.Tag.nondeterministic_seeded in func.tags:
            self._draw_as(func, args, keywords, given)
        call = _described(name, args, keywords)
        try:
            with self._lock, self._fake:
                result = func(*passed, **keywords)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            result = self._of_known_size(func, args, keywords)
            if result is None:
                raise CannotFollowError(
                    f"the size of what {name} returns depends on the values of tensors, at {asking_line()}"
                ) from error
        else:
            if func._schema.is_mutable or are_small(result):
                is_known, values = self._values.compute(func, args, keywords)
                if is_known:
                    self._values.keep_all(result, values)
        if self._is_aside:
            return result
        leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, FakeTensor)]
        if name in _SAYS_NO or (
            name in _PASSES_NO_ON and any(getattr(one, "_autotune_says_no", False) for one in given)
        ):
            for leaf in leaves:
                leaf._autotune_says_no = True  # type: ignore[attr-defined]
        if name in _COPIES and len({each.device.type for each in (*given, *leaves)}) > 1:
            self.moved_bytes += given[-1].nbytes
        if func.overloadpacket in flop_registry:
            # What is counted for a price must not fail the script.
            with contextlib.suppress(Exception):
                self.flops += flop_registry[func.overloadpacket](*args, **keywords, out_val=result)
        leaves = [leaf for leaf in leaves if leaf.device.type == "cuda"]
        storages = {leaf.untyped_storage()._cdata for leaf in leaves}
        self._accumulation.made(storages)
        with self._lock:
            new = len(storages - self._known.keys())
            if leaves and (new or call is not None):
                self._go_to_stream_of_thread()
            if leaves:
                self._be_at(place)
            if leaves and call is not None:
                self._add("o", len(self._operators))
                self._operators.append(replace(call, num_results=new))
            for leaf in leaves:
                self._see(leaf)
            if self._origins and func.namespace != "prim" and (new or func._schema.is_mutable):
                for read in self._origins.keys() & {*map(self.number_of, given)}:
                    if name in _COPIES:
                        self._origins.update((self._known[one], self._origins[read]) for one in storages)
                    else:
                        self._readers.setdefault(read, f"{name} at {asking_line()}")
        return result

    def draw(self, fill: Callable[[torch.Tensor], object], tensor: torch.Tensor, *, cost: int) -> None:
        """Draw the random numbers that ``fill`` draws for a tensor, if that is on the CPU.

        ``cost``: it takes as long as to draw so many times as many.
        """
        if self._may_draw(cost * tensor.numel(), tensor):
            fill(_ones_like(tensor))

    def _may_draw(self, number: int, tensor: torch.Tensor) -> bool:
        if tensor.device.type != "cpu" or not self.draws:
            return False
        self.left_to_draw -= number
        return self.left_to_draw >= 0

    def _draw_as(self, func: Any, args: Any, keywords: Any, given: list[torch.Tensor]) -> None:
        """Draw the random numbers of an operator on fake tensors, if its result is on the CPU."""
        on_cpu = torch.device(keywords.get("device") or "cpu").type == "cpu"
        if not given or not on_cpu or not self._may_draw(max(one.numel() for one in given), given[0]):
            return
        if not func._schema.is_mutable or not given[0].is_contiguous():
            with contextlib.suppress(Exception):  # of values that it does not take
                func(*tree_map_only(FakeTensor, _ones_like, args), **tree_map_only(FakeTensor, _ones_like, keywords))
            return
        tensor = given[0]
        left = tensor.numel()
        while left:
            # torch draws in groups of 16, and in another way for fewer: the last part is not a small one.
            part = _DRAWN_AT_ONCE if left >= 2 * _DRAWN_AT_ONCE else left
            func(torch.empty(part, dtype=tensor.dtype), *args[1:], **keywords)
            left -= part

    def _of_known_size(self, func: Any, args: Any, keywords: Any) -> Any:
        """Return the result of an operator whose size depends on values that are known; None if they are not."""
        is_known, values = self._values.compute(func, args, keywords)
        if is_known:
            return tree_map_only(torch.Tensor, self._with_values, values)
        if func.overloadpacket is torch.ops.aten.masked_select and args[0].shape == args[1].shape:
            args = (args[0], [args[1]])
        elif func is not torch.ops.aten.index.Tensor:
            return None
        places: list[torch.Tensor | None] = []
        for place in args[1]:
            if place is None or place.dtype not in (torch.bool, torch.uint8):
                places.append(place)
            elif (value := self._values.of(place)) is None:
                return None
            else:
                places += [self._with_values(each) for each in value.nonzero().unbind(1)]
        with self._lock, self._fake:
            return torch.ops.aten.index.Tensor(args[0], places)

    def _with_values(self, value: torch.Tensor) -> torch.Tensor:
        with self._lock, self._fake:
            tensor = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")
        self._values.keep(tensor, value)
        return tensor

    def _go_to_stream_of_thread(self) -> None:
        stream = getattr(self._thread, "stream", 0)
        if stream != self._stream:
            self._stream = stream
            self._add("s", stream)

    def _without_forgotten(self) -> tuple[list[tuple[EventKind, int]], list[OperatorCall]]:
        events, operators = [], list(self._operators)
        for place, (kind, number) in enumerate(self._events):
            if kind == "o":
                results = self._events[place + 1 : place + 1 + operators[number].num_results]
                left = sum(result not in self._forgotten for _, result in results)
                operators[number] = replace(operators[number], num_results=left)
            if kind not in "af" or number not in self._forgotten:
                events.append((kind, number))
        return events, operators

    def _be_at(self, place: int) -> None:
        if place != self._place:
            self._place = place
            self._add("w", place)

    def _see(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._known:
            self._allocated(storage, FirstTensor(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")))

    def _allocated(self, storage: torch.UntypedStorage, first: FirstTensor) -> None:
        key, number = storage._cdata, len(self._storage_bytes)
        self._known[key] = number
        self._storage_bytes.append(storage.nbytes())
        self._tensors.append(first)
        self._add("a", number)
        # The Python object of a storage lives as long as the storage.
        self._references[number] = weakref.ref(storage, functools.partial(self._gone, key, number))

    def resized(self, storage: torch.UntypedStorage) -> None:
        """Note that a storage has another size from here on, as those of gathered parameters have."""
        key, is_empty = storage._cdata, not storage.nbytes()
        with self._lock:
            before = self._known.pop(key, None)
            emptied, first = self._emptied.pop(key, (None, None))
            if before is not None:
                self._references.pop(before)
                first = self._tensors[before]
            elif first is None or emptied is None or emptied() is not storage or self._is_aside:
                return
            if is_empty:
                self._emptied[key] = weakref.ref(storage), first
            else:
                self._go_to_stream_of_thread()
                self._be_at(-1 if self._places is None else self._places.here("resize_"))
                self._allocated(storage, first)
            if before is not None:
                self._add("f", before)

    def _gone(self, key: int, number: int, _: Any) -> None:
        self._references.pop(number, None)
        if self._known.get(key) == number:
            del self._known[key]
        self._add("f", number)

    def _add(self, kind: EventKind, number: int) -> None:
        self._events.append((kind, number))


class GraphRecorder(AllocationRecorder):
    """Records under an engine that compiles the model's graphs with Dynamo."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let Dynamo compile while the recorder is active: it traces in a mode of its own, which goes first."""
        return True


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
        options["float16"] = _numbers(args[0].dtype == torch.float16)
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
