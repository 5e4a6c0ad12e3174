"""Studies of one, two and five minutes: how long they took, and whether their answer was confirmed.

    python tests/benchmarks/budgets.py [--budgets 1m,2m,5m] [--only charlm] [--json FILE]

A study should end within 10 % of its time budget, and confirm what it found where there is time for that; where there
is not, it has to say what that takes. The table says for each study how long it took, as a share of the budget as well,
how many trials it made, its answer, whether repetitions and proof are done, and how busy the machine was meanwhile (the
load, and the share of trials that other processes disturbed).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from autotune.records.units import format_duration, parse_duration

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests/e2e/scripts"
# What a study is of: plans and batch sizes both, many batch sizes, and little of either.
STUDIES: dict[str, tuple[str, ...]] = {
    "charlm": (str(ROOT / "trials/charlm/train.py"), "--batch-sizes", "16:64"),
    "wide_activations": (str(SCRIPTS / "wide_activations.py"),),
    "loader_loop": (str(SCRIPTS / "loader_loop.py"),),
}


def measure(name: str, budget: str) -> dict[str, object]:
    """One study in a folder of its own."""
    script, *options = STUDIES[name]
    command = [str(Path(sys.executable).with_name("autotune")), "run", script, "--time-budget", budget, "--json"]
    with tempfile.TemporaryDirectory() as folder:
        if name == "charlm":
            shutil.copytree(ROOT / "trials/charlm", Path(folder) / "charlm")
        began = time.monotonic()
        done = subprocess.run([*command, *options], cwd=folder, capture_output=True, text=True, check=False)
        took_s = time.monotonic() - began
    shown = json.loads(done.stdout) if done.stdout.strip() else {}
    points, verdict = shown.get("points", []), shown.get("verdict") or {}
    contended = sum(any("contended" in note for note in point["notes"]) for point in points)
    answer = verdict.get("answer", f"exit {done.returncode}")
    to_go_on = [line for line in done.stderr.splitlines() if "autotune resume" in line]
    return {
        "study": name,
        "budget": budget,
        "took_s": took_s,
        "of_budget": took_s / parse_duration(budget),
        "trials": len(points),
        "answer": answer,
        "confirmed": answer in ("winner", "baseline_best") and not to_go_on,
        "contended": f"{contended}/{len(points)}",
        "load": os.getloadavg()[0],
        "reason": verdict["reason"]["text"] if verdict else done.stderr[-500:],
        "to_go_on": to_go_on[-1] if to_go_on else "",
    }


def main() -> None:
    """Measure, and print a line as each study ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", default="1m,2m,5m")
    parser.add_argument("--only", default=",".join(STUDIES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for budget in options.budgets.split(","):
        for name in options.only.split(","):
            row = measure(name, budget)
            rows.append(row)
            print(
                f"{row['study']:18} {budget:>3} {format_duration(float(str(row['took_s']))):>7} "
                f"({row['of_budget']:.0%})  {row['trials']:>2} trials  {row['answer']:14} "
                f"{'confirmed' if row['confirmed'] else 'open':10} contended {row['contended']}, "
                f"load {row['load']:.1f}",
                flush=True,
            )
            print(f"    {row['reason']}\n    {row['to_go_on']}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
