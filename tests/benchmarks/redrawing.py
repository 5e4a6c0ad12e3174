"""What drawing again costs: layers recomputed with dropout on, by calls to the generator and by torch's wrappers.

Small layers, since the cost is one for each operator whatever its size. In turns in one process: no plans, level 1,
level 1 with the wrappers that torch's partitioner makes, and blocks checkpointed by hand; and without dropout no plans
and level 1, which tells what recomputing costs if nothing is drawn.

``python tests/benchmarks/redrawing.py --json``
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import statistics
import sys
from collections.abc import Callable
from unittest import mock

import torch
from torch import nn

from autotune.worker.plans import partition
from autotune.worker.plans.redrawing import redrawing
from tests.benchmarks.checkpointing import Checkpointed, compiled, stepping
from tests.benchmarks.models import gpt
from tests.benchmarks.sidebyside import ratio, times_s
from tests.fakes.planned import clean_torch

SIZES = {"layers": 12, "width": 32, "heads": 2, "length": 16, "vocabulary": 64}
BATCH_SIZE = 2
# In each block two on what is added and one on the scores.
DRAWS_PER_LAYER = 3
LARGEST_PRICE = 1.15


def variants() -> dict[str, Callable[[], list[torch.Tensor]]]:
    """The steps to compare, each compiled by its first call."""
    torch.manual_seed(0)
    with_dropout, without = gpt(**SIZES), gpt(**SIZES, dropout=0.0)
    inputs = with_dropout.inputs(BATCH_SIZE)
    steps = {}
    for name, built, level in (
        ("no plans", with_dropout, 0),
        ("level 1", with_dropout, 1),
        ("level 1, wrapped", with_dropout, 1),
        ("no plans, no dropout", without, 0),
        ("level 1, no dropout", without, 1),
    ):
        module = copy.deepcopy(built.module)
        steps[name] = stepping(module, compiled(module, level), built, inputs)
        with _wrappers() if "wrapped" in name else contextlib.nullcontext():
            steps[name]()
    by_hand = copy.deepcopy(with_dropout.module)
    for part in [*by_hand.modules()]:
        if isinstance(part, nn.ModuleList):
            for index, block in enumerate(part):
                part[index] = Checkpointed(block)
    steps["by hand"] = stepping(by_hand, by_hand, with_dropout, inputs)
    steps["by hand"]()
    return steps


def _wrappers() -> contextlib.AbstractContextManager[object]:
    """Have graphs that run node by node made as those are that Inductor compiles."""

    def wrapping(*, is_compiled: bool) -> contextlib.AbstractContextManager[None]:
        del is_compiled
        return redrawing(is_compiled=True)

    return mock.patch.object(partition, "redrawing", wrapping)


def main() -> int:
    """Run the benchmark; exit status 1 where drawing again costs more than it may, or other numbers are drawn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with clean_torch():
        steps = variants()
        expected = steps["no plans"]()
        equal = {name: all(map(torch.equal, steps[name](), expected)) for name in ("level 1", "level 1, wrapped")}
        times = times_s(steps, options.repetitions)
    draws = SIZES["layers"] * DRAWS_PER_LAYER
    saved_s = statistics.median(
        wrapped - direct for wrapped, direct in zip(times["level 1, wrapped"], times["level 1"], strict=True)
    )
    with_dropout, without = (
        ratio(times, "level 1", "no plans"),
        ratio(times, "level 1, no dropout", "no plans, no dropout"),
    )
    figures = {
        "step_ms": {name: round(1e3 * statistics.median(values), 2) for name, values in times.items()},
        "level_1_to_no_plans": round(with_dropout, 3),
        "wrapped_to_no_plans": round(ratio(times, "level 1, wrapped", "no plans"), 3),
        "level_1_to_no_plans_without_dropout": round(without, 3),
        "level_1_to_wrapped": round(ratio(times, "level 1", "level 1, wrapped"), 3),
        "level_1_to_by_hand": round(ratio(times, "level 1", "by hand"), 3),
        "saved_us_per_draw": round(1e6 * saved_s / draws, 1),
        "equal_gradients": equal,
        "holds": all(equal.values()) and with_dropout <= LARGEST_PRICE * without,
    }
    print(json.dumps(figures, indent=None if options.json else 2))
    return 0 if figures["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
