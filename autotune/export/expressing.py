"""A setting as far as a file can express it that does without autotune."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..records.configuration import Configuration
from ..records.words import cut_names, joined


@dataclass(frozen=True)
class Blocks:
    """Modules of a class to be checkpointed: the ``chosen`` of ``number``, as ``model.modules()`` numbers them."""

    class_name: str
    number: int
    chosen: tuple[int, ...]
    has_statistics: bool = False


@dataclass(frozen=True)
class Refusal:
    """Names a part of a setting that cannot be expressed: the reason, and the plan, empty for what is around plans."""

    reason: str
    plan: str = ""


@dataclass(frozen=True)
class Expressed:
    """The part of a setting that an exporter can express, by ``blocks``; with ``refusals``, the nearest to it."""

    configuration: Configuration
    blocks: tuple[Blocks, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """The refusals in words, each reason once with the plans that have it."""
        plans: dict[str, list[str]] = {}
        for one in self.refusals:
            plans.setdefault(one.reason, []).extend([cut_names(one.plan)] if one.plan else [])
        return tuple(f"{joined(names)}: {reason}" if names else reason for reason, names in plans.items())

    @property
    def as_run(self) -> Configuration:
        """The script with the file applied, as a configuration: the file takes the place of plans and engine."""
        return replace(self.configuration, engine="eager", plans=(), level=0)
