"""Lines that stay: what is searched, what the script comes to as it stands, and how a trial failed."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from ...records.engines import ENGINES
from ...records.figures import format_measured
from ...records.objective import Objective
from ...records.outcome import Measured, Outcome
from ...records.printable import first_line
from ...records.study import StudySpec
from ...records.units import format_bytes
from ...records.words import joined
from ...search.space import Space
from ...verdict.aim import Aim


def told_space(space: Space) -> str:
    """Return what may be tried, in words."""
    sizes, kinds = space.batch_sizes, len(space.counts)
    parts = [f"{len(sizes)} batch sizes ({sizes[0]} to {sizes[-1]})"] if len(sizes) > 1 else []
    parts += [f"{kinds} kind{'' if kinds == 1 else 's'} of plans"] if kinds else []
    parts += space.choices
    if len(sizes) > 1:
        return joined(parts)
    target = ENGINES[space.engine].target
    at = f"at batch size {sizes[0]}" if sizes else f"at the {target}'s own batch size"
    return f"{joined(parts) or f'nothing but the {target}'} {at}"


def print_baseline(console: Console, baseline: Outcome, aim: Aim, spec: StudySpec) -> None:
    """Print what the script comes to as it stands, and what is looked for."""
    if not isinstance(baseline, Measured):
        return
    measurement = baseline.measurement
    limit = format_bytes(aim.run_limit_bytes)
    console.print(Text.assemble(("\nBaseline  ", "bold"), f"{format_measured(measurement)} (limit {limit})"))
    if spec.objective != Objective():
        console.print(Text.assemble(("Looking for  ", "bold"), str(spec.objective)))
    asked = {"--memory-limit": spec.memory_limit_bytes, "--target-memory": spec.objective.target_memory_bytes}
    for option, size in asked.items():
        if size is not None and size > aim.run_limit_bytes:
            console.print(Text(f"note: {option} {format_bytes(size)} is more than there is: {limit}", style="yellow"))
    for note in measurement.notes:
        console.print(Text(f"note: {note}", style="yellow"))
    if measurement.nonfinite_loss:
        console.print(
            Text(
                "The baseline's loss is NaN or infinite: lower the learning rate, or look at the data, first.",
                style="red",
            )
        )


def told_outcome(outcome: Outcome) -> str:
    """Return what a run came to: its figures, or its failure."""
    return format_measured(outcome.measurement) if isinstance(outcome, Measured) else told_failure(outcome)


def told_failure(outcome: Outcome) -> str:
    """A failure: what kind, and its cause."""
    assert not isinstance(outcome, Measured)
    kind, cause = outcome.kind.replace("_", " "), first_line(outcome.cause)
    return cause if cause.startswith(kind) else f"{kind}: {cause}"
