"""Are reported samples/s true? Against a script whose rate is known by construction, and against a long plain run.

The plain run is timed from outside, as the difference of two lengths, so that start and end cancel.
``python tests/benchmarks/rate.py --json``
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KNOWN_RATE = ROOT / "tests/e2e/scripts/known_rate.py"
KNOWN_SAMPLES_PER_S = 640.0
CHARLM = ROOT / "trials/charlm/train.py"
# Less text than it reads by itself: the validation at its end is the same in both lengths, and only costs time.
CHARLM_ARGUMENTS = ("--max-chars", "400000", "--device", "cpu")
CHARLM_BATCH_SIZE = 16
FEW_STEPS, MANY_STEPS = 20, 170


def reported(script: Path, *arguments: str) -> tuple[float, bool]:
    """What `autotune discover` says of a script as it stands, and whether other processes disturbed it."""
    command = [sys.executable, "-m", "autotune", "discover", "--json", str(script), "--", *arguments]
    measurement = json.loads(run(command))["baseline"]["measurement"]
    rate = statistics.fmean(measurement["samples_per_step"]) / statistics.median(measurement["step_times_s"])
    return rate, measurement["contended"]


def plain() -> float:
    """Samples/s of charlm, run by Python alone."""
    few_s, many_s = (seconds(steps) for steps in (FEW_STEPS, MANY_STEPS))
    return (MANY_STEPS - FEW_STEPS) * CHARLM_BATCH_SIZE / (many_s - few_s)


def seconds(steps: int) -> float:
    """The wall time of charlm with so many steps."""
    began_s = time.perf_counter()
    run([sys.executable, str(CHARLM), *CHARLM_ARGUMENTS, "--steps", str(steps)])
    return time.perf_counter() - began_s


def run(command: list[str]) -> str:
    """A command's standard output; its working directory is one that is thrown away."""
    quiet = {"OMP_WAIT_POLICY": "passive", "CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryDirectory(prefix="autotune-rate-") as folder:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | quiet,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    known, charlm, alone, disturbed = [], [], [], 0
    for _ in range(options.times):
        rate, contended = reported(KNOWN_RATE)
        known.append(rate)
        disturbed += contended
        rate, contended = reported(CHARLM, *CHARLM_ARGUMENTS)
        charlm.append(rate)
        disturbed += contended
        alone.append(plain())
    # Pairs measured side by side: a machine that slows down slows both of a pair.
    ratios = [one / other for one, other in zip(charlm, alone, strict=True)]
    figures = {
        "known_rate_ratio": round(statistics.median(known) / KNOWN_SAMPLES_PER_S, 4),
        "known_rate_samples_per_s": [round(one, 2) for one in known],
        "charlm_ratio": round(statistics.median(ratios), 4),
        "charlm_reported_samples_per_s": [round(one, 2) for one in charlm],
        "charlm_plain_samples_per_s": [round(one, 2) for one in alone],
        "disturbed": disturbed,
    }
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print(f"known_rate.py: {figures['known_rate_ratio']:.3f}x of {KNOWN_SAMPLES_PER_S:g} samples/s (within 2 %)")
        print(f"charlm: {figures['charlm_ratio']:.3f}x of a plain run timed from outside (within 5 %)")
        if disturbed:
            print(
                f"{disturbed} of {2 * options.times} were disturbed by other processes: repeat this on a quiet machine"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
