"""The protocol between the controller and a run: ``request.json`` in, ``results.jsonl`` out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from .configuration import Configuration
from .environment import Environment
from .facts import BatchControl, Facts
from .outcome import Outcome

__all__ = ["PROTOCOL_VERSION", "STARTER_RANK", "Described", "Ended", "Line", "Measuring", "Request", "Result"]

PROTOCOL_VERSION = 1

STARTER_RANK = -1
"""In the place of a rank: a process that started those that train (``mp.spawn``), and none of them itself."""


@dataclass(frozen=True)
class Measuring:
    """When a trial is warm and when it has been measured enough.

    Warm-up ends after ``min_warmup_steps`` once no graph was compiled in a step and the last two steps differ by less
    than 20 %, at the latest after ``max_warmup_steps``. Measuring ends when the 95 % interval of the median step is
    narrower than ``interval_ratio`` of it, after at least ``min_steps`` and ``min_measure_s``; at the latest after
    ``max_steps`` or, once ``min_steps`` are in, ``max_measure_s``.
    """

    min_warmup_steps: int = 2
    max_warmup_steps: int = 12
    min_steps: int = 5
    max_steps: int = 60
    interval_ratio: float = 0.01
    min_measure_s: float = 0.5
    max_measure_s: float = 10.0


@dataclass(frozen=True)
class Request:
    """``request.json``: one run.

    ``mode`` ``measure`` measures the configurations one after the other; ``discover`` measures the first (the
    baseline) and then describes the script under ``describe_engine``; ``launch`` applies the only configuration and
    lets the script run to its end, without measuring. ``script`` is an absolute path. ``arguments`` are the script's,
    ``{batch_size}`` already filled in.
    """

    mode: Literal["measure", "discover", "launch"]
    script: str
    arguments: tuple[str, ...]
    configurations: tuple[Configuration, ...]
    measuring: Measuring = Measuring()
    batch_control: BatchControl | None = None
    describe_engine: Literal["aot", "inductor"] = "aot"
    memory_limit_bytes: int | None = None
    protocol: int = PROTOCOL_VERSION


@dataclass(frozen=True)
class Result:
    """A line of ``results.jsonl``: the outcome of ``request.configurations[index]``, from one training process.

    A process that only started the others fails when one of them does, and does not know at which configuration: its
    ``rank`` is ``STARTER_RANK``, and its word counts where none of them has left one.
    """

    kind: ClassVar[str] = "result"
    index: int
    outcome: Outcome
    environment: Environment | None
    process: int
    rank: int = 0


@dataclass(frozen=True)
class Described:
    """A line of ``results.jsonl``: the facts of a discovery run."""

    kind: ClassVar[str] = "described"
    facts: Facts
    process: int
    rank: int = 0


@dataclass(frozen=True)
class Ended:
    """The last line of a process: it measured all it was asked to, or says in ``reason`` why the rest was left."""

    kind: ClassVar[str] = "ended"
    process: int
    rank: int
    reason: str


Line = Result | Described | Ended
