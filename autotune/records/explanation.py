"""What a script's step holds on a device at its peak, and what it is held for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .allocations import Place
from .cards import Card
from .look_ahead import LookAhead, SeenBatch
from .memory_changes import ChangeEffect, UntriedChange
from .outcome import Phase

Kind = Literal[
    "parameters",
    "buffers",
    "gradients",
    "optimizer state",
    "saved activations",
    "recomputed activations",
    "held by the script",
    "inputs",
    "in use",
    "from before the first step",
    "from earlier steps",
]
"""What memory is held for.

``inputs`` are made before the forward of their batch. ``saved activations`` are what the forward leaves for its
backward, which frees them; ``held by the script`` is what the forward leaves, and the backward does not free.
``recomputed activations`` are computed again in a backward. ``from earlier steps`` is what an earlier step has left
that neither the model nor the optimizer uses. ``in use`` is everything else that the step has allocated.
"""


STATE: tuple[Kind, ...] = ("parameters", "buffers", "gradients", "optimizer state")
"""What belongs to the model and its optimizer, whatever line has made it."""


WORKSPACES = "workspaces and rounding"
"""The name of what is held besides tensors."""

PARTS: dict[Phase, str] = {
    "start": "part before the forward",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "part after the backward",
}
"""The part of a step that each phase is. What follows a backward may be the next batch of the same step, too."""


@dataclass(frozen=True)
class Moment:
    """A moment of a step: ``phase`` and ``place`` are what the script is at, ``step`` counts from 0."""

    step: int
    phase: Phase
    place: Place


@dataclass(frozen=True)
class HeldTensor:
    """A tensor that is held at the peak; ``freed`` is None where the steps that were followed do not free it.

    ``parameter`` is what a gradient or a part of the optimizer state belongs to.
    """

    kind: Kind
    bytes: int
    shape: tuple[int, ...]
    dtype: str
    parameter: str
    made: Moment
    freed: Moment | None

    @property
    def module(self) -> str:
        """Return the path of the module that has it, or whose operator has made it."""
        return self.parameter.rpartition(".")[0] if self.parameter else self.made.place.module


@dataclass(frozen=True)
class Leak:
    """Memory that each step that was followed leaves at a place: so many bytes more with each."""

    place: Place
    bytes: int


@dataclass(frozen=True)
class Explanation:
    """Hold the peak of a script's first steps on a card, and all that is held there, the largest tensor first.

    ``script`` is the name of its file.
    ``peak_bytes`` is the peak of what torch's allocator has handed out, ``process_bytes`` that of the whole process on
    a card with room for everything. ``workspace_bytes`` of the peak are what kernels allocate for themselves, and what
    the allocator rounds up. ``timeline`` has the phase and the allocated bytes at moments of the step that has the
    peak, in equal shares of its allocations. ``changes`` and ``untried`` are of changes of the script, where asked for.
    ``ahead`` has the batches that were seen, None where no loader brings them.
    """

    script: str
    card: Card
    batch_size: int | None
    peak_bytes: int
    process_bytes: int
    moment: Moment
    held: tuple[HeldTensor, ...]
    workspace_bytes: int
    timeline: tuple[tuple[Phase, int], ...]
    leaks: tuple[Leak, ...] = ()
    asked: tuple[str, ...] = ()
    asked_integers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    changes: tuple[ChangeEffect, ...] = ()
    untried: tuple[UntriedChange, ...] = ()
    ahead: LookAhead | None = None

    @property
    def batch(self) -> SeenBatch | None:
        """Return the batch of the step that has the peak, where batches were read ahead and differ."""
        ahead = self.ahead
        if ahead is None or not ahead.has_larger or self.moment.step >= len(ahead.followed):
            return None
        return ahead.largest_of_steps[self.moment.step]
