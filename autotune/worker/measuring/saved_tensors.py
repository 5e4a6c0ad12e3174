"""Measurement of what autograd keeps in a step, by storage.

It tells which modules keep storages, and for how many bytes regions of the script see to that in autograd's place.
"""

from __future__ import annotations

import functools
import re
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from ...records.audit import AuditedBlocks, AuditedRegion, Counted, Holder
from ..call_stack import in_backward, modules_under_way
from ..device import now_s
from ..hooks.roots import unwrap
from ..hooks.samples import tensors_of
from ..hooks.saving import Region, SavingWatch
from ..hooks.watch import Lasting, storage_of
from ..plans.layers import own_class, repeated_modules

# Wrappers that are no part of a path that anybody wrote.
_WRAPPERS = re.compile(r"(?<![^.])(?:_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)\.?")
# Of paths that hold something, these many are named.
_MOST_HOLDERS = 12


@dataclass(frozen=True)
class Place:
    """A module that runs: its path in the outermost one, ``*`` for an index, and its class; empty outside of any.

    ``block`` is the number of the outermost repeated block around it, None if there is none.
    """

    path: str = ""
    name: str = ""
    block: int | None = None
    root: int | None = None


class ModulePlaces:
    """Tells where a tensor is saved, and keeps no module; ``block_names`` are the classes of repeated blocks met."""

    def __init__(self) -> None:
        self.block_names: dict[int, str] = {}
        self._roots: dict[int, weakref.ref[nn.Module]] = {}
        self._paths: dict[int, dict[int, str]] = {}
        self._blocks: dict[int, set[int]] = {}

    def roots(self) -> Iterator[nn.Module]:
        """Return the outermost modules that were met, as far as they are alive."""
        found = (reference() for reference in self._roots.values())
        return (module for module in found if module is not None)

    def here(self, enters: Callable[[Iterable[torch.Tensor]], None], *, before: Place | None = None) -> Place:
        """Return the place of the innermost module that runs in this thread.

        ``enters`` is told the tensors that a repeated block around it was called with. ``before`` is the place where
        the forward called the code that a backward runs again.
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
                self.block_names[block] = own_class(getattr(module, "_checkpoint_wrapped_module", module)).__name__
                enters(tensors_of((frame.f_locals["args"], frame.f_locals["kwargs"])))
        innermost = calls[-1][0]
        path = self._paths[number].get(id(innermost), "")
        return Place(path, own_class(innermost).__name__, block, number)


def group_of(model: nn.Module, path: str) -> str:
    """Return a module's path with ``*`` for indices in lists whose modules are of one class."""
    parent, shown = model, []
    for name in path.split(".") if path else ():
        siblings = [child for other, child in parent.named_children() if other.isdigit()]
        alike = name.isdigit() and len(siblings) > 1 and len({type(one) for one in siblings}) == 1
        shown.append("*" if alike else name)
        parent = parent.get_submodule(name)
    return ".".join(shown)


@dataclass
class _Kept:
    """A weak reference to a storage that autograd keeps, or would without ``region``."""

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

    # What was kept as the backward began, and what was freed by then.
    kept: list[_Kept] = field(default_factory=list)
    freed: list[_Kept] = field(default_factory=list)
    peak_bytes: int = 0
    # What enters repeated blocks and nobody keeps.
    entering_bytes: int = 0


def _size(kept: Iterable[_Kept]) -> int:
    return sum(one.saved_bytes for one in kept)


class _UnharmedWatch(SavingWatch):
    """A watch that raises nothing into the script, whose forwards and backwards tell it what they do."""

    def __init_subclass__(cls) -> None:
        for name, method in vars(SavingWatch).items():
            if callable(method) and name in vars(cls):
                setattr(cls, name, _guarded(vars(cls)[name]))


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def guarded(self: SavingWatch, *arguments: Any, **keywords: Any) -> Any:
        try:
            return method(self, *arguments, **keywords)
        except Exception as error:
            self.problem = self.problem or f"{type(error).__name__}: {error}"
            return None

    return guarded


class RegionTimes(_UnharmedWatch):
    """Takes the times of some steps' regions, which waits for the device.

    ``recompute_s`` is the time of all recomputation of regions, ``hooks_s`` that of the script's own hooks.
    """

    def __init__(self) -> None:
        self.recompute_s = self.hooks_s = 0.0
        self._began_s = 0.0
        self._again_depth = 0

    def recompute_begins(self) -> None:
        """See ``SavingWatch``."""
        self._again_depth += 1
        if self._again_depth == 1:
            self._began_s = now_s()

    def recompute_ends(self) -> None:
        """See ``SavingWatch``."""
        self._again_depth -= 1
        if not self._again_depth:
            self.recompute_s += now_s() - self._began_s

    def hooks_begin(self) -> None:
        """See ``SavingWatch``."""
        if not self._again_depth:
            self._began_s = now_s()

    def hooks_end(self) -> None:
        """See ``SavingWatch``."""
        if not self._again_depth:
            self.hooks_s += now_s() - self._began_s


class SavedTensors(_UnharmedWatch):
    """Counts what a step saves, each storage once, whatever views of it are saved.

    Of several passes in a step (accumulation, several models) the one that would keep most without regions counts.
    ``device`` is the type of the device that is trained on. ``lasting`` are parameters and buffers.
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
        """See ``SavingWatch``."""
        self._lasting.add(tensors)

    # -- what the hooks tell

    def called(self, region: Region, *, with_gradients: bool) -> None:
        """See ``SavingWatch``."""
        known = self._of(region)
        without = known.calls_without_gradients + (not with_gradients)
        self._regions[region] = replace(known, calls=known.calls + 1, calls_without_gradients=without)

    def enters(self, inputs: Any) -> None:
        """See ``SavingWatch``."""
        references = map(storage_of, tensors_of(inputs))
        self._entering_region = {reference.cdata: reference for reference in references if reference is not None}

    def running(self) -> Place:
        """See ``SavingWatch``."""
        return self._places.here(self._enters)

    def outputs(self, result: Any) -> list[StorageWeakRef | None]:
        """See ``SavingWatch``."""
        return [storage_of(tensor) for tensor in tensors_of(result)]

    def outputs_again(self, result: Any, outputs: list[StorageWeakRef | None] | None) -> None:
        """See ``SavingWatch``."""
        # What a region gives is kept once, by whoever took it from the forward.
        if self._pass is None or outputs is None:
            return
        kept = {one.reference.cdata for one in self._pass.kept}
        for tensor, before in zip(tensors_of(result), outputs, strict=False):
            again = storage_of(tensor)
            if again is not None and before is not None and before.cdata in kept - {again.cdata}:
                self._pass.freed = [one for one in self._pass.freed if one.reference.cdata != again.cdata]

    def saved(self, tensor: torch.Tensor, *, stands_in: bool = False) -> None:
        """See ``SavingWatch``."""
        self._note(tensor, None, None, stands_in=stands_in)

    def offered(self, tensor: torch.Tensor, region: Region, place: Place | None = None) -> None:
        """See ``SavingWatch``."""
        self._note(tensor, region, place)

    def again(self, tensor: torch.Tensor) -> None:
        """See ``SavingWatch``."""
        self._note(tensor, None, Place())

    def recompute_ends(self) -> None:
        """See ``SavingWatch``."""
        if self._pass is not None:
            there = (one for one in self._on_device(self._storages.values()) if one.is_there)
            self._pass.peak_bytes = max(self._pass.peak_bytes, _size(there))

    # -- what the steps tell

    def backward_begins(self) -> None:
        """See ``SavingWatch``: take stock of what is kept at this moment."""
        self._close()
        self.saw_backward = True
        kept = [one for one in self._storages.values() if one.is_there]
        freed = [one for one in self._storages.values() if one.region is not None and not one.is_there]
        self._pass = _Pass(kept, freed, peak_bytes=_size(self._on_device(kept)))
        self._is_backward_done = False

    def backward_done(self) -> None:
        """See ``SavingWatch``: what comes from here on belongs to another pass."""
        self._is_backward_done = True

    def counted(self) -> Counted:
        """Return the step's figures, but for times."""
        self._close()
        largest = self._largest
        between = (one for one in largest.kept if one.place.block is not None and one.region is None and not one.enters)
        kept_bytes = _size(self._on_device(largest.kept))
        return Counted(
            kept_bytes=kept_bytes,
            peak_bytes=largest.peak_bytes,
            without_bytes=_size(self._plain(largest)),
            elsewhere_bytes=_size(largest.kept) - kept_bytes,
            between_bytes=_size(between),
        )

    def regions(self) -> tuple[AuditedRegion, ...]:
        """Return the regions that were called, those that free most first."""
        return tuple(sorted(self._regions.values(), key=lambda one: -one.freed_bytes))

    def holders(self) -> tuple[Holder, ...]:
        """Return what keeps most as the backward begins."""
        found: Counter[Holder] = Counter()
        for one in self._on_device(self._largest.kept):
            place, own = one.place, one.enters_region
            holder = Holder("" if own else place.path, "" if own else place.name, 0, place.block is not None, own)
            found[holder] += one.saved_bytes
        return tuple(replace(one, saved_bytes=size) for one, size in found.most_common(_MOST_HOLDERS))

    def blocks(self) -> AuditedBlocks | None:
        """Return the repeated blocks, and what would be kept if each were checkpointed; None without any."""
        largest = self._largest
        inside: Counter[int] = Counter()
        outside = largest.entering_bytes
        for one in self._plain(largest):
            if one.place.block is None or one.enters:
                outside += one.saved_bytes
            else:
                inside[one.place.block] += one.saved_bytes
        if not inside:
            return None
        names = tuple(dict.fromkeys(self._places.block_names[block] for block in inside))
        return AuditedBlocks(names, len(inside), outside + max(inside.values()))

    def modules(self) -> Iterator[nn.Module]:
        """Return the outermost modules that have saved something."""
        return self._places.roots()

    # -- inside

    def _on_device(self, kept: Iterable[_Kept]) -> list[_Kept]:
        return [one for one in kept if one.device == self._device]

    def _plain(self, of: _Pass) -> list[_Kept]:
        """Return what would be kept without regions."""
        return [one for one in self._on_device((*of.kept, *of.freed)) if not one.is_extra]

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
        if place is None or region is not None:
            place = self._places.here(self._enters, before=place)
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
        for tensor in tensors:
            reference = self._lasting.counted(tensor)
            if reference is None:
                continue
            if reference.cdata not in self._entering:
                self._entering[reference.cdata] = reference, tensor.untyped_storage().nbytes()
            known = self._storages.get(reference.cdata)
            if known is not None:
                known.enters = True

    def _close(self) -> None:
        """End a pass: keep it if it is the largest, and forget what is gone."""
        done, self._pass = self._pass, None
        self._is_backward_done = False
        if done is None:
            return
        for one in done.freed:
            assert one.region is not None
            of = self._of(one.region)
            self._regions[one.region] = replace(of, freed_bytes=of.freed_bytes + one.saved_bytes)
        if _size(self._plain(done)) >= _size(self._plain(self._largest)):
            self._largest = done
            entering = (size for number, (_, size) in self._entering.items() if number not in self._storages)
            done.entering_bytes = sum(entering)
        self._storages = {number: one for number, one in self._storages.items() if one.is_there}
        self._entering = {number: one for number, one in self._entering.items() if not one[0].expired()}
