"""The metrics of a launched run, in a file that monitoring reads: OpenMetrics' text, written anew every few seconds.

Format: OpenMetrics 1.0 (https://prometheus.io/docs/specs/om/open_metrics_spec/). The file is valid in Prometheus' older
text format as well, the only one that node_exporter's textfile collector reads. That knows no type ``info``, and
refuses a file with timestamps. Needs no torch.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..records.measurement import Peaks
from ..records.metrics import RunMetrics

EVERY_S = 5.0
"""Prometheus asks four times a minute where nobody says otherwise."""

_PREFIX = "autotune_launch"


@dataclass(frozen=True)
class Progressed:
    """What a run has come to so far; ``steps`` are optimizer steps.

    ``samples`` are those of all processes, as this one counts its own and takes the others to have as many.
    ``samples_per_s`` is None before two steps, and where no samples were seen. ``last_step_at`` is in seconds since the
    epoch, None before the first step.
    """

    steps: int = 0
    samples: int = 0
    samples_per_s: float | None = None
    num_processes: int = 1
    last_step_at: float | None = None
    peaks: Peaks = field(default_factory=Peaks)


class StepMetrics:
    """Counts a run's steps, and writes what they come to every ``EVERY_S`` seconds and at the end.

    The rate is of the time between two writings, all of it: evaluation, checkpoints and waiting for data count.

    Args:
        file: what is written.
        num_processes: how many train together.
        peaks: reads the highest points of memory so far.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        file: MetricsFile,
        *,
        num_processes: int,
        peaks: Callable[[], Peaks],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = file
        self._num_processes = num_processes
        self._read_peaks = peaks
        self._clock = clock
        self._steps = self._samples = 0
        self._rate: float | None = None
        self._peaks = Peaks()
        # The end of the step up to which the rate is known, and the samples until then.
        self._known_until = (0.0, 0)
        self._last_s = 0.0
        self._last_at: float | None = None

    def step(self, samples: int) -> None:
        """An optimizer step has ended, which took so many samples in this process."""
        self._steps += 1
        self._samples += samples * self._num_processes
        self._last_s, self._last_at = self._clock(), time.time()
        if self._steps == 1:  # what it took to get here is start-up and compilation
            self._known_until = self._last_s, self._samples
            self._write()
        elif self._last_s - self._known_until[0] >= EVERY_S:
            self._measure()
            self._write()

    def end(self) -> None:
        """The process ends: write what came since the last time."""
        if self._rate is None:
            self._measure()
        self._write()

    def _measure(self) -> None:
        since_s, before = self._known_until
        if self._last_s > since_s:
            self._rate = (self._samples - before) / (self._last_s - since_s) or None
        self._known_until = self._last_s, self._samples

    def _write(self) -> None:
        try:
            self._peaks = self._read_peaks()
        except RuntimeError:
            pass  # after an error of CUDA's there is nobody to ask; the training ends of it, and not of this
        self._file.write(
            Progressed(self._steps, self._samples, self._rate, self._num_processes, self._last_at, self._peaks)
        )


class MetricsFile:
    """The file: always whole, as it is replaced; and never what ends a training."""

    def __init__(self, metrics: RunMetrics) -> None:
        self._metrics = metrics
        self._told = False

    def write(self, progressed: Progressed) -> bool:
        """Write it anew; False where that fails, which is told on standard error, once."""
        path = Path(os.path.realpath(self._metrics.file))  # a link stays one
        # Not the collector's suffix, or it would read what is half written; readable by whom the umask lets.
        beside = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            if path.exists() and not path.is_file():
                raise OSError(None, "it is no plain file")
            beside.write_text(render_metrics(self._metrics, progressed), encoding="utf-8", newline="\n")
            beside.replace(path)
        except OSError as error:
            beside.unlink(missing_ok=True)
            self._tell(error.strerror or str(error))
            return False
        return True

    def _tell(self, why: str) -> None:
        if self._told:
            return
        self._told = True
        sys.stderr.write(
            f"autotune: note: the metrics could not be written to {self._metrics.file!r}: {why}; training goes on\n"
            "  next: give --metrics a file in a folder that is there, and that you may write to\n"
        )


def render_metrics(metrics: RunMetrics, progressed: Progressed) -> str:
    """The file's text. Every sample has the label ``run``, the file's name: files in one folder are read together."""
    run = {"run": Path(metrics.file).stem}
    families = _Families(run)
    # A gauge by type, since older readers know no other type for it.
    families.add("info", "gauge", "Which run it is, and by which autotune.", [(metrics.info, 1)])
    families.add("processes", "gauge", "Processes that train together.", [({}, progressed.num_processes)])
    families.add("steps", "counter", "Optimizer steps so far.", [({}, progressed.steps)])
    families.add(
        "samples",
        "counter",
        "Samples so far: those of the first process, times the number of processes.",
        [({}, progressed.samples)],
    )
    families.add(
        "samples_per_second",
        "gauge",
        "Samples per second over the last few seconds, evaluation and checkpoints included.",
        [({}, progressed.samples_per_s)],
    )
    families.add(
        "last_step_timestamp_seconds",
        "gauge",
        "When the last step ended, in seconds since the epoch.",
        [({}, progressed.last_step_at)],
    )
    families.add(
        "peak_memory_bytes",
        "gauge",
        "Highest memory of the first process since it began, start-up included.",
        _by_kind(progressed.peaks),
    )
    expected = metrics.expected
    if expected is not None:
        families.add(
            "expected_samples_per_second",
            "gauge",
            "What the study measured of this setting: the median step, without evaluation and checkpoints.",
            [({}, expected.samples_per_s)],
        )
        families.add(
            "expected_samples_per_second_low", "gauge", "Lower end of its range.", [({}, expected.samples_per_s_low)]
        )
        families.add(
            "expected_samples_per_second_high", "gauge", "Upper end of its range.", [({}, expected.samples_per_s_high)]
        )
        families.add(
            "expected_peak_memory_bytes",
            "gauge",
            "What the study measured of this setting, from the first training call on.",
            _by_kind(expected.peaks),
        )
    families.add(
        "memory_limit_bytes",
        "gauge",
        "What the setting's peak was held against.",
        [({}, metrics.memory_limit_bytes)],
    )
    return families.text()


def _by_kind(peaks: Peaks) -> list[tuple[Mapping[str, str], int]]:
    return [({"kind": kind}, figure) for kind, figure in asdict(peaks).items() if figure is not None]


class _Families:
    """The lines of metric families; ``labels`` are every sample's."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self._lines: list[str] = []

    def add(self, name: str, kind: str, told: str, samples: Iterable[tuple[Mapping[str, str], float | None]]) -> None:
        """A family with its samples; without those whose value is not known, and not at all without any."""
        known = [(labels, value) for labels, value in samples if value is not None]
        if not known:
            return
        family = f"{_PREFIX}_{name}"
        self._lines += [f"# HELP {family} {told}", f"# TYPE {family} {kind}"]
        for unit in ("bytes", "seconds"):
            if name.endswith(f"_{unit}"):
                self._lines.append(f"# UNIT {family} {unit}")
        suffix = "_total" if kind == "counter" else ""
        for labels, value in known:
            written = ",".join(f'{key}="{_escaped(text)}"' for key, text in {**self._labels, **labels}.items())
            self._lines.append(f"{family}{suffix}{{{written}}} {value!r}")

    def text(self) -> str:
        """All of them, and the mark at the end."""
        return "\n".join([*self._lines, "# EOF", ""])


def _escaped(text: str) -> str:
    r"""The value of a label: ``\``, ``"`` and ends of lines are escaped; bytes that are no UTF-8 become ``\udcff``."""
    readable = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return readable.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
