"""Timing of each node of a graph, which discovery asks of the graphs that run node by node."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ..device import now_s
from ..plans.joint import device_of

# Some 0.15 ms on today's devices: longer than launching an operator takes.
_WAIT_CYCLES = 250_000


class TimedNodes(fx.Interpreter):
    """Runs a graph node by node and keeps the least time of each operator, device work included.

    Times exclude the interpreter, the clock and the wait for a device: for small operators these exceed the work. An
    operator on a CUDA device takes the time of its kernels, since the device runs them while the next are launched.
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
            if device not in self._clocks:
                self._clocks[device] = NodeClock(device)
            return self._clocks[device].time(n.name, call)
        result, elapsed_s = _timed(call)
        self._keep(n.name, max(0.0, elapsed_s - self._overhead_s))
        return result

    def _keep(self, name: str, elapsed_s: float) -> None:
        self._times_s[name] = min(elapsed_s, self._times_s.get(name, elapsed_s))


class NodeClock:
    """Times calls by a CUDA device's own clock, and waits for none of them.

    Before each call the device is kept busy until the call's kernels are queued. Otherwise it would wait between the
    two marks, as launching a small kernel takes longer than running it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
        for _ in range(5):
            self.time("", lambda: None)
        self._overhead_s = 0.0
        self._overhead_s = min(elapsed_s for _, elapsed_s in self.read())

    def time(self, name: str, call: Callable[[], Any]) -> Any:
        """Make a call whose work is on the device's current stream, and return what it returns."""
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
        """Wait for the calls since the last reading, and return them with their seconds."""
        marks, self._marks = self._marks, []
        found = []
        for name, begin, end in marks:
            end.synchronize()
            found.append((name, max(0.0, begin.elapsed_time(end) / 1e3 - self._overhead_s)))
        return found


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a call returns, and its seconds until the device has done its work."""
    start_s = now_s()
    result = call()
    return result, now_s() - start_s
