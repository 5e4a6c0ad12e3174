"""The proof of a script's own checkpointing: which runs it takes, what they show, and how it is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.launch.port import RunResult
from autotune.records.audit import Audit, AuditedRegion, Counted, RegionProof
from autotune.records.codec import dumps, loads
from autotune.records.outcome import Outcome, OutOfMemory
from autotune.records.proof import GroupDifference, ValueGroup
from autotune.records.run import Compared, Verifying
from autotune.report.audit import audit_sentences
from autotune.tuning.region_proof import prove_regions

Start = Callable[[str, Verifying], RunResult]


def differs(group: ValueGroup, relative: float | None, *missing: str) -> GroupDifference:
    return GroupDifference(group, 9, 1, "head.weight", 2, relative, relative, missing)


def compared(*differences: GroupDifference, without: tuple[str, ...] = (), cut: tuple[str, ...] = ()) -> Compared:
    return Compared(3, (differences,), process=1, without_gradient=without, cut_regions=cut)


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


def answer(folder: Path, own: Compared | Outcome, *, without: Compared | Outcome | None = None) -> RegionProof:
    return prove_regions(runs(folder, without=without or compared(), **{"with": own}, again=compared())[0])


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
        (differs("gradients", 0.02), "rounding"),
        (differs("gradients", 0.03), "changed"),
        (differs("buffers", 0.5), "changed"),
        (differs("losses", None), "changed"),
        (differs("counters", 0.001), "changed"),
        (differs("random", None), "changed"),
        (differs("gradients", None, "a.weight"), "lost"),
    ],
)
def test_another_order_of_sums_is_excused_and_nothing_else(
    difference: GroupDifference, expected: str, tmp_path: Path
) -> None:
    assert answer(tmp_path, compared(difference)).answer == expected


def test_parameters_without_a_gradient_are_lost_behind_a_detached_tensor_alone(tmp_path: Path) -> None:
    """Guards models with parameters that no loss depends on, such as BERT's pooler."""
    unused = compared(without=("pooler.weight",))
    assert answer(tmp_path, unused).answer == "same"
    found = answer(tmp_path, unused, without=compared(without=("pooler.weight",), cut=("Block",)))
    assert (found.answer, found.lost, found.cut) == ("lost", ("pooler.weight",), ("Block",))
    assert answer(tmp_path, compared(), without=compared(cut=("Block",))).answer == "same"


def test_a_script_that_does_not_repeat_itself_proves_nothing(tmp_path: Path) -> None:
    different = compared(differs("gradients", 0.5))
    start, made = runs(tmp_path, without=compared(), **{"with": different}, again=different)
    found = prove_regions(start)
    assert (found.answer, found.is_wrong) == ("unknown", False)
    assert "two runs without it differ" in found.reason
    assert made["audit-again"] == Verifying(references=(str(tmp_path),), without_regions=True)


def test_a_script_that_needs_its_checkpointing_is_not_compared(tmp_path: Path) -> None:
    full = OutOfMemory("CUDA out of memory\nand more")
    found = answer(tmp_path, compared(), without=full)
    assert (found.answer, found.reason) == ("unknown", "without it the script fails: CUDA out of memory")
    assert answer(tmp_path, full).reason == "with the same seeds the script fails: CUDA out of memory"


def sentences(proof: RegionProof) -> tuple[str, ...]:
    region = AuditedRegion("Block", "non_reentrant", 12, 0, 20 << 30, 18 << 30)
    audit = Audit(Counted(3 << 30, 5 << 30, 29 << 30, step_s=1.0, recompute_s=0.2), regions=(region,))
    return audit_sentences(replace(audit, proof=proof))


def test_a_lost_gradient_is_the_first_sentence() -> None:
    lost = RegionProof("lost", 3, lost=("a", "b", "c", "d"))
    assert sentences(lost)[0] == (
        "Your checkpointing loses gradients: 4 trained parameters get none (a, b, c and others). Without it they get "
        "one."
    )
    cut = RegionProof("lost", 3, lost=("a",), cut=("Block",))
    assert sentences(cut)[0] == (
        "Your checkpointing loses gradients: a trained parameter gets none (a). Block is called with a detached tensor."
    )


def test_what_changes_is_told_with_its_size_and_a_cause() -> None:
    changed = RegionProof("changed", 3, (differs("counters", 1.0), differs("losses", None)))
    first, *others = sentences(changed)
    assert first == (
        "Your checkpointing changes what is computed: counters by up to 100 % of the largest (head.weight, step 2) and "
        "losses (head.weight, step 2)."
    )
    assert others[0].startswith("A buffer may be updated again")
    drawn = sentences(RegionProof("changed", 3, (differs("random", None),)))
    assert "see `preserve_rng_state`" in drawn[1]


def test_what_is_the_same_comes_last() -> None:
    *_, last = sentences(RegionProof("same", 3))
    assert last == (
        "It changes nothing that is computed: losses, gradients, buffers and random numbers have the same bits without "
        "it, in 3 steps from the same seeds."
    )
    *_, last = sentences(RegionProof("unknown", reason="two runs differ"))
    assert last == "Whether it changes what is computed is not known: two runs differ."
    *_, last = sentences(RegionProof("rounding", 3, (differs("gradients", 0.01),)))
    assert last == "It changes no more than rounding: gradients by up to 1 % of the largest (head.weight, step 2)."


def test_the_proof_survives_being_written() -> None:
    proof = RegionProof("lost", 3, (differs("gradients", None, "a"),), ("a",), ("Block",))
    assert loads(RegionProof, dumps(proof)) == proof
