"""An ONNX model with several settings, measured in turns: samples per second and peaks, side by side.

``python tests/benchmarks/model_turns.py MODEL --shape seq=64 --repetitions 7 defaults=@8 threads=intra-op-threads=1@8
answer=BUNDLE``: each entrant has a name and is choices of a search, joined by commas, and a batch size behind ``@``; or
it is the folder of a bundle. Each repetition measures every entrant once, in a fresh process, in an order that turns.
With ``--olive PYTHON`` what Olive's ``tune-session-params`` finds is one more, at the first entrant's batch size:
PYTHON is an interpreter that has ``olive-ai``, ``requests`` and ``psutil``. Prints medians with their ranges, and the
ratio to the first entrant within repetitions.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "autotune" / "inference" / "__main__.py"
_MOST_S = 600


def main():
    """Measure all in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("entrants", nargs="+", metavar="NAME=CHOICES@BATCH")
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--olive", metavar="PYTHON")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    entrants = dict(map(read, given.entrants))
    fed = tuple(part for shape in given.shape for part in ("--shape", shape))
    with tempfile.TemporaryDirectory() as made:
        if given.olive:
            choices, seconds = tuned_by_olive(given.olive, given.model.resolve(), Path(made) / "olive")
            entrants["olive"] = (choices, next(iter(entrants.values()))[1])
            sys.stdout.write(f"Olive took {seconds:.0f} s and says: {' '.join(choices) or 'defaults'}\n")
        rates, peaks = ({name: [] for name in entrants} for _ in range(2))
        for number in range(given.repetitions):
            names = list(entrants)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                folder = Path(made) / f"{name}-{number}"
                measurement = measured(given.model.resolve(), *entrants[name], fed, folder)
                rates[name].append(measurement.samples_per_s)
                peaks[name].append(measurement.peaks.resident / 2**20)
    first = next(iter(entrants))
    for name, (choices, batch) in entrants.items():
        ratio = statistics.geometric_mean(own / other for own, other in zip(rates[name], rates[first], strict=True))
        rate, peak = (statistics.median(values[name]) for values in (rates, peaks))
        sys.stdout.write(
            f"{name:<10} batch {batch:<4} {rate:>9.1f}/s ({min(rates[name]):.1f} to {max(rates[name]):.1f})"
            f"  {ratio:>6.3f}x  peak {peak:>7.1f} MiB  {' '.join(choices)}\n"
        )


def read(text):
    """An entrant's name, with its choices and its batch size."""
    name, _, what = text.partition("=")
    if Path(what).is_dir():
        stack = json.loads((Path(what) / "stack.json").read_text())
        return name, (tuple(stack["choices"]), stack["batch_size"])
    choices, _, batch = what.rpartition("@")
    return name, (tuple(filter(None, choices.split(","))), int(batch))


def measured(model, choices, batch, fed, folder):
    """A measurement in a process of its own."""
    from autotune.records.codec import dumps, loads
    from autotune.records.configuration import Configuration
    from autotune.records.measuring import Measuring
    from autotune.records.run import Line, Request, Result

    folder.mkdir()
    configuration = Configuration("onnxruntime", batch_size=batch, choices=choices)
    request = Request("measure", str(model), fed, (configuration,), Measuring(), describe_engine="onnxruntime")
    (folder / "request.json").write_text(dumps(request))
    subprocess.run([sys.executable, "-P", str(WORKER), str(folder)], check=True, timeout=_MOST_S)
    lines = [loads(Line, line, where="") for line in (folder / "results.jsonl").read_text().splitlines()]
    (outcome,) = [one.outcome for one in lines if isinstance(one, Result)]
    return outcome.measurement


def tuned_by_olive(python, model, folder):
    """What Olive's command finds, as choices, and how long it took."""
    import time

    olive = [str(Path(python).with_name("olive")), "tune-session-params", "-m", str(model), "-o", str(folder)]
    options = ["--cpu_cores", str(len(os.sched_getaffinity(0))), "--providers_list", "CPUExecutionProvider"]
    began_s = time.monotonic()
    subprocess.run([*olive, *options, "--disable_telemetry"], check=True, timeout=_MOST_S, cwd=folder.parent)
    settings = json.loads((folder / "model_config.json").read_text())["config"]["inference_settings"]
    # None where its own run of the model failed, which it says and goes on.
    found = {} if settings is None else settings["session_options"]
    known = {"intra_op_num_threads": "intra-op-threads", "inter_op_num_threads": "inter-op-threads"}
    known |= {"execution_mode": "parallel"}
    choices = tuple(f"{known[name]}={value}" for name, value in found.items() if name in known and value is not None)
    return choices, time.monotonic() - began_s


if __name__ == "__main__":
    main()
