"""The configuration under way, applied by engine and choices, and the check of what ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from ..records.arrivals import Arrived, why_ineffective
from ..records.outcome import Fallback, InvalidPlan, NoEffect
from .choices.made import MadeChoices
from .exported_file import WrittenCode
from .process import TrainingProcess
from .registry import engine_of


class AppliedConfiguration:
    """Applies the configurations of a request, one after the other; ``engine`` is None where the script runs alone."""

    def __init__(self, process: TrainingProcess) -> None:
        self._process = process
        self.engine = engine_of(process.request)
        if self.engine is not None and not process.request.kernel_search:
            self.engine.leave_out_search = process.leave_out_search
        self.choices = MadeChoices(process.request.configurations[0], process.note)
        self._written = WrittenCode()

    @property
    def changes_calls(self) -> bool:
        """Return whether something else runs in the place of what the script calls."""
        return (self.engine is not None and self.engine.active) or bool(self.choices)

    def install(self) -> None:
        """Apply the first configuration; called once per process, when the script has imported torch."""
        if self.engine is not None:
            self.engine.use(self._process.configuration)
        self.choices.install()

    def use_next(self) -> str | None:
        """Go on with the next configuration at this step boundary; the engine's reason if it cannot."""
        self._process.index += 1
        self._process.has_result = False
        return None if self.engine is None else self.engine.use(self._process.configuration)

    def around(self, root: nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
        """Give what is called in the place of a root's training call."""
        self._written.before_call(root)
        return self.choices.around(root, call)

    def problem(self) -> Fallback | InvalidPlan | None:
        """Return why what ran is not what was asked for; None if it is. To be asked after a training step."""
        problem = self.engine.problem() if self.engine is not None else None
        return problem or self._written.problem() or self.choices.problem()

    def occurrences(self) -> dict[str, int]:
        """Count the occurrences that each plan recomputes, as in ``Fingerprint``; to be asked after a training step."""
        return {} if self.engine is None else self.engine.recomputed()

    def batch_problem(
        self, observed: int | None, micro_batches: float, arrived: tuple[Arrived, ...] = ()
    ) -> NoEffect | None:
        """Return how the usual batch or step differs from what was asked for; an epoch's last may be smaller.

        ``arrived`` is what the batches have brought to the models.
        """
        return (
            self.batch_size_problem(observed)
            or self._arrival_problem(arrived)
            or self.accumulation_problem(micro_batches)
        )

    def batch_size_problem(self, observed: int | None) -> NoEffect | None:
        """Return how batches differ from the size that was asked for."""
        wanted = self._process.request.batch_size
        if wanted is None or observed is None or observed == wanted:
            return None
        cause = f"batch size {wanted} was asked for, but the batches of the training steps have {observed} samples"
        return NoEffect(cause=cause, advice="`autotune discover SCRIPT` says how the batch size is set.")

    def _arrival_problem(self, arrived: tuple[Arrived, ...]) -> NoEffect | None:
        request = self._process.request
        if request.batch_control is None or request.batch_control.arrivals is None or request.batch_size is None:
            return None
        own = request.batch_control.arrivals
        found = why_ineffective(own, arrived, request.batch_size)
        if not found:
            return None
        rows = max(own.batch_size, next((one.shape[0] for one in own.arrived if one.shape), 0))
        advice = request.batch_control.advice_to_pass(rows)
        return NoEffect(
            cause=f"batch size {request.batch_size} was asked for, but a batch {found}",
            advice=f"The script makes its batches by another number. {advice}".rstrip(),
        )

    def accumulation_problem(self, micro_batches: float) -> NoEffect | None:
        """Return how steps differ from the number of batches that was asked for."""
        accumulation = self._process.request.accumulation
        if accumulation is not None and micro_batches != accumulation:
            taken = f"{micro_batches:.3g} micro-batch{'' if micro_batches == 1 else 'es'}"
            return NoEffect(
                cause=f"accumulation {accumulation} was asked for, but an optimizer step takes {taken}",
                advice="`autotune discover SCRIPT` says how the accumulation is set; without --keep-global-batch it "
                "stays what the script has.",
            )
        return None
