"""How far do runs of one and the same thing scatter? ``python -m tests.benchmarks.noise charlm --batch-sizes 4,256``

The script as it stands, in fresh processes, in turns at each of the batch sizes: a small one is bound by launches, a
large one by the device. What repetitions call a difference has to be more than this. Runs are stored as they end, in
``RECORDS/DEVICE/noise-CASE.json``, and the same command goes on where it stopped.

Exit status: 0 if all repetitions are measured, 75 if more are left.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import statistics
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.cli.local_launcher import interruption
from autotune.machine.devices import find_device
from autotune.machine.interpreter import find_interpreter
from autotune.machine.meters.nvidia import read_gpus
from autotune.metering.host import processor_name
from autotune.records.codec import dumps, loads
from autotune.records.environment import Environment
from autotune.records.measuring import Measuring
from autotune.records.outcome import Measured
from autotune.records.units import format_share, parse_duration
from trials.run import GOES_ON

from .peers.__main__ import ROOT, launcher_with, workload_of
from .peers.measuring import Runs
from .peers.record import NOTHING, Run, Setting, file_of, without_logs


@dataclass(frozen=True)
class Noise:
    """Runs of one script at some batch sizes, the earliest first."""

    workload: str
    runs: tuple[Run, ...] = ()
    environment: Environment | None = None
    version: int = 1

    def rates(self, batch_size: int) -> list[float]:
        """Samples/s of each run that was measured."""
        outcomes = [one.outcome for one in self.runs if one.setting.batch_size == batch_size]
        return [one.measurement.samples_per_s for one in outcomes if isinstance(one, Measured)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is left, and print how far it scatters."""
    options = parse(arguments)
    workload, _, limit = workload_of(options.workload, options.device, ())
    name = f"{workload.name}-{limit}" if limit else workload.name
    device = processor_name() if options.device is None else find_device(options.device, read_gpus()).name
    path = file_of(options.records, device, f"noise-{name}")
    noise = loads(Noise, path.read_text(encoding="utf-8"), where=path.name) if path.exists() else Noise(name)
    sizes = [int(size) for size in options.batch_sizes.split(",")]
    todo = [(number, size) for number in range(options.repetitions) for size in sizes]
    done = {(one.repetition, one.setting.batch_size) for one in noise.runs}
    ends_at, sitting, longest_s = time.monotonic() + options.budget, uuid.uuid4().hex[:8], 0.0
    with interruption() as interrupted:
        folder, python = (options.runs / f"noise-{name}").absolute(), find_interpreter(None)
        runs = Runs(
            workload,
            functools.partial(launcher_with, workload, folder, python, 300.0),
            device=options.device,
            folder=folder,
            measuring=Measuring(),
            interruption=interrupted,
            ends_at=ends_at,
            python=python,
        )
        try:
            for number, size in todo:
                if (number, size) in done:
                    continue
                if interrupted.finish.is_set() or time.monotonic() + longest_s > ends_at:
                    break
                setting = Setting(NOTHING, size)
                found = runs.measure(setting, None)
                if found is None:
                    break
                outcome, environment, seconds = found
                longest_s = max(longest_s, seconds)
                run = Run("repetition", setting, without_logs(outcome), seconds, sitting, number)
                public = None if environment is None else replace(environment, hostname="")
                noise = replace(noise, runs=(*noise.runs, run), environment=noise.environment or public)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.with_suffix(".writing").write_text(dumps(noise, indent=1) + "\n", encoding="utf-8")
                path.with_suffix(".writing").replace(path)
                done.add((number, size))
        finally:
            runs.close()
    for size in sizes:
        print(sentence_of(noise, size))
    return 0 if done.issuperset(todo) else GOES_ON


def sentence_of(noise: Noise, batch_size: int) -> str:
    """How far the runs at a batch size scatter, and what two of them one after the other would have been told as."""
    rates = noise.rates(batch_size)
    if len(rates) < 2:
        return f"{noise.workload} at batch {batch_size}: {len(rates)} of its runs measured, which tells nothing"
    spread = statistics.stdev(rates) / statistics.fmean(rates)
    apart = max(abs(math.log(later / earlier)) for earlier, later in itertools.pairwise(rates))
    return (
        f"{noise.workload} at batch {batch_size}: {statistics.median(rates):.4g} samples/s, {len(rates)} processes "
        f"scatter by {format_share(spread)}, and two in turns were {math.exp(apart):.3f}x apart at most"
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.noise", description=__doc__.splitlines()[0])
    parser.add_argument("workload", help="a case of trials/run.py, or a script")
    parser.add_argument("--batch-sizes", required=True, metavar="N,N")
    parser.add_argument("--repetitions", type=int, default=6)
    parser.add_argument("--budget", type=parse_duration, default=float("inf"), metavar="TIME", help="as in 9m")
    parser.add_argument("--device", type=int, help="index of a GPU; default: the first there is, or the CPU")
    parser.add_argument("--records", type=Path, default=ROOT / "build/peers")
    parser.add_argument("--runs", type=Path, default=ROOT / "build/peers-runs", help="logs and compile caches")
    options = parser.parse_args(arguments)
    if options.device is None and read_gpus().devices:
        options.device = 0
    return options


if __name__ == "__main__":
    sys.exit(main())
