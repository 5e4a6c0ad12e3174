"""How long nodes take: the host's clock for what runs on the CPU, the device's own marks for what runs on a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from autotune.worker.engines import timed_nodes
from autotune.worker.engines.timed_nodes import TimedNodes
from tests.fakes.cuda import FakeStream


def test_the_time_of_a_node_is_without_the_wait_for_an_idle_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the recompute time of plans with many small operators, which the waiting around each of them would be."""
    passed_s = [0.0]

    def passes(seconds: float) -> float:
        passed_s[0] += seconds
        return passed_s[0]

    class Slow(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            passes(7.0 if func is torch.sin else 0.0)
            return super().__torch_function__(func, types, args, kwargs)

    monkeypatch.setattr(timed_nodes, "now_s", lambda: passes(5.0))
    times_s: dict[str, float] = {}
    module = torch.fx.symbolic_trace(lambda x: torch.cos(torch.sin(x)))
    TimedNodes(module, times_s).run(torch.ones(2).as_subclass(Slow))
    assert times_s == {"sin": 7.0, "cos": 0.0}


def chain(*steps: tuple[str, str, Callable[[Any], Any]]) -> torch.fx.GraphModule:
    """A graph of functions one after the other: the name of each, its device, and what it does."""
    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    for name, device, function in steps:
        value = graph.create_node("call_function", function, (value,), name=name)
        with FakeTensorMode():
            value.meta["val"] = torch.empty(1, device=device)
    graph.output(value)
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def test_on_a_device_a_small_operator_takes_what_its_kernels_take_and_not_what_launching_them_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = FakeStream(monkeypatch, event_s=1e-6)
    monkeypatch.setattr(time, "perf_counter", lambda: stream.host_s)
    module = chain(
        ("small", "cuda:0", lambda x: stream.launch(x, kernel_s=3e-6)),
        ("on_host", "cpu", lambda x: stream.compute(x, 40e-6)),
        ("large", "cuda:0", lambda x: stream.launch(x, kernel_s=5e-3)),
        ("copied_back", "cpu", lambda x: stream.compute(x, 8e-6)),
        ("small_again", "cuda:0", lambda x: stream.launch(x, kernel_s=3e-6)),
    )
    times_s: dict[str, float] = {}
    results = TimedNodes(module, times_s).boxed_run([1.0])
    assert results == 1.0
    expected = {"small": 3e-6, "on_host": 40e-6, "large": 5e-3, "copied_back": 8e-6, "small_again": 3e-6}
    assert times_s == pytest.approx(expected, abs=1e-9)


def test_the_least_time_of_several_runs_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = FakeStream(monkeypatch, event_s=1e-6)
    monkeypatch.setattr(time, "perf_counter", lambda: stream.host_s)
    kernels_s = iter([9e-6, 4e-6, 6e-6])
    module = chain(("node", "cuda:0", lambda x: stream.launch(x, kernel_s=next(kernels_s))))
    times_s: dict[str, float] = {}
    for _ in range(3):
        TimedNodes(module, times_s).boxed_run([1.0])
    assert times_s == pytest.approx({"node": 4e-6}, abs=1e-9)
