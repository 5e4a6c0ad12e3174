"""The proof of a script's own checkpointing and offloading: the same steps with it and without, compared."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from ..launch.port import RunResult
from ..records.audit import RegionProof
from ..records.outcome import Measured
from ..records.printable import first_line
from ..records.proof import Differences, widest
from ..records.run import Verifying

# Of the largest value of a group: another order of sums rounds so in half precision. A mask drawn anew is far above.
_ROUNDING = 0.02


def prove_regions(start: Callable[[str, Verifying], RunResult]) -> RegionProof:
    """Compare the script's first steps with its own regions and without.

    ``start`` makes a run in mode ``verify``, from its folder's name and the rules.
    """
    without = start("audit-without", Verifying(is_reference=True, without_regions=True))
    try:
        if reason := _failure(without):
            return RegionProof("unknown", reason=f"without it the script fails: {reason}")
        references = (str(without.directory),)
        own = start("audit-with", Verifying(references=references))
        if reason := _failure(own):
            return RegionProof("unknown", reason=f"with the same seeds the script fails: {reason}")
        differences, steps = _differences(own), min(one.steps for one in own.compared)
        lost = {name for one in differences if one.group == "gradients" for name in one.missing}
        cut = {name for one in without.compared for name in one.cut_regions}
        if cut:
            lost |= {name for one in own.compared for name in one.without_gradient}
        if lost:
            return RegionProof("lost", steps, differences, tuple(sorted(lost)), tuple(sorted(cut)))
        if all(not one.differing for one in differences):
            return RegionProof("same", steps, differences)
        again = start("audit-again", Verifying(references=references, without_regions=True))
        if _failure(again) or any(one.differing for one in _differences(again)):
            reason = "two runs without it differ themselves, with the same seeds"
            return RegionProof("unknown", steps, differences, reason=reason)
    finally:
        for path in without.directory.glob("values-*"):
            with suppress(OSError):
                path.unlink()
    rounds = all(
        one.group not in ("counters", "random") and one.relative is not None and one.relative <= _ROUNDING
        for one in differences
        if one.differing
    )
    return RegionProof("rounding" if rounds else "changed", steps, differences)


def _differences(run: RunResult) -> Differences:
    return widest(one.differences[0] for one in run.compared)


def _failure(run: RunResult) -> str:
    if run.compared:
        return ""
    failed = run.outcomes[0] or run.failure
    return "it ended without a word" if failed is None or isinstance(failed, Measured) else first_line(failed.cause)
