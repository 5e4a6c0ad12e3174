"""How often does a confirmation find what is not there, or miss what is? The product's own rule on simulated machines.

Each study is a confirmation of a baseline and one or two finalists: ``next_repetition`` says who is measured and in
which order, ``decide`` gives the answer; both are the product's, as is everything between. What is simulated is only
how fast a process comes out. The noise of a process is lognormal, of a coefficient of variation of 2.7, 15 or 40 %;
half of its variance, or nine tenths, may be shared by all processes of a repetition. On top of that a machine may drift
(6 % slower over the first eight repetitions, then steady), have bursts (in one process of ten another tenant comes,
stays for one to four processes, and takes 20 %), or have two modes (one process of five is 7 % slower). Or the first
repetition is in fresh processes, which share nothing, and each later one comes out of a fork server of its own, whose
processes share half or nine tenths: so the product measures. These are the shapes that the rule was chosen on. Shapes
and seeds that nothing was chosen on are kept aside; ``--aside`` runs those.

A true win is a finalist that is 5 % faster at 2.7 %, or twice as fast at 40 %; with a second finalist, that one is like
the baseline. ``--cut`` ends each confirmation after a random number of repetitions, as a time budget does.
``python tests/benchmarks/repetitions.py --studies 1000``
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from autotune.records.configuration import Configuration  # noqa: E402
from autotune.records.plan import Plan  # noqa: E402
from autotune.records.study import (  # noqa: E402
    Objective,
    Repeat,
    StudyRecord,
    StudySpec,
    Trial,
)
from autotune.verdict.aim import Aim  # noqa: E402
from autotune.verdict.decision import decide  # noqa: E402
from autotune.verdict.repetitions import next_repetition  # noqa: E402
from autotune.verdict.sequential import FIRST_LOOK  # noqa: E402
from tests.fakes.landscape import MIB, Landscape, measured  # noqa: E402

FACTS = Landscape().facts
BASELINE = FACTS.baseline
FINALISTS = (Configuration("aot", (Plan("gelu+", 1, -1),), 0, 48), Configuration("aot", (Plan("Block+", 1, 6),), 0, 64))
LIMIT = 900 * MIB
AIM = Aim(Objective(), LIMIT)
SPEC = StudySpec("train.py")
FALSE_WINS = 0.01
# A share of false wins above the mark by so many binomial errors is no chance of the seeds.
SURE = 3.1


@dataclass(frozen=True)
class Noise:
    """What makes a process fast or slow, beyond its setting.

    Args:
        cv: Coefficient of variation of a process.
        shared: The share of its variance that all processes of a repetition have in common.
        drift, bursts, modes: See this module's docstring.
        step: Once in a confirmation, at any time, the machine becomes 10 % slower and stays so.
        wave: It becomes 5 % slower and faster again in turns, once in so many processes.
        stalls: One process in twenty takes twice its time.
        first: The first process of a repetition is 2 % slower.
        alike: How alike a process is to the one before, over the borders of repetitions.
        unequal: How many times the baseline's noise a finalist has.
        heavy: Student's t of four degrees of freedom in place of the normal distribution.
        served: The processes of the first repetition share nothing: they are fresh ones. Those of a later repetition
            come out of one fork server, which is another one in each repetition, and share what they have in common by
            ``shared``.
        lasting: The share of its own variance that a setting keeps over all repetitions after the first, as it would if
            all of them came out of one server. No machine that the product measures on has that.
    """

    cv: float
    shared: float = 0.0
    drift: bool = False
    bursts: bool = False
    modes: bool = False
    step: bool = False
    wave: float = 0.0
    stalls: bool = False
    first: bool = False
    alike: float = 0.0
    unequal: float = 1.0
    heavy: bool = False
    served: bool = False
    lasting: float = 0.0


class Machine:
    """A machine with noise of its own: processes are measured on it one after the other."""

    def __init__(self, noise: Noise, seed: str) -> None:
        self._noise = noise
        self._chance = random.Random(seed)
        self._sd = math.sqrt(math.log1p(noise.cv**2))
        self._processes = 0
        self._repetition = 0.0
        self._before = self._chance.gauss()
        self._tenant_stays = 0
        self._step_at = self._chance.uniform(0, 24)
        self._phase = self._chance.uniform(0, 2 * math.pi)
        self._repetitions = 0
        self._lasting = {False: self._chance.gauss(), True: self._chance.gauss()} if noise.lasting else {}

    def begin_repetition(self) -> None:
        """All processes until the next repetition share something."""
        self._repetition = self._gauss()
        self._repetitions += 1
        self._is_first = True

    def slowness(self, *, repetition_processes: int, is_finalist: bool) -> float:
        """The logarithm of how many times as fast as usual the next process is, of a repetition of so many."""
        noise, number = self._noise, self._processes
        self._processes += 1
        own = self._gauss() * (noise.unequal if is_finalist else 1.0)
        if noise.alike:
            own = self._before = noise.alike * self._before + math.sqrt(1 - noise.alike**2) * own
        if noise.lasting and self._repetitions > 1:
            own = math.sqrt(noise.lasting) * self._lasting[is_finalist] + math.sqrt(1 - noise.lasting) * own
        shared = 0.0 if noise.served and self._repetitions == 1 else noise.shared
        found = self._sd * (math.sqrt(shared) * self._repetition + math.sqrt(1 - shared) * own)
        if noise.drift:
            found += math.log(0.94) * min(number / (8 * repetition_processes), 1)
        if noise.step and number > self._step_at:
            found += math.log(0.9)
        if noise.wave:
            found += 0.05 * math.sin(self._phase + 2 * math.pi * number / noise.wave)
        if noise.bursts:
            if not self._tenant_stays and self._chance.random() < 0.1:
                self._tenant_stays = self._chance.randint(1, 4)
            found += math.log(0.8) if self._tenant_stays else 0.0
            self._tenant_stays = max(0, self._tenant_stays - 1)
        if noise.modes and self._chance.random() < 0.2:
            found += math.log(0.93)
        if noise.stalls and self._chance.random() < 0.05:
            found += math.log(0.5)
        if noise.first and self._is_first:
            found += math.log(0.98)
        self._is_first = False
        return found

    def _gauss(self) -> float:
        value = self._chance.gauss()
        if not self._noise.heavy:
            return value
        squares = sum(self._chance.gauss() ** 2 for _ in range(4))
        return value / math.sqrt(squares / 4) / math.sqrt(2)


@dataclass(frozen=True)
class Cell:
    """Studies of one kind. ``effects`` are how many times as fast as the baseline the finalists are."""

    name: str
    noise: Noise
    effects: tuple[float, ...]
    least: float | None = None

    @property
    def is_null(self) -> bool:
        return max(self.effects) == 1.0


@dataclass(frozen=True)
class Found:
    """What came of a cell: ``wins`` of the right finalist, or of anybody where nobody is better; ``wrong``: others."""

    name: str
    studies: int
    wins: int
    wrong: int
    repetitions: float
    processes: float
    missed: bool


def study(cell: Cell, seed: str, *, cut: bool = False) -> tuple[Configuration | None, int, int]:
    """One confirmation: who won, in how many repetitions, in how many processes."""
    machine = Machine(cell.noise, seed)
    finalists = FINALISTS[: len(cell.effects)]
    true = {BASELINE.key: 1.0} | {one.key: effect for one, effect in zip(finalists, cell.effects, strict=True)}
    entrants, repeats, number = (BASELINE, *finalists), list[Repeat](), 0
    ends_after = random.Random(f"{seed}, cut").randint(FIRST_LOOK, SPEC.finalist_repetitions - 1) if cut else math.inf
    while number < ends_after and (
        order := next_repetition(
            repeats,
            entrants,
            BASELINE,
            AIM,
            most_repetitions=SPEC.finalist_repetitions,
            baseline_is_finite=True,
            seed=seed,
        )
    ):
        machine.begin_repetition()
        for one in order:
            log_rate = machine.slowness(repetition_processes=len(order), is_finalist=one.key != BASELINE.key)
            outcome = measured(340.0 * true[one.key] * math.exp(log_rate), 48, 800 * MIB)
            repeats.append(Repeat(one, number, outcome))
        number += 1
    # By its trial each finalist was better, or it would be none.
    rates = [340.0, *(420.0 - at for at in range(len(finalists)))]
    trials = tuple(
        Trial(at, one, "finished", measured(rate, 48, 800 * MIB))
        for at, (one, rate) in enumerate(zip(entrants, rates, strict=True))
    )
    record = StudyRecord("simulated", SPEC, 0.0, "", FACTS, trials, tuple(repeats))
    verdict = decide(record, LIMIT, "")
    return (verdict.winner if verdict.kind_of_answer == "winner" else None), number, len(repeats)


def simulate(cell: Cell, studies: int, seed: int, *, cut: bool = False) -> Found:
    """So many studies of a cell."""
    found = [study(cell, f"{cell.name}, {seed + number}", cut=cut) for number in range(studies)]
    right = [winner is not None and (cell.is_null or winner.key == FINALISTS[0].key) for winner, _, _ in found]
    wrong = 0 if cell.is_null else sum(winner is not None and winner.key != FINALISTS[0].key for winner, _, _ in found)
    share, wins = sum(right) / studies, sum(right)
    if cell.is_null:
        missed = share > FALSE_WINS + SURE * math.sqrt(FALSE_WINS * (1 - FALSE_WINS) / studies)
    else:
        missed = cell.least is not None and share < cell.least
    repetitions, processes = (statistics.fmean(one[at] for one in found) for at in (1, 2))
    return Found(cell.name, studies, wins, wrong, repetitions, processes, missed)


def shapes(cv: float, *, aside: bool) -> dict[str, Noise]:
    """The machines at a coefficient of variation: those that the rule was chosen on, or those kept aside."""
    own, half = Noise(cv), Noise(cv, 0.5)
    if aside:
        return {
            "a quarter shared": Noise(cv, 0.25),
            "a step": dataclasses.replace(half, step=True),
            "a wave over 5 processes": dataclasses.replace(half, wave=5.0),
            "a wave over 31 processes": dataclasses.replace(half, wave=31.0),
            "stalls": dataclasses.replace(half, stalls=True),
            "the first slower": dataclasses.replace(half, first=True),
            "alike over repetitions": dataclasses.replace(own, alike=0.8),
            "finalists three times as noisy": dataclasses.replace(own, unequal=3.0),
            "heavy tails": dataclasses.replace(half, heavy=True),
            "all of it": Noise(cv, 0.25, drift=True, bursts=True, modes=True, stalls=True, first=True),
        }
    return {
        "not shared": own,
        "half shared": half,
        "nine tenths shared": Noise(cv, 0.9),
        "drift": dataclasses.replace(half, drift=True),
        "bursts": dataclasses.replace(half, bursts=True),
        "two modes": dataclasses.replace(half, modes=True),
        "a server for each repetition": dataclasses.replace(half, served=True),
        "a server for each repetition, nine tenths shared": Noise(cv, 0.9, served=True),
    }


def cells(*, aside: bool) -> list[Cell]:
    """Everything that is simulated; what has a mark of its own has it as ``least``."""
    made = []
    for cv in (0.027, 0.15, 0.4):
        for name, noise in shapes(cv, aside=aside).items():
            made += [
                Cell(f"{_finalists(count)}, {cv:.1%}, {name}: no difference", noise, (1.0,) * count) for count in (1, 2)
            ]
    marks = {(0.027, "half shared"): 0.95, (0.027, "nine tenths shared"): 0.95, (0.027, "not shared"): 0.85}
    marks |= {(0.4, "half shared"): 0.95, (0.4, "nine tenths shared"): 0.95}
    for cv, effect in ((0.027, 1.05), (0.4, 2.0)):
        for name, noise in shapes(cv, aside=aside).items():
            for count in (1, 2):
                least = marks.get((cv, name)) if count == 1 else None
                effects = (effect, *(1.0,) * (count - 1))
                made.append(Cell(f"{_finalists(count)}, {cv:.1%}, {name}: {effect:g}x", noise, effects, least))
    return made


def _finalists(count: int) -> str:
    return f"{count} finalist{'s' if count > 1 else ''}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate, print, and give 1 if a figure misses its mark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=1000, metavar="N", help="of each cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--aside", action="store_true", help="the shapes that nothing was chosen on")
    parser.add_argument(
        "--cut",
        action="store_true",
        help="end each confirmation after some repetitions, as a time budget does; power has no mark then",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="cells with this in their name")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = []
    for cell in cells(aside=options.aside):
        if options.only in cell.name:
            chosen = dataclasses.replace(cell, least=None) if options.cut else cell
            one = simulate(chosen, options.studies, options.seed, cut=options.cut)
            found.append(one)
            if not options.json:
                wrong = f", {one.wrong / one.studies:6.2%} another" if not cell.is_null else ""
                mark = "   MISSED" if one.missed else ""
                print(
                    f"{one.name:70} {one.wins / one.studies:7.2%} in {one.repetitions:4.1f} repetitions, "
                    f"{one.processes:4.1f} processes{wrong}{mark}",
                    flush=True,
                )
    if options.json:
        print(json.dumps([dataclasses.asdict(one) for one in found]))
    return int(any(one.missed for one in found))


if __name__ == "__main__":
    sys.exit(main())
