"""A gate's sitting: a setting measured in repetitions, and beside it what it is held against."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from ..launch.port import Launcher, RunResult
from ..launch.requests import repetition_request
from ..records.configuration import Configuration
from ..records.environment import Environment
from ..records.facts import AccumulationControl, BatchControl
from ..records.gate import Gate, GateBaseline, Gauge, Reference
from ..records.outcome import Measured, Outcome
from ..records.run import Request
from ..records.study import StudySpec
from ..records.words import joined
from ..verdict.gate.baseline import differences, is_same_device, reference_for
from ..verdict.gate.comparison import Allowed, GateRepetition, is_told, weigh
from ..verdict.gate.decision import decide_gate, not_comparable
from ..verdict.repetitions import order_of_repetition
from .budget import Budget, Interruption, RunCancel
from .context import run_first

_SETTING = "setting"


@dataclass(frozen=True)
class Entrant:
    """A configuration on a script, measured in each repetition; its runs' folders have its ``name``."""

    name: str
    spec: StudySpec
    configuration: Configuration


@dataclass
class Sitting:
    """One gate at work, on the setting and the script or its ``other`` version; ``told`` hears of runs and outcomes."""

    setting: Entrant
    script: Entrant
    other: Entrant | None
    _: KW_ONLY
    batch_control: BatchControl
    accumulation_control: AccumulationControl | None
    allowed: Allowed
    launcher: Launcher
    interruption: Interruption
    runs: Path
    told: Callable[[str, int, Outcome | None], None]

    def __post_init__(self) -> None:
        self._budget = Budget(self.setting.spec.time_budget_s, self.interruption)
        self._environment: Environment | None = None

    def hold(
        self,
        baseline: GateBaseline | None,
        reference: Reference | None,
        *,
        script_sha256: str,
        least_repetitions: int = 0,
    ) -> Gate | None:
        """Measure repetitions until they tell, at least ``least_repetitions``; return None if interrupted before that.

        Without a ``reference``, it is chosen by what this device has in common with the baseline's.
        """
        began = time.monotonic()
        first = self._measure(self.setting, 0)
        if first is None:
            return self._cut_off(reference)
        differs: tuple[str, ...] = ()
        is_same, here = baseline is None, self._environment
        if baseline is not None and here is not None and reference != "other":
            differs = differences(baseline, here, script_sha256, self.setting.spec.arguments)
            is_same = is_same_device(baseline, here)
            reference = reference or reference_for(baseline, here)
        if not isinstance(first, Measured):
            # The other version, where there is one, says whether the setting fitted before.
            beside_it = None if reference != "other" or self.other is None else self._measure(self.other, 0)
            return decide_gate(
                [GateRepetition(first, beside_it)], (), reference or "stored", here, differs, is_same=is_same
            )
        changed = joined(differs) or "the baseline's device is unknown"
        if reference == "stored" and not is_same:
            return not_comparable(f"What was measured before is no measure here: {changed}.", "stored", differs, here)
        has_script = baseline is not None and baseline.script is not None
        if reference is None or (reference == "script" and not has_script):
            reason = (
                f"Nothing to compare with: {changed}, and the baseline has no repetitions of the unmodified script."
            )
            return not_comparable(reason, "script", differs, here)
        beside = {"stored": None, "script": self.script, "other": self.other}[reference]
        repetitions: list[GateRepetition] = []
        gauges: tuple[Gauge, ...] = ()
        most_repetitions, failed = self.setting.spec.finalist_repetitions, False
        while one := self._repetition(len(repetitions), beside, None if repetitions else first):
            repetitions.append(one)
            failed = not all(isinstance(outcome, Measured) for outcome in (one.setting, one.reference or one.setting))
            repetition_s = (time.monotonic() - began) / len(repetitions)
            is_over = failed or len(repetitions) == most_repetitions or not self._budget.holds(repetition_s)
            gauges = weigh(
                repetitions, baseline, reference, self.allowed, most_repetitions=most_repetitions, is_over=is_over
            )
            if is_over or (is_told(gauges) and len(repetitions) >= least_repetitions):
                break
        if not repetitions:
            return self._cut_off(reference)
        if self.interruption.finish.is_set() and not (failed or is_told(gauges)):
            return None
        return decide_gate(repetitions, gauges, reference, self._environment, differs, is_same=is_same)

    def _cut_off(self, reference: Reference | None) -> Gate | None:
        """Return the answer where not even one repetition was measured; None after Ctrl-C."""
        if self.interruption.finish.is_set():
            return None
        reason = "Nothing was measured: --time-budget was over before the first run was."
        return not_comparable(reason, reference or "stored", (), self._environment)

    def _repetition(self, number: int, beside: Entrant | None, setting: Outcome | None) -> GateRepetition | None:
        """Measure everybody once, in random order, but for a setting that was measured already."""
        entrants = [self.setting] if beside is None else [self.setting, beside]
        found: dict[str, Outcome] = {} if setting is None else {_SETTING: setting}
        for entrant in order_of_repetition(entrants, number, self.setting.spec.seed):
            if entrant.name in found:
                continue
            outcome = self._measure(entrant, number)
            if outcome is None:
                return None
            found[entrant.name] = outcome
        return GateRepetition(found[_SETTING], None if beside is None else found[beside.name])

    def _measure(self, entrant: Entrant, number: int) -> Outcome | None:
        if self.interruption.finish.is_set():
            return None
        spec = entrant.spec
        request = repetition_request(
            spec,
            entrant.configuration,
            batch_control=self.batch_control,
            accumulation_control=self.accumulation_control,
            measuring=spec.measuring.paced(self.setting.spec.time_budget_s),
        )
        result = self._run(entrant, number, request, f"repetition-{number + 1}")
        (outcome,) = result.outcomes
        if outcome is None or self.interruption.explains(outcome):
            return None
        if entrant is self.setting:
            self._environment = result.environment or self._environment
        self.told(entrant.name, number, outcome)
        return outcome

    def _run(self, entrant: Entrant, number: int, request: Request, name: str) -> RunResult:
        self.told(entrant.name, number, None)
        cancel = RunCancel(self.interruption.cancel, self._budget.latest_end)
        return run_first(self.launcher, entrant.spec, request, self.runs / f"{name}-{entrant.name}", cancel)
