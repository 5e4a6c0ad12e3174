"""Run a reference study: ``python trials/run.py charlm`` tunes ``trials/charlm/train.py`` with its ``study.toml``.

``--check`` compares the outcome with ``expected.toml`` beside it, for all folders when none is named; that is the
acceptance on whatever device is there (``make gpu``). ``--record DIR`` writes each study with its raw samples and the
environment that they were measured in to ``DIR/DEVICE/NAME.json``. A folder's ``study.toml`` has top-level keys for
every device and tables ``[cpu]`` and ``[cuda]`` on top of them; keys are the options of ``autotune run``.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from autotune.records import StudyRecord, to_json
from autotune.store import open_store

HERE = Path(__file__).resolve().parent
STORAGE = ".autotune/studies.db"
# What tells of a machine and not of what was measured on it, and the graphs, which a record does not need.
PRIVATE = frozenset({"hostname", "run_directory", "working_directory", "bundles", "graphs"})


def main() -> int:
    """Run the named studies; gives the number of those that failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="folders of trials/; default: all")
    parser.add_argument("--check", action="store_true", help="compare with expected.toml")
    parser.add_argument("--output", type=Path, default=Path(), help="where bundles go")
    parser.add_argument("--record", type=Path, metavar="DIR", help="write what was measured to DIR/DEVICE/NAME.json")
    options = parser.parse_args()
    names = options.names or sorted(path.parent.name for path in HERE.glob("*/study.toml"))
    return sum(not run(name, output=options.output, check=options.check, records=options.record) for name in names)


def run(name: str, *, output: Path, check: bool, records: Path | None = None) -> bool:
    """Run one study, and write its record where there is a folder for them; True if it ended as it should."""
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
    reads = check or records is not None
    command += ["--output", str(bundle), *(["--json"] if reads else []), *(["--", *arguments] if arguments else [])]
    print("$ autotune", *command[3:], flush=True)
    done = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE if reads else None)
    told = json.loads(done.stdout or "{}")
    if records is not None and "study" in told:
        with open_store(STORAGE, create=False) as store:
            study = store.open(told["study"]["name"]).record()
        print(write_record(study, name, records))
    if not check:
        return done.returncode == 0
    problems = compare(folder, device, done.returncode, done.stdout)
    print(f"{name} on {device}: " + ("as expected" if not problems else "; ".join(problems)))
    return not problems


def write_record(study: StudyRecord, name: str, records: Path) -> Path:
    """Write a study with its raw samples, without what tells of the machine it ran on beyond its device."""
    document = _public(to_json(study))
    document["spec"] |= {"script": Path(study.spec.script).name, "python": ""}
    device = "unknown" if study.facts is None else study.facts.environment.device_name
    path = records / re.sub(r"\W+", "-", device).strip("-").lower() / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def _public(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _public(one) for key, one in value.items() if key not in PRIVATE}
    return [_public(one) for one in value] if isinstance(value, list) else value


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
