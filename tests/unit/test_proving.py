"""A proof out of two to four runs: what is compared with what, and what may be said of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.launch.port import RunResult
from autotune.records.codec import dumps, loads
from autotune.records.configuration import Configuration, SizedPlans
from autotune.records.outcome import Died, OutOfMemory
from autotune.records.plan import Plan
from autotune.records.proof import Differences, GroupDifference, Proof, ValueGroup, difference_of, widest
from autotune.records.run import Compared, Verifying
from autotune.report.tables import proof_table
from autotune.tuning.proving import prove

PLANNED = Configuration("aot", (Plan("gelu+", 1, -1),), batch_size=8)
SAME = widest([tuple(GroupDifference(group, 4) for group in ("losses", "gradients", "buffers", "counters", "random"))])


def other(group: ValueGroup = "gradients", relative: float | None = 1e-3) -> Differences:
    absolute = None if relative is None else relative / 2
    return widest([SAME, (GroupDifference(group, 0, 1, "a name", 2, absolute, relative),)])


class Runs:
    """Gives runs their differences by the name of their folder, and remembers what was asked."""

    def __init__(self, folder: Path, *, ranks: int = 1, **differences: tuple[Differences, ...]) -> None:
        self._folder = folder
        self._ranks = ranks
        self._differences = differences
        self.asked: list[tuple[str, Configuration, Verifying]] = []
        self.steps: Callable[[str], int] = lambda name: 3

    def __call__(self, name: str, configuration: Configuration, verifying: Verifying) -> RunResult:
        self.asked.append((name, configuration, verifying))
        directory = self._folder / name
        directory.mkdir()
        if verifying.is_reference:
            (directory / "values-0-1.pt").touch()
        given = self._differences.get(name.removeprefix("proof-").replace("-", "_"))
        differences = given if given is not None else (SAME,) * len(verifying.references)
        # Where processes differ, the last one does.
        same = (SAME,) * len(differences)
        compared = tuple(
            Compared(self.steps(name), differences if rank == self._ranks - 1 else same, process=1 + rank, rank=rank)
            for rank in range(self._ranks)
        )
        return RunResult((None,), None, None, directory, compared=compared)


def proven(start: Callable[..., RunResult], configuration: Configuration = PLANNED) -> Proof:
    proof = prove(configuration, start, script_batch_size=None, max_error=0.05)
    assert proof is not None
    assert loads(Proof, dumps(proof)) == proof
    return proof


def asked(runs: Runs) -> list[tuple[str, str, tuple[Plan, ...], int | None]]:
    return [(name, one.engine, one.plans, one.batch_size) for name, one, _ in runs.asked]


def test_a_setting_that_repeats_the_script_to_the_bit_needs_nothing_else(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    proof = proven(runs)
    assert asked(runs) == [("proof-script", "eager", (), 8), ("proof-setting", "aot", PLANNED.plans, 8)]
    assert (proof.answer, proof.equal_to_script, proof.random_equal) == ("exact", True, True)
    assert (proof.equal_to_engine, proof.to_engine) == (None, ()), "nobody looked"
    assert proof.statement == (
        "In the first 3 steps at batch 8, with the same seeds, losses, gradients and buffers have the same bits as in "
        "the unmodified script. After each step the random generators are in the script's state."
    )
    assert not list(tmp_path.rglob("values-*")), "they may be large"
    assert [row[2:] for row in proof_table(proof).rows if row[0] == "losses"] == [
        ("not compared", "equal", "not compared")
    ]


@pytest.mark.parametrize("group", ["losses", "gradients", "buffers", "counters", "random"])
def test_one_that_does_not_is_compared_with_its_engine_and_the_script_with_itself(
    group: ValueGroup, tmp_path: Path
) -> None:
    runs = Runs(tmp_path, setting=(other(group),))
    proof = proven(runs)
    assert asked(runs) == [
        ("proof-script", "eager", (), 8),
        ("proof-setting", "aot", PLANNED.plans, 8),
        ("proof-engine", "aot", (), 8),
        ("proof-script-again", "eager", (), 8),
    ]
    references = [[Path(one).name for one in rules.references] for _, _, rules in runs.asked]
    assert references[:3] == [[], ["proof-script"], ["proof-script", "proof-setting"]]
    assert references[3][0] == "proof-script"
    assert proof.equal_to_engine
    assert not list(tmp_path.rglob("values-*")), "they may be large"


def test_what_differs_from_its_own_engine_is_refuted(tmp_path: Path) -> None:
    proof = proven(Runs(tmp_path, setting=(other(),), engine=(SAME, other())))
    assert (proof.answer, proof.equal_to_engine) == ("inexact", False)
    assert "gradients by up to 1.0e-03 of the largest (a name, step 2)" in proof.statement


def test_the_engine_without_plans_has_none_for_smaller_batches_either(tmp_path: Path) -> None:
    runs = Runs(tmp_path, setting=(other(),), engine=(SAME, other()))
    proven(runs, replace(PLANNED, sized=(SizedPlans(((4, 9),), PLANNED.plans),)))
    sized = {name: bool(configuration.sized) for name, configuration, _ in runs.asked}
    assert sized["proof-setting"]
    assert not any(has for name, has in sized.items() if name != "proof-setting")
    assert len(sized) > 2


def test_plans_are_not_blamed_for_an_engine_that_does_not_repeat_itself(tmp_path: Path) -> None:
    proof = proven(Runs(tmp_path, setting=(other(),), engine=(SAME, other()), engine_again=(SAME, SAME, other())))
    assert proof.answer == "unknown"
    assert proof.statement.startswith(
        "Equivalence unknown: two runs of the engine without plans differ themselves: gradients"
    )


def test_a_difference_of_the_engine_itself_is_said_and_is_no_failure(tmp_path: Path) -> None:
    proof = proven(Runs(tmp_path, setting=(other(),), engine=(other(), SAME)))
    assert (proof.answer, proof.equal_to_engine, proof.equal_to_script) == ("exact", True, False)
    assert proof.statement.count("gradients by up to 1.0e-03 of the largest (a name, step 2)") == 1
    assert "with and without plans" in proof.statement


def test_each_of_several_processes_is_compared_and_the_one_that_differs_is_named(tmp_path: Path) -> None:
    runs = Runs(tmp_path, ranks=2, setting=(other(),), engine=(SAME, other()))
    proof = proven(runs)
    assert (proof.answer, proof.num_processes) == ("inexact", 2)
    assert proof.statement.startswith(
        "In the first 3 steps of each of 2 processes at batch 8, with the same seeds, losses, gradients and buffers "
        "differ from those of the same engine without plans: gradients by up to 1.0e-03 of the largest "
        "(a name, step 2, rank 1)."
    )
    assert difference_of(proof.to_script, "losses").compared == 8


def test_a_process_whose_gradients_were_not_seen_proves_nothing(tmp_path: Path) -> None:
    none = widest([(GroupDifference("losses", 3),)])
    proof = proven(Runs(tmp_path, ranks=2, setting=(none,)))
    assert proof.statement == "Equivalence unknown: no gradient was seen in rank 1."


def test_whole_numbers_that_are_not_the_scripts_are_no_rounding(tmp_path: Path) -> None:
    proof = proven(Runs(tmp_path, setting=(other("counters"),), engine=(other("counters"), SAME)))
    assert (proof.answer, proof.equal_to_engine) == ("inexact", True)
    assert "counters differ from the script's" in proof.statement


@pytest.mark.parametrize("group", ["losses", "gradients", "buffers", "counters"])
def test_a_script_that_does_not_repeat_itself_proves_nothing(group: ValueGroup, tmp_path: Path) -> None:
    proof = proven(Runs(tmp_path, setting=(other(),), script_again=(other(group),)))
    assert proof.answer == "unknown"
    assert proof.statement.startswith(
        "Equivalence unknown: two runs of the script itself differ, with the same seeds: "
    )


def test_the_state_of_the_generators_is_told_beside_what_is_computed(tmp_path: Path) -> None:
    proof = proven(Runs(tmp_path, setting=(other("random", None),)))
    assert (proof.answer, proof.random_equal) == ("exact", False)
    assert "The random generators (a name) are not always in the script's state" in proof.statement
    (tmp_path / "again").mkdir()
    untold = proven(Runs(tmp_path / "again", setting=(other("random", None),), script_again=(other("random", None),)))
    assert (untold.answer, "these were not compared" in untold.statement) == ("exact", True)


def test_runs_of_different_lengths_prove_nothing(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.steps = lambda name: 2 if name == "proof-setting" else 3
    assert proven(runs).statement == "Equivalence unknown: the runs made 2, 3 steps."


def test_without_a_gradient_there_is_no_proof(tmp_path: Path) -> None:
    none = widest([(GroupDifference("losses", 3),)])
    assert proven(Runs(tmp_path, setting=(none,))).statement == "Equivalence unknown: no gradient was seen."


def test_a_smaller_batch_is_tried_only_where_memory_is_short(tmp_path: Path) -> None:
    asked = []

    def start(name: str, configuration: Configuration, verifying: Verifying) -> RunResult:
        asked.append(configuration.batch_size)
        outcome = OutOfMemory(cause="too large") if len(asked) == 1 else Died(cause="killed")
        return RunResult((outcome,), None, None, tmp_path)

    proof = proven(start)
    assert asked == [8, None]
    assert (proof.answer, proof.statement) == (
        "unknown",
        "Equivalence unknown: the script failed in the runs for it: killed",
    )


@pytest.mark.parametrize("difference", [SAME, other()])
def test_sizes_that_a_sample_has_are_said_to_be_a_samples(difference: Differences, tmp_path: Path) -> None:
    runs = Runs(tmp_path, setting=(difference,), engine=(difference, SAME))

    def sampled(*asked: Any) -> RunResult:
        result = runs(*asked)
        return replace(result, compared=tuple(replace(one, sampled_one_in=7) for one in result.compared))

    proof = proven(sampled)
    assert proof.sampled_one_in == 7
    assert ("differences were sized on one value in 7." in proof.statement) is (difference is not SAME)


def test_an_interrupted_proof_is_none(tmp_path: Path) -> None:
    def start(name: str, configuration: Configuration, verifying: Verifying) -> RunResult:
        return RunResult((None,), None, None, tmp_path)

    assert prove(PLANNED, start, script_batch_size=None, max_error=0.05) is None


def test_the_widest_difference_stands_for_all() -> None:
    many = [other(relative=1e-3), other(relative=1e-2), SAME]
    worst = difference_of(widest(many), "gradients")
    assert (worst.compared, worst.differing, worst.relative) == (12, 2, 1e-2)
    assert difference_of(widest([*many, other(relative=None)]), "gradients").relative is None


def test_the_table_shows_each_kind_of_value_against_each_run(tmp_path: Path) -> None:
    table = proof_table(proven(Runs(tmp_path, setting=(other(),), engine=(other(), SAME))))
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["losses"] == ("4", "equal", "equal", "equal")
    difference = "1 differ, by up to 5.0e-04 (1.0e-03 of the largest): a name, step 2"
    assert rows["gradients"] == ("4", "equal", difference, difference)


def compiled(result: RunResult) -> RunResult:
    return replace(result, compared=tuple(replace(one, is_compiled=True) for one in result.compared))


@pytest.mark.parametrize(
    ("difference", "answer"),
    [
        (other(relative=9e-4), "close"),
        (other(relative=2e-3), "inexact"),
        (other(relative=None), "inexact"),
        (other("counters", 9e-4), "inexact"),
    ],
)
def test_where_code_is_generated_rounding_is_told_from_everything_else(
    difference: Differences, answer: str, tmp_path: Path
) -> None:
    runs = Runs(tmp_path, setting=(other(),), engine=(other(), difference))
    proof = proven(lambda *asked: compiled(runs(*asked)))
    assert (proof.answer, proof.holds) == (answer, answer == "close")
    assert not proof.equal_to_engine


@pytest.mark.parametrize(
    ("plans", "by_a_bit", "answer"),
    [(0.004, 0.002, "close"), (0.004, 0.001, "inexact"), (0.019, 0.5, "close"), (0.021, 0.5, "inexact")],
)
def test_a_model_that_one_bit_moves_as_much_is_allowed_more_and_never_more_than_rounding_was(
    plans: float, by_a_bit: float, answer: str, tmp_path: Path
) -> None:
    """Guards plans whose code only sums in another order: in bfloat16 that is more than the bound for casts kept."""
    runs = Runs(
        tmp_path,
        setting=(other(),),
        engine=(other(), other(relative=plans)),
        engine_nudged=(SAME, SAME, other(relative=by_a_bit)),
    )
    proof = proven(lambda *asked: compiled(runs(*asked)))
    assert proof.answer == answer
    nudged = [name for name, _, rules in runs.asked if rules.is_nudged]
    assert nudged == ([] if plans > 0.02 else ["proof-engine-nudged"])
    assert ("The last bit of its parameters changed" in proof.statement) is bool(nudged)


ORTMODULE = Configuration("ortmodule", (Plan("Gelu+", 1, -1),), batch_size=8)


@pytest.mark.parametrize(("configuration", "answer"), [(PLANNED, "inexact"), (ORTMODULE, "close")])
def test_rounding_is_held_to_be_smaller_where_code_keeps_the_scripts_casts(
    configuration: Configuration, answer: str, tmp_path: Path
) -> None:
    runs = Runs(tmp_path, setting=(other(relative=0.01),), engine=(other(), other(relative=0.01)))
    assert proven(lambda *asked: compiled(runs(*asked)), configuration).answer == answer
    assert not any(rules.as_exported for _, _, rules in runs.asked), "what is refuted, or keeps none, needs no more"


@pytest.mark.parametrize("repeats_the_script", [True, False])
@pytest.mark.parametrize(
    ("exported", "answer", "says"),
    [
        (
            SAME,
            "exact",
            "Also as exported, with rounding that depends on fusion, they have the same bits as without plans.",
        ),
        (other(relative=0.04), "exact", "they differ from those without plans by rounding: gradients by up to 4.0e-02"),
        (other(relative=0.06), "inexact", "But as exported, with rounding that depends on fusion, they differ"),
        (other("counters", 1e-9), "inexact", "But as exported"),
    ],
)
def test_plans_are_held_against_the_engine_as_exported_too_where_proofs_keep_casts(
    exported: Differences, answer: str, says: str, repeats_the_script: bool, tmp_path: Path
) -> None:
    differences = {} if repeats_the_script else {"setting": (other(),), "engine": (other(), SAME)}
    runs = Runs(tmp_path, exported_engine=(SAME, SAME, SAME, exported), **differences)
    proof = proven(lambda *asked: compiled(runs(*asked)))
    before = 2 if repeats_the_script else 4
    assert [rules.as_exported for _, _, rules in runs.asked] == [False] * before + [True] * 2
    assert asked(runs)[before:] == [
        ("proof-exported", "aot", PLANNED.plans, 8),
        ("proof-exported-engine", "aot", (), 8),
    ]
    assert Path(runs.asked[-1][2].references[-1]).name == "proof-exported", "that is what it is compared with"
    assert (proof.answer, proof.exported) == (answer, exported)
    assert "the script's casts kept" in proof.statement
    assert says in proof.statement
    assert proof_table(proof).columns[-1] == "As exported, from the engine without plans"


@pytest.mark.parametrize("which", ["proof-exported", "proof-exported-engine"])
@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (OutOfMemory(cause="CUDA out of memory"), " failed in the runs for it: CUDA out of memory."),
        (None, "`autotune verify` does so."),
    ],
)
def test_a_finished_proof_stands_though_what_is_exported_could_not_be_compared(
    outcome: OutOfMemory | None, why: str, which: str, tmp_path: Path
) -> None:
    runs = Runs(tmp_path)

    def start(name: str, *what: Any) -> RunResult:
        result = compiled(runs(name, *what))
        return replace(result, outcomes=(outcome,), compared=()) if name == which else result

    (tmp_path / "whole").mkdir()
    finished = Runs(tmp_path / "whole")
    whole = proven(lambda *asked: compiled(finished(*asked)))
    proof = proven(start)
    assert proof == replace(whole, exported=(), statement=proof.statement)
    assert proof.answer == "exact"
    before, _, after = proof.statement.partition(" The exported code was not compared: ")
    assert whole.statement.startswith(before)
    assert after.endswith(why)
    assert not list(tmp_path.rglob("values-*")), "they may be large"


def test_generated_code_is_named_as_the_reason_why_an_engine_differs_from_the_script(tmp_path: Path) -> None:
    runs = Runs(tmp_path, setting=(other(),), engine=(other(), SAME))
    proof = proven(lambda *asked: compiled(runs(*asked)))
    assert (proof.answer, proof.is_compiled) == ("exact", True)
    assert "draws other dropout masks" in proof.statement


def test_where_none_is_generated_a_rounding_error_is_one_too_many(tmp_path: Path) -> None:
    proof = proven(Runs(tmp_path, setting=(other(relative=1e-9),), engine=(SAME, other(relative=1e-9))))
    assert (proof.answer, proof.holds) == ("inexact", False)


CAST = replace(PLANNED, choices=("bf16=1",))


def test_choices_are_part_of_what_plans_are_compared_with_and_not_of_the_script(tmp_path: Path) -> None:
    runs = Runs(tmp_path, setting=(other(relative=0.01),), engine=(other(relative=0.01), SAME))
    proof = proven(runs, CAST)
    assert [(one.engine, one.plans, one.choices) for _, one, _ in runs.asked] == [
        ("eager", (), ()),
        ("aot", PLANNED.plans, ("bf16=1",)),
        ("aot", (), ("bf16=1",)),
        ("eager", (), ()),
    ]
    assert (proof.answer, proof.equal_to_engine, proof.equal_to_script) == ("exact", True, False)
    assert "With bf16=1 the engine differs from the unmodified script, with and without plans" in proof.statement


def test_plans_that_compute_something_else_are_refuted_under_choices_too(tmp_path: Path) -> None:
    proof = proven(Runs(tmp_path, setting=(other(),), engine=(other(), other())), CAST)
    assert (proof.answer, proof.equal_to_engine) == ("inexact", False)


MODEL = Configuration("onnxruntime", batch_size=8)


@pytest.mark.parametrize(
    ("choice", "relative", "answer", "says"),
    [
        ("optimization=0", 0.01, "close", "from those with ONNX Runtime's defaults by rounding"),
        ("optimization=0", 0.04, "inexact", "by more than rounding"),
        ("int8=1", 0.04, "close", "from the model's own, because of int8, which --max-error 5 % allows"),
        ("int8=1", 0.06, "inexact", "by more than --max-error 5 %"),
    ],
)
def test_outputs_may_be_off_by_rounding_and_those_of_a_converted_model_by_what_was_allowed(
    tmp_path, choice, relative, answer, says
):
    same = widest([(GroupDifference("outputs", 4),)])
    off = widest([(GroupDifference("outputs", 4, 1, "y", 1, relative, relative),)])
    runs = Runs(tmp_path, setting=(off,), script_again=(same, off))

    def start(name: str, configuration: Configuration, verifying: Verifying) -> RunResult:
        return compiled(runs(name, configuration, verifying))

    proof = prove(replace(MODEL, choices=(choice,)), start, script_batch_size=None, max_error=0.05)
    assert proof is not None
    assert proof.answer == answer
    assert says in proof.statement
