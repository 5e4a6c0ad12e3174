"""The device memory that a script's first steps allocate and free, as a run without the device has seen it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Literal

from ..errors import FormatError
from .facts import BatchControl
from .look_ahead import LookAhead
from .outcome import Phase

Layout = Literal["contiguous", "channels_last", "strided"]
EventKind = Literal["a", "f", "o", "p", "s", "e", "w"]
Way = Literal["forward", "backward", "recompute"]
Workspaces = Literal["kept", "kept apart", "freed"]
TensorRole = Literal["", "parameter", "buffer", "gradient", "optimizer state"]


@dataclass(frozen=True)
class TensorForm:
    """Shape of a tensor, bytes of an element, and how it lies in memory."""

    shape: tuple[int, ...]
    item_bytes: int
    layout: Layout = "contiguous"


@dataclass(frozen=True)
class OperatorCall:
    """An operator that ran on the device, with what its kernel's own allocations depend on.

    ``tensors`` are its tensor arguments in order. ``options`` are other arguments by name, as whole numbers.
    ``num_results`` counts the storages that it allocates for its results.
    """

    name: str  # of the ATen operator, without its overload
    tensors: tuple[TensorForm, ...]
    options: dict[str, tuple[int, ...]] = field(default_factory=dict)
    num_results: int = 0


@dataclass(frozen=True)
class Place:
    """Where a script is as an operator runs; in a backward, what the forward was at for which the operator runs.

    ``module`` is the innermost module by its path in the model, empty outside of modules. ``line`` is the innermost
    line outside of torch, as ``file:number``, and ``code`` its text; ``script_line`` is the innermost one of the
    script's own. ``way`` is what the operator belongs to: all that the script runs by itself is ``forward``.
    """

    module: str
    line: str
    script_line: str
    operator: str
    way: Way = "forward"
    code: str = ""

    def __str__(self) -> str:
        """Name the line, and the script's own line that led there if it is another one."""
        line = self.line or "a line that cannot be told"
        called = self.script_line if self.script_line != self.line else ""
        return f"{line} (called at {called})" if called else line


@dataclass(frozen=True)
class FirstTensor:
    """The tensor that a storage was allocated for; ``dtype`` is torch's name without ``torch.``.

    ``role`` is what the model or its optimizer uses it for, empty where it is neither's; ``parameter`` is then the
    parameter or buffer that it belongs to, by its path in the model.
    """

    shape: tuple[int, ...]
    dtype: str
    role: TensorRole = ""
    parameter: str = ""


@dataclass(frozen=True)
class AllocationTrace:
    """Allocations and frees of device memory in the order in which the script makes them.

    Event number i is of kind ``kinds[i]``, with the number ``numbers[i]``:

    - ``a``: a storage is allocated; the number is an index into ``storage_bytes``.
    - ``f``: a storage is freed.
    - ``o``: an operator runs, an index into ``operators``. Its results are allocated next.
    - ``p``: a phase begins, an index into ``PHASES``.
    - ``s``: a stream is used from here on; 0 is the device's own.
    - ``e``: the script empties the cache.
    - ``w``: the script is somewhere else from here on, an index into ``places``; only in a run that was asked for them.

    ``expands``: the allocator's segments are expandable. ``tensors`` has the tensor of each storage, where asked for.
    ``workspaces`` of cuBLAS and cuBLASLt are ``kept`` in common, ``kept apart``, or ``freed`` after each product.
    """

    PHASES: ClassVar[tuple[Phase, ...]] = ("start", "forward", "backward", "optimizer")

    kinds: str
    numbers: tuple[int, ...]
    storage_bytes: tuple[int, ...]
    operators: tuple[OperatorCall, ...] = ()
    expands: bool = False
    workspaces: Workspaces = "kept"
    places: tuple[Place, ...] = ()
    tensors: tuple[FirstTensor, ...] = ()


@dataclass(frozen=True)
class Traced:
    """A line of ``results.jsonl``: what a run in mode ``trace`` has seen of a script's first training steps."""

    kind: ClassVar[str] = "traced"
    trace: AllocationTrace
    batch_size: int | None  # that arrived at the model
    batch_control: BatchControl
    steps: int  # optimizer steps that were seen
    process: int
    rank: int = 0
    blocks: dict[str, int] = field(default_factory=dict)  # how many of each class repeat in the model
    asked: tuple[str, ...] = ()  # lines that asked for a tensor's value, and got one that was not computed
    asked_integers: tuple[str, ...] = ()  # those of them that asked for a whole number
    notes: tuple[str, ...] = ()
    step_flops: int = 0  # of matrix products, convolutions and attention, in the last step
    moved_bytes: int = 0  # between the device and the CPU, in the last step
    optimizers: tuple[str, ...] = ()  # their classes
    ahead: LookAhead | None = None  # None where no loader brings batches


def between(low: AllocationTrace, high: AllocationTrace, share: float) -> AllocationTrace:
    """Return the trace at another batch size, each size being on a straight line through two.

    Args:
        low: the trace at one batch size.
        high: the trace at a larger one.
        share: where the other batch size is: 0 at ``low``, 1 at ``high``, 3 at three times the distance.

    Raises:
        FormatError: the two are not the same steps.
    """
    names = [tuple(call.name for call in one.operators) for one in (low, high)]
    if (low.kinds, low.numbers, names[0]) != (high.kinds, high.numbers, names[1]):
        raise FormatError("at another batch size the script runs other operators")

    def on_line(two: Sequence[int]) -> int:
        return round(two[0] + (two[1] - two[0]) * share)

    return replace(
        low,
        storage_bytes=tuple(map(on_line, zip(low.storage_bytes, high.storage_bytes, strict=True))),
        operators=tuple(combined(calls, on_line) for calls in zip(low.operators, high.operators, strict=True)),
    )


def combined(records: Sequence[Any], combine: Callable[[Sequence[int]], int]) -> Any:
    """Return a record like some that are built alike, with whole numbers that are combined from theirs."""
    first = records[0]
    if all(one == first for one in records[1:]):
        return first
    if is_dataclass(first) and not isinstance(first, type):
        names = [one.name for one in fields(first)]
        return replace(first, **{name: combined([getattr(one, name) for one in records], combine) for name in names})
    if isinstance(first, tuple) and all(len(one) == len(first) for one in records):
        return tuple(combined(values, combine) for values in zip(*records, strict=True))
    if isinstance(first, dict) and all(one.keys() == first.keys() for one in records):
        return {key: combined([one[key] for one in records], combine) for key in first}
    return combine(records) if all(isinstance(one, int) for one in records) else first
