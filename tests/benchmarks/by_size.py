"""An epoch of batches of many lengths under plans for their sizes, against the largest batch's plans for all of them.

All in one process under engine ``aot``, in turns: peaks of tensors, process time of the epoch, and of the switches.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests" / "benchmarks"))

from models import gpt  # noqa: E402
from sidebyside import peak_bytes, ratio, times_s  # noqa: E402

from autotune.records.configuration import Configuration  # noqa: E402
from autotune.records.look_ahead import SeenBatch  # noqa: E402
from autotune.worker.engines.plan_engine import AotEngine  # noqa: E402
from autotune.worker.hooks.samples import shapes_of  # noqa: E402
from autotune.worker.measuring.sized_plans import SmallerBatches  # noqa: E402

BATCH, LONGEST, BATCHES, REPETITIONS = 4, 384, 24, 5
LEVEL = Configuration("aot", level=1)


class Epoch:
    """Batches that are as long as their longest text, and a model that trains with them."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        drawn = random.Random(0)
        texts = [min(LONGEST, 8 + int(drawn.lognormvariate(4.2, 0.7))) for _ in range(BATCH * BATCHES - 1)]
        lengths = [max(texts[at : at + BATCH]) for at in range(0, len(texts), BATCH)]
        lengths[BATCHES // 2] = LONGEST
        self.batches = [torch.randint(256, (BATCH, length)) for length in lengths]
        self.model = gpt(layers=6, width=128, length=LONGEST).module
        self.engine = AotEngine()
        self.engine.use(LEVEL)
        self._call = self.engine.compile_root(self.model)

    @property
    def largest(self) -> torch.Tensor:
        """Return the largest batch."""
        return self.batches[BATCHES // 2]

    def step(self, batch: torch.Tensor) -> None:
        """Make the gradients of a batch."""
        self.engine.begin_call(shapes_of(batch))
        F.cross_entropy(self._call(batch)[:, :-1].flatten(0, 1), batch[:, 1:].flatten()).backward()
        self.model.zero_grad(set_to_none=True)

    def run(self) -> None:
        """Make the gradients of each batch."""
        for batch in self.batches:
            self.step(batch)

    def by_size(self) -> Configuration:
        """Return the setting with plans for smaller batches, as a trial finds them."""
        self.engine.use(LEVEL)
        seen = [SeenBatch(number, one.numel(), {"ids": one.shape}) for number, one in enumerate(self.batches, 1)]
        loaders = Mock()
        loaders.sample.largest = max(seen, key=size)
        loaders.sample.weights = {one.number: 1.0 for one in seen}
        loaders.sample.largest_up_to = lambda most: max((one for one in seen if size(one) <= most), key=size)
        search = SmallerBatches(self.engine, loaders)
        search.begin_trial()
        for one, batch in zip(seen, self.batches, strict=True):
            search.call_begins(batch)
            self.step(batch)
            search.step_done([one])
        return self.engine.configuration

    def prepare(self, setting: Configuration) -> None:
        """Make a setting current, with all of its plans."""
        self.engine.use(setting)
        for batch in self.batches:
            self.engine.begin_call(shapes_of(batch))


def size(batch: SeenBatch) -> int:
    """Return the number of elements."""
    return batch.elements


def switch_s(epoch: Epoch) -> float:
    """Return the median time of the beginning of a call that switches plans, in seconds."""
    sizes = [shapes_of(min(epoch.batches, key=torch.Tensor.numel)), shapes_of(epoch.largest)]
    times = []
    for number in range(1001):
        began_s = time.perf_counter()
        epoch.engine.begin_call(sizes[number % 2])
        times.append(time.perf_counter() - began_s)
    return statistics.median(times)


def main() -> None:
    torch.set_num_threads(1)
    epoch = Epoch()
    for _ in range(2):
        epoch.run()  # compiles
    by_size = epoch.by_size()
    settings = {"no plans": Configuration("aot"), "level 1": LEVEL, "by size": by_size}
    peaks = {}
    for name, setting in settings.items():
        epoch.prepare(setting)
        epoch.run()
        peaks[name] = max(peak_bytes(lambda batch=batch: epoch.step(batch)) for batch in epoch.batches)
    prepare = {name: lambda setting=setting: epoch.prepare(setting) for name, setting in settings.items()}
    times = times_s(dict.fromkeys(settings, epoch.run), REPETITIONS, prepare)
    step_s = statistics.median(times["by size"]) / BATCHES
    result = {
        "sized": [str(one) for one in by_size.sized],
        "of_batches": sum(any(one.hold_for(shapes_of(batch)) for one in by_size.sized) for batch in epoch.batches),
        "peak_bytes": peaks,
        "time_to_no_plans": {name: ratio(times, name, "no plans") for name in ("level 1", "by size")},
        "switch_share_of_step": switch_s(epoch) / step_s,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
