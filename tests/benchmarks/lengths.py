"""Peak against length, predicted for a GPU that is not there, against torch's allocator on one without kernels.

``make bench-lengths`` runs it in the environment of that GPU, and NULL_GPU names the card. Two transformers train on
batches of twelve lengths, and then on many of drawn lengths, as they are and with the blocks recomputed that engine
``aot`` finds. A run follows nine of the batches; the others are simulated. Then the same under memory limits, each a
share of the way from what tensors need to what is reserved without a limit: in which step memory runs out.
"""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from autotune.cli.local_launcher import make_launcher  # noqa: E402
from autotune.cli.spec import spec_of  # noqa: E402
from autotune.launch.process import worker_command  # noqa: E402
from autotune.launch.requests import trace_request  # noqa: E402
from autotune.predict import epoch  # noqa: E402
from autotune.predict.device_peak import DevicePeak, outside_bytes, step_peaks  # noqa: E402
from autotune.records.allocations import AllocationTrace  # noqa: E402
from autotune.records.cards import CARDS, Card  # noqa: E402
from autotune.records.codec import dumps  # noqa: E402
from autotune.records.configuration import Configuration  # noqa: E402
from autotune.records.run import Request  # noqa: E402
from autotune.tuning.context import run_first  # noqa: E402

SCRIPT = ROOT / "tests" / "benchmarks" / "scripts" / "lengths.py"
LENGTHS = tuple(range(64, 64 * 13, 64))
SETTINGS = {"as it is": Configuration(), "aot, level 1": Configuration("aot", level=1)}
DRAWN, SHARES, MIB = 60, (0.01, 0.02, 0.03, 0.04, 0.06, 0.1, 0.2), 1 << 20


def measured(arguments: tuple[str, ...], setting: Configuration) -> list[DevicePeak]:
    """Return what tensors need, and what is reserved, at most until the end of each step, in bytes."""
    request = Request("launch", str(SCRIPT), arguments, (setting,))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "request.json").write_text(dumps(request), encoding="utf-8")
        ended = subprocess.run(
            worker_command(sys.executable, Path(folder)), capture_output=True, text=True, timeout=300, check=False
        )
    lines = [line.split() for line in ended.stdout.splitlines() if line.startswith("LENGTH ")]
    assert lines, ended.stderr[-2000:]
    return [DevicePeak(int(allocated), int(reserved)) for _, _, allocated, reserved in lines]


def followed(arguments: tuple[str, ...], setting: Configuration, card: Card) -> AllocationTrace:
    """Return the epoch's allocations by following the script by sizes alone."""
    spec = spec_of({"script": SCRIPT, "arguments": arguments, "engine": "aot", "python": sys.executable})
    request = replace(trace_request(spec, card, look_ahead=100), configurations=(setting,))
    with tempfile.TemporaryDirectory() as runs:
        result = run_first(make_launcher(spec, Path(runs)), spec, request, Path(runs) / "trace", threading.Event())
    assert result.traced is not None, str(result.outcomes[0] or result.failure)
    epoch._EPOCHS = 1  # the script has no more
    traced = epoch.with_epoch(result.traced)
    assert not traced.notes, traced.notes
    return traced.trace


def predicted(trace: AllocationTrace, card: Card, limit_bytes: float = math.inf) -> list[DevicePeak]:
    """Return the same as ``measured`` for a trace; the step in which memory runs out is the last one."""
    peaks = step_peaks(trace, card, limit_bytes + outside_bytes(trace))
    allocated = accumulate((one.allocated for one in peaks), max)
    return [DevicePeak(most, one.reserved) for most, one in zip(allocated, peaks, strict=True)]


def main() -> None:
    card, rng = CARDS[os.environ["NULL_GPU"]], random.Random(1)
    lengths = (*LENGTHS, *(rng.randrange(40, 1000) for _ in range(DRAWN)))
    print(f"{card.title}: MiB until the step of each length, measured, predicted; of tensors, and reserved")
    for model in ("gpt2", "bert"):
        arguments = (model, *map(str, lengths))
        for name, setting in SETTINGS.items():
            print(f"{model}, {name}")
            truth, trace = measured(arguments, setting), followed(arguments, setting, card)
            for step, (length, seen, told) in enumerate(zip(lengths, truth, predicted(trace, card), strict=True), 1):
                if step <= len(LENGTHS) or step == len(lengths):
                    tensors, reserved = row(seen.allocated, told.allocated), row(seen.reserved, told.reserved)
                    print(f"step {step:3}{length:8}{tensors}{reserved}", flush=True)
            for share in SHARES:
                limit = int(truth[-1].allocated + share * (truth[-1].reserved - truth[-1].allocated))
                steps = len(measured((*arguments, "--limit", str(limit)), setting)), len(predicted(trace, card, limit))
                ends = [ending(done, len(lengths)) for done in (steps[0] + (steps[0] < len(lengths)), steps[1])]
                print(f"limit {limit / MIB:8,.1f}: measured {ends[0]}, predicted {ends[1]}", flush=True)


def ending(step: int, steps: int) -> str:
    return "ends" if step == steps else f"runs out in step {step}"


def row(truth: int, told: int) -> str:
    return f"{truth / MIB:10,.1f}{told / MIB:10,.1f}{told / truth - 1:+9.2%}"


if __name__ == "__main__":
    main()
