"""Timing of each node of a graph, which discovery asks of the graphs that run node by node."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ..device import uses_cuda
from ..plans.joint import device_of

# Some 0.15 ms on today's devices: longer than launching an operator takes.
_WAIT_CYCLES = 250_000


class TimedNodes(fx.Interpreter):
    """Runs a graph node by node and keeps the least time of each operator, device work included.

    Without what the interpreter does around it, and without what reading a clock and waiting for a device take: for
    small operators that is more than their work. An operator whose results are on a CUDA device takes the time of its
    kernels, since the device works them off while the next ones are launched.
    """

    def __init__(self, module: fx.GraphModule, times_s: dict[str, float]) -> None:
        super().__init__(module)
        self._times_s = times_s
        self._clocks: dict[torch.device, NodeClock] = {}
        self._overhead_s = min(_timed(lambda: None)[1] for _ in range(5))

    def boxed_run(self, args_list: list[Any]) -> Any:
        """Run the graph on a list of inputs, which is emptied on the way."""
        results = super().boxed_run(args_list)
        for clock in self._clocks.values():
            for name, elapsed_s in clock.read():
                self._keep(name, elapsed_s)
        return results

    def run_node(self, n: fx.Node) -> Any:
        """Run a node and take its time; what only unpacks a tuple is left out."""
        if n.op != "call_function" or n.target is operator.getitem:
            return super().run_node(n)
        arguments, keywords = self.fetch_args_kwargs_from_env(n)

        def call() -> Any:
            return self.call_function(n.target, arguments, keywords)

        device = device_of(n)
        if device is not None and device.type == "cuda":
            clock = self._clocks.get(device)
            if clock is None:
                clock = self._clocks[device] = NodeClock(device)
            return clock.time(n.name, call)
        result, elapsed_s = _timed(call)
        self._keep(n.name, max(0.0, elapsed_s - self._overhead_s))
        return result

    def _keep(self, name: str, elapsed_s: float) -> None:
        self._times_s[name] = min(elapsed_s, self._times_s.get(name, elapsed_s))


class NodeClock:
    """Times calls by a CUDA device's own clock, and waits for none of them.

    Before each call the device is kept busy until what the call launches is queued. Otherwise it would wait for that
    between the two marks, since a small kernel takes less time than launching it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
        for _ in range(5):
            self.time("", lambda: None)
        self._overhead_s = 0.0
        self._overhead_s = min(elapsed_s for _, elapsed_s in self.read())

    def time(self, name: str, call: Callable[[], Any]) -> Any:
        """Make a call whose work is on the device's current stream; gives what it returns."""
        with torch.cuda.device(self._device):
            stream = torch.cuda.current_stream()
            torch.cuda._sleep(_WAIT_CYCLES)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record(stream)
        result = call()
        end.record(stream)
        self._marks.append((name, begin, end))
        return result

    def read(self) -> list[tuple[str, float]]:
        """The calls since the last reading with their seconds, once the device has done them."""
        marks, self._marks = self._marks, []
        found = []
        for name, begin, end in marks:
            end.synchronize()
            found.append((name, max(0.0, begin.elapsed_time(end) / 1e3 - self._overhead_s)))
        return found


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a call returns, and its seconds until the device has done its work."""
    _synchronize()
    start = time.perf_counter()
    result = call()
    _synchronize()
    return result, time.perf_counter() - start


def _synchronize() -> None:
    if uses_cuda():
        torch.cuda.synchronize()
