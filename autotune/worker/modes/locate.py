"""Seeing which modules of the script, in the order of their calls, are the blocks that plans name by their class."""

from __future__ import annotations

import inspect
import os
import sys
from typing import Any

import torch
from torch import nn

from ...metering.trial_meter import Window
from ...records.facts import Located, LocatedBlocks
from ..hooks.training_libraries import trains_by
from ..plans.layers import block_name_of, class_name_of, outermost_blocks, own_class
from .base import Mode


class LocateMode(Mode):
    """Watches the calls of modules up to the end of the script's first training step."""

    def __post_init__(self) -> None:
        self._watch: Any = None
        self._called: dict[nn.Module, None] = {}

    def ready(self) -> None:
        """Begin to watch."""
        if self._watch is None:
            self._watch = nn.modules.module.register_module_forward_pre_hook(self._see)

    def step(self, window: Window) -> None:
        """Write down what was seen."""
        del window
        self._watch.remove()
        roots = list(self._script.roots.modules())
        self._process.write(
            Located(
                roots=tuple(own_class(root).__name__ for root in roots),
                blocks=tuple(found for root in roots for found in self._blocks_of(root)),
                process=os.getpid(),
                rank=self._process.rank,
                caches=any(getattr(getattr(one, "config", None), "use_cache", False) for one in _modules_of(roots)),
                **_trainer(),
            )
        )
        self._process.has_result = True
        self._process.end()

    def _see(self, module: nn.Module, inputs: Any) -> None:
        del inputs
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self._called.setdefault(module)

    def _blocks_of(self, root: nn.Module) -> list[LocatedBlocks]:
        repeated = outermost_blocks(root)
        found = []
        for name in dict.fromkeys(map(block_name_of, repeated)):
            alike = [module for module in root.modules() if class_name_of(module) == name]
            numbers = {module: number for number, module in enumerate(alike)}
            own = [module for module in self._called if module in numbers and module in repeated]
            if own:
                found.append(
                    LocatedBlocks(
                        class_name=name,
                        number=len(numbers),
                        called=tuple(numbers[module] for module in own),
                        has_statistics=any(
                            isinstance(one, nn.modules.batchnorm._NormBase) and one.track_running_stats
                            for one in _modules_of(own)
                        ),
                        checkpoints=all(hasattr(one, "gradient_checkpointing") for one in own),
                        skips=_skips(root, alike),
                    )
                )
        return found


def _modules_of(modules: list[nn.Module]) -> list[nn.Module]:
    return [inner for module in modules for inner in module.modules()]


def _skips(root: nn.Module, blocks: list[nn.Module]) -> bool:
    """Return whether the switch of a model of transformers counts these modules, and can leave out some of them."""
    layer = getattr(sys.modules.get("transformers.modeling_layers"), "GradientCheckpointingLayer", None)
    enable = getattr(root, "activation_checkpointing_enable", None)
    if layer is None or enable is None or "every_n_layers" not in inspect.signature(enable).parameters:
        return False
    return [module for module in root.modules() if isinstance(module, layer)] == blocks


def _trainer() -> dict[str, Any]:
    """Return what is known of transformers' Trainer, where the script has imported it and trains by it."""
    library, arguments = sys.modules.get("transformers"), sys.modules.get("transformers.training_args")
    if library is None or arguments is None or not trains_by("transformers"):
        return {}
    fields = getattr(arguments.TrainingArguments, "__dataclass_fields__", {})
    return {"trainer_arguments": tuple(fields), "transformers": str(getattr(library, "__version__", ""))}
