"""A small decoder whose blocks are sharded over processes, in the ways that scripts do it, under engine ``aot``."""

from __future__ import annotations

import functools
import itertools
import random
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.fx.experimental._config
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from autotune.predict.simulation import Simulation
from autotune.records.codec import dumps, loads
from autotune.records.configuration import Configuration
from autotune.records.graph import ActivationGraph, StepTrace
from autotune.records.plan import ALL, Plan
from autotune.worker.absent.communication import send_nothing
from autotune.worker.describing.allocations import Allocations
from autotune.worker.describing.dimensions import Dimensions
from autotune.worker.describing.graph_description import GraphDescription
from autotune.worker.describing.root_inputs import RootCall, RootInputs
from autotune.worker.engines.plan_engine import AotEngine
from autotune.worker.hooks.roots import RootHooks
from tests.fakes.hooked import restored_torch
from tests.fakes.planned import Trace, clean_torch, kept_bytes

WIDTH, LENGTH, BLOCKS, BATCH = 32, 64, 4, 4
# With these, parameters are most of a step's peak.
_LARGE_WIDTH, _SMALL_BATCH = 256, 2
# So long a communication's threads may hold what it has sent, in seconds.
_PAUSE = 0.01


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.to_all, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down, self.dropout = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.to_all(self.norm(x)).unflatten(-1, (3, 2, WIDTH // 2)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.dropout(self.down(nn.functional.gelu(self.up(x))))


class BrokenBlock(Block):
    """Dynamo cannot trace it in one piece."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.up(self.norm(x)).tanh().mean(-1, keepdim=True)
        torch._dynamo.graph_break()
        return super().forward(x)


class Net(nn.Module):
    def __init__(self, block: type[nn.Module]) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(64, WIDTH), nn.Linear(WIDTH, 64)
        self.blocks = nn.ModuleList(block() for _ in range(BLOCKS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = self.run(block, x)
        return self.head(x).square().mean((1, 2))

    def run(self, block: nn.Module, x: torch.Tensor) -> Any:
        return block(x)


class Checkpointing(Net):
    """It checkpoints every second block, around what shards the block."""

    def run(self, block: nn.Module, x: torch.Tensor) -> Any:
        is_second = list(self.blocks).index(block) % 2
        return checkpoint(block, x, use_reentrant=False) if is_second else block(x)


def _shard(net: Net, *, root: bool = True, **keywords: Any) -> nn.Module:
    for block in net.blocks:
        fully_shard(block, **keywords)
    if root:
        fully_shard(net, **keywords)
    return net


def _wrapped(every: int) -> nn.Module:
    net = Net(Block)
    for number in range(every - 1, BLOCKS, every):
        net.blocks[number] = checkpoint_wrapper(net.blocks[number])
    return _shard(net)


def _data_parallel() -> nn.Module:
    return nn.parallel.DistributedDataParallel(Net(Block))


_HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
KINDS: dict[str, Callable[[], nn.Module]] = {
    "sharded": lambda: _shard(Net(Block)),
    "kept gathered": lambda: _shard(Net(Block), reshard_after_forward=False),
    "bf16": lambda: _shard(Net(Block), mp_policy=_HALF),
    "blocks alone": lambda: _shard(Net(Block), root=False),
    "broken blocks": lambda: _shard(Net(BrokenBlock)),
    "every second wrapped": functools.partial(_wrapped, 2),
    "every second checkpointed": lambda: _shard(Checkpointing(Block)),
    "data parallel": _data_parallel,
}
NUMBER_OF_BLOCKS = {"every second wrapped": BLOCKS // 2, "every second checkpointed": BLOCKS // 2}


class _Description(GraphDescription):
    """Sees of calls what discovery does, without a script."""

    def __init__(self, engine: AotEngine) -> None:
        self.engine, self.inputs = engine, RootInputs()
        self.__post_init__()

    def follow(self, calibrator: Any) -> None:
        self._calibrator = calibrator


class Sharded:
    """A training step of one kind in this process, of which there may be several; each step begins alike."""

    def __init__(self, kind: str) -> None:
        torch.manual_seed(0)
        self.model = KINDS[kind]()
        self.net: nn.Module = self.model.module if kind == "data parallel" else self.model
        self.engine = AotEngine()
        self.engine.use(Configuration("aot"))
        self.is_planned = True
        self._description: _Description | None = None
        RootHooks(
            engine=self.engine,
            training_call=self._called,
            evaluation_call=lambda: None,
            call_done=lambda: self._tell("call_done"),
            inner_call=lambda module, inputs: self._tell("see_inner_call", module, inputs),
            around=lambda root, call: call,
            is_optimized=lambda module: False,
            note=pytest.fail,
        ).install()

    def _called(self, root: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.engine.begin_call()
        if self._description is not None:
            call = RootCall(root, arguments, keywords, 0, len(arguments[0]))
            self._description.inputs.see(call)
            self._description.see_call(call)

    def _tell(self, name: str, *told: Any) -> None:
        if self._description is not None:
            getattr(self._description, name)(*told)

    def run(self, batch: int = BATCH, forward: Callable[[Callable[[], Any]], Any] = lambda call: call()) -> None:
        """Run forward and backward."""
        rank = dist.get_rank()
        tokens = torch.randint(0, 64, (batch, LENGTH), generator=torch.Generator().manual_seed(rank))
        torch.manual_seed(7 + rank)
        self.net.zero_grad(set_to_none=True)
        loss = forward(lambda: self.model(tokens)).mean()
        observer = self.engine.observer
        self._note(observer, "script_backward_begins")
        loss.backward()
        self._note(observer, "script_backward_ended")

    @staticmethod
    def _note(observer: Any, what: str) -> None:
        if observer is not None:
            getattr(observer, what)()

    def plan(self, plans: Iterable[Plan] = (), level: int = 0) -> None:
        """Have the next step run under these plans."""
        assert self.engine.use(Configuration("aot", tuple(plans), level)) is None

    def gradients(self) -> Trace:
        """Take a step; gives this process's part of the gradients, and the random state behind it."""
        self.run()
        found = [_local(one.grad) for one in self.net.parameters()]
        return Trace((*found, torch.get_rng_state()))

    def unplanned(self) -> Trace:
        """Take a step of the script as it is."""
        self.engine.use(Configuration())
        try:
            return self.gradients()
        finally:
            self.plan()

    def kept(self) -> int:
        """Take a step; gives the bytes that autograd really keeps in its forward, but for parameters."""
        found: list[int] = []

        def forward(call: Callable[[], Any]) -> Any:
            results: list[Any] = []
            found.append(kept_bytes(lambda: results.append(call()), self._parameters()))
            return results[0]

        self.run(forward=forward)
        return found[0]

    def _parameters(self) -> list[torch.Tensor]:
        states = [one._get_fsdp_state() for one in self.net.modules() if isinstance(one, FSDPModule)]
        groups = [state._fsdp_param_group for state in states if state._fsdp_param_group is not None]
        gathered = [one._unsharded_param for group in groups for one in group.fsdp_params]
        return [*gathered, *self.net.parameters()]

    def some_plans(self, seed: int) -> list[Plan]:
        """Choose plans at random."""
        chosen = random.Random(seed)
        # What one graph hands to the next counts as an input of that one.
        rows = [key for key in self.engine.occurrences().items() if not key[0][0].startswith("embedding")]
        return [
            Plan(cluster, strategy, chosen.choice([1, max(1, number // 2), number, ALL]))
            for (cluster, strategy), number in sorted(rows)
            if chosen.random() < 0.4
        ]

    def calibrated(self) -> tuple[Simulation, float]:
        """Describe the step as discovery does; gives what simulates it, and the error of its self-check."""
        from autotune.worker.describing.calibration import Calibrator

        self._description = described = _Description(self.engine)
        self.run()
        dimensions = Dimensions(self.engine.graphs, described.inputs.names)
        parameters = list(self.net.parameters())
        self.engine.observer = calibrator = Calibrator(dimensions, self._gradient_bytes, parameters)
        self.run()
        described.follow(calibrator)
        calibrator.record(graph.slot for graph in (*self.engine.slots(), *self.engine.checkpointed))
        self.run()
        calibrator.step_ended()
        self.engine.observer = self._description = None
        assert not calibrator.reason
        assert calibrator.error is not None
        graphs = [loads(ActivationGraph, dumps(graph)) for graph in calibrator.graphs.values()]
        return Simulation(graphs, [loads(StepTrace, dumps(one)) for one in calibrator.traces]), calibrator.error

    def _gradient_bytes(self) -> int:
        return sum(_local(one.grad).nbytes for one in self.net.parameters() if one.grad is not None)

    def peak(self, batch: int) -> int:
        """Take a step; gives the most bytes that it allocates at a time."""
        self.run(batch)  # what is allocated once
        self.net.zero_grad(set_to_none=True)
        with Allocations() as allocations:
            allocations.mark()
            self.run(batch)
            allocations.mark()
        return allocations.stretches[-1].peak


def _local(gradient: Any) -> Any:
    return gradient if gradient is None else getattr(gradient, "_local_tensor", gradient).clone()


def check(kind: str) -> None:
    """Check a kind in this process: the number of blocks, ten random sets of plans, and level 1."""
    script = Sharded(kind)
    script.unplanned()  # data parallelism orders its buckets in the first step, and with them its sums
    expected = script.unplanned()
    for _ in range(2):
        unplanned = script.gradients()
    # Eager kernels of bf16 round in other places than the graphs do.
    assert unplanned == expected or kind == "bf16"
    name = script.net.blocks[0]._get_name().removeprefix("FSDP")
    assert script.engine.occurrences()[f"{name}+", 1] == NUMBER_OF_BLOCKS.get(kind, BLOCKS)
    saved, told = script.kept(), script.engine.saved_bytes()
    for plans in ([], *map(script.some_plans, range(10))):
        for level in (0, 1):
            script.plan(plans, level)
            assert script.gradients() == unplanned, plans
            assert saved - script.kept() == told - script.engine.saved_bytes(), plans
            assert script.engine.problem() is None


def check_peaks(kind: str) -> None:
    """Check that the peaks of a kind in this process are predicted, also at batch sizes that were not described."""
    script = Sharded(kind)
    simulation, error = script.calibrated()
    assert error < 0.01
    # Of what runs outside of graphs, parameters' gradients are taken to grow with the batch as all the rest.
    most = 0.11 if kind == "every second checkpointed" else 0.03
    # Gloo's threads let go of a block's parameters sooner or later, which is much of a small step.
    batches = (32,) if dist.get_world_size() > 1 else (BATCH, 10, 32)
    blocks = [Plan(cluster, strategy, 2) for cluster, strategy in script.engine.occurrences() if "Block" in cluster]
    for batch, plans in itertools.product(batches, ([], blocks, script.some_plans(1))):
        script.plan(plans)
        simulated = simulation.run(plans, dimensions={"batch": batch, "seq_len": LENGTH}).peak_bytes
        assert simulated == pytest.approx(script.peak(batch), rel=most), (batch, plans)


def print_peak(kind: str) -> None:
    """Print the peak of a step that nothing plans, with this process's parameters."""
    global WIDTH  # noqa: PLW0603  # what the modules are made with
    WIDTH = _LARGE_WIDTH
    script = Sharded(kind)
    script.engine.use(Configuration())
    own = sum(_local(one).nbytes for one in script.net.parameters())
    sys.stdout.write(f"{own + min(script.peak(_SMALL_BATCH) for _ in range(5))} bytes\n")


def communicate_in_place() -> None:
    """Have FSDP2's communication take no memory of its own, as over NCCL.

    Gloo gathers and scatters through copies of all tensors; its broadcasts and sums need none.
    """

    def gather(output_tensor: torch.Tensor, input_tensor: torch.Tensor, *, group: Any, async_op: bool = False) -> None:
        assert not async_op
        parts = output_tensor.view(group.size(), -1)
        parts[group.rank()].copy_(input_tensor.view(-1))
        for rank, part in enumerate(parts):
            dist.broadcast(part, group=group, group_src=rank)
        time.sleep(_PAUSE)

    def scatter(output: torch.Tensor, input: torch.Tensor, *, op: Any, group: Any, async_op: bool = False) -> None:  # noqa: A002
        assert not async_op
        dist.all_reduce(input, group=group)
        if op == dist.ReduceOp.AVG:
            input.div_(group.size())
        output.view(-1).copy_(input.view(group.size(), -1)[group.rank()])
        time.sleep(_PAUSE)

    library: Any = dist
    for function, names in (
        (gather, ("all_gather_single", "all_gather_into_tensor")),
        (scatter, ("reduce_scatter_single", "reduce_scatter_tensor")),
    ):
        for name in names:
            setattr(library, name, function)


def main(task: str, kind: str, processes: int = 1) -> None:
    """Check a kind in each process, or print its ``peak``; with several ``processes`` this one is the first of them."""
    if processes > 1:
        send_nothing(processes)
    dist.init_process_group("gloo")
    if task == "peak" and processes == 1:
        communicate_in_place()
    for what in [print_peak] if task == "peak" else (check, check_peaks):
        torch._dynamo.reset()
        with clean_torch(), restored_torch():
            what(kind)
    sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
