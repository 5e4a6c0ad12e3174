"""Does a batch size that changes nothing ever win? Whole studies of scripts that train on as many rows as ever.

``scripts/without_effect.py`` lists the kinds. Whatever wins there wins by accident, or by samples that nobody trains
on. As a benchmark it runs one study of each kind.
``python tests/benchmarks/without_effect.py --studies 9 --time-budget 45s --json``
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests/benchmarks/scripts/without_effect.py"
sys.path.insert(0, str(ROOT))

from tests.benchmarks.scripts.without_effect import KINDS, OWN  # noqa: E402


@dataclass(frozen=True)
class Found:
    """The answer to one study; ``wrong`` where a winner claims speed."""

    kind: str
    seed: int
    answer: str
    said: str
    wrong: bool


def study(kind: str, seed: int, budget: str) -> Found:
    """Run a study in a folder of its own."""
    option = ["--bs", f"{{batch_size:{OWN}}}"] if kind == "an option that nothing reads" else []
    command = [sys.executable, "-m", "autotune", "run", "--json", "--time-budget", budget, "--seed", str(seed)]
    with tempfile.TemporaryDirectory(prefix="autotune-without-effect-") as folder:
        done = subprocess.run(
            [*command, str(SCRIPT), "--", kind, *option],
            cwd=folder,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if not done.stdout:
        last = done.stderr.strip().splitlines()[-1:]
        return Found(kind, seed, f"exit status {done.returncode}", "".join(last), wrong=True)
    verdict = json.loads(done.stdout)["verdict"]
    return Found(kind, seed, verdict["answer"], verdict["reason"]["text"], wrong=verdict["answer"] == "winner")


def main() -> int:
    """Run the studies, print their answers, and give 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=1, metavar="N", help="of each kind")
    parser.add_argument("--time-budget", default="45s", metavar="TIME", help="of each study")
    parser.add_argument("--at-a-time", type=int, default=1, metavar="N", help="studies that disturb each other")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tasks = [(kind, seed, options.time_budget) for seed in range(options.studies) for kind in KINDS]
    found: list[Found] = []
    with ThreadPoolExecutor(options.at_a_time) as pool:
        for one in pool.map(lambda task: study(*task), tasks):
            found.append(one)
            if not options.json:
                mark = "WRONG " if one.wrong else ""
                print(f"{one.kind:34} {one.seed:3}  {mark}{one.answer}: {one.said}", flush=True)
    wrong = sum(one.wrong for one in found)
    answers = Counter(one.answer for one in found)
    if options.json:
        print(json.dumps({"studies": [asdict(one) for one in found], "answers": answers, "wrong": wrong}))
    else:
        print(f"{len(found)} studies: {', '.join(f'{count} {name}' for name, count in answers.items())}; {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
