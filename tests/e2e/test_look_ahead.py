"""`--look-ahead`: the largest batch of an epoch, found and followed before a script's training comes to it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.export.bundle import read_bundle
from autotune.export.stack import render_stack
from autotune.records.configuration import Configuration, SizedPlans
from autotune.records.look_ahead import SeenBatch
from autotune.records.outcome import NoTrainingStep
from autotune.records.run import Request
from autotune.records.shortage import OUT_OF_MEMORY_STATUS
from autotune.verdict.gate.baseline import read_baseline
from tests.documents import checked

from .conftest import MakeBundle
from .inside import run_inside
from .processes import QUICK, SCRIPTS, WorkerRun, in_worker, run_plain
from .told import check_told

SCRIPT = SCRIPTS / "padded.py"
LARGEST, NUMBER = 51, 75  # text 200 of 300, in batches of four


def fit(folder: Path, *options: str, card: str = "a100-40g") -> Any:
    found = run_inside("fit", SCRIPT, "--for", card, "--look-ahead", "1000", "--json", "--", *options, folder=folder)
    assert found.status == 0, found.errors
    return checked("fit-for", found.output)


def explain(folder: Path, *options: str, look_ahead: int = 1000) -> Any:
    command = ("explain", SCRIPT, "--for", "a100-40g", "--look-ahead", str(look_ahead), "--json", "--", *options)
    found = run_inside(*command, folder=folder)
    assert found.status == 0, found.errors
    return checked("explain", found.output)


@pytest.mark.parametrize("options", [(), ("--accumulate", "4"), ("--workers", "2")], ids=["plain", "parts", "workers"])
def test_the_answer_is_for_the_largest_batch_of_the_epoch(options: tuple[str, ...], tmp_path: Path) -> None:
    found = fit(tmp_path, "--own-batches", *options)
    ahead, (card,) = found["ahead"], found["fits"]
    assert len(ahead["elements"]) == NUMBER
    assert ahead["is_whole"]
    assert (ahead["largest"]["number"], ahead["largest"]["shapes"]) == (LARGEST, {"ids": [4, 3000]})
    last = card["batches"][-1]
    assert last["batch"] == ahead["largest"]
    assert last["process_bytes"] == card["plain"]["own"]["roomy_bytes"]
    numbers = [one["batch"]["number"] for one in card["batches"]]
    assert numbers == ([2, 7, LARGEST] if "--accumulate" in options else [1, 2, 5, 7, LARGEST])
    assert found["sentences"][1] == (
        f"Of the {NUMBER} batches of an epoch, batch {LARGEST} needs the most: ids 4x3000. The smallest has ids 4x119."
    )


def test_batches_on_the_gpu_are_read_ahead_and_allocated_as_the_script_comes_to_them(tmp_path: Path) -> None:
    """Guards graphs whose features lie on the GPU: a neighbour sampler picks those of a batch there."""
    on_gpu, moved = (explain(tmp_path, *options) for options in (("--on-gpu",), ()))
    assert on_gpu["ahead"]["elements"] == [number + 2**20 for number in moved["ahead"]["elements"]]
    assert on_gpu["ahead"]["largest"]["number"] == LARGEST
    assert on_gpu["peak_bytes"] == pytest.approx(moved["peak_bytes"] + 4 * 2**20, abs=2**19)


def test_a_script_that_sets_a_seed_has_the_same_batches_in_training(tmp_path: Path) -> None:
    """Guards the numbers of batches: the weights are drawn before the data set is shuffled."""
    options = ("--shuffle", "--longest", "300")
    plain = run_plain(SCRIPT, *options, "--device", "cpu", "--print", "--steps", str(NUMBER), folder=tmp_path)
    lengths = [int(line.split("x")[1]) for line in plain.output.decode().splitlines() if line.startswith("ids")]
    found = explain(tmp_path, *options)["ahead"]
    assert found["elements"] == [4 * length for length in lengths]
    assert found["largest"]["number"] == 1 + lengths.index(300) != LARGEST


def test_the_peak_is_that_of_a_script_that_comes_to_this_batch_at_once(tmp_path: Path) -> None:
    found = fit(tmp_path, "--own-batches")
    (tmp_path / "train.py").write_text(SCRIPT.read_text().replace("lengths[200]", "lengths[8]"))
    run = run_inside("explain", "train.py", "--for", "a100-40g", "--json", folder=tmp_path)
    assert run.status == 0, run.errors
    (card,) = found["fits"]
    assert card["batches"][-1]["tensor_bytes"] == checked("explain", run.output)["peak_bytes"]


@pytest.mark.parametrize(
    ("options", "look_ahead", "told"),
    [
        (
            ("--broken-at", "90"),
            1000,
            "Later batches were not read: batch 23 raises ValueError: the file is broken.",
        ),
        (("--endless",), 90, "Later batches were not read: 90 were asked for."),
        (("--of-one-length",), 1000, "All of the 75 batches of an epoch are of one size."),
        (("--loader-per-step",), 1000, "Note: no batch was read ahead: no DataLoader feeds the model"),
        (("--without-loader",), 1000, "Note: no batch was read ahead: no DataLoader feeds the model"),
        ((), 0, "Its batches differ in size: with --look-ahead 1000, the answer is for all of an epoch."),
    ],
    ids=["broken", "endless", "of one length", "loader per step", "without loader", "not asked"],
)
def test_what_was_not_read_is_told(options: tuple[str, ...], look_ahead: int, told: str, tmp_path: Path) -> None:
    found = explain(tmp_path, *options, look_ahead=look_ahead)
    assert any(one.startswith(told) for one in found["sentences"]), found["sentences"]


def test_the_largest_batch_size_is_for_all_batches_of_an_epoch(tmp_path: Path) -> None:
    """Guards epochs of which the last batch lacks samples, too."""
    options = ("--texts", "403", "--longest", "1500")
    (card,) = fit(tmp_path, *options, card="3GiB")["fits"]
    largest = card["plain"]["largest"]
    assert largest["batch_size"] > 8
    (own,) = fit(tmp_path, *options, "--batch-size", str(largest["batch_size"]), card="3GiB")["fits"]
    assert own["plain"]["own"] == largest
    assert own["batches"][-1]["batch"]["shapes"] == {"ids": [largest["batch_size"], 1500]}


def test_a_gate_counts_the_batches_that_a_card_has_no_room_for(tmp_path: Path) -> None:
    command = ("gate", SCRIPT, "--for", "1.6GiB")
    first = run_inside(*command, folder=tmp_path)
    assert first.status == 0, first.output
    found = run_inside(*command, "--look-ahead", "1000", folder=tmp_path)
    assert found.status == 3, found.errors
    assert (
        "On 1.6GiB there is no room for the tensors of about 1 of the 75 batches of an epoch." in found.output.decode()
    )


def test_the_setting_of_a_bundle_is_held_against_the_largest_batch_too(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.read_text())
    bundle = make_bundle(script, Configuration("eager", batch_size=4))
    found = run_inside("gate", bundle, script, "--for", "1.6GiB", "--look-ahead", "1000", folder=tmp_path)
    assert found.status == 3, found.errors
    assert f"Of the 75 batches of an epoch, batch {LARGEST} needs the most: " in found.output.decode()


def test_the_peak_is_explained_with_its_batch(tmp_path: Path) -> None:
    run = run_inside("explain", SCRIPT, "--for", "a100-40g", "--look-ahead", "1000", folder=tmp_path)
    assert run.status == 0, run.errors
    told = run.output.decode()
    assert told.lstrip().startswith("The step with ids 4x3000 holds ")
    assert f"Of the 75 batches of an epoch, batch {LARGEST} needs the most: " in " ".join(told.split())


def test_a_version_with_longer_batches_needs_more_memory(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.read_text().replace("default=3000", "default=4000"))
    compared = ("gate", "train.py", "--against", SCRIPT, "--for", "a100-40g")
    assert run_inside(*compared, folder=tmp_path).status == 0
    found = run_inside(*compared, "--look-ahead", "1000", folder=tmp_path)
    assert found.status == 3, found.errors


@pytest.mark.parametrize("command", [("fit",), ("gate", "--limit", "1GiB")])
def test_a_measurement_reads_nothing_ahead(command: tuple[str, ...], tmp_path: Path) -> None:
    name, *options = command
    run = run_inside(name, SCRIPT, *options, "--look-ahead", "10", folder=tmp_path)
    check_told(run, status=2, cause="--look-ahead goes together with --for", next_step="name a GPU")


def measured(folder: Path, *options: str, configurations: tuple[Configuration, ...] = (Configuration(),)) -> WorkerRun:
    """A run of trials on the CPU that reads ahead."""
    arguments = ("--device", "cpu", "--longest", "900", *options)
    request = Request("measure", str(SCRIPT), arguments, configurations, QUICK, look_ahead=1000, may_fork=True)
    return in_worker(request, folder=folder)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--workers", "2"),
        ("--drawn-ahead",),
        ("--leave-after", "10"),
        ("--anew", "--leave-after", "10"),
        ("--evaluate", "train", "--texts", "204"),
        ("--evaluate", "other"),
        ("--evaluate", "same-line"),
        ("--endless",),
    ],
    ids=" ".join,
)
def test_a_trial_is_measured_in_cycles_of_batches(options: tuple[str, ...], tmp_path: Path) -> None:
    found = measured(tmp_path, *options).measurement()
    assert (found.cycle, found.batch_size, found.micro_batches) == (4, 4, 1.0)
    assert found.num_steps == 4 * len(found.step_times_s) >= 12
    assert set(found.samples_per_step) == {16}
    assert found.largest is not None
    assert found.largest.shapes == {"ids": (4, 900)}


@pytest.mark.parametrize("options", [(), ("--drawn-ahead",), ("--drawn-ahead", "--leave-after", "31")], ids=" ".join)
def test_a_step_of_several_batches_is_counted_as_one_and_has_one_size(options: tuple[str, ...], tmp_path: Path) -> None:
    run = measured(tmp_path, "--accumulate", "3", "--print", *options)
    found = run.measurement()
    assert (found.cycle, found.micro_batches, set(found.samples_per_step)) == (4, 3.0, {48})
    sizes = printed(run)
    steps = [len({*sizes[first : first + 3]}) == 1 for first in range(6, len(sizes) - 2, 3)]
    assert sum(steps) > 0.85 * len(steps), "but for steps in which an epoch ends"


@pytest.mark.parametrize("options", [("--loader-per-step",), ("--without-loader",), ("--of-one-length",)])
def test_where_nothing_is_to_be_gained_steps_are_measured_as_they_come(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    found = measured(tmp_path, *options).measurement()
    assert found.cycle == 1
    told = any(note.startswith("no batch was read ahead: ") for note in found.notes)
    assert told == ("--of-one-length" not in options), found.notes


@pytest.mark.parametrize(
    ("option", "note"),
    [
        (("--read-once",), "no batch was read ahead: its data can be read once only"),
        (("--skip-longer", "800"), "the script does not train with the batches of an epoch: it may need more memory"),
    ],
    ids=["read once", "skips"],
)
def test_a_trial_that_an_epoch_does_not_suit_is_measured_and_says_so(
    option: tuple[str, ...], note: str, tmp_path: Path
) -> None:
    found = measured(tmp_path, *option).measurement()
    assert (found.cycle, found.largest, set(found.samples_per_step)) == (1, None, {4})
    assert note in found.notes


@pytest.mark.parametrize("options", [(), ("--anew",)], ids=["one loader", "a loader for each epoch"])
def test_a_step_waits_for_the_loader_as_in_training(options: tuple[str, ...], tmp_path: Path) -> None:
    """Guards scripts that wait for their data: faster steps are no gain to them."""
    found = measured(tmp_path, "--slow", "0.02", "--texts", "204", *options).measurement()
    assert found.step_time_s > 4 * 0.02


def test_an_evaluation_has_the_script_s_own_batches(tmp_path: Path) -> None:
    run = measured(tmp_path, "--evaluate", "train", "--print", "--texts", "204")
    first = list(itertools.takewhile(lambda line: not line.startswith("ids "), lines_from(run, "evaluated ")))
    assert len(first) == 51
    assert len({*first}) > 6, "all but the first may be known for an evaluation's"


def lines_from(run: WorkerRun, start: str) -> Iterator[str]:
    lines = run.output.decode().splitlines()
    return itertools.dropwhile(lambda line: not line.startswith(start), lines)


def test_epochs_end_where_the_script_s_do(tmp_path: Path) -> None:
    """Guards scripts that count on the length of their loader."""
    sizes = printed(measured(tmp_path, "--print", "--texts", "204"))
    assert sizes[:4] == ["ids 4x119", "ids 4x900", "ids 4x900", sizes[3]]
    assert len({*sizes[3:7]}) == 4


def test_each_trial_of_a_run_begins_with_the_largest_batch(tmp_path: Path) -> None:
    """Guards the peaks of all trials but the first."""
    found = measured(tmp_path, "--print", configurations=(Configuration("aot"), Configuration("aot")))
    largest = [one == "ids 4x900" for one in printed(found)]
    assert sum(is_one and len([*run]) > 1 for is_one, run in itertools.groupby(largest)) == 2
    assert found.measurement(1).cycle == 4


def test_a_script_that_is_too_short_is_told_how_long_it_should_be(tmp_path: Path) -> None:
    outcome = measured(tmp_path, "--steps", "12").result.outcomes[0]
    assert isinstance(outcome, NoTrainingStep)
    assert "A trial needs about 32 optimizer steps" in outcome.advice


LEVEL = Configuration("aot", level=1)
OF_150 = replace(LEVEL, sized=(SizedPlans(((4, 150),)),))


@pytest.mark.parametrize(
    "options",
    [(), ("--drawn-ahead",), ("--accumulate", "3"), ("--anew", "--leave-after", "31"), ("--evaluate", "other")],
    ids=" ".join,
)
def test_smaller_batches_recompute_nothing_where_they_need_no_more_than_the_largest(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    run = measured(tmp_path, *options, "--print", configurations=(Configuration("aot"), LEVEL, LEVEL))
    plain, planned, again = map(run.measurement, range(3))
    assert (plain.sized, again.sized) == ((), planned.sized)
    assert planned.sized[0].plans == ()
    lengths = [shape[1] for one in planned.sized for shape in one.shapes]
    assert 119 <= lengths[0] <= lengths[-1] < 900
    assert lengths == sorted(lengths)
    assert planned.saved_bytes == again.saved_bytes < plain.saved_bytes
    assert {one.cycle for one in (plain, planned, again)} == {4}
    # The largest batch for each of the plans has been tried.
    assert {f"ids 4x{length}" for length in lengths} < {*printed(run)}


def test_only_batches_that_need_it_are_recomputed(tmp_path: Path) -> None:
    run = measured(tmp_path, "--count", configurations=(LEVEL,))
    (nothing, *_), lines = run.measurement().sized, gelus(run.output)
    up_to = nothing.shapes[0][1]
    at_the_end = lines[len(lines) // 2 :]
    assert {number for number, length in at_the_end if length <= up_to} == {3}
    assert {number for number, length in at_the_end if length == 900} <= {6}
    assert {number for number, _ in lines[2:6]} == {6}, "the trial has to find them first"
    found = run.measurement()
    assert len(lines) > found.warmup_steps + found.num_steps + 5, "then it begins again"


@pytest.mark.parametrize(
    ("options", "configuration"),
    [
        (("--of-one-length",), LEVEL),
        (("--skip-longer", "800"), LEVEL),
        (("--read-once",), LEVEL),
        (("--twice",), LEVEL),
        ((), Configuration("eager")),
    ],
    ids=["of one length", "skips", "read once", "two calls in a step", "no engine"],
)
def test_where_sizes_do_not_differ_or_are_not_known_all_batches_have_the_same_plans(
    options: tuple[str, ...], configuration: Configuration, tmp_path: Path
) -> None:
    assert measured(tmp_path, *options, configurations=(configuration,)).measurement().sized == ()


def test_plans_for_smaller_batches_that_are_given_are_kept(tmp_path: Path) -> None:
    run = measured(tmp_path, "--count", configurations=(OF_150,))
    assert run.measurement().sized == OF_150.sized
    assert {(number, length <= 150) for number, length in gelus(run.output)[10:]} <= {(3, True), (6, False)}


@pytest.mark.parametrize("rests", [False, True], ids=["at first", "later"])
def test_a_bundle_with_plans_for_smaller_batches_is_launched(
    rests: bool, tmp_path: Path, make_bundle: MakeBundle
) -> None:
    bundle = make_bundle(SCRIPT, OF_150)
    arguments = ("--device", "cpu", "--longest", "900", "--steps", "40" if rests else "6", "--losses")
    plain = run_plain(SCRIPT, *arguments, folder=tmp_path)
    launched, counted = (
        run_inside("launch", bundle, SCRIPT, "--", *arguments, *more, folder=tmp_path) for more in ([], ["--count"])
    )
    assert launched.status == 0, launched.errors
    assert launched.output == plain.output
    # The first call of each new graph has the plans of the largest batch.
    found = {(number, length <= 150) for number, length in gelus(counted.output)[4:]}
    assert found <= {(3, True), (6, False)}
    assert not rests or len(found) == 2


def test_a_bundle_with_plans_for_smaller_batches_is_proven(tmp_path: Path, make_bundle: MakeBundle) -> None:
    arguments = ("--device", "cpu", "--longest", "900")
    found = run_inside("verify", make_bundle(SCRIPT, OF_150), SCRIPT, "--", *arguments, folder=tmp_path)
    assert found.status == 0, found.errors
    assert "have the same bits" in " ".join(found.output.decode().split())


def gelus(output: bytes) -> list[tuple[int, int]]:
    """The number of gelus of each step, and the length of its batch."""
    lines = [line.split() for line in output.decode().splitlines() if line.startswith("gelus ")]
    return [(int(number), int(length)) for _, number, _, length in lines]


def printed(run: WorkerRun) -> list[str]:
    return [line for line in run.output.decode().splitlines() if line.startswith("ids ")]


def discovered(folder: Path, *, memory_matrix: bool) -> WorkerRun:
    arguments = ("--device", "cpu", "--longest", "900", "--print")
    request = Request("discover", str(SCRIPT), arguments, (Configuration(),), QUICK, memory_matrix=memory_matrix)
    return in_worker(replace(request, look_ahead=1000, may_fork=True), folder=folder)


def test_discovery_describes_the_largest_batch(tmp_path: Path) -> None:
    runs = [discovered(tmp_path, memory_matrix=memory_matrix) for memory_matrix in (False, True)]
    facts = runs[0].facts
    assert facts.ahead is not None
    assert (facts.ahead.is_whole, facts.ahead.largest.number, len(facts.ahead.elements)) == (True, LARGEST, NUMBER)
    assert 900 in facts.dimensions.values()
    described, with_matrix = (at_the_end(printed(run), "ids 4x900") for run in runs)
    assert with_matrix == described + 2, "the memory matrix is of two steps with the largest batch, too"


def at_the_end(sizes: list[str], size: str) -> int:
    return len([*itertools.takewhile(lambda one: one == size, reversed(sizes))])


UNREAD = "a study that reads batches ahead measures with the largest: `autotune run --look-ahead 1000`"


@pytest.mark.parametrize(
    ("longest", "sizes", "told", "step"),
    [
        (None, "ids 4x900", "", UNREAD),
        ((4, 900), "ids 4x900", "", "a batch as large was measured: "),
        (
            (4, 800),
            "ids 4x900",
            ". The largest that was measured has ids 4x800",
            "a study that reads more batches ahead measures with it: ",
        ),
    ],
    ids=["unread", "measured", "larger"],
)
def test_a_launch_that_runs_out_of_memory_names_the_batch(
    longest: tuple[int, ...] | None, sizes: str, told: str, step: str, tmp_path: Path, make_bundle: MakeBundle
) -> None:
    bundle = make_bundle(SCRIPT)
    if longest is not None:
        measured_with = SeenBatch(3, math.prod(longest), {"ids": longest})
        stack = read_bundle(bundle).stack
        (bundle / "stack.json").write_text(render_stack(replace(stack, measured_batch=measured_with)))
    arguments = ("--device", "cpu", "--longest", "900", "--no-room-for", "900")
    found = run_inside("launch", bundle, SCRIPT, "--", *arguments, folder=tmp_path)
    assert found.status == OUT_OF_MEMORY_STATUS
    assert f"autotune: out of memory with batch {LARGEST} of epoch 1: {sizes}{told}\n  next: {step}" in found.errors
    notes = [line for line in found.errors.splitlines() if "is larger than any that was measured" in line]
    named = f"autotune: note: batch {LARGEST} of epoch 1 is larger than any that was measured, and memory may run out"
    assert notes == ([f"{named}: ids 4x900 after ids 4x800"] if told else [])


def test_a_larger_batch_is_named_once_for_each_size_that_it_exceeds(tmp_path: Path, make_bundle: MakeBundle) -> None:
    bundle = make_bundle(SCRIPT)
    stack = read_bundle(bundle).stack
    measured_with = SeenBatch(3, 4 * 130, {"ids": (4, 130)})
    (bundle / "stack.json").write_text(render_stack(replace(stack, measured_batch=measured_with)))
    arguments = ("--device", "cpu", "--longest", "150", "--print", "--steps", "40")
    found = run_inside("launch", bundle, SCRIPT, "--", *arguments, folder=tmp_path)
    lengths = [int(line.split("x")[1]) for line in found.output.decode().splitlines() if line.startswith("ids")]
    rising = sorted({max(130, *lengths[:number]) for number in range(1, 41)})
    notes = [line for line in found.errors.splitlines() if "is larger than any that was measured" in line]
    sizes = [note.split(": ")[-1] for note in notes]
    assert sizes == [f"ids 4x{high} after ids 4x{low}" for low, high in itertools.pairwise(rising)]
    assert len(sizes) > 1


@pytest.mark.parametrize(
    "options",
    [("--drawn-ahead",), ("--drawn-ahead", "--texts", "204"), ("--workers", "2")],
    ids=["drawn ahead", "the last of an epoch", "workers that stay"],
)
def test_a_library_that_draws_ahead_does_not_mislead(
    options: tuple[str, ...], tmp_path: Path, make_bundle: MakeBundle
) -> None:
    arguments = ("--device", "cpu", "--longest", "900", "--no-room-for", "900", "--epochs-first", "2", *options)
    found = run_inside("launch", make_bundle(SCRIPT), SCRIPT, "--", *arguments, folder=tmp_path)
    assert f"out of memory with batch {LARGEST} of epoch 3: ids 4x900" in found.errors


def test_an_evaluation_that_runs_out_of_memory_is_no_batch_s_fault(tmp_path: Path, make_bundle: MakeBundle) -> None:
    arguments = ("--device", "cpu", "--evaluate", "other", "--no-room-to-evaluate")
    found = run_inside("launch", make_bundle(SCRIPT), SCRIPT, "--", *arguments, folder=tmp_path)
    assert found.status == OUT_OF_MEMORY_STATUS
    assert "autotune: out of memory\n  next: no batch was under way" in found.errors


def test_any_other_error_has_the_script_s_own_status(tmp_path: Path, make_bundle: MakeBundle) -> None:
    arguments = ("--device", "cpu", "--broken-at", "90")
    found = run_inside("launch", make_bundle(SCRIPT), SCRIPT, "--", *arguments, folder=tmp_path)
    assert (found.status, "autotune:" in found.errors) == (1, False)


@pytest.mark.slow
def test_a_bundle_with_plans_for_smaller_batches_is_gated_by_its_own_baseline(
    tmp_path: Path, make_bundle: MakeBundle
) -> None:
    """Guards baselines: a study has searched the setting without these plans, and its bounds may differ each time."""
    bundle, file = make_bundle(SCRIPT, OF_150), tmp_path / "gate.json"
    stack = read_bundle(bundle).stack
    (bundle / "stack.json").write_text(render_stack(replace(stack, look_ahead=1000)))
    coarse = ("--max-slowdown", "99%", "--max-memory-growth", "99%", "--time-budget", "60m", "--baseline", file)
    script = (SCRIPT, "--json", *coarse)
    arguments = ("--", "--device", "cpu", "--longest", "900")

    taken = run_inside("gate", bundle, *script, "--update-baseline", "--against", SCRIPT, *arguments, folder=tmp_path)
    assert file.exists(), taken.errors
    assert read_baseline(file, LEVEL.key).look_ahead
    other = make_bundle(SCRIPT, replace(OF_150, sized=(SizedPlans(((4, 130),)),)), name="other")
    (other / "stack.json").write_text(render_stack(replace(read_bundle(other).stack, look_ahead=1000)))
    held = run_inside("gate", other, *script, *arguments, folder=tmp_path)
    document = checked("gate", held.output)
    assert document["reference"] == "stored"
    assert document["answer"] in ("pass", "improvement", "not_comparable")
