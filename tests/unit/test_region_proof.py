"""The proof of a script's own checkpointing: which runs it takes, what they show, and how it is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import RunError
from autotune.launch.port import RunResult
from autotune.records.audit import Audit, AuditedRegion, Counted, RegionProof
from autotune.records.codec import dumps, loads
from autotune.records.outcome import Outcome, OutOfMemory
from autotune.records.proof import GroupDifference, ValueGroup
from autotune.records.run import Compared, Verifying
from autotune.report.audit import audit_sentences
from autotune.tuning.region_proof import prove_regions

Start = Callable[[str, Verifying], RunResult]


def differs(group: ValueGroup, relative: float | None) -> GroupDifference:
    return GroupDifference(group, 9, 1, "head.weight", 2, relative, relative)


def compared(*differences: GroupDifference, steps: int = 3, off: int = 4, **found: Any) -> Compared:
    seen = GroupDifference("gradients", 9)
    return Compared(steps, ((seen, *differences),), process=1, regions_off=off, **found)


def runs(folder: Path, **found: Compared | Outcome) -> tuple[Start, dict[str, Verifying]]:
    """Return what makes runs, each of which has found what is given by its name, and the rules of those made."""
    made: dict[str, Verifying] = {}
    (folder / "values-0-1.pt").touch()

    def start(name: str, rules: Verifying) -> RunResult:
        made[name] = rules
        one = found[name.removeprefix("audit-")]
        if isinstance(one, Compared):
            return RunResult((None,), None, None, folder, compared=(one,))
        return RunResult((one,), None, None, folder)

    return start, made


def answer(folder: Path, own: Compared | Outcome, **others: Compared | Outcome) -> RegionProof:
    nudged = compared(differs("gradients", 0.001))
    found = {"without": compared(), "again": compared(), "nudged": nudged, "with": own, **others}
    return prove_regions(runs(folder, **found)[0])


def test_two_runs_do_where_they_are_the_same(tmp_path: Path) -> None:
    start, made = runs(tmp_path, without=compared(), **{"with": compared(GroupDifference("losses", 3))})

    assert prove_regions(start).answer == "same"
    assert made == {
        "audit-without": Verifying(is_reference=True, without_regions=True),
        "audit-with": Verifying(references=(str(tmp_path),)),
    }
    assert not list(tmp_path.glob("values-*")), "values take space"


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        (differs("gradients", 0.003), "rounding"),
        (differs("gradients", 0.0031), "changed"),
        (differs("buffers", 0.5), "changed"),
        (differs("losses", None), "changed"),
        (differs("counters", 0.0001), "changed"),
        (differs("random", None), "same"),
    ],
)
def test_what_the_last_bit_does_is_excused_and_nothing_else(
    difference: GroupDifference, expected: str, tmp_path: Path
) -> None:
    assert answer(tmp_path, compared(difference)).answer == expected


def test_gradients_that_are_there_without_regions_are_lost(tmp_path: Path) -> None:
    found = answer(tmp_path, compared(differs("gradients", None), lost_gradients=("a.weight",)))
    assert (found.answer, found.lost, found.cut) == ("lost", ("a.weight",), {})


def test_gradients_behind_a_cut_are_lost_though_nothing_differs(tmp_path: Path) -> None:
    cut = {"Block": ("a.weight",), "Other": ()}
    found = answer(tmp_path, compared(), without=compared(cut=cut))
    assert (found.answer, found.lost, found.cut) == ("lost", (), {"Block": ("a.weight",)})
    assert answer(tmp_path, compared(), without=compared(cut={"Other": ()})).answer == "same"


def test_a_script_that_does_not_repeat_itself_proves_nothing(tmp_path: Path) -> None:
    """Guards layers that are dropped by a random generator of the script's own: they have no gradient by chance."""
    different = compared(differs("gradients", None), lost_gradients=("a.weight",))
    found = answer(tmp_path, different, again=different)
    assert (found.answer, found.is_wrong) == ("unknown", False)
    assert "two runs without it differ" in found.reason


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        ({"without": OutOfMemory("CUDA out of memory.\nand more")}, "without it the script fails: CUDA out of memory"),
        ({"with": OutOfMemory("CUDA out of memory")}, "with the same seeds the script fails: CUDA out of memory"),
        ({"without": compared(off=0)}, "none of torch's checkpoints and hooks ran in the first steps"),
        ({"with": Compared(3, ((),), process=1)}, "no gradients were seen"),
        ({"with": compared(steps=1)}, "the script makes another number of steps without it"),
        (
            {"with": compared(differs("losses", 0.1)), "again": OutOfMemory("full")},
            "without it the script fails once in two runs: full",
        ),
    ],
)
def test_what_cannot_be_compared_comes_with_the_reason(
    runs: dict[str, Compared | Outcome], reason: str, tmp_path: Path
) -> None:
    found = answer(tmp_path, runs.pop("with", compared()), **runs)
    assert (found.answer, found.reason) == ("unknown", reason)


def test_a_run_that_cannot_be_made_leaves_the_rest_of_the_audit(tmp_path: Path) -> None:
    def full(*_: Any) -> RunResult:
        raise RunError("no space is left", hint="make room")

    assert prove_regions(full) == RegionProof("unknown", reason="no space is left")


def sentences(proof: RegionProof) -> tuple[str, ...]:
    region = AuditedRegion("Block", "non_reentrant", 12, 0, 20 << 30, 18 << 30)
    audit = Audit(Counted(3 << 30, 5 << 30, 29 << 30, step_s=1.0, recompute_s=0.2), regions=(region,))
    return audit_sentences(replace(audit, proof=proof))


def test_a_lost_gradient_is_the_first_sentence() -> None:
    lost, cut, *_ = sentences(RegionProof("lost", 3, lost=("a", "b", "c", "d"), cut={"Block": ("e",)}))
    begin = "Your checkpointing loses gradients: "
    assert lost == f"{begin}4 trained parameters get none (a, b, c and others). Without it there are some."
    assert cut == f"{begin}a trained parameter gets none (e). The graph is cut where Block begins, or in it."


def test_what_changes_is_told_with_its_size_and_a_cause() -> None:
    differences = (differs("counters", 1.0), differs("losses", None), differs("random", None))
    changed, cause, drawn, *_ = sentences(RegionProof("changed", 3, differences))
    by_how_much = "counters by up to 100 % of the largest value (head.weight, step 2) and losses (head.weight, step 2)"
    assert changed == f"Your checkpointing changes what is computed: {by_how_much}."
    assert cause == "A buffer may be updated again as its region is computed again."
    assert drawn.startswith("It leaves the random generator head.weight in another state.")


SAME = "in 3 steps from the same seeds, losses, gradients and buffers have the same bits without it"
ROUNDING = "gradients by up to 0.0001 % of the largest value (head.weight, step 2)"


@pytest.mark.parametrize(
    ("proof", "told"),
    [
        (RegionProof("same", 3), f"Your checkpointing changes nothing that is computed: {SAME}."),
        (
            RegionProof("unknown", reason="two runs differ"),
            "Whether your checkpointing changes what is computed is not known: two runs differ.",
        ),
        (
            RegionProof("rounding", 3, (differs("gradients", 1e-6),)),
            f"Your checkpointing changes no more than rounding: {ROUNDING}.",
        ),
    ],
)
def test_what_is_the_same_comes_last(proof: RegionProof, told: str) -> None:
    assert sentences(proof)[-1] == told


def test_the_proof_survives_being_written() -> None:
    proof = RegionProof("lost", 3, (differs("gradients", None),), ("a",), {"Block": ("b", "c")})
    assert loads(RegionProof, dumps(proof)) == proof
