"""Measurement of what autograd keeps in a step, by storage.

It tells which modules keep storages, and for how many bytes regions of the script see to that in autograd's place.
"""

from __future__ import annotations

import functools
import re
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from ...records.audit import AuditedBlocks, AuditedRegion, Counted, Holder
from ..device import uses_cuda
from ..hooks.roots import unwrap
from ..hooks.samples import tensors_of
from ..hooks.saving import Region, SavingWatch
from ..hooks.watch import Lasting, in_backward, modules_under_way, storage_of
from ..plans.layers import repeated_modules

# Wrappers that are no part of a path that anybody wrote.
_WRAPPERS = re.compile(r"(?<![^.])(?:_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)\.?")


@dataclass(frozen=True)
class Place:
    """A module that runs: its path in the outermost one, ``*`` for an index, and its class; empty outside of any.

    ``block`` is the number of the repeated block around it, the outermost one, None if there is none.
    """

    path: str = ""
    name: str = ""
    block: int | None = None
    root: int | None = None


class ModulePlaces:
    """Tells where a tensor is saved. Weak: it keeps no module.

    Attributes:
        block_names: The class of each repeated block that was met.
    """

    def __init__(self) -> None:
        self.block_names: dict[int, str] = {}
        self._roots: dict[int, weakref.ref[nn.Module]] = {}
        self._paths: dict[int, dict[int, str]] = {}
        self._blocks: dict[int, set[int]] = {}

    def roots(self) -> Iterator[nn.Module]:
        """The outermost modules that were met, as far as they are alive."""
        found = (reference() for reference in self._roots.values())
        return (module for module in found if module is not None)

    def here(self, enters: Callable[[Iterable[torch.Tensor]], None], *, before: Place | None = None) -> Place:
        """The place of the innermost module that runs in this thread.

        Args:
            enters: told the tensors that a repeated block around it was called with.
            before: where the code was first called that runs again, in a backward: what is around it there.
        """
        under_way = modules_under_way(sys._getframe(1))
        calls = [(module, frame) for module, frame in under_way if unwrap(module) is module][::-1]
        if not calls:
            return before or Place()
        root = calls[0][0] if before is None or before.root is None else self._roots[before.root]()
        if root is None:
            return before or Place()
        number = id(root)
        if number not in self._roots:
            self._roots[number] = weakref.ref(root)
            self._paths[number] = {
                id(one): _WRAPPERS.sub("", group_of(root, path)).strip(".") for path, one in root.named_modules()
            }
            # A module without parts has nothing between what enters it and what leaves it.
            self._blocks[number] = {id(one) for one in repeated_modules(root) if any(True for _ in one.children())}
        block = None if before is None else before.block
        for module, frame in calls:
            if block is None and id(module) in self._blocks[number]:
                block = id(module)
                self.block_names[block] = type(getattr(module, "_checkpoint_wrapped_module", module)).__name__
                enters(tensors_of((frame.f_locals["args"], frame.f_locals["kwargs"])))
        innermost = calls[-1][0]
        path = self._paths[number].get(id(innermost), "")
        return Place(path, type(innermost).__name__, block, number)


def group_of(model: nn.Module, path: str) -> str:
    """Return a module's path with ``*`` for indices in lists whose modules are of one class."""
    parent, shown = model, []
    for name in path.split(".") if path else ():
        siblings = [child for other, child in parent.named_children() if other.isdigit()]
        alike = name.isdigit() and len(siblings) > 1 and len({type(one) for one in siblings}) == 1
        shown.append("*" if alike else name)
        parent = parent.get_submodule(name)
    return ".".join(shown)


# Of paths that hold something, these many are named.
_MOST_HOLDERS = 12


@dataclass
class _Kept:
    """A storage that autograd keeps, or would without ``region``; weakly, so that nothing stays for our sake."""

    reference: StorageWeakRef
    saved_bytes: int
    device: str
    place: Place
    region: Region | None = None
    # It enters a repeated block, so that it is kept in any case.
    enters: bool = False
    # It is kept only because of regions: it enters one, or hooks of the script keep it in the place of another.
    is_extra: bool = False
    enters_region: bool = False
    was_offered: bool = False

    @property
    def is_there(self) -> bool:
        return not self.reference.expired()


@dataclass
class _Pass:
    """A forward with its backward."""

    kept_bytes: int = 0
    peak_bytes: int = 0
    elsewhere_bytes: int = 0
    # What was kept as the backward began, and what was freed by then.
    kept: list[_Kept] = field(default_factory=list)
    freed: list[_Kept] = field(default_factory=list)
    device: str = "cpu"
    # What enters repeated blocks and nobody keeps.
    entering_bytes: int = 0

    @property
    def plain(self) -> list[_Kept]:
        """Return what would be kept without regions."""
        return [one for one in (*self.kept, *self.freed) if one.device == self.device and not one.is_extra]

    @property
    def without_bytes(self) -> int:
        return sum(one.saved_bytes for one in self.plain)


def _unharmed(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but it raises nothing into the script, whose forward or backward it is called in."""

    @functools.wraps(method)
    def guarded(self: SavingWatch, *arguments: Any, **keywords: Any) -> Any:
        try:
            return method(self, *arguments, **keywords)
        except Exception as error:
            self.problem = self.problem or f"{type(error).__name__}: {error}"
            return None

    return guarded


class RegionTimes(SavingWatch):
    """Takes the times of some steps' regions, which waits for the device.

    Attributes:
        recompute_s: What regions took that were computed again, in all.
        hooks_s: What the script's own hooks took.
    """

    def __init__(self) -> None:
        self.recompute_s = self.hooks_s = 0.0
        self._began_s = 0.0
        self._again_depth = 0

    @_unharmed
    def recompute_begins(self) -> None:
        """See ``SavingWatch``."""
        self._again_depth += 1
        if self._again_depth == 1:
            self._began_s = _now_s()

    @_unharmed
    def recompute_ends(self) -> None:
        """See ``SavingWatch``."""
        self._again_depth -= 1
        if not self._again_depth:
            self.recompute_s += _now_s() - self._began_s

    @_unharmed
    def hooks_begin(self) -> None:
        """See ``SavingWatch``."""
        if not self._again_depth:
            self._began_s = _now_s()

    @_unharmed
    def hooks_end(self) -> None:
        """See ``SavingWatch``."""
        if not self._again_depth:
            self.hooks_s += _now_s() - self._began_s


class SavedTensors(SavingWatch):
    """Counts what a step saves.

    Storages are counted once, whatever views of them are saved. Of several passes in a step (accumulation, several
    models) the one that would keep most without regions is told of.

    Args:
        device: the type of the device that is trained on.
        lasting: parameters and buffers, which are there in any case.

    Attributes:
        saw_backward: Whether a backward was seen.
    """

    def __init__(self, device: str, lasting: Iterable[torch.Tensor]) -> None:
        self.saw_backward = False
        self._device = device
        self._places = ModulePlaces()
        self._lasting = Lasting(lasting)
        self._storages: dict[int, _Kept] = {}
        # What enters repeated blocks, and its bytes.
        self._entering: dict[int, tuple[StorageWeakRef, int]] = {}
        self._entering_region: dict[int, StorageWeakRef] = {}
        self._regions: dict[Region, AuditedRegion] = {}
        self._pass: _Pass | None = None
        self._is_backward_done = False
        self._largest = _Pass()

    def leave_out(self, tensors: Iterable[torch.Tensor]) -> None:
        """Do not count these: they are kept by somebody else."""
        self._lasting.add(tensors)

    # -- what the hooks tell

    @_unharmed
    def called(self, region: Region, *, with_gradients: bool) -> None:
        """See ``SavingWatch``."""
        known = self._of(region)
        without = known.calls_without_gradients + (not with_gradients)
        self._regions[region] = replace(known, calls=known.calls + 1, calls_without_gradients=without)

    @_unharmed
    def enters(self, inputs: Any) -> None:
        """See ``SavingWatch``."""
        references = map(storage_of, tensors_of(inputs))
        self._entering_region = {reference.cdata: reference for reference in references if reference is not None}

    @_unharmed
    def running(self) -> Place:
        """See ``SavingWatch``."""
        return self._places.here(self._enters)

    @_unharmed
    def outputs(self, result: Any) -> list[StorageWeakRef | None]:
        """See ``SavingWatch``."""
        return [storage_of(tensor) for tensor in tensors_of(result)]

    @_unharmed
    def outputs_again(self, result: Any, outputs: list[StorageWeakRef | None] | None) -> None:
        """See ``SavingWatch``: what a region gives is kept once, by whoever took it from the forward."""
        if self._pass is None or outputs is None:
            return
        kept = {one.reference.cdata for one in self._pass.kept}
        for tensor, before in zip(tensors_of(result), outputs, strict=False):
            again = storage_of(tensor)
            if again is not None and before is not None and before.cdata in kept - {again.cdata}:
                self._pass.freed = [one for one in self._pass.freed if one.reference.cdata != again.cdata]

    @_unharmed
    def saved(self, tensor: torch.Tensor, *, stands_in: bool = False) -> None:
        """See ``SavingWatch``."""
        self._note(tensor, None, None, stands_in=stands_in)

    @_unharmed
    def offered(self, tensor: torch.Tensor, region: Region, place: Place | None = None) -> None:
        """See ``SavingWatch``."""
        self._note(tensor, region, place)

    @_unharmed
    def again(self, tensor: torch.Tensor) -> None:
        """See ``SavingWatch``."""
        self._note(tensor, None, Place())

    @_unharmed
    def recompute_ends(self) -> None:
        """See ``SavingWatch``."""
        if self._pass is not None:
            self._pass.peak_bytes = max(self._pass.peak_bytes, self._there_bytes())

    # -- what the steps tell

    @_unharmed
    def backward_begins(self) -> None:
        """Take stock of what is kept at this moment."""
        self._close()
        self.saw_backward = True
        kept = [one for one in self._storages.values() if one.is_there]
        freed = [one for one in self._storages.values() if one.region is not None and not one.is_there]
        own = sum(one.saved_bytes for one in kept if one.device == self._device)
        self._pass = _Pass(own, own, sum(one.saved_bytes for one in kept) - own, kept, freed, self._device)
        self._is_backward_done = False

    def backward_done(self) -> None:
        """Note that what comes from here on belongs to another pass."""
        self._is_backward_done = True

    def counted(self) -> Counted:
        """The step's figures; those of time are for who took them."""
        self._close()
        largest = self._largest
        between = (one for one in largest.kept if one.place.block is not None and one.region is None and not one.enters)
        return Counted(
            kept_bytes=largest.kept_bytes,
            peak_bytes=largest.peak_bytes,
            without_bytes=largest.without_bytes,
            elsewhere_bytes=largest.elsewhere_bytes,
            between_bytes=sum(one.saved_bytes for one in between),
        )

    def regions(self) -> tuple[AuditedRegion, ...]:
        """The regions that were called, those that free most first."""
        return tuple(sorted(self._regions.values(), key=lambda one: -one.freed_bytes))

    def holders(self) -> tuple[Holder, ...]:
        """Return what keeps most as the backward begins."""
        found: Counter[Holder] = Counter()
        for one in self._largest.kept:
            if one.device == self._device:
                place, own = one.place, one.enters_region
                holder = Holder("" if own else place.path, "" if own else place.name, 0, place.block is not None, own)
                found[holder] += one.saved_bytes
        return tuple(replace(one, saved_bytes=size) for one, size in found.most_common(_MOST_HOLDERS))

    def blocks(self) -> AuditedBlocks | None:
        """The repeated blocks, and what would be kept if each were checkpointed; None where there are none."""
        largest = self._largest
        inside: Counter[int] = Counter()
        outside = largest.entering_bytes
        for one in largest.plain:
            if one.place.block is None or one.enters:
                outside += one.saved_bytes
            else:
                inside[one.place.block] += one.saved_bytes
        if not inside:
            return None
        names = tuple(dict.fromkeys(self._places.block_names[block] for block in inside))
        return AuditedBlocks(names, len(inside), outside + max(inside.values()), inside.total())

    def modules(self) -> Iterator[nn.Module]:
        """The outermost modules that have saved something."""
        return self._places.roots()

    # -- inside

    def _of(self, region: Region) -> AuditedRegion:
        return self._regions.setdefault(region, AuditedRegion(region.name, region.kind, 0))

    def _note(
        self, tensor: torch.Tensor, region: Region | None, place: Place | None, *, stands_in: bool = False
    ) -> None:
        is_backward = in_backward()
        if not is_backward and self._is_backward_done:
            self._close()
        reference = self._lasting.counted(tensor)
        if reference is None:
            return
        if place is not None and region is not None:
            place = self._places.here(self._enters, before=place)
        elif place is None:
            place = self._places.here(self._enters)
        size, is_new = tensor.untyped_storage().nbytes(), reference.cdata not in self._storages
        # A checkpoint saves what enters it before anything else saves that once more.
        enters_region = reference.cdata in self._entering_region and region is None and not is_backward
        self._entering_region.pop(reference.cdata, None)
        is_extra = stands_in or enters_region
        known = self._storages.setdefault(
            reference.cdata, _Kept(reference, size, tensor.device.type, place, region, enters_region=enters_region)
        )
        known.is_extra = is_extra and (is_new or known.is_extra)
        known.enters |= reference.cdata in self._entering
        if is_new and region is not None and is_backward and self._pass is not None:
            self._pass.freed.append(known)
        elif region is None and not is_backward:
            known.region = None  # somebody outside of the region keeps it
        if region is not None and not known.was_offered:
            known.was_offered = True
            of = self._of(region)
            self._regions[region] = replace(of, offered_bytes=of.offered_bytes + size)

    def _enters(self, tensors: Iterable[torch.Tensor]) -> None:
        """These enter a repeated block."""
        for tensor in tensors:
            reference = self._lasting.counted(tensor)
            if reference is None:
                continue
            if reference.cdata not in self._entering:
                self._entering[reference.cdata] = reference, tensor.untyped_storage().nbytes()
            known = self._storages.get(reference.cdata)
            if known is not None:
                known.enters = True

    def _there_bytes(self) -> int:
        there = (one for one in self._storages.values() if one.device == self._device and one.is_there)
        return sum(one.saved_bytes for one in there)

    def _close(self) -> None:
        """A pass is over: keep it if it is the largest, and forget what is gone."""
        done, self._pass = self._pass, None
        self._is_backward_done = False
        if done is None:
            return
        for one in done.freed:
            assert one.region is not None
            of = self._of(one.region)
            self._regions[one.region] = replace(of, freed_bytes=of.freed_bytes + one.saved_bytes)
        if done.without_bytes >= self._largest.without_bytes:
            self._largest = done
            entering = (size for number, (_, size) in self._entering.items() if number not in self._storages)
            done.entering_bytes = sum(entering)
        self._storages = {number: one for number, one in self._storages.items() if one.is_there}
        self._entering = {number: one for number, one in self._entering.items() if not one[0].expired()}


def _now_s() -> float:
    """Now, when the device has done what it was told."""
    if uses_cuda():
        torch.cuda.synchronize()
    return time.perf_counter()
