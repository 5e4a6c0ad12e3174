"""How much memory an ONNX model's session holds after many runs of changing shapes, with settings side by side.

``python tests/benchmarks/model_growth.py MODEL --shape seq=1-300 --batch 8 --runs 10000 SETTINGS...``, where each of
SETTINGS is names of a search's choices joined by commas, as in ``cpu-arena=0,mmap-threshold=1``; ``-`` is ONNX
Runtime's defaults. Each is measured in a process of its own, on the same inputs in the same order. Without a model a
BERT-like one is exported. Prints the resident set in MiB after so many runs, its peak, and samples per second.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

AFTER = (1, 10, 100, 1_000, 3_000, 10_000, 30_000, 100_000)


def main():
    """Measure each setting in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--settings", nargs="+", default=["-", "cpu-arena=0,mmap-threshold=1"])
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    shapes = given.shape or ["seq=1-300"]
    if given.inside:
        measure(Path(given.model), shapes, given.batch, given.runs, given.settings[0])
        return
    with tempfile.TemporaryDirectory() as folder:
        model = given.model or exported(Path(folder) / "encoder.onnx")
        for setting in given.settings:
            asked = [part for shape in shapes for part in ("--shape", shape)]
            options = [*asked, f"--batch={given.batch}", f"--runs={given.runs}", "--inside", "--settings", setting]
            subprocess.run([sys.executable, __file__, str(model), *options], check=True)


def exported(path):
    """The path of a BERT-like model."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.fakes.exported_models import encoder

    return encoder(path)


def measure(path, shapes, batch, runs, setting):
    """Run the model and print what it holds."""
    from autotune.inference.feeds import other_feeds, read_shapes
    from autotune.inference.model import read_model
    from autotune.inference.session import Runner
    from autotune.metering.host import reset_resident_peak, resident_bytes, resident_peak
    from autotune.records.choices import made_choices
    from autotune.records.session import session_of

    model = read_model(path)
    asked = read_shapes([part for shape in shapes for part in ("--shape", shape)])
    choices = [] if setting == "-" else setting.split(",")
    before = resident_bytes()
    reset_resident_peak()
    runner = Runner(path, session_of(made_choices("onnxruntime", choices).items()))
    told, spent_s = [], 0.0
    for number, feed in zip(range(1, runs + 1), other_feeds(model, asked, batch), strict=False):
        began_s = time.perf_counter()
        runner.run(feed)
        spent_s += time.perf_counter() - began_s
        if number in AFTER or number == runs:
            told.append(f"{number:,}: {(resident_bytes() - before) / 2**20:.0f}")
    peak = (resident_peak() - before) / 2**20
    sys.stdout.write(f"{setting:<40} {'  '.join(told)}  peak {peak:.0f}  {batch * runs / spent_s:.1f} samples/s\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
