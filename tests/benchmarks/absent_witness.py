"""Memory predicted for a GPU that is not there, against torch's own allocator on the GPU without kernels.

``make bench-witness`` runs it in the environment of that GPU, and NULL_GPU names the card. Each of the project's
workloads runs twice for its first optimizer steps: followed by sizes alone, and on the device. ViT-Large is left out:
its weights are drawn until they are within bounds, which they never are on a device without values. cuDNN needs no
workspaces there, so what is told for ResNet-50 has none either.

Scripts of others are named so: ``--also 'nanogpt=/clone/train.py config/train_shakespeare_char.py'``.

With ``--lines`` torch's own history of allocations says which lines have made what the peak holds. It knows no line of
tensors that a backward makes, so ``autotune explain`` is compared for all others: of the five lines that hold most, the
bytes of each.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from autotune.cli.local_launcher import make_launcher  # noqa: E402
from autotune.cli.spec import spec_of  # noqa: E402
from autotune.launch.requests import trace_request  # noqa: E402
from autotune.predict.device_peak import DevicePeak, peak_of  # noqa: E402
from autotune.predict.explaining import explain  # noqa: E402
from autotune.records.allocations import AllocationTrace, Traced  # noqa: E402
from autotune.records.cards import CARDS, Card  # noqa: E402
from autotune.tuning.context import run_first  # noqa: E402

WORKLOADS = {
    "snippets": "snippets/train.py --device cuda",
    "charlm": "charlm/train.py",
    "bert": "bert/train.py",
    "bert-large": "bert-large/train.py --batch-size 16",
    "gpt2": "gpt2/train.py --batch-size 8",
    "gpt2-350m": "gpt2/train.py --size 350m --batch-size 4",
    "llama": "llama/train.py --batch-size 2",
    "deberta-xlarge": "deberta/train.py --size xlarge --batch-size 8",
    "resnet50": "resnet50/train.py --batch-size 64",
}
COUNTING = """
import json, os, runpy, sys
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

TORCH = os.path.dirname(torch.__file__)
steps = []
number, tells_lines = map(int, sys.argv[1:3])
if tells_lines:
    torch.cuda.memory._record_memory_history(max_entries=4_000_000, stacks="python")

def made_at(frames):
    for frame in frames:
        if not frame["filename"].startswith((TORCH, "<")) and os.path.exists(frame["filename"]):
            return f"{os.path.basename(frame['filename'])}:{frame['line']}"
    return ""

def tell_lines():
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    levels, level = [], 0
    for event in trace:
        level += {"alloc": 1, "free_completed": -1}.get(event["action"], 0) * event["size"]
        levels.append(level)
    alive = {}
    for event in trace[: levels.index(max(levels)) + 1]:
        if event["action"] == "alloc":
            alive[event["addr"]] = event
        elif event["action"] == "free_completed":
            alive.pop(event["addr"], None)
    lines = {}
    for event in alive.values():
        line = made_at(event["frames"])
        lines[line] = lines.get(line, 0) + event["size"]
    print("LINES", json.dumps(lines), flush=True)

def stepped(optimizer, arguments, keywords):
    steps.append(optimizer)
    if optimizer is steps[0] and steps.count(optimizer) == number:
        print("PEAKS", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
        if tells_lines:
            tell_lines()
        os._exit(0)

register_optimizer_step_post_hook(stepped)
sys.argv = sys.argv[3:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
MIB = 1 << 20


def count(script: Path, arguments: list[str], steps: int, *, tells_lines: bool) -> tuple[DevicePeak, dict[str, int]]:
    """Run a script on the device for so many optimizer steps.

    Returns:
        What torch's allocator has counted, and the bytes at the peak by the line that made them, if asked for.

    Raises:
        RuntimeError: it ends before.
        subprocess.TimeoutExpired: it does not come there in five minutes.
    """
    command = [sys.executable, "-c", COUNTING, str(steps), str(int(tells_lines)), script, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=script.parent, timeout=300, check=False)
    told = dict(line.split(" ", 1) for line in ended.stdout.splitlines() if line.startswith(("PEAKS ", "LINES ")))
    if "PEAKS" not in told:
        raise RuntimeError(ended.stderr[-1000:])
    return DevicePeak(*map(int, told["PEAKS"].split())), json.loads(told.get("LINES", "{}"))


def follow(script: Path, arguments: list[str], card: Card, runs: Path, *, tells_places: bool) -> Traced:
    """Follow a script by sizes alone.

    Raises:
        RuntimeError: that is not possible.
    """
    os.chdir(script.parent)
    spec = spec_of({"script": script, "arguments": tuple(arguments), "engine": "aot", "python": sys.executable})
    request = replace(trace_request(spec, card), tells_places=tells_places)
    result = run_first(make_launcher(spec, runs), spec, request, runs / "trace", threading.Event())
    if result.traced is None:
        raise RuntimeError(str(result.outcomes[0] or result.failure))
    return result.traced


def without_workspaces(trace: AllocationTrace) -> AllocationTrace:
    """Leave out the operators that cuDNN computes."""
    calls = (replace(call, name="") if call.name.startswith("convolution") else call for call in trace.operators)
    return replace(trace, operators=tuple(calls))


def told_lines(traced: Traced, card: Card) -> Counter[str]:
    """Return the bytes at the peak by the line that made them, but for those of a backward."""
    lines = Counter[str]()
    for one in explain(traced, card, script="").held:
        if one.made.place.way != "backward":
            lines[one.made.place.line.rpartition("/")[2]] += one.bytes
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--also", action="append", default=[], help="NAME=SCRIPT ARGUMENTS")
    parser.add_argument("--lines", action="store_true", help="compare the lines that hold most, too")
    options = parser.parse_args()
    card = CARDS[os.environ["NULL_GPU"]]
    scripts = {name: f"{ROOT}/trials/{command}" for name, command in WORKLOADS.items()}
    scripts |= dict(each.split("=", 1) for each in options.also)
    print(f"{card.title}\n{'MiB':16}{'allocated':>12}{'followed':>12}{'reserved':>14}{'followed':>12}")
    for name, command in scripts.items():
        script, *arguments = shlex.split(command)
        with tempfile.TemporaryDirectory() as runs:
            try:
                traced = follow(Path(script), arguments, card, Path(runs), tells_places=options.lines)
                truth, lines = count(Path(script), arguments, traced.steps, tells_lines=options.lines)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{name:16}{error}", flush=True)
                continue
        told = peak_of(without_workspaces(traced.trace), card)
        pairs = ((truth.allocated, told.allocated), (truth.reserved, told.reserved))
        cells = (f"{a / MIB:12,.1f}{b / MIB:12,.1f} {100 * (b / a - 1):+.2f}%" for a, b in pairs)
        print(f"{name:16}{' '.join(cells)}", flush=True)
        if options.lines:
            found = told_lines(traced, card)
            lines.pop("", None)
            for line, size in sorted(lines.items(), key=lambda each: -each[1])[:5]:
                print(f"  {line:40}{size / MIB:12,.1f}{found[line] / MIB:12,.1f}", flush=True)


if __name__ == "__main__":
    main()
