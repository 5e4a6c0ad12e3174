"""What of settings that searches choose can plain code say, and Trainer's arguments: exactly, nearly, or not?

Takes databases of studies. Of each script the settings are winners and trials with plans, and what a search believes to
be fastest under limits below the script's own peak. A short run of each script sees where its blocks are. ``nearly``
says how the nearest differs, by the simulation: in the peak of a step above what is there all the time, and in the time
of what is recomputed as a share of the script's step.
``python tests/benchmarks/exporting.py .autotune/studies.db``
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from autotune.errors import PredictionError, UsageError  # noqa: E402
from autotune.export.exporters import EXPORTERS, express  # noqa: E402
from autotune.export.expressing import Expressed  # noqa: E402
from autotune.launch.process import ProcessLauncher  # noqa: E402
from autotune.launch.requests import locate_request  # noqa: E402
from autotune.predict.prediction import Predictor  # noqa: E402
from autotune.records.configuration import Configuration  # noqa: E402
from autotune.records.facts import (  # noqa: E402
    Facts,
    Located,
)
from autotune.records.outcome import Measured  # noqa: E402
from autotune.records.study import StudyRecord  # noqa: E402
from autotune.search.fit import fits_of  # noqa: E402
from autotune.search.space import build_space  # noqa: E402
from autotune.store.database import open_store  # noqa: E402

# Of what the script itself takes in a step, left to a search.
_LIMITS = (0.85, 0.7, 0.55, 0.4)


@dataclass(frozen=True)
class Row:
    """One setting, and how each kind says it."""

    script: str
    batch_size: int
    plans: str
    told_by: str
    torch: str
    transformers: str
    reasons: tuple[str, ...]


def records(paths: list[str]) -> Iterator[StudyRecord]:
    """The studies of databases that have facts and a measured script."""
    for path in paths:
        with open_store(path, create=False) as store:
            for name in store.names():
                record = store.open(name).record()
                if record.facts is not None and record.facts.graphs and record.baseline and record.baseline.measured:
                    yield record


def settings(record: StudyRecord) -> Iterator[tuple[str, Configuration]]:
    """What has won with plans, what the search has tried, and what it believes in under limits."""
    facts, baseline = record.facts, record.baseline.measured
    winner = None if record.verdict is None else record.verdict.winner
    if winner is not None and winner.plans:
        yield "winner", winner
    for trial in record.trials:
        if trial.configuration.plans:
            yield "trial", trial.configuration
    predictor = Predictor(facts)
    own = predictor.predict(replace(facts.baseline, engine="aot"))
    rest = (baseline.peaks.fit_bytes or 0) - own.step_bytes
    fixed = (facts.baseline.batch_size, facts.baseline.batch_size)
    spec = replace(record.spec, engine="aot", batch_sizes=fixed, choices=())
    space = build_space(facts, spec, baseline_fits=False)
    for share in _LIMITS:
        for fit in fits_of(space, facts, Measured(baseline), rest + int(share * own.step_bytes)):
            if fit.configuration.plans and fit.configuration.engine == "aot":
                yield f"limit {share:.0%}", fit.configuration


def located(record: StudyRecord, folder: Path) -> Located:
    """Where the script's blocks are."""
    facts, spec = record.facts, record.spec
    launcher = ProcessLauncher(
        python=spec.python,
        root=folder,
        working_directory=Path(spec.working_directory),
        start_timeout_s=600.0,
        trial_timeout_s=600.0,
        variables={**os.environ, "OMP_NUM_THREADS": str(facts.environment.num_threads)},
    )
    request = locate_request(spec, facts)
    result = launcher.run(request, devices=(), on_event=lambda _: None, cancel=threading.Event())
    assert result.located is not None, (result.outcomes, result.directory)
    return result.located


def how(wanted: Configuration, said: Expressed, facts: Facts, step_s: float) -> str:
    """``exactly``, ``nearly`` with the differences, or ``not``."""
    if not said.refusals:
        return "exactly"
    if not said.configuration.plans:
        return "not"
    try:
        predictor = Predictor(facts)
        asked, given = predictor.predict(wanted), predictor.predict(replace(said.configuration, engine="aot"))
    except PredictionError:
        return "nearly"
    memory = given.step_bytes / asked.step_bytes - 1.0
    time = (given.recompute_time_s - asked.recompute_time_s) / step_s
    return f"nearly: peak {memory:+.0%}, time {time:+.0%}"


def rows(paths: list[str], most: int, *, winners: bool) -> Iterator[Row]:
    """A row for each setting, of the studies of one script each plan once."""
    known: dict[str, Located] = {}
    done: set[tuple[str, str]] = set()
    taken: Counter[str] = Counter()
    for record in records(paths):
        script = Path(record.spec.script)
        name = script.parent.name if script.name == "train.py" else script.stem
        if name not in known:
            with tempfile.TemporaryDirectory() as folder:
                known[name] = located(record, Path(folder))
        step_s = record.baseline.measured.step_time_s
        for told_by, one in settings(record):
            key = name, one.recomputed
            if winners and told_by != "winner":
                continue
            if key in done or taken[name] >= most:
                continue
            done.add(key)
            taken[name] += 1
            answers, reasons = {}, ()
            for kind, exporter in EXPORTERS.items():
                try:
                    said = express(exporter, one, record.facts, known[name])
                except UsageError:
                    answers[kind] = "no Trainer"
                    continue
                answers[kind] = how(one, said, record.facts, step_s)
                reasons = reasons or said.reasons
            yield Row(name, one.batch_size, one.recomputed, told_by, answers["torch"], answers["transformers"], reasons)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("storage", nargs="+", help="databases of studies")
    parser.add_argument("--most", type=int, default=6, help="settings of each script")
    parser.add_argument("--winners", action="store_true", help="nothing but winners")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = list(rows(options.storage, options.most, winners=options.winners))
    if options.json:
        json.dump([asdict(one) for one in found], sys.stdout, indent=1)
        return
    for one in found:
        print(f"{one.script:<14} {one.told_by:<9} {one.torch:<34} {one.transformers:<34} {one.plans}")
        for reason in one.reasons:
            print(f"{'':>24} {reason}")
    for kind in EXPORTERS:
        counts = Counter(getattr(one, kind).partition(":")[0] for one in found)
        print(f"{kind}: " + ", ".join(f"{number} {word}" for word, number in counts.most_common()))


if __name__ == "__main__":
    main()
