"""Discovery: the script as it stands is measured, and then described over a few steps under the engine."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch

from ...metering.trial_meter import Window
from ...records.configuration import Configuration
from ...records.facts import Facts
from ...records.outcome import Outcome
from ...records.run import Described
from ..describing.allowance import Allowance
from ..describing.attention import Attention, eager_attention
from ..describing.description import SCRIPT_OVER, Description
from ..describing.root_inputs import RootCall, RootInputs
from ..registry import description_of
from .measure import MeasureMode


class DiscoverMode(MeasureMode):
    """Measures the baseline, the request's one configuration, and then fills a ``Description``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._inputs = RootInputs()
        self._attention: set[Attention] = set()
        self._description: Description | None = None
        self._so_far: Facts | None = None
        self._allowance: Allowance | None = None
        self._is_written = False

    def ready(self) -> None:
        """Begin the trial, unless it is over."""
        if self._description is None:
            super().ready()

    def inputs(self, call: RootCall) -> None:
        """Pass them on."""
        self._inputs.see(call)
        if self._description is not None:
            self._description.see_call(call)

    def inner_inputs(self, tensors: list[torch.Tensor]) -> None:
        """Pass them on."""
        if self._description is not None:
            self._description.see_inner_call(tensors)

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
        else:
            assert self._so_far is not None
            assert self._allowance is not None
            self._allowance.step_done()
            self._write(self._so_far, self._allowance)

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
        self._description = description_of(process, self._script, engine, baseline, self._inputs)
        self._allowance = Allowance(
            num_modules=sum(1 for root in self._script.roots.modules() for _ in root.modules()),
            step_s=0.0 if baseline.measurement is None else fmean(baseline.measurement.step_times_s),
            left_s=None if ends_at is None else ends_at - time.monotonic(),
            steps=self._description.steps,
        )
        # Whatever becomes of the description, the controller has these.
        self._so_far = self._description.facts_so_far()
        self._write(self._so_far, self._allowance)
        for text in engine.describe():
            process.note(text)
        engine.use(Configuration(engine=engine.name))

    def _write(self, facts: Facts, goes_on: Allowance | None = None) -> None:
        self._is_written = goes_on is None
        if self._process.rank != 0:
            return
        line = Described(facts, process=os.getpid())
        if goes_on is not None:
            line = replace(line, may_take_s=goes_on.may_take_s, pace=goes_on.pace)
        self._process.write(line)
