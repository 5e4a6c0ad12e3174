"""Run a reference study: ``python trials/run.py charlm`` tunes ``trials/charlm/train.py`` with its ``study.toml``.

``--check`` compares the outcome with ``expected.toml`` beside it, for all folders when none is named; that is the
acceptance on whatever device is there (``make gpu``). A folder's ``study.toml`` has top-level keys for every device and
tables ``[cpu]`` and ``[cuda]`` on top of them; keys are the options of ``autotune run``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Run the named studies; gives the number of those that failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="folders of trials/; default: all")
    parser.add_argument("--check", action="store_true", help="compare with expected.toml")
    parser.add_argument("--output", type=Path, default=Path(), help="where bundles go")
    options = parser.parse_args()
    names = options.names or sorted(path.parent.name for path in HERE.glob("*/study.toml"))
    return sum(not run(name, output=options.output, check=options.check) for name in names)


def run(name: str, *, output: Path, check: bool) -> bool:
    """Run one study; True if it ended as it should."""
    folder = HERE / name
    device = "cuda" if has_cuda() else "cpu"
    settings = tomllib.loads((folder / "study.toml").read_text())
    settings = {key: value for key, value in settings.items() if not isinstance(value, dict)} | settings.get(device, {})
    arguments = settings.pop("arguments", [])
    bundle = output / f"autotune-{name}"
    command = [
        sys.executable,
        "-m",
        "autotune",
        "run",
        str(
            (folder / "train.py").relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder / "train.py"
        ),
    ]
    command += [part for key, value in settings.items() for part in (f"--{key.replace('_', '-')}", str(value))]
    command += ["--output", str(bundle), *(["--json"] if check else []), *(["--", *arguments] if arguments else [])]
    print("$ autotune", *command[3:], flush=True)
    done = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE if check else None)
    if not check:
        return done.returncode == 0
    problems = compare(folder, device, done.returncode, done.stdout)
    print(f"{name} on {device}: " + ("as expected" if not problems else "; ".join(problems)))
    return not problems


def compare(folder: Path, device: str, status: int, printed: str) -> list[str]:
    """What differs from ``expected.toml``: exit status, kind of answer, and least gain where one is stated."""
    expected = tomllib.loads((folder / "expected.toml").read_text()).get(device, {})
    if status != expected.get("exit_status", 0):
        return [f"exit status {status}"]
    document = json.loads(printed)
    answer, problems = document["verdict"]["answer"], []
    if answer not in expected["answers"]:
        problems.append(f"answered {answer!r}, expected one of {expected['answers']}")
    winner, baseline = document["winner"], document["baseline"]
    if winner is None or baseline is None:
        return [*problems, "nothing was exported"]
    if winner["peak_bytes"] > document["limit_bytes"]:
        problems.append("the winner is over the limit")
    gain = winner["samples_per_s"] / baseline["samples_per_s"]
    if gain < expected["least_gain"]:
        problems.append(f"the winner trains {gain:.2f}x the baseline, expected at least {expected['least_gain']}x")
    return problems


def has_cuda() -> bool:
    """Whether torch sees a GPU, asked in another process so that this one holds no memory on it."""
    code = "import torch; raise SystemExit(not torch.cuda.is_available())"
    return subprocess.run((sys.executable, "-c", code), check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
