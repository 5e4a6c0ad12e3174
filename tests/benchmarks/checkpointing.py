"""Level 1 against ``torch.utils.checkpoint`` written by hand around the same blocks: peak, step time, gradients.

``python tests/benchmarks/checkpointing.py --json``
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from autotune.records.configuration import Configuration
from autotune.worker.engines.plan_engine import AotEngine
from tests.benchmarks.models import MODELS, Built
from tests.benchmarks.sidebyside import peak_bytes, ratio, times_s
from tests.fakes.planned import clean_torch

SIZES: dict[str, dict[str, int]] = {
    "gpt": {"width": 128, "length": 96},
    "bert": {"width": 128, "length": 96},
    "llama": {"width": 128, "length": 96},
    "encoder_decoder": {"width": 128, "length": 64},
    "convnet": {"width": 24},
    "vit": {"width": 128},
}
BATCH_SIZE = 8


class Checkpointed(nn.Module):
    """A block with a checkpoint around it, as one writes it into a model."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.block, *inputs, use_reentrant=False)


@dataclass(frozen=True)
class Figures:
    """One model: bytes beyond what is held before a step, and ratios of level 1 to checkpoints written by hand."""

    model: str
    eager_peak_bytes: int
    by_hand_peak_bytes: int
    level_1_peak_bytes: int
    engine_peak_bytes: int
    peak_ratio: float
    time_ratio: float
    engine_time_ratio: float
    by_hand_step_s: float
    equal_gradients: bool


def examine(name: str, sizes: dict[str, int], repetitions: int) -> Figures:
    """Compare on one model."""
    torch.manual_seed(0)
    built = MODELS[name](**sizes)
    plain = built.module
    by_hand, level_1, unplanned = (copy.deepcopy(plain) for _ in range(3))
    for part in [*by_hand.modules()]:
        if isinstance(part, nn.ModuleList):
            for index, block in enumerate(part):
                part[index] = Checkpointed(block)
    inputs = built.inputs(BATCH_SIZE)
    calls = {
        "eager": stepping(plain, plain, built, inputs),
        "by hand": stepping(by_hand, by_hand, built, inputs),
        "level 1": stepping(level_1, compiled(level_1, 1), built, inputs),
        "engine": stepping(unplanned, compiled(unplanned, 0), built, inputs),
    }
    for call in calls.values():
        call()
    peaks = {key: peak_bytes(call) for key, call in calls.items()}
    gradients = {key: call() for key, call in calls.items()}
    times = times_s(calls, repetitions)
    return Figures(
        model=name,
        eager_peak_bytes=peaks["eager"],
        by_hand_peak_bytes=peaks["by hand"],
        level_1_peak_bytes=peaks["level 1"],
        engine_peak_bytes=peaks["engine"],
        peak_ratio=round(peaks["level 1"] / peaks["by hand"], 4),
        time_ratio=round(ratio(times, "level 1", "by hand"), 4),
        engine_time_ratio=round(ratio(times, "engine", "eager"), 4),
        by_hand_step_s=min(times["by hand"]),
        equal_gradients=all(map(torch.equal, gradients["level 1"], gradients["by hand"])),
    )


def compiled(module: nn.Module, level: int) -> Callable[..., torch.Tensor]:
    """A root under engine ``aot`` at a level."""
    engine = AotEngine()
    refusal = engine.use(Configuration("aot", (), level))
    assert refusal is None
    call = engine.compile_root(module)

    def run(*inputs: torch.Tensor) -> Any:
        engine.begin_call()
        return call(*inputs)

    return run


def stepping(
    module: nn.Module, call: Callable[..., torch.Tensor], built: Built, inputs: tuple[torch.Tensor, ...]
) -> Callable[[], list[torch.Tensor]]:
    """A training step without the optimizer, which all would share; gives the gradients and leaves none."""

    def step() -> list[torch.Tensor]:
        torch.manual_seed(1)
        built.loss(call, inputs).backward()
        gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
        module.zero_grad(set_to_none=True)
        return gradients

    return step


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=[*MODELS], choices=[*MODELS])
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--full", action="store_true", help="12 layers")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    began_s = time.perf_counter()
    models: list[Figures] = []
    for name in options.models:
        with clean_torch():
            models.append(examine(name, SIZES[name] | ({"layers": 12} if options.full else {}), options.repetitions))
        if not options.json:
            print(models[-1], flush=True)
    summary = {
        "models": len(models),
        "largest_peak_ratio": max(one.peak_ratio for one in models),
        "largest_time_ratio": max(one.time_ratio for one in models),
        "equal_gradients": sum(one.equal_gradients for one in models),
        "elapsed_s": round(time.perf_counter() - began_s, 1),
    }
    print(json.dumps({"models": [*map(asdict, models)], "summary": summary} if options.json else summary, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
