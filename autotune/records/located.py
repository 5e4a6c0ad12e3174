"""Places of a script's repeated blocks among its modules, as its own code sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class LocatedBlocks:
    """The modules of a class that repeat in the model, as ``model.modules()`` numbers those of the class, from 0.

    ``number`` is how many of the class there are; ``called`` are those that repeat, in the order of their first call in
    training. ``has_statistics``: a norm with running statistics is inside. ``checkpoints``: the library that wrote the
    class can recompute it by a switch of its own (transformers' ``gradient_checkpointing_enable``).
    """

    class_name: str
    number: int
    called: tuple[int, ...]
    has_statistics: bool = False
    checkpoints: bool = False


@dataclass(frozen=True)
class Located:
    """A line of ``results.jsonl``: what a run in mode ``locate`` has seen in the script's first training step.

    ``roots`` are the classes of the modules that the script calls; ``blocks`` are those of all of them. ``caches``: a
    module keeps keys and values for generating text, which a block that is run again would add to once more.
    ``trainer_arguments`` are the fields of transformers' ``TrainingArguments`` where the script trains by its
    ``Trainer``, of version ``transformers``; None where it does not.
    """

    kind: ClassVar[str] = "located"
    roots: tuple[str, ...]
    blocks: tuple[LocatedBlocks, ...]
    process: int
    rank: int = 0
    caches: bool = False
    trainer_arguments: tuple[str, ...] | None = None
    transformers: str = ""

    def blocks_of(self, class_name: str) -> LocatedBlocks | None:
        """Those of a class; None where none of it repeats."""
        return next((one for one in self.blocks if one.class_name == class_name), None)
