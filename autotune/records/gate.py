"""Records of gates: the readings that one compares, what one holds against a limit, and the answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .environment import Environment

GATE_VERSION = 1

Reference = Literal["stored", "script", "other"]
"""The reference of a gate: what is ``stored`` of the setting on such a device, or in the same sitting the ``script`` as
it stands, with how the two compared before, or the setting on an ``other`` version of the script."""

GaugeFound = Literal["better", "within", "worse", "open"]
"""What repetitions show of a figure: ``better``, ``within`` what is allowed, ``worse`` and not shown to be within, or
else ``open``."""

GateAnswer = Literal["pass", "improvement", "regression", "not_comparable", "failed"]


@dataclass(frozen=True)
class Reading:
    """The samples/s and the peaks in bytes of one setting, in the order of the repetitions of a sitting."""

    samples_per_s: tuple[float, ...]
    peak_bytes: tuple[int, ...]

    @property
    def is_usable(self) -> bool:
        """Return whether there is a repetition, and figures in each that ratios can be made of."""
        figures = (*self.samples_per_s, *self.peak_bytes)
        return len(self.samples_per_s) == len(self.peak_bytes) > 0 and all(0 < one < math.inf for one in figures)


@dataclass(frozen=True)
class GateBaseline:
    """The earlier figures of a setting that a gate compares with, to be kept in git."""

    version: int
    autotune: str
    taken_on: str
    configuration: str  # the setting's key: figures of another configuration are no measure of it
    script_name: str
    script_sha256: str
    environment: Environment
    setting: Reading
    script: Reading | None = None  # as it stands, in the same repetitions; None where it was not measured
    arguments: tuple[str, ...] = ()  # the script's
    look_ahead: int = 0  # as of `StudySpec`


@dataclass(frozen=True)
class Gauge:
    """A figure of the gate: ``speed`` in samples/s, or ``memory``, the peak in bytes."""

    name: Literal["speed", "memory"]
    before: float  # the geometric mean of repetitions, as is `now`
    now: float
    change: float  # now as a ratio of before
    low: float | None  # of the confidence interval of `change`; None where too few repetitions tell
    high: float | None
    allowed: float  # the largest loss that passes, as a share
    found: GaugeFound


@dataclass(frozen=True)
class Gate:
    """The answer of a gate in sentences, of which the first stands by itself, and what it rests on."""

    answer: GateAnswer
    sentences: tuple[str, ...]
    reference: Reference
    repetitions: int
    gauges: tuple[Gauge, ...] = ()
    differs: tuple[str, ...] = ()  # from when the baseline was taken: device, versions, script
    environment: Environment | None = None
    reading: Reading | None = None
    script_reading: Reading | None = None

    @property
    def reason(self) -> str:
        """Return all sentences in one."""
        return " ".join(self.sentences)


@dataclass(frozen=True)
class PastGate:
    """A gate that was kept: ``held_at`` is in seconds since the epoch, ``configuration`` the key of the setting."""

    held_at: float
    script_name: str
    script_sha256: str
    configuration: str
    gate: Gate

    def gauge(self, name: Literal["speed", "memory"]) -> Gauge | None:
        """Return the figure of that name, if the gate came to one."""
        return next((one for one in self.gate.gauges if one.name == name), None)


LimitAnswer = Literal["pass", "over_limit", "failed"]

LimitFound = Literal["within", "near", "over", "not_known"]
"""A peak beside a limit: ``near`` is a predicted one that is below the limit, and may be above it by its error."""


@dataclass(frozen=True)
class LimitCheck:
    """Hold what a script may take on a device and what it was found to take, in bytes.

    ``device`` is a card's name, or the device's own. ``peak_bytes`` is None where it is not known, or the script ended
    before it. ``interval`` is how low and how high a predicted peak may be.
    """

    device: str
    limit_bytes: int
    found: LimitFound
    peak_bytes: int | None = None
    interval: tuple[int, int] | None = None


@dataclass(frozen=True)
class LimitGate:
    """The answer of a gate that holds a script against limits, in sentences, of which the first stands by itself."""

    answer: LimitAnswer
    sentences: tuple[str, ...]
    checks: tuple[LimitCheck, ...] = ()
    batch_size: int | None = None  # of the steps that were seen, None where it is not known

    @property
    def reason(self) -> str:
        """Return all sentences in one."""
        return " ".join(self.sentences)


MemoryAnswer = Literal["pass", "regression"]


@dataclass(frozen=True)
class Growth:
    """Hold what a line, or a kind of the model's state, has at the peak now and before, in bytes.

    ``name`` is the code of the line, or the kind. ``line`` is that of now, or of before where it is gone; empty for the
    model's state. ``modules`` are the paths of those that have it now.
    """

    name: str
    line: str
    modules: tuple[str, ...]
    before_bytes: int
    now_bytes: int

    @property
    def bytes(self) -> int:
        """Return how much more it is now."""
        return self.now_bytes - self.before_bytes


@dataclass(frozen=True)
class MemoryGate:
    """The answer of a gate that compares what two versions of a script hold at their peaks, in sentences.

    ``growth`` has all that differs in what is held at the peak, ``leaks`` in what each step keeps; both have the
    largest growth first. Batch sizes are None where they are not known.
    """

    answer: MemoryAnswer
    sentences: tuple[str, ...]
    before_bytes: int
    now_bytes: int
    growth: tuple[Growth, ...]
    leaks: tuple[Growth, ...]
    before_batch_size: int | None
    batch_size: int | None

    @property
    def reason(self) -> str:
        """Return all sentences in one."""
        return " ".join(self.sentences)


AnyGate = Gate | LimitGate | MemoryGate
"""The answer of a gate, by what it compares."""
