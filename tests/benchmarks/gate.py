"""How often does a gate see what is not there, or miss what is? The product's own test on simulated machines.

The noise of a process is lognormal, of a coefficient of variation of 2.7 %; where a reference is measured beside it,
a half of its variance may be shared by the processes of a repetition. What a gate stored has 8 to 20 repetitions; what
a confirmation did may have 3, of which no mark is asked for speed. A gate may have twenty repetitions. Marks: a
regression where nothing has changed in at most 1 % of gates, and one in at least 95 % where the loss is as large as is
allowed: 5 % for speed, at its noise, and 3 % for memory, whose peak scatters by 0.3 %. ``python
tests/benchmarks/gate.py --gates 10000``
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from autotune.verdict.gate.comparison import judge_loss  # noqa: E402

REPETITIONS = 20
MOST_ALARMS, LEAST_FOUND = 0.01, 0.95
# Changes that are no regression, or what a machine is slower by on another day: a stored baseline can't tell which.
LESS = (0.01, 0.02)


@dataclass(frozen=True)
class Cell:
    """One kind of gate: a process's ``noise``, its share common to a repetition, what ``before`` was made of."""

    name: str
    noise: float
    allowed: float
    is_paired: bool
    shared: float = 0.0
    stored: tuple[int, int] = (8, 20)
    has_marks: bool = True


CELLS = (
    Cell("speed, beside another version, nothing shared", 0.027, 0.05, is_paired=True),
    Cell("speed, beside another version, half shared", 0.027, 0.05, is_paired=True, shared=0.5),
    Cell("speed, as stored by a gate", 0.027, 0.05, is_paired=False),
    Cell(
        "speed, as stored by a confirmation of 3 repetitions",
        0.027,
        0.05,
        is_paired=False,
        stored=(3, 3),
        has_marks=False,
    ),
    Cell("memory, as stored by a confirmation of 3 repetitions", 0.003, 0.03, is_paired=False, stored=(3, 3)),
)


def gate(cell: Cell, change: float, chance: random.Random) -> tuple[str, int]:
    """Return what a gate finds where a figure is worse by ``change``, and by how many repetitions."""
    deviation = math.sqrt(math.log1p(cell.noise**2))
    own = deviation * math.sqrt(1 - cell.shared)
    before = [] if cell.is_paired else [chance.gauss(0, deviation) for _ in range(chance.randint(*cell.stored))]
    now: list[float] = []
    for number in range(REPETITIONS):
        # What a repetition has in common cancels where settings are compared within it.
        noise = chance.gauss(0, own) - chance.gauss(0, own) if cell.is_paired else chance.gauss(0, deviation)
        now.append(math.log1p(change) + noise)
        is_over = number == REPETITIONS - 1
        found = judge_loss(now, before, allowed=cell.allowed, most_repetitions=REPETITIONS, is_over=is_over).found
        if found != "open":
            break
    return found, len(now)


def main(arguments: list[str] | None = None) -> int:
    """Print a line per kind of gate and size of change; 1 if a mark is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gates", type=int, default=10_000, metavar="N", help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows, missed = [], 0
    for cell in CELLS:
        for change in (0.0, *LESS, cell.allowed):
            chance = random.Random(f"{options.seed}, {cell.name}, {change}")
            found = [gate(cell, change, chance) for _ in range(options.gates)]
            red = sum(one == "worse" for one, _ in found) / options.gates
            unsure = sum(one == "open" for one, _ in found) / options.gates
            repetitions = sorted(number for _, number in found)
            is_missed = red > MOST_ALARMS if not change else red < LEAST_FOUND if change == cell.allowed else False
            is_missed &= cell.has_marks
            missed += is_missed
            most = repetitions[int(0.9 * len(repetitions))]
            rows.append({"cell": cell.name, "change": change, "red": red, "open": unsure, "missed": is_missed})
            if not options.json:
                print(
                    f"{cell.name:46} {change:5.1%} worse: red {red:7.2%}, open {unsure:6.2%}, repetitions "
                    f"{statistics.median(repetitions):4.1f} (nine in ten {most}){'  MISSED' if is_missed else ''}",
                    flush=True,
                )
    if options.json:
        print(json.dumps(rows, indent=2))
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
