"""A setting as far as a file can express it that does without autotune."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..records.configuration import Configuration


@dataclass(frozen=True)
class Blocks:
    """Modules of a class to be checkpointed: the ``chosen`` of ``number``, as ``model.modules()`` numbers them."""

    class_name: str
    number: int
    chosen: tuple[int, ...]
    has_statistics: bool = False


@dataclass(frozen=True)
class Expressed:
    """The part of a setting that an exporter can express.

    ``configuration`` is the setting whose plans are expressed, by ``blocks``. ``refusals`` say what could not be
    expressed, one reason each. Where there are some, the setting is the nearest to the one that was asked for.
    """

    configuration: Configuration
    blocks: tuple[Blocks, ...] = ()
    refusals: tuple[str, ...] = ()

    @property
    def as_run(self) -> Configuration:
        """The script with the file applied, as a configuration: the file takes the place of plans and engine."""
        return replace(self.configuration, engine="eager", plans=(), level=0)
