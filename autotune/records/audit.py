"""Effects of a script's own checkpointing, offloading and compiling on the saved activations of a training step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .measurement import MemorySplit, Peaks

RegionKind = Literal["non_reentrant", "reentrant", "hooks"]

AuditVerdict = Literal["good", "little", "none", "costly", "unused"]
"""Of checkpointing and offloading: done well, of little effect, of none, costlier than what it gives, not used."""


@dataclass(frozen=True)
class AuditedRegion:
    """Regions of one name in which something else than autograd decides what is kept.

    ``kind``: ``torch.utils.checkpoint`` with ``use_reentrant=False`` or ``True``, or saved-tensor hooks, such as those
    of ``save_on_cpu``. The name is the class of these hooks, or the class of the module or the function that is
    checkpointed. ``calls`` are those of one optimizer step; in ``calls_without_gradients`` of them nothing is saved
    anyhow. ``offered_bytes`` is what autograd would have kept for them without the region, of which ``freed_bytes``
    were gone as the backward began.
    """

    name: str
    kind: RegionKind
    calls: int
    calls_without_gradients: int = 0
    offered_bytes: int = 0
    freed_bytes: int = 0


@dataclass(frozen=True)
class Holder:
    """Modules that keep something outside of every region: their path, ``*`` for an index, and their class.

    Both are empty for what is kept outside of any module, as for a loss function, and for what enters checkpointed
    regions (``enters_regions``). ``in_blocks``: they are parts of repeated blocks.
    """

    path: str
    name: str
    saved_bytes: int
    in_blocks: bool = False
    enters_regions: bool = False


@dataclass(frozen=True)
class AuditedBlocks:
    """The model's repeated blocks, ``number`` of them of the classes ``names``.

    A step with each of them checkpointed would keep ``peak_bytes`` at most: what lies outside of them, what enters
    each, and the whole of the largest one while it is computed again. They keep ``inside_bytes``, without what enters
    them, if nothing is freed.
    """

    names: tuple[str, ...]
    number: int
    peak_bytes: int
    inside_bytes: int


@dataclass(frozen=True)
class Counted:
    """The bytes that autograd keeps in a training step, and the seconds that the step takes.

    The bytes are those of storages on the device that is trained on, without parameters, buffers and the model's
    inputs. ``kept_bytes`` are there as the backward begins. ``peak_bytes`` is the most at that moment and after each
    region that was computed again. ``without_bytes`` would be kept without regions. ``elsewhere_bytes`` were kept on
    another device. ``between_bytes`` of what is kept lie inside of repeated blocks, and in no region. ``step_s`` is the
    mean of other steps than the counted one, ``recompute_s`` of it went into computing regions again, ``hooks_s`` into
    packing and unpacking saved tensors.
    """

    kept_bytes: int
    peak_bytes: int
    without_bytes: int
    elsewhere_bytes: int = 0
    between_bytes: int = 0
    step_s: float = 0.0
    recompute_s: float = 0.0
    hooks_s: float = 0.0

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
    """The number of ``graphs`` that ``torch.compile`` made, and of ``graph_breaks`` between them.

    ``eager`` is the same step with compiling switched off; None where that was not seen, for the reason in ``reason``.
    """

    graphs: int
    graph_breaks: int
    eager: Counted | None = None
    reason: str = ""


@dataclass(frozen=True)
class IdleSetting:
    """Something that asks for checkpointing on ``number`` modules of a script whose steps checkpoint nothing."""

    name: str
    number: int
    reason: str


@dataclass(frozen=True)
class Audit:
    """The observations of a few steps of the script as it stands.

    ``counted`` is of the script as it is. ``regions``, ``holders``, ``blocks`` and ``idle`` are of a step without
    ``torch.compile``, as graphs have no modules. ``peaks`` and ``split`` are of the whole step, as measured before.
    ``notes`` tell what could not be seen.
    """

    counted: Counted
    regions: tuple[AuditedRegion, ...] = ()
    holders: tuple[Holder, ...] = ()
    blocks: AuditedBlocks | None = None
    idle: tuple[IdleSetting, ...] = ()
    compiled: AuditedCompile | None = None
    peaks: Peaks | None = None
    split: MemorySplit | None = None
    device: str = "cpu"
    notes: tuple[str, ...] = ()

    @property
    def eager(self) -> Counted:
        """Return the step without ``torch.compile``, as far as that was seen: what regions do by themselves."""
        seen = self.compiled.eager if self.compiled is not None else None
        return seen or self.counted
