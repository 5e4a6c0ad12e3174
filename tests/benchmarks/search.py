"""How many runs does a search take? The real one, replayed against landscapes whose best is known.

Each landscape is a file (``tests/benchmarks/landscapes/table.py`` says what is in it), synthetic ones written by
``landscapes/synthetic.py``, recorded ones by ``landscapes/record.py``; or with ``--physics`` it comes of executed steps
(``landscapes/physics.py``). Every study begins with the measured baseline, as after discovery; what discovery takes is
not counted. Beside it run rivals (``landscapes/rivals.py``), with a fresh process for each trial.
``python tests/benchmarks/search.py --landscapes tests/benchmarks/landscapes --seeds 20 --json``
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

# Each process has a core. And sums are the same however many processes there are.
os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import optuna  # noqa: E402

from autotune.records.study import Objective  # noqa: E402
from tests.benchmarks.landscapes.figures import Played, judge, marks, summary  # noqa: E402
from tests.benchmarks.landscapes.physics import KEPT, OPEN, landscape_of  # noqa: E402
from tests.benchmarks.landscapes.replay import Replay, Replayed  # noqa: E402
from tests.benchmarks.landscapes.rivals import RIVALS  # noqa: E402
from tests.benchmarks.landscapes.table import Landscape, NoiseKind, Table, load  # noqa: E402

SHIPPED = ROOT / "tests/benchmarks/landscapes"
HALVES = {"open": OPEN, "kept": KEPT}
# The noise where nothing is faster: each kind at a quiet machine's coefficient of variation, and at a busy one's.
NOISE_OF_NOTHING = tuple(itertools.product(get_args(NoiseKind), (0.027, 0.15)))


@dataclass(frozen=True)
class Setup:
    """What is the same for every study."""

    sampler: str
    objective: Objective
    switches: bool
    finer: bool
    rivals: tuple[str, ...]

    def table(self, source: Landscape | int) -> Table:
        """A landscape to be searched, read from a file or of a seed."""
        landscape = landscape_of(source, finer=self.finer) if isinstance(source, int) else source
        return Table(landscape, switches=self.switches, objective=self.objective)

    def play(self, task: tuple[Table, int]) -> Played:
        """One study, and each rival with the same seed."""
        table, seed = task
        row = Replay(table, seed, self.sampler).run()
        return Played(row, {name: RIVALS[name](table, seed) for name in self.rivals})

    def wins(self, task: tuple[Table, int]) -> bool:
        """Whether something wins where nothing is faster than the baseline."""
        table, number = task
        kind, cv = NOISE_OF_NOTHING[number % len(NOISE_OF_NOTHING)]
        return Replay(table.all_alike(cv, kind), 1000 + number, self.sampler).run().answer == "winner"


def main() -> int:
    """Replay, print, and give 1 if a figure misses its mark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--landscapes", type=Path, default=SHIPPED, metavar="DIR")
    parser.add_argument(
        "--physics",
        choices=("open", "kept"),
        help="in place of files: steps that are executed; nobody looks at the kept",
    )
    parser.add_argument("--finer", action="store_true", help="with --physics: batch sizes between the listed ones too")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="studies of each landscape")
    parser.add_argument("--sampler", default="model", metavar="model|tpe|random")
    parser.add_argument("--objective", default="throughput", choices=("throughput", "memory"))
    parser.add_argument("--no-switching", action="store_true", help="a fresh process for each trial")
    parser.add_argument(
        "--rivals", type=rivals, default="tpe,heuristic", metavar="NAMES", help=f"none, or of {','.join(RIVALS)}"
    )
    parser.add_argument("--false-wins", type=int, default=50, metavar="N", help="studies where all speeds are alike")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="what is said is alike")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.finer and options.physics is None:
        parser.error("--finer goes with --physics: files have the batch sizes that they have")
    if options.objective == "memory":  # no rival is told of it, and where all speeds are alike less is a true win
        options.rivals, options.false_wins = (), 0
    sources = list(load(options.landscapes)) if options.physics is None else list(HALVES[options.physics])
    if not sources:
        parser.error(f"no landscape in {options.landscapes}")

    setup = Setup(
        options.sampler, Objective(options.objective), not options.no_switching, options.finer, options.rivals
    )
    played: list[Played] = []
    with workers(options.processes) as each:
        tables = list(each(setup.table, sources))
        for one in each(setup.play, itertools.product(tables, range(options.seeds))):
            played.append(one)
            if not options.json and options.physics != "kept":
                print(describe(one.row), flush=True)
        alike = [table for table in tables if table.speed(table.facts.baseline)]
        wins = list(each(setup.wins, zip(itertools.cycle(alike), range(options.false_wins), strict=False)))
    figures = summary(tables, played, wins)
    missed = judge(figures, marks(physics=options.physics is not None, alone=options.no_switching))
    if options.json:
        shown = [] if options.physics == "kept" else [flat(one) for one in played]
        print(json.dumps({"rows": shown, "summary": figures, "missed": missed}))
    else:
        for name, value in figures.items():
            print(f"{name:38} {value if value is None else format(value, '.4g')}")
        print("missed: " + ", ".join(missed) if missed else "every figure is met")
    return bool(missed)


def flat(played: Played) -> dict[str, Any]:
    """A study as JSON has it, with what each rival took."""
    return asdict(played.row) | {"rivals": {name: asdict(effort) for name, effort in played.rivals.items()}}


def rivals(names: str) -> tuple[str, ...]:
    """Names of rivals, separated by commas; ``none`` for none."""
    chosen = () if names == "none" else tuple(names.split(","))
    if unknown := [name for name in chosen if name not in RIVALS]:
        raise argparse.ArgumentTypeError(f"{', '.join(map(repr, unknown))}: not of {','.join(RIVALS)}")
    return chosen


@contextlib.contextmanager
def workers(count: int) -> Iterator[Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]]:
    """Something like ``map`` over so many processes: results come in the order of what they are of."""
    if count <= 1:
        quiet()
        yield map
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context, initializer=quiet) as pool:
        yield partial(pool.map, chunksize=1)


def quiet() -> None:
    """Keep Optuna from printing each trial."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def describe(row: Replayed) -> str:
    """One line about one study."""
    found = "never" if row.found is None else f"{row.found.runs:3} {row.found.trials:3} {row.found.seconds:6.0f} s"
    errors = (row.peak_error_at_once, row.peak_error_after_three, row.speed_error_at_stop)
    said = " ".join("    -" if one is None else f"{one:5.1%}" for one in errors)
    return (
        f"{row.landscape:24} {row.seed:3}  found {found:>16}  stop {row.stopped.runs:3} {row.stopped.trials:3} "
        f"{row.stopped.seconds:6.0f} s  loss {row.loss:6.2%} {row.answer_loss:6.2%}  "
        f"oom {row.out_of_memory}  twice {row.duplicates}  errors {said}  {row.answer}"
    )


if __name__ == "__main__":
    sys.exit(main())
