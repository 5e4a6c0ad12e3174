"""The proof of a script's own checkpointing and offloading: the same steps with it and without, compared."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..errors import RunError
from ..launch.port import RunResult
from ..records.audit import RegionProof
from ..records.outcome import Measured
from ..records.printable import first_line
from ..records.proof import are_within, difference_of, differing, largest_share
from ..records.run import Verifying

# Differences may be so many times those of changing the last bit of the parameters; at least so large.
_TIMES_A_BIT, _LEAST = 3.0, 1e-5


def prove_regions(start: Callable[[str, Verifying], RunResult]) -> RegionProof:
    """Compare the script's first steps with its own regions and without.

    ``start`` makes a run in mode ``verify``, from its folder's name and the rules.

    Raises:
        InterruptionError: ``start`` was interrupted.
    """
    folders: list[Path] = []

    def run(name: str, *, without_regions: bool = True, is_nudged: bool = False) -> RunResult:
        rules = Verifying(
            references=tuple(map(str, folders)),
            is_reference=not folders,
            without_regions=without_regions,
            is_nudged=is_nudged,
        )
        result = start(f"audit-{name}", rules)
        if not folders:
            folders.append(result.directory)
        return result

    try:
        return _prove(run)
    except RunError as error:
        return RegionProof("unknown", reason=str(error))
    finally:
        for path in (each for folder in folders for each in folder.glob("values-*")):
            with suppress(OSError):
                path.unlink()


def _prove(run: Callable[..., RunResult]) -> RegionProof:
    without = run("without")
    if reason := _failure(without):
        return RegionProof("unknown", reason=f"without it the script fails: {reason}")
    if not any(one.regions_off for one in without.compared):
        return RegionProof("unknown", reason="none of torch's checkpoints and hooks ran in the first steps")
    own = run("with", without_regions=False)
    if reason := _failure(own):
        return RegionProof("unknown", reason=f"with the same seeds the script fails: {reason}")
    steps = {one.steps for result in (without, own) for one in result.compared}
    if len(steps) > 1:
        return RegionProof("unknown", reason="the script makes another number of steps without it")
    differences = own.differences(0)
    if not difference_of(differences, "gradients").compared:
        return RegionProof("unknown", reason="no gradients were seen")
    cut = {region: names for one in without.compared for region, names in one.cut.items() if names}
    proof = RegionProof("same", min(steps), differences, _lost(own), cut)
    if not differing(differences):
        return RegionProof("lost", proof.steps, differences, (), cut) if cut else proof
    again = run("again")
    if reason := _failure(again):
        return RegionProof("unknown", reason=f"without it the script fails once in two runs: {reason}")
    if differing(again.differences(0)):
        return RegionProof("unknown", reason="two runs without it differ themselves, with the same seeds")
    if proof.lost or cut:
        return RegionProof("lost", proof.steps, differences, proof.lost, cut)
    nudged = run("nudged", is_nudged=True)
    bound = max(_LEAST, _TIMES_A_BIT * largest_share(nudged.differences(0)))
    return RegionProof("rounding" if are_within(differences, bound) else "changed", proof.steps, differences)


def _lost(run: RunResult) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for one in run.compared for name in one.lost_gradients))


def _failure(run: RunResult) -> str:
    if run.compared:
        return ""
    failed = run.outcomes[0] or run.failure
    cause = "it ended without a word" if failed is None or isinstance(failed, Measured) else first_line(failed.cause)
    return cause.rstrip(".")
