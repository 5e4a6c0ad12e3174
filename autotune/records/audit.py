"""Effects of a script's own checkpointing, offloading and compiling on the saved activations of a training step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .measurement import MemorySplit, Peaks
from .proof import Differences

RegionKind = Literal["non_reentrant", "reentrant", "hooks"]

AuditVerdict = Literal["good", "little", "none", "costly", "unused"]
"""Of checkpointing and offloading: done well, of little effect, of none, costlier than what it gives, not used."""


@dataclass(frozen=True)
class AuditedRegion:
    """Regions of one name in which something else than autograd decides what is kept.

    ``kind``: ``torch.utils.checkpoint`` with ``use_reentrant=False`` or ``True``, or saved-tensor hooks, such as those
    of ``save_on_cpu``. The name is the class of these hooks, or of the module that is checkpointed, or the function.
    """

    name: str
    kind: RegionKind
    calls: int  # of one optimizer step
    calls_without_gradients: int = 0  # nothing is saved in them anyhow
    offered_bytes: int = 0  # what autograd would have kept without the region
    freed_bytes: int = 0  # what of that was gone as the backward began


@dataclass(frozen=True)
class Holder:
    """Modules that keep something outside of every region; without path and class for what no module keeps."""

    path: str  # with `*` for an index
    name: str  # of the class
    saved_bytes: int
    in_blocks: bool = False  # they are parts of repeated blocks
    enters_regions: bool = False  # what enters checkpointed regions, without path and class


@dataclass(frozen=True)
class AuditedBlocks:
    """The model's repeated blocks, ``number`` of them of the classes ``names``."""

    names: tuple[str, ...]
    number: int
    peak_bytes: int  # with each checkpointed: what is outside, what enters each, and the whole of the largest


@dataclass(frozen=True)
class Counted:
    """The bytes that autograd keeps in a training step, and the seconds that the step takes.

    The bytes are of storages on the device that is trained on, without parameters, buffers and the model's inputs.
    """

    kept_bytes: int  # as the backward begins
    peak_bytes: int  # the most at that moment, and after each region that was computed again
    without_bytes: int  # without regions
    elsewhere_bytes: int = 0  # on another device
    between_bytes: int = 0  # of what is kept, inside of repeated blocks, and in no region
    step_s: float = 0.0  # the mean of other steps than the counted one
    recompute_s: float = 0.0  # of a step, for computing regions again
    hooks_s: float = 0.0  # of a step, for packing and unpacking saved tensors

    @property
    def saving_bytes(self) -> int:
        """Return by how much regions lower the most that is kept at once."""
        return self.without_bytes - self.peak_bytes

    @property
    def cost_share(self) -> float:
        """Return which part of a step regions take."""
        return (self.recompute_s + self.hooks_s) / self.step_s if self.step_s else 0.0


@dataclass(frozen=True)
class AuditedCompile:
    """The number of ``graphs`` that ``torch.compile`` made, and of ``graph_breaks`` between them."""

    graphs: int
    graph_breaks: int
    eager: Counted | None = None  # with compiling switched off; None where that was not seen
    reason: str = ""  # why it was not seen


@dataclass(frozen=True)
class IdleSetting:
    """Something that asks for checkpointing on ``number`` modules of a script whose steps checkpoint nothing."""

    name: str
    number: int
    reason: str


@dataclass(frozen=True)
class RegionProof:
    """Hold how a script's steps with its own regions compare with the same steps without them, from the same seeds.

    ``same``: losses, gradients and buffers have the same bits. ``rounding``: they differ by little more than if the
    last bit of the parameters had changed. ``changed``: they differ by more. ``lost``: parameters get no gradient.
    ``unknown``: ``reason`` says why.

    ``lost`` names the parameters that get a gradient without regions, and none with them. ``cut`` has for each region
    the parameters that never get one, and that something in the region, or what it is called with, was detached from.
    Only parameters that an optimizer holds are named.
    """

    answer: Literal["same", "rounding", "changed", "lost", "unknown"]
    steps: int = 0
    differences: Differences = ()
    lost: tuple[str, ...] = ()
    cut: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reason: str = ""

    @property
    def is_wrong(self) -> bool:
        """Return whether the regions change what the script computes."""
        return self.answer in ("changed", "lost")


@dataclass(frozen=True)
class Audit:
    """The observations of a few steps of the script as it stands.

    ``regions``, ``holders``, ``blocks`` and ``idle`` are of a step without ``torch.compile``: graphs have no modules.
    """

    counted: Counted  # of the script as it is
    regions: tuple[AuditedRegion, ...] = ()
    holders: tuple[Holder, ...] = ()
    blocks: AuditedBlocks | None = None
    idle: tuple[IdleSetting, ...] = ()
    compiled: AuditedCompile | None = None
    peaks: Peaks | None = None  # of the whole step, as measured before
    split: MemorySplit | None = None  # of the whole step, as measured before
    device: str = "cpu"
    notes: tuple[str, ...] = ()  # what could not be seen
    proof: RegionProof | None = None  # None where there are no regions

    @property
    def eager(self) -> Counted:
        """Return the step without ``torch.compile``, as far as that was seen: what regions do by themselves."""
        seen = self.compiled.eager if self.compiled is not None else None
        return seen or self.counted
