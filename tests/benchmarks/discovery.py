"""What discovery takes: beyond the steps that it runs, and for each partitioning of a graph.

A discovery run's own time is its wall time without what plain Python takes to run the same script for as many steps.
Partitioning is timed where torch asks for it, on the same joint graphs: by torch's own partitioner without plans and
with the same tags, and by ours, which copies and tags the graph first. ``python tests/benchmarks/discovery.py --json``
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from autotune.launch.process import ProcessLauncher  # noqa: E402
from autotune.records.configuration import Configuration  # noqa: E402
from autotune.records.plan import (  # noqa: E402
    Plan,
    Quota,
)
from autotune.records.run import Request  # noqa: E402
from autotune.worker.engines.plan_engine import AotEngine  # noqa: E402
from autotune.worker.plans.joint import copy_joint  # noqa: E402
from autotune.worker.plans.partition import JointGraph  # noqa: E402
from tests.benchmarks.models import MODELS  # noqa: E402
from tests.benchmarks.sidebyside import ratio, times_s  # noqa: E402
from tests.fakes.planned import clean_torch  # noqa: E402

LAYERS = 12
CASES: dict[str, tuple[Path, tuple[str, ...]]] = {
    "bert": (ROOT / "tests/benchmarks/scripts/bert.py", ("--layers", str(LAYERS))),
    "charlm": (ROOT / "trials/charlm/train.py", ("--layers", str(LAYERS), "--max-chars", "30000", "--batch-size", "4")),
}
VARIABLES = os.environ | {"PYTHONPATH": str(ROOT)}

LONGEST_OVERHEAD_S = 15.0
LARGEST_PARTITION_RATIO = 1.5


@dataclass(frozen=True)
class Discovery:
    """Discovery of one script: seconds of the run, of plain Python with as many steps, and of each difference."""

    script: str
    steps: int
    run_s: float
    plain_s: float
    overheads_s: tuple[float, ...]

    @property
    def overhead_s(self) -> float:
        """The median difference."""
        return statistics.median(self.overheads_s)


@dataclass(frozen=True)
class Partitioning:
    """Seconds to partition one model's joint graph, and ratios.

    ``ratio`` is ours with plans to torch's with the same tags, ``ratio_untagged`` to torch's without any;
    ``first_ratio`` is that of the first partitioning in a process, which also finds the clusters, to torch's untagged.
    """

    model: str
    nodes: int
    plans: str
    stock_s: float
    stock_tagged_s: float
    plans_s: float
    first_s: float
    ratio: float
    ratio_untagged: float
    first_ratio: float


def discovery(name: str, folder: Path, times: int) -> Discovery:
    """Discover a script, and run it without autotune, in turns."""
    script, arguments = CASES[name]
    launcher = ProcessLauncher(
        python=sys.executable,
        root=folder,
        working_directory=folder,
        start_timeout_s=300.0,
        trial_timeout_s=300.0,
        variables=VARIABLES,
    )
    request = Request("discover", str(script), arguments, (Configuration(),), memory_matrix=True)
    runs, plain, steps = [], [], 0
    devices = (0,) if torch.cuda.is_available() else ()
    for _ in range(times):
        seen: list[int] = []
        began_s = time.perf_counter()
        result = launcher.run(
            request,
            devices=devices,
            on_event=lambda event, seen=seen: seen.append(event.steps),
            cancel=threading.Event(),
        )
        runs.append(time.perf_counter() - began_s)
        if result.facts is None or not result.facts.clusters:
            raise SystemExit(f"{name} was not described: {result.failure or result.outcomes}")
        steps = max(seen)
        plain.append(seconds(sys.executable, str(script), *arguments, "--steps", str(steps)))
    differences = tuple(round(one - other, 2) for one, other in zip(runs, plain, strict=True))
    return Discovery(name, steps, round(statistics.median(runs), 2), round(statistics.median(plain), 2), differences)


def seconds(*command: str) -> float:
    """The wall time of a command."""
    began_s = time.perf_counter()
    subprocess.run(command, env=VARIABLES, stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=True)
    return time.perf_counter() - began_s


class TimedEngine(AotEngine):
    """Times partitioning where torch asks for it."""

    def __init__(self, model: str, repetitions: int) -> None:
        super().__init__()
        self.found: list[Partitioning] = []
        self._model = model
        self._repetitions = repetitions

    def partition(self, joint: torch.fx.GraphModule, joint_inputs: Any, **keywords: Any) -> Any:
        """Time all, and then do it."""
        self.found += partitionings(self._model, joint, joint_inputs, keywords, self._repetitions)
        return super().partition(joint, joint_inputs, **keywords)


def partitionings(
    model: str, joint: torch.fx.GraphModule, joint_inputs: Any, keywords: dict[str, Any], repetitions: int
) -> list[Partitioning]:
    """Time the partitioning of one joint graph under several plans."""
    from torch._functorch.partitioners import default_partition

    number, indices = keywords["num_fwd_outputs"], keywords["static_lifetime_input_indices"]
    kept = JointGraph(copy_joint(joint), number, indices)
    sets: dict[str, tuple[Plan, ...]] = {
        "level 1": kept.level_plans(1),
        "level 2": kept.level_plans(2),
        "every second cluster": tuple(Plan(*each, -1) for each in sorted(kept.clusters())[::2]),
    }
    found = []
    for name, plans in sets.items():
        # One copy each time, made beforehand: the partitioner consumes it.
        given: dict[str, torch.fx.GraphModule] = {}
        tagged = tagged_joint(kept, plans)

        def copied(which: str, source: torch.fx.GraphModule, given: dict[str, Any] = given) -> Callable[[], object]:
            return lambda: given.__setitem__(which, copy_joint(source))

        def stock(which: str, given: dict[str, Any] = given) -> Callable[[], object]:
            return lambda: default_partition(given[which], joint_inputs, **keywords)

        def first(plans: tuple[Plan, ...] = plans, given: dict[str, Any] = given) -> object:
            return JointGraph(given["first"], number, indices).partition(Quota(plans))

        times = times_s(
            {
                "stock": stock("stock"),
                "stock tagged": stock("stock tagged"),
                "plans": lambda plans=plans: kept.partition(Quota(plans)),
                "first": first,
            },
            repetitions,
            {
                "stock": copied("stock", joint),
                "stock tagged": copied("stock tagged", tagged),
                "first": copied("first", joint),
            },
        )
        found.append(
            Partitioning(
                model=model,
                nodes=len(joint.graph.nodes),
                plans=name,
                stock_s=round(statistics.median(times["stock"]), 3),
                stock_tagged_s=round(statistics.median(times["stock tagged"]), 3),
                plans_s=round(statistics.median(times["plans"]), 3),
                first_s=round(statistics.median(times["first"]), 3),
                ratio=round(ratio(times, "plans", "stock tagged"), 3),
                ratio_untagged=round(ratio(times, "plans", "stock"), 3),
                first_ratio=round(ratio(times, "first", "stock"), 3),
            )
        )
    return found


def tagged_joint(kept: JointGraph, plans: tuple[Plan, ...]) -> torch.fx.GraphModule:
    """The joint graph as torch's own partitioner would be given it for these plans."""
    seen: list[torch.fx.GraphModule] = []
    split, kept._split = kept._split, lambda joint: seen.append(copy_joint(joint)) or split(joint)  # type: ignore[method-assign]
    try:
        kept.partition(Quota(plans))
    finally:
        kept._split = split  # type: ignore[method-assign]
    return seen[0]


def partitioned(name: str, repetitions: int) -> list[Partitioning]:
    """Trace a model, and time the partitioning of its graph."""
    torch.manual_seed(0)
    with clean_torch():
        built = MODELS[name](layers=LAYERS)
        engine = TimedEngine(name, repetitions)
        engine.use(Configuration("aot"))
        call = engine.compile_root(built.module)
        engine.begin_call()
        built.loss(call, built.inputs(4)).backward()
    return engine.found


def main() -> int:
    """Run the benchmark; exit status 1 where a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scripts", nargs="*", choices=sorted(CASES), default=sorted(CASES))
    parser.add_argument("--models", nargs="*", choices=[*MODELS], default=[*MODELS])
    parser.add_argument("--times", type=int, default=3, help="discoveries of each script")
    parser.add_argument("--repetitions", type=int, default=5, help="partitionings of each kind")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    discoveries: list[Discovery] = []
    partitions: list[Partitioning] = []
    for name in options.scripts:
        with tempfile.TemporaryDirectory(prefix="autotune-discovery-") as folder:
            discoveries.append(discovery(name, Path(folder), options.times))
        print(discoveries[-1], file=sys.stderr, flush=True)
    torch.set_num_threads(1)
    for name in options.models:
        for one in partitioned(name, options.repetitions):
            partitions.append(one)
            print(one, file=sys.stderr, flush=True)
    overhead_s = max((one.overhead_s for one in discoveries), default=0.0)
    typical = statistics.median(one.ratio for one in partitions) if partitions else 0.0
    summary = {
        "longest_overhead_s": overhead_s,
        "median_partition_ratio": round(typical, 3),
        "largest_partition_ratio": max((one.ratio for one in partitions), default=0.0),
        "median_ratio_untagged": round(statistics.median(one.ratio_untagged for one in partitions), 3),
        "median_first_ratio": round(statistics.median(one.first_ratio for one in partitions), 3),
        "holds": overhead_s <= LONGEST_OVERHEAD_S and typical <= LARGEST_PARTITION_RATIO,
    }
    if options.json:
        rows = {"discoveries": [*map(asdict, discoveries)], "partitionings": [*map(asdict, partitions)]}
        print(json.dumps(rows | {"summary": summary}, indent=2))
    else:
        print(json.dumps(summary, indent=2))
    return 0 if summary["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
