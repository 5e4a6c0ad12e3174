"""Discovery: the script as it stands is measured, and then described over a few steps under the engine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from ...metering.trial_meter import Window
from ...records.configuration import Configuration
from ...records.facts import Facts
from ...records.matrix import MemoryPhase
from ...records.outcome import Outcome
from ...records.run import Described, Searched
from ..describing.allowance import may_take_s
from ..describing.attention import Attention, eager_attention
from ..describing.description import SCRIPT_OVER, Description
from ..describing.root_inputs import RootCall, RootInputs
from ..registry import description_of
from .measure import MeasureMode


class DiscoverMode(MeasureMode):
    """Measures the baseline, the request's one configuration, and then fills a ``Description``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._began_s = time.monotonic()
        self._inputs = RootInputs()
        self._attention: set[Attention] = set()
        self._description: Description | None = None
        self._may_take_s = 0.0
        self._has_written_plans = False
        self._is_written = False

    def ready(self) -> None:
        """Begin the trial, unless it is over."""
        if self._description is None:
            super().ready()

    def inputs(self, call: RootCall) -> None:
        """Pass them on; of the script as it stands, count their data."""
        self._inputs.see(call)
        if self._description is not None:
            self._description.see_call(call)
        else:
            super().inputs(call)

    def inner_inputs(self, module: nn.Module, inputs: Any) -> None:
        """Pass them on."""
        if self._description is not None:
            self._description.see_inner_call(module, inputs)

    def memory(self, phase: MemoryPhase) -> None:
        """Tell the description that a call is over; of the script as it stands, take a row of the memory matrix."""
        if self._description is None:
            super().memory(phase)
        elif phase == "post_forward":
            self._description.call_done()

    def backward_begins(self, loss: Any) -> None:
        """Pass it on; of the script as it stands, take note of its attention while it warms up."""
        if self._description is not None:
            self._description.backward_begins()
        elif self._meter is not None and not self._meter.measured_steps:
            self._attention |= eager_attention(loss)

    def backward_done(self) -> None:
        """Pass it on."""
        if self._description is not None:
            self._description.backward_done()

    def step(self, window: Window) -> None:
        """Measure, or describe, a step."""
        if self._description is None:
            super().step(window)
        elif self._description.step_done():
            self._write(self._description.facts())
            self._process.end()
        elif self._description.knows_plans and not self._has_written_plans:
            # They stay, if there is no time for the rest.
            self._has_written_plans = True
            self._write(self._description.facts_so_far(), may_take_s=self._may_take_s)

    def trial_done(self) -> None:
        """Go on to the description."""
        if self._applied.engine is None:
            super().trial_done()
        else:
            self._begin()

    def script_over(self) -> None:
        """The script was too short for the steps under the engine: leave the facts that there are."""
        if self._applied.engine is None or self._is_written:
            return
        if self._description is None:
            self._begin()
        assert self._description is not None
        self._process.note(SCRIPT_OVER)
        self._write(self._description.facts(script_is_over=True))

    def failed(self, outcome: Outcome) -> None:
        """Whatever ends the description: the baseline was measured, and there are batch sizes to search."""
        if self._description is not None and not self._is_written:
            self._write(self._description.facts(outcome))

    def _begin(self) -> None:
        engine, process = self._applied.engine, self._process
        baseline = replace(self._baseline, attention=frozenset(self._attention))
        ends_at = process.request.ends_at
        assert engine is not None
        self._stay_at_largest()
        self._description = description_of(process, self._script, engine, baseline, self._inputs)
        # Whatever becomes of the description, the controller has these.
        so_far = self._description.facts_so_far()
        self._may_take_s = may_take_s(
            num_modules=sum(1 for root in self._script.roots.modules() for _ in root.modules()),
            step_s=0.0 if baseline.measurement is None else baseline.measurement.step_time_s,
            trial_s=time.monotonic() - self._began_s,
            left_s=None if ends_at is None else ends_at - time.monotonic(),
            searches=[*self._searched(so_far)],
        )
        self._write(so_far, may_take_s=self._may_take_s)
        for text in engine.describe():
            process.note(text)
        engine.use(Configuration(engine=engine.name))

    def _searched(self, facts: Facts) -> Iterator[Searched]:
        for one in self._process.request.searches:
            if one != "batch_sizes" or facts.batch_control.can_set:
                yield one

    def _write(self, facts: Facts, *, may_take_s: float | None = None) -> None:
        self._is_written = may_take_s is None
        if self._process.rank == 0:
            self._process.write(Described(facts, process=os.getpid(), may_take_s=may_take_s))
