"""Records a landscape: every configuration of a small space, really run.

``python tests/benchmarks/landscapes/record.py NAME --batch-sizes 8,16,32 --fits 0.7 trials/charlm/train.py -- --lr 0``

Discovery chooses the plans; each batch size then takes one run for the script as it is and one for its sets of plans,
switched through (one for each set under an engine that does not switch), and all that ``--passes`` times. The table has
the median speed and the largest peak of each configuration. Runs have no memory limit; the landscape's is one that a
share of the table fits, ``--fits``, and the others are written as out of memory. The noise is the spread of a
configuration's passes, and the costs are those of these runs.

With ``--keep FILE`` each run is stored there as it ends, and the same command goes on where it stopped; ``--within
TIME`` then begins no run that would end later. Exit status: 0 once the landscape is written, 75 if more is left.

With ``--passes 0`` only discovery runs, and its facts go to ``facts/NAME.json``: ``synthetic.py`` puts them on imagined
GPUs.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from autotune.launch.port import Launcher  # noqa: E402
from autotune.launch.process import ProcessLauncher  # noqa: E402
from autotune.launch.requests import discovery_request, trial_request  # noqa: E402
from autotune.machine.meters.nvidia import read_gpus  # noqa: E402
from autotune.records.codec import dumps, loads  # noqa: E402
from autotune.records.configuration import Configuration  # noqa: E402
from autotune.records.facts import Facts  # noqa: E402
from autotune.records.measuring import Measuring  # noqa: E402
from autotune.records.outcome import Measured  # noqa: E402
from autotune.records.study import StudySpec  # noqa: E402
from autotune.records.units import parse_duration  # noqa: E402
from autotune.search.space import Space, build_space  # noqa: E402
from tests.benchmarks.landscapes.table import SCHEMA, Baseline, Cost, Entry, Landscape, save  # noqa: E402
from trials.run import GOES_ON  # noqa: E402

MEASURING = Measuring(max_warmup_steps=4, min_steps=5, max_steps=12, min_measure_s=0.2, max_measure_s=0.6)
# Configurations that run one after the other in one process: a failure loses no more than these.
AT_ONCE = 12
NO_LIMIT = 1 << 50


@dataclass(frozen=True)
class Run:
    """A run of one pass: samples/s and peak bytes of as many of its configurations as it has reached."""

    number: int
    configurations: tuple[Configuration, ...]
    seconds: float
    rates: tuple[float, ...] = ()
    peaks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Recording:
    """What discovery found, and the runs since, in their order."""

    facts: Facts
    runs: tuple[Run, ...] = ()


class Recorder:
    """Runs configurations of one script, and keeps what came of them.

    Args:
        spec: the script.
        launcher: runs it.
        keep: the file that has what an earlier command has recorded, and is written anew after each run; None for none.
        devices: the index of the GPU; empty for the CPU.

    Attributes:
        recording: What is recorded, None before discovery.
    """

    def __init__(self, spec: StudySpec, launcher: Launcher, keep: Path | None, *, devices: tuple[int, ...]) -> None:
        self._spec, self._launcher, self._keep, self._devices = spec, launcher, keep, devices
        is_there = keep is not None and keep.exists()
        self.recording = loads(Recording, keep.read_text(), where=str(keep)) if is_there else None

    @property
    def rates(self) -> dict[Configuration, list[float]]:
        """Samples/s of each configuration, one for each pass."""
        return self._of_each("rates")

    @property
    def peaks(self) -> dict[Configuration, list[int]]:
        """Bytes, likewise."""
        return self._of_each("peaks")

    @property
    def costs(self) -> list[tuple[float, int]]:
        """Of each run that came to its end its seconds and its number of trials."""
        return [(run.seconds, len(run.rates)) for run in self._runs if len(run.rates) == len(run.configurations)]

    @property
    def longest_s(self) -> float:
        """How long a run has taken at most."""
        return max((run.seconds for run in self._runs), default=0.0)

    def discover(self) -> Facts:
        """What the script has."""
        if self.recording is None:
            result = self._launcher.run(
                discovery_request(self._spec), devices=self._devices, on_event=lambda _: None, cancel=threading.Event()
            )
            if result.facts is None:
                raise SystemExit(f"discovery failed: {result.failure or result.outcomes}")
            self._store(Recording(result.facts))
        return self.recording.facts

    def is_recorded(self, number: int, configurations: Sequence[Configuration]) -> bool:
        """Whether a run of a pass is."""
        return any((run.number, run.configurations) == (number, tuple(configurations)) for run in self._runs)

    def measure(self, number: int, configurations: Sequence[Configuration]) -> None:
        """One run; what it does not reach has no figures from this pass."""
        began_s = time.perf_counter()
        request = trial_request(self._spec, self.recording.facts, configurations, NO_LIMIT)
        result = self._launcher.run(
            replace(request, memory_limit_bytes=None),
            devices=self._devices,
            on_event=lambda _: None,
            cancel=threading.Event(),
        )
        measured = list(itertools.takewhile(lambda outcome: isinstance(outcome, Measured), result.outcomes))
        if len(measured) < len(configurations):
            outcome = result.outcomes[len(measured)]
            print(f"{configurations[len(measured)]}: {outcome or result.reason}", file=sys.stderr)
        run = Run(
            number,
            tuple(configurations),
            time.perf_counter() - began_s,
            tuple(one.measurement.samples_per_s for one in measured),
            tuple(one.measurement.peaks.fit_bytes or 0 for one in measured),
        )
        self._store(replace(self.recording, runs=(*self._runs, run)))

    @property
    def _runs(self) -> tuple[Run, ...]:
        return () if self.recording is None else self.recording.runs

    def _of_each(self, figures: str) -> dict[Configuration, list]:
        found: dict[Configuration, list] = {}
        for run in self._runs:
            for configuration, figure in zip(run.configurations, getattr(run, figures), strict=False):
                found.setdefault(configuration, []).append(figure)
        return found

    def _store(self, recording: Recording) -> None:
        self.recording = recording
        if self._keep is not None:
            beside = self._keep.with_suffix(".writing")
            beside.write_text(dumps(recording) + "\n")
            beside.replace(self._keep)


def main() -> int:
    """Record and write; ``GOES_ON`` if there is more to record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--engine", default="aot", choices=("aot", "inductor"))
    parser.add_argument("--batch-sizes", required=True, metavar="N,N,...")
    parser.add_argument("--fits", type=float, default=0.7, metavar="SHARE")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--clusters", type=int, default=3, help="how many besides the layers")
    parser.add_argument("--without-graph", action="store_true", help="leave the activation graph out of the facts")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="what is recorded so far, to go on from")
    parser.add_argument("--within", type=parse_duration, default=float("inf"), metavar="TIME", help="end by then")
    options = parser.parse_args()
    for folder in (options.output, *([options.keep.parent] if options.keep else [])):
        folder.mkdir(parents=True, exist_ok=True)
    ends_at = time.monotonic() + options.within
    sizes = [int(size) for size in options.batch_sizes.split(",")]

    with tempfile.TemporaryDirectory() as folder:
        spec = StudySpec(
            script=str(options.script.resolve()),
            arguments=tuple(options.arguments),
            working_directory=folder,
            python=sys.executable,
            engine=options.engine,
            measuring=MEASURING,
            batch_sizes=(min(sizes), max(sizes)),
        )
        recorder = Recorder(
            spec, launcher_of(spec, Path(folder)), options.keep, devices=(0,) if read_gpus().devices else ()
        )
        facts = recorder.discover()
        if not options.passes:
            (options.output / "facts" / f"{options.name}.json").write_text(dumps(facts) + "\n")
            return 0
        space = reduced(build_space(facts, spec), sizes, options.clusters)
        print(f"{space.num_configurations} configurations: {space.parameters}", flush=True)
        if not record(recorder, space, options.passes, ends_at):
            return GOES_ON
    if options.without_graph:
        facts = replace(facts, graphs=(), traces=(), calibration=None)
    peaks = sorted(max(each) for each in recorder.peaks.values())
    limit_bytes = peaks[min(len(peaks) - 1, int(options.fits * len(peaks)))]
    path = save(landscape(options.name, facts, space, recorder, limit_bytes), options.output)
    print(path)
    return 0


def launcher_of(spec: StudySpec, folder: Path) -> Launcher:
    """What runs the script, in folders below this one."""
    return ProcessLauncher(
        python=sys.executable,
        root=folder,
        working_directory=Path(spec.working_directory),
        start_timeout_s=spec.start_timeout_s,
        trial_timeout_s=spec.trial_timeout_s,
        variables=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))},
    )


def record(recorder: Recorder, space: Space, passes: int, ends_at: float) -> bool:
    """Measure the runs that are not recorded yet, until ``time.monotonic`` is there; whether none is left."""
    for number in range(passes):
        for run in runs(space, backwards=number % 2 == 1):
            if recorder.is_recorded(number, run):
                continue
            if time.monotonic() + recorder.longest_s > ends_at:
                return False
            recorder.measure(number, run)
        print(f"pass {number + 1}: {len(recorder.rates)} measured", flush=True)
    return True


def reduced(space: Space, sizes: Sequence[int], clusters: int) -> Space:
    """The space with these batch sizes, none, half or all of its layers, and some of its other clusters or not."""
    layers = [row for row in space.clusters if row.is_layer][:1]
    kept = (*layers, *[row for row in space.clusters if not row.is_layer][:clusters])
    counts = {
        row.cluster_id: (0, row.frequency // 2, row.frequency) if row.is_layer else (0, row.frequency) for row in kept
    }
    return replace(space, batch_sizes=tuple(sorted(sizes)), clusters=kept, counts=counts)


def runs(space: Space, *, backwards: bool) -> Iterable[list[Configuration]]:
    """Runs that measure the whole space, from the smallest batch size; or all of it the other way round."""
    by_kind: dict[tuple[int, str], list[Configuration]] = {}
    for configuration in dict.fromkeys((space.baseline, *space.configurations())):
        size = configuration.batch_size
        by_kind.setdefault((size, configuration.engine), []).append(configuration)
    most = AT_ONCE if space.switches else 1
    found = [kind[i : i + most] for kind in by_kind.values() for i in range(0, len(kind), most)]
    return [run[::-1] for run in found[::-1]] if backwards else found


def landscape(name: str, facts: Facts, space: Space, recorder: Recorder, limit_bytes: int) -> Landscape:
    """What was recorded, under a memory limit."""
    table = []
    for configuration in space.configurations():
        rates, peaks = recorder.rates.get(configuration), recorder.peaks.get(configuration)
        size, plans = configuration.batch_size, tuple(map(str, configuration.plans))
        if rates is None or peaks is None:
            table.append(Entry(size, plans, 0, "fallback"))
        elif max(peaks) > limit_bytes and configuration.key != facts.baseline.key:
            table.append(Entry(size, plans, 0, "out_of_memory"))
        else:
            table.append(Entry(size, plans, 0, "measured", float(f"{statistics.median(rates):.6g}"), max(peaks)))
    spreads = [statistics.stdev(each) / statistics.fmean(each) for each in recorder.rates.values() if len(each) > 1]
    cost = costs(recorder.costs)
    noise = round(statistics.median(spreads), 4) if spreads else 0.0
    own = Baseline(space.own_batch_size)
    if space.plain_engine != "eager":
        rate, peak = statistics.median(recorder.rates[space.baseline]), max(recorder.peaks[space.baseline])
        own = replace(own, samples_per_s=float(f"{rate:.6g}"), peak_memory_bytes=peak)
    return Landscape(SCHEMA, name, limit_bytes, noise, facts, cost, own, tuple(table), space.engine)


def costs(seen: Sequence[tuple[float, int]]) -> Cost:
    """Seconds of a run's start and of a trial: a straight line through the runs; all is start where each has one."""
    if all(trials == 1 for _, trials in seen):
        return Cost(round(statistics.fmean(seconds for seconds, _ in seen), 2), 0.0)
    slope, start = statistics.linear_regression([trials for _, trials in seen], [seconds for seconds, _ in seen])
    return Cost(round(max(start, 0.0), 2), round(max(slope, 0.0), 2))


if __name__ == "__main__":
    sys.exit(main())
