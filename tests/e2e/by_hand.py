"""A bundle of engine ``ortmodule`` applied by hand, as its README.txt says, beside ``autotune launch``.

``python tests/e2e/by_hand.py BUNDLE SCRIPT [ARGUMENTS]`` puts the README's lines into a copy of the script and starts
it in the engine's environment with the bundle's ``env.sh`` read, and no autotune. Then it looks up in ONNX Runtime's
own table which plans were on, and compares the losses with those that the unmodified script prints under ``autotune
launch``. The script has to print ``loss NUMBER``, and to make its model in one line that begins with ``model =``.
"""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from autotune.export.bundle import read_bundle
from autotune.ort_logs.log import read_log_text
from autotune.records.engines import ENGINES

_MODEL = re.compile(r"^( *)model = .*\n", re.MULTILINE)
_LOSS = re.compile(rb"\bloss (\S+)")


@dataclass(frozen=True)
class ByHand:
    """What came of it: plans as cluster id and strategy, losses as they were printed."""

    asked: frozenset[tuple[str, int]]
    on: frozenset[tuple[str, int]]
    losses: list[bytes]
    launched_losses: list[bytes]


def apply(bundle: Path, script: Path, *arguments: str, python: str, folder: Path) -> ByHand:
    """Run a script both ways; its copy goes to ``folder``."""
    from tests.e2e.processes import run_autotune, run_command

    copy = folder / f"by_hand_{script.name}"
    copy.write_text(with_lines(script.read_text(), lines_of(bundle)))
    command = '. "$0/env.sh" && exec "$@"'
    plain = run_command(
        *("bash", "-c", command, str(bundle), python, str(copy), *arguments),
        folder=folder,
        environment={"ORTMODULE_LOG_LEVEL": "INFO"},
    )
    if plain.status:
        raise RuntimeError(f"the script ended with {plain.status}: {plain.errors[-2000:]}")
    log = plain.output.decode(errors="replace") + plain.errors
    # The layout with savings; it is printed once for the training graph.
    table = next(one for one in read_log_text(log.split("\n")).tables if one.layout == "columns")
    launched = run_autotune("launch", bundle, script, "--", *arguments, folder=folder)
    if launched.status:
        raise RuntimeError(f"autotune launch ended with {launched.status}: {launched.errors[-2000:]}")
    return ByHand(
        asked=frozenset((plan.cluster_id, plan.strategy) for plan in read_bundle(bundle).plans),
        on=frozenset((plan.cluster_id, plan.strategy) for plan in table.on),
        losses=_LOSS.findall(plain.output),
        launched_losses=_LOSS.findall(launched.output),
    )


def lines_of(bundle: Path) -> list[str]:
    """The lines that the bundle's README.txt gives, which are the engine's."""
    lines = [line.strip() for line in (bundle / "README.txt").read_text().splitlines()]
    first = lines.index(ENGINES[read_bundle(bundle).stack.engine].by_hand[0])
    return lines[first : lines.index("", first)]


def with_lines(text: str, lines: list[str]) -> str:
    """A script with lines behind the one that makes its model."""
    made = _MODEL.search(text)
    if made is None:
        raise ValueError("no line of the script begins with 'model ='")
    added = "".join(f"{made[1]}{line}\n" for line in lines)
    return text[: made.end()] + added + text[made.end() :]


def main() -> int:
    """Compare, and say so."""
    from autotune.machine.environments import engine_interpreter

    bundle, script = (Path(path).resolve() for path in sys.argv[1:3])
    python = engine_interpreter("ortmodule")
    with tempfile.TemporaryDirectory() as folder:
        found = apply(bundle, script, *sys.argv[3:], python=python, folder=Path(folder))
    for name, plans in (("asked", found.asked), ("on", found.on)):
        print(f"{name:8}", *sorted(f"{cluster_id}:{strategy}" for cluster_id, strategy in plans))  # noqa: T201
    is_same = bool(found.losses) and found.losses == found.launched_losses
    print(f"losses   {len(found.losses)}, {'the same' if is_same else 'NOT the same'} as under autotune launch")  # noqa: T201
    return 0 if is_same and found.on == found.asked else 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    sys.exit(main())
