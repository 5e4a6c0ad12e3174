"""Peak against length, predicted for a GPU that is not there, against torch's allocator on one without kernels.

``make bench-lengths`` runs it in the environment of that GPU, and NULL_GPU names the card. Two transformers train on
batches of twelve lengths, as they are and with the blocks recomputed that engine ``aot`` finds. The lengths come in two
halves, as a run follows eight batches at most.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from autotune.cli.local_launcher import make_launcher  # noqa: E402
from autotune.cli.spec import spec_of  # noqa: E402
from autotune.launch.process import worker_command  # noqa: E402
from autotune.launch.requests import trace_request  # noqa: E402
from autotune.predict.device_peak import step_peaks  # noqa: E402
from autotune.records.cards import CARDS, Card  # noqa: E402
from autotune.records.codec import dumps  # noqa: E402
from autotune.records.configuration import Configuration  # noqa: E402
from autotune.records.run import Request  # noqa: E402
from autotune.tuning.context import run_first  # noqa: E402

SCRIPT = ROOT / "tests" / "benchmarks" / "scripts" / "lengths.py"
LENGTHS = tuple(range(64, 64 * 13, 64))
SETTINGS = {"as it is": Configuration(), "aot, level 1": Configuration("aot", level=1)}
BATCH, MIB = 8, 1 << 20


def measured(arguments: tuple[str, ...], setting: Configuration) -> dict[int, int]:
    """Return the peak of tensors on the device until the step of each length, in bytes."""
    request = Request("launch", str(SCRIPT), arguments, (setting,))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "request.json").write_text(dumps(request), encoding="utf-8")
        ended = subprocess.run(
            worker_command(sys.executable, Path(folder)), capture_output=True, text=True, timeout=300, check=False
        )
    lines = [line.split() for line in ended.stdout.splitlines() if line.startswith("LENGTH ")]
    assert len(lines) == len(arguments) - 1, ended.stderr[-2000:]
    return {int(length): int(allocated) for _, length, allocated, _ in lines}


def predicted(arguments: tuple[str, ...], setting: Configuration, card: Card) -> dict[int, int]:
    """Return the same by following the script by sizes alone."""
    spec = spec_of({"script": SCRIPT, "arguments": arguments, "engine": "aot", "python": sys.executable})
    request = replace(trace_request(spec, card, look_ahead=100), configurations=(setting,))
    with tempfile.TemporaryDirectory() as runs:
        result = run_first(make_launcher(spec, Path(runs)), spec, request, Path(runs) / "trace", threading.Event())
    traced = result.traced
    assert traced is not None, str(result.outcomes[0] or result.failure)
    assert traced.ahead is not None
    peaks: dict[int, int] = {}
    for batch, peak in zip(traced.ahead.followed, step_peaks(traced.trace, card), strict=True):
        if batch is not None:
            peaks[batch.elements // BATCH] = max(peak.allocated, *peaks.values(), 0)
    return peaks


def main() -> None:
    card = CARDS[os.environ["NULL_GPU"]]
    print(f"{card.title}: MiB of tensors at the peak, measured, predicted")
    for model in ("gpt2", "bert"):
        for name, setting in SETTINGS.items():
            print(f"{model}, {name}")
            for half in (LENGTHS[::2], LENGTHS[1::2]):
                arguments = (model, *map(str, half))
                truth, told = measured(arguments, setting), predicted(arguments, setting, card)
                for length in half:
                    error = told[length] / truth[length] - 1
                    cells = f"{truth[length] / MIB:10,.1f}{told[length] / MIB:10,.1f}"
                    print(f"{length:8}{cells}{error:+9.2%}", flush=True)


if __name__ == "__main__":
    main()
