"""Mode ``verify``: the first steps of a script with fixed seeds, and whether another run computed the same bits."""

from __future__ import annotations

import ctypes
import hashlib
import math
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
from torch import nn

from ...records.proof import GROUPS, Differences, GroupDifference, ValueGroup, difference_of, widest
from ...records.run import Compared, Verifying
from ..device import uses_cuda
from .deterministic import use_deterministic_algorithms
from .regions_off import RegionsOff
from .seeds import seed_generators

# What a run keeps of its values on disk, all steps together, for the sizes of differences.
_KEPT_BYTES = 2**30

# A value's digest, and what was kept of it: every n-th element, or nothing of a generator's state.
_Value = tuple[str, torch.Tensor | None]
_Values = dict[str, dict[str, _Value]]
_MISSING: _Value = ("", None)
# Differences of smaller buffers are shares of this: statistics of what is zero are rounding alone.
_LEAST_BUFFER = 1e-3


class Verification:
    """Takes the values of each step of a training process, and compares or, as a reference, keeps them in a folder."""

    def __init__(self, rules: Verifying, directory: Path) -> None:
        self._rules = rules
        self._directory = directory
        self._losses: list[torch.Tensor] = []
        self._differences: list[list[Differences]] = [[] for _ in rules.references]
        self._sampled_one_in = 1
        self._rank = 0
        self._lost_gradients: dict[str, None] = {}
        self._ever_had: set[str] = set()
        self._parameters: dict[str, torch.Tensor] = {}  # those that optimizers hold
        self.steps = 0
        seed_generators()

    def begin(self, rank: int) -> None:
        """Seed all generators before the first training call: all runs draw the same, whatever went before."""
        self._rank = rank
        seed_generators(rank)
        if uses_cuda():
            use_deterministic_algorithms()

    def add_loss(self, loss: torch.Tensor) -> None:
        """Take the loss of a backward."""
        self._losses.append(loss.detach().clone())

    def step(self, modules: Iterable[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> bool:
        """Take and compare the values of a finished step; True after the last one."""
        self.steps += 1
        modules = list(modules)
        held = {id(one) for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]}
        self._parameters = {name: one for name, one in _named(modules, "named_parameters") if id(one) in held}
        self._ever_had |= {name for name, one in self._parameters.items() if one.grad is not None}
        values = self._take(modules, optimizers)
        if self._rules.is_reference:
            torch.save(values, _file(self._directory, self._rank, self.steps))
        for reference, differences in zip(self._rules.references, self._differences, strict=True):
            path = _file(Path(reference), self._rank, self.steps)
            groups = [group for group in GROUPS if group in values] if path.exists() else []
            others: _Values = torch.load(path, mmap=True) if groups else {}
            lost = others.get("gradients", {}).keys() - values["gradients"].keys()
            self._lost_gradients |= dict.fromkeys(sorted(lost))
            differences.append(tuple(_difference(group, values[group], others[group], self.steps) for group in groups))
        return self.steps >= self._rules.steps

    def result(self, process: int, *, is_compiled: bool = False, regions_off: RegionsOff | None = None) -> Compared:
        """Return what all steps together came to.

        ``is_compiled`` says that code was generated for what ran. ``regions_off`` has switched off the script's own.
        """
        never = {id(one): name for name, one in self._parameters.items() if name not in self._ever_had}
        cut = {} if regions_off is None else regions_off.cut
        return Compared(
            steps=self.steps,
            differences=tuple(map(widest, self._differences)),
            process=process,
            rank=self._rank,
            sampled_one_in=self._sampled_one_in,
            is_compiled=is_compiled,
            lost_gradients=tuple(self._lost_gradients),
            regions_off=0 if regions_off is None else regions_off.number,
            cut={region: tuple(never[one] for one in never if one in leaves) for region, leaves in cut.items()},
        )

    def _take(self, modules: list[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> _Values:
        buffers = list(_named(modules, "named_buffers"))
        tensors: dict[ValueGroup, list[tuple[str, torch.Tensor]]] = {
            "losses": [(f"loss {number}", loss) for number, loss in enumerate(self._losses, 1)],
            "gradients": _gradients(modules, optimizers),
            "buffers": [(name, one) for name, one in buffers if _is_inexact(one)],
            "counters": [(name, one) for name, one in buffers if not _is_inexact(one)],
        }
        self._losses = []
        plain = {group: dict(_plain(named)) for group, named in tensors.items()}
        needed = sum(each.numel() * each.element_size() for named in plain.values() for each in named.values())
        stride = max(1, -(-needed * self._rules.steps // _KEPT_BYTES))
        self._sampled_one_in = max(self._sampled_one_in, stride)
        values: _Values = {
            group: {name: _value(each, stride) for name, each in named.items()} for group, named in plain.items()
        }
        values["random"] = {name: (_digest(state), None) for name, state in _random_states()}
        return values


def _file(directory: Path, rank: int, step: int) -> Path:
    return directory / f"values-{rank}-{step}.pt"


def _gradients(modules: list[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> list[tuple[str, torch.Tensor]]:
    """Return the gradients of a step that was just made; where none are left, the parameters after the step."""
    parameters = list(_named(modules, "named_parameters"))
    known = {id(parameter) for _, parameter in parameters}
    for number, optimizer in enumerate(optimizers, 1):
        own = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        parameters += [(f"optimizer {number}, parameter {i}", one) for i, one in enumerate(own) if id(one) not in known]
    gradients = [(name, one.grad) for name, one in parameters if one.grad is not None]
    # Without an optimizer a step is only known to be over when its gradients have been cleared.
    return gradients if gradients and optimizers else [(f"{name}, after the step", one) for name, one in parameters]


def _named(modules: list[nn.Module], method: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield parameters or buffers of the roots, each once; of several roots with the root's number in front."""
    seen: set[int] = set()
    for number, module in enumerate(modules, 1):
        prefix = f"{number}: " if len(modules) > 1 else ""
        for name, tensor in getattr(module, method)():
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield prefix + name, tensor


def _plain(named: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield tensors with a storage of their own: sparse ones by their parts, distributed ones by their local part."""
    for name, tensor in named:
        own = tensor.detach()
        if hasattr(own, "to_local"):
            own = own.to_local()
        if own.layout is torch.sparse_coo:
            own = own.coalesce()
            yield f"{name} (indices)", own.indices()
            yield name, own.values()
        else:
            yield name, own if own.layout is torch.strided else own.to_dense()


def _value(tensor: torch.Tensor, stride: int) -> _Value:
    own = tensor.cpu().contiguous()
    return _digest(own), own.reshape(-1)[::stride].clone()


def _digest(tensor: torch.Tensor) -> str:
    """Hash the bits, type and shape of a contiguous tensor on the CPU."""
    digest = hashlib.blake2b(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), digest_size=16)
    size = tensor.numel() * tensor.element_size()
    if size:
        # Not through NumPy, which the script's interpreter need not have.
        digest.update((ctypes.c_char * size).from_address(tensor.data_ptr()))
    return digest.hexdigest()


def _random_states() -> Iterator[tuple[str, torch.Tensor]]:
    yield "torch", torch.get_rng_state()
    if uses_cuda():
        for number, state in enumerate(torch.cuda.get_rng_state_all()):
            yield f"cuda:{number}", state
    yield "random", _bytes(repr(random.getstate()).encode())
    if "numpy" in sys.modules:
        state = sys.modules["numpy"].random.get_state()
        yield "numpy", _bytes(state[1].tobytes() + repr(state[2:]).encode())


def _bytes(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _difference(group: ValueGroup, own: dict[str, _Value], others: dict[str, _Value], step: int) -> GroupDifference:
    names = dict.fromkeys([*own, *others])
    differing = [name for name in names if own.get(name, _MISSING)[0] != others.get(name, _MISSING)[0]]
    largest = _largest(others) if differing else 0.0
    found = [GroupDifference(group, len(names))]
    for name in differing:
        absolute = _size(own.get(name, _MISSING)[1], others.get(name, _MISSING)[1])
        # Buffers have nothing to do with each other: a mask may hold the largest number there is.
        own_largest = (
            max(_largest({name: others.get(name, _MISSING)}), _LEAST_BUFFER) if group == "buffers" else largest
        )
        relative = _share(absolute, own_largest)
        found.append(GroupDifference(group, 0, 1, name, step, absolute, relative))
    return difference_of(widest([tuple(found)]), group)


def _largest(values: dict[str, _Value]) -> float:
    """Return the largest finite value; of a group, as some of its tensors may be zero but for rounding."""
    kept = [tensor for _, tensor in values.values() if tensor is not None and tensor.numel()]
    # What stands beside numbers as their place in a sparse tensor has no size.
    numbers = [tensor for tensor in kept if _is_inexact(tensor)] or kept
    finite = (_wide(tensor).abs().nan_to_num(0.0, 0.0) for tensor in numbers)
    return max((float(tensor.max()) for tensor in finite), default=0.0)


def _share(absolute: float | None, largest: float) -> float | None:
    if not absolute:
        return absolute
    return absolute / largest if 0 < largest < math.inf else None


def _is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _size(own: torch.Tensor | None, other: torch.Tensor | None) -> float | None:
    """Return the largest difference of two tensors; None where it has no size."""
    if own is None or other is None or own.shape != other.shape or not own.numel():
        return None
    absolute = float((_wide(own) - _wide(other)).abs().max())
    return absolute if math.isfinite(absolute) else None


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
