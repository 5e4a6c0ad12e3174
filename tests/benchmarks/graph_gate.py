"""How well do graphs alone tell what an edit of a model adds to its peak, and how long does that take?

Ten edits of a script are described as `autotune gate --graphs-only` does it. Each is also run without autotune for a
few steps, with the model in torch's own graphs, under torch's profiler, which counts every tensor from the start of the
process. Marks: what is simulated to
be added is within 3 % of the script's own peak of what was counted to be added, and the gate's answer is that of the
counted peaks, unless those are within 1 % of where it changes. The last edit keeps tensors from step to step, which no
graph has: it shows what this gate can't see, and has no mark.
``python tests/benchmarks/graph_gate.py --json``
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from autotune.launch.process import ProcessLauncher  # noqa: E402
from autotune.launch.requests import graphs_request  # noqa: E402
from autotune.predict.prediction import read_graphs  # noqa: E402
from autotune.records.configuration import Configuration  # noqa: E402
from autotune.records.outcome import Measured  # noqa: E402
from autotune.records.study import StudySpec  # noqa: E402
from autotune.records.units import format_bytes  # noqa: E402

SCRIPT = ROOT / "trials/charlm/train.py"
BATCH = 32
ARGUMENTS = (
    *("--batch-size", str(BATCH), "--layers", "4", "--width", "256"),
    *("--heads", "4", "--max-chars", "60000", "--steps", "12"),
)
# What is written in place of what; arguments that come on top.
EDITS: dict[str, tuple[tuple[tuple[str, str], ...], tuple[str, ...]]] = {
    "one more layer": ((), ("--layers", "5")),
    "a quarter wider": ((), ("--width", "320")),
    "twice the heads": ((), ("--heads", "8")),
    "samples a quarter longer": ((), ("--block-size", "160")),
    "bfloat16 autocast": ((), ("--bf16",)),
    "a norm inside the MLP": ((("nn.GELU(), ", "nn.GELU(), nn.LayerNorm(4 * width), "),), ()),
    "ReLU in place": ((("nn.GELU()", "nn.ReLU(inplace=True)"),), ()),
    "no dropout": ((), ("--dropout", "0.0")),
    "fused attention": (
        (
            ("        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])\n", ""),
            (
                "        weights = self.dropout(F.softmax(scores.masked_fill(future, -math.inf), dim=-1))\n",
                "        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n",
            ),
            ("(weights @ v)", "mixed"),
        ),
        (),
    ),
    "a loss on every layer": (
        (
            ("        for block in self.blocks:\n            x = block(x, self.future[:length, :length])\n", ""),
            (
                "        return self.head(self.norm(x))",
                (
                    "        total = 0\n        for block in self.blocks:\n"
                    "            x = block(x, self.future[:length, :length])\n"
                    "            total = total + self.head(self.norm(x))\n        return total"
                ),
            ),
        ),
        (),
    ),
    "activations kept in a list": (
        (
            ("    step, started", "    kept = []\n    step, started"),
            (
                "            optimizer.zero_grad()\n",
                "            optimizer.zero_grad()\n            kept.append(loss_of(x, y))\n",
            ),
        ),
        (),
    ),
}
UNSEEN = "activations kept in a list"
ALLOWED, DOUBT, LARGEST_DIFFERENCE = 0.03, 0.01, 0.03
# Runs a script for its first steps, and prints the most bytes of tensors that there were at once.
COUNT = """
import runpy, sys
from torch.profiler import ProfilerActivity, profile
sys.argv = sys.argv[1:]
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
    runpy.run_path(sys.argv[0], run_name="__main__")
events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
held = peak = 0
for event in sorted(events, key=lambda event: event.start_ns()):
    held += event.nbytes()
    peak = max(peak, held)
print("PEAK", peak)
"""


@dataclass(frozen=True)
class Seen:
    """One version of the script: its peak in bytes as simulated and as counted, and seconds of the description."""

    simulated: int
    counted: int
    seconds: float


def see(name: str, folder: Path) -> Seen:
    """Describe one version of the script, and count its tensors."""
    replaced, arguments = EDITS.get(name, ((), ()))
    text = SCRIPT.read_text()
    for old, new in replaced:
        if text.count(old) != 1:
            raise SystemExit(f"{name}: {old!r} stands {text.count(old)} times in {SCRIPT}")
        text = text.replace(old, new)
    script = folder / f"{name.replace(' ', '_')}.py"
    script.write_text(text)
    spec = StudySpec(str(script), (*ARGUMENTS, *arguments), engine="aot", python=sys.executable)
    launcher = ProcessLauncher(
        python=sys.executable,
        root=folder / "runs",
        working_directory=folder,
        start_timeout_s=300.0,
        trial_timeout_s=300.0,
        variables=dict(os.environ),
    )
    began_s = time.perf_counter()
    result = launcher.run(
        graphs_request(spec, ends_at=None),
        device=0 if torch.cuda.is_available() else None,
        on_event=lambda _: None,
        cancel=threading.Event(),
    )
    seconds = time.perf_counter() - began_s
    (outcome,) = result.outcomes
    if result.facts is None or not isinstance(outcome, Measured):
        raise SystemExit(f"{name} was not described: {result.failure or outcome}")
    reading = read_graphs(result.facts, Configuration("aot", (), 0, BATCH))
    command = [sys.executable, "-c", COUNT, str(script), *spec.arguments, "--steps", "4"]
    compiled = "    model.compile(backend='aot_eager_default_partitioner')\n    optimizer = "
    assert text.count("    optimizer = ") == 1
    script.write_text(text.replace("    optimizer = ", compiled))
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=True)
    counted = next(int(line.split()[1]) for line in ended.stdout.splitlines() if line.startswith("PEAK"))
    return Seen(reading.peak_bytes, counted, round(seconds, 1))


def main(arguments: list[str] | None = None) -> int:
    """Print a line per edit; 1 if a mark is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows, missed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        base = see("the script", Path(folder))
        for name in EDITS:
            seen = see(name, Path(folder))
            simulated, counted = seen.simulated - base.simulated, seen.counted - base.counted
            off = (simulated - counted) / base.counted
            answers = [one >= ALLOWED for one in (simulated / base.simulated, counted / base.counted)]
            is_near = abs(counted / base.counted - ALLOWED) <= DOUBT
            is_missed = name != UNSEEN and (abs(off) > LARGEST_DIFFERENCE or (len({*answers}) > 1 and not is_near))
            missed += is_missed
            rows.append({"edit": name, "off": off, "missed": is_missed, **asdict(seen)})
            if not options.json:
                print(
                    f"{name:28} simulated {format_bytes(simulated):>9} more, counted {format_bytes(counted):>9} more, "
                    f"{off:+.2%} of the peak apart, {seen.seconds:5.1f} s{'  MISSED' if is_missed else ''}",
                    flush=True,
                )
    if options.json:
        print(json.dumps({"base": asdict(base), "edits": rows}, indent=2))
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
