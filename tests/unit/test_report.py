"""The report, and the rows and sentences made from it."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.export.bundle import export_bundle
from autotune.export.stack import build_stack
from autotune.records.arrivals import Arrivals, Arrived
from autotune.records.codec import dumps, loads
from autotune.records.configuration import Configuration
from autotune.records.facts import BatchControl, EpochFacts, OutsideFacts, ShardingFacts
from autotune.records.figures import figure_cells, format_figures
from autotune.records.look_ahead import Dimension, LookAhead, SeenBatch
from autotune.records.measurement import Peaks
from autotune.records.outcome import Fallback, Measured, TimedOut
from autotune.records.proof import GroupDifference, Proof
from autotune.records.study import Objective, Remark, Trial
from autotune.report.answer import (
    answer_below,
    badge_words,
    headline,
    proof_sentence,
    trust_sentences,
    verdict_sentence,
)
from autotune.report.build import build_report, describe_facts
from autotune.report.page import render_html
from autotune.report.record import DescribedScript, Report
from autotune.report.sentences import (
    batch_sentences,
    calibration_sentence,
    dimensions_sentence,
    peak_sentence,
    undescribed_sentence,
)
from autotune.report.tables import (
    environment_rows,
    finalist_table,
    front_table,
    matrix_table,
    plan_table,
    setting_rows,
    split_rows,
    trial_table,
)
from autotune.search.space import build_space
from tests.fakes.study_record import (
    ENVIRONMENT,
    FACTS,
    LIMIT_BYTES,
    WINNER,
    accumulating,
    baseline_best,
    cpu_study,
    measured,
    study_record,
    unfinished,
)

STUDIES = [study_record, baseline_best, cpu_study, unfinished]


def test_the_report_is_as_it_was_looked_at(gold):
    gold("report/report.json", dumps(build_report(study_record(), bundle="autotune-train"), indent=2) + "\n")


@pytest.mark.parametrize("make", STUDIES)
def test_a_report_is_the_same_after_it_was_written_and_read_at_every_stage(make):
    made = build_report(make())
    assert loads(Report, dumps(made)) == made


@pytest.mark.parametrize("make", STUDIES)
def test_every_stage_has_its_rows_and_sentences(make):
    made = build_report(make())
    assert verdict_sentence(made)
    tables = [plan_table(made), finalist_table(made), trial_table(made)]
    for table in tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert max(table.numeric) < len(table.columns)
    assert len(tables[2].rows) == len(make().trials)
    assert setting_rows(made)
    assert all(name and value for name, value in environment_rows(made))


@pytest.mark.parametrize(
    ("sharding", "told"),
    [
        (
            ShardingFacts(5, 4, has_policy=True),
            "5 modules with fully_shard, 4 of them gathered again for the backward, ",
        ),
        (ShardingFacts(1, 0, has_policy=False), "1 module with fully_shard"),
        (None, ""),
    ],
)
def test_how_a_script_shards_is_told(sharding, told):
    rows = dict(environment_rows(describe_facts(dataclasses.replace(FACTS, sharding=sharding))))
    policy = "mixed precision" if sharding is not None and sharding.has_policy else ""
    assert rows.get("Sharding", "") == told + policy


def test_a_range_that_tells_nothing_is_not_written_out():
    made = build_report(study_record())
    wild = tuple(dataclasses.replace(one, speedup_low=1e-9, speedup_high=3e14) for one in made.finalists)
    (_, row, *_) = finalist_table(dataclasses.replace(made, finalists=wild)).rows
    assert "under 0.1x to over 10x" in row


@pytest.mark.parametrize("goal", ["throughput", "memory"])
def test_a_finalist_that_failed_at_once_is_given_no_ratio(goal):
    made = build_report(study_record())
    spec = dataclasses.replace(made.settings, objective=Objective(goal))
    unknown = {"speedup_low": None, "speedup_high": None, "peak_ratio_low": None, "peak_ratio_high": None}
    failed = dataclasses.replace(made.finalists[0], figures=None, repetitions=0, speedup=0.0, found="failed", **unknown)
    (_, row) = finalist_table(dataclasses.replace(made, finalists=(failed,), settings=spec)).rows
    assert row[0] == failed.text
    assert not any(cell.endswith("x") for cell in row[1:])


def test_discovery_alone_has_its_plan_table_and_memory_split():
    described = describe_facts(FACTS)
    table = plan_table(described)
    assert table.rows[0] == ("Block+:1:-1", "12", "9 GiB", "50331648*batch", "41.2ms", "whole layer")
    assert split_rows(described)[0] == ("activations", 12_348_030_976)


def test_what_no_plan_reaches_stands_in_the_plan_table_by_its_bytes():
    outside = (OutsideFacts("Sampler", 2, 2**30), OutsideFacts("Linear", 1, 2**40))
    table = plan_table(describe_facts(dataclasses.replace(FACTS, outside=outside)))
    assert table.rows[0] == ("Linear", "1", "no plan", "", "", "runs outside of any graph and keeps 1 TiB")
    assert table.rows[1][0] == "Block+:1:-1"
    assert ("Sampler", "2", "no plan", "", "", "runs outside of any graph and keeps 1 GiB") in table.rows


def test_the_phase_with_the_peak_is_named():
    described = describe_facts(FACTS)
    assert peak_sentence(described) == "13.3 GiB allocated, in the backward"
    table = matrix_table(described.memory_matrix)
    assert table.columns[:4] == ("Step", "Phase", "Peak", "Allocated")
    assert [row[1] for row in table.rows] == ["pre forward", "post forward", "pre backward", "post backward"]
    assert table.rows[3][2:5] == ("13.3 GiB", "1.9 GiB", "14 GiB")


def test_no_phase_is_named_where_the_memory_hardly_moves():
    rows = tuple(dataclasses.replace(row, peak=2**30 + number) for number, row in enumerate(FACTS.memory_matrix))
    described = describe_facts(dataclasses.replace(FACTS, memory_matrix=rows))
    assert peak_sentence(described) == "1 GiB allocated, in all phases alike"


def test_without_peaks_no_phase_is_named():
    rows = tuple(dataclasses.replace(row, peak=None, cached=None) for row in FACTS.memory_matrix)
    described = describe_facts(dataclasses.replace(FACTS, memory_matrix=rows))
    assert peak_sentence(described) == ""
    table = matrix_table(described.memory_matrix)
    assert table.columns[:5] == ("Step", "Phase", "Max allocated", "Allocated", "Inactive")


def points():
    return {point.number: point for point in build_report(study_record()).points}


def test_a_point_says_what_was_tried_and_what_came_of_it():
    winner = points()[11]
    assert winner.is_winner
    assert winner.plans == ("Block+:1:4", "gelu+:1:-1")
    assert winner.batch_size == 48
    assert winner.figures.samples_per_s_low < winner.samples_per_s < winner.figures.samples_per_s_high
    assert winner.fits
    assert winner.peak_bytes < LIMIT_BYTES


def test_failures_are_points_with_their_cause():
    failed = points()[3]
    assert failed.outcome == "out_of_memory"
    assert failed.samples_per_s is None
    assert failed.needed_bytes > LIMIT_BYTES
    assert "backward" in failed.cause
    assert not failed.on_front


def test_a_peak_over_the_limit_does_not_fit_and_a_thrashing_trial_is_marked():
    assert not points()[9].fits
    assert points()[13].thrashed
    assert "cannot win" in trial_table(build_report(study_record())).rows[13][-1]


def test_the_front_holds_what_nothing_else_beats_in_both():
    on_front = {number for number, point in points().items() if point.on_front}
    assert on_front == {1, 4, 5, 6, 7, 8, 10, 11, 12}


def test_a_trial_without_any_peak_is_shown_without_one():
    record = study_record()
    first = record.trials[1]
    assert isinstance(first.outcome, Measured)
    measurement = dataclasses.replace(first.outcome.measurement, peaks=Peaks())
    trial = dataclasses.replace(first, outcome=Measured(measurement))
    made = build_report(dataclasses.replace(record, trials=(trial,)))
    assert made.points[0].peak_bytes is None
    assert trial_table(made).rows[0][-1] == "peak not measured"


def test_whatever_makes_a_measurement_doubtful_is_noted_beside_its_point():
    record = study_record()
    measurement = dataclasses.replace(
        record.trials[11].measured,
        notes=("as it was",),
        contended=True,
        nonfinite_loss=True,
        samples_are_guessed=True,
    )
    trials = [*record.trials]
    trials[11] = dataclasses.replace(trials[11], outcome=Measured(measurement))
    noted = build_report(dataclasses.replace(record, trials=tuple(trials))).points
    assert noted[11].notes == (
        "as it was",
        "contended: other processes were busy here meanwhile",
        "samples are guessed from the shape of the input",
    )
    assert noted[1].notes == ()
    assert noted[11].diverged
    assert not noted[1].diverged


def test_no_folder_of_the_machine_is_in_a_report():
    text = dumps(build_report(study_record(bundles=("/home/ada/out",))))
    assert "/home/ada" not in text


def asking(limit_bytes, **changes):
    """A study that was asked to keep within a limit."""
    record = study_record(**changes)
    return dataclasses.replace(record, spec=dataclasses.replace(record.spec, memory_limit_bytes=limit_bytes))


def test_the_limit_is_the_one_asked_for_until_there_is_a_verdict():
    assert build_report(asking(7, verdict=None)).limit_bytes == 7
    assert build_report(asking(None, verdict=None)).limit_bytes == LIMIT_BYTES
    assert build_report(asking(7)).limit_bytes == LIMIT_BYTES, "it keeps the limit that it was decided with"
    assert build_report(asking(7, facts=None, trials=(), verdict=None)).limit_bytes == 7


@pytest.mark.parametrize("changes", [{}, {"verdict": None}], ids=["decided", "undecided"])
def test_a_limit_above_what_the_device_has_is_named_nowhere(changes, tmp_path):
    record = asking(80 << 30, **changes)
    made = build_report(record)
    assert ("Memory limit", "24 GiB") in setting_rows(made)
    assert made.limit_bytes == build_stack(record, WINNER).memory_limit_bytes == LIMIT_BYTES
    assert "over the limit" in trial_table(made).rows[9][-1]
    bundle = export_bundle(record, tmp_path / "bundle", configuration=WINNER, report_html=render_html(made))
    written = (bundle / "report.html").read_text() + (bundle / "README.txt").read_text()
    assert "24 GiB" in written
    assert "80 GiB" not in written


def test_the_sentences_of_a_winner():
    made = build_report(study_record(), bundle="my bundle")
    assert verdict_sentence(made).startswith("Batch 48 with Block+:1:4")
    assert made.launch.command == "autotune launch 'my bundle' train.py -- --data 'my books' --epochs=3"
    assert format_figures(made.winner) == ("187.2 samples/s (185.4 to 187.7, 3 repetitions) at a peak of 22.1 GiB")
    assert batch_sentences(made) == (
        "The global batch changes from 16 to 48 samples per optimizer step.",
        "No whole number of micro-batches of 48 keeps the global batch, so look at the learning rate.",
    )


def test_a_winner_that_leaves_the_batch_alone_says_nothing_about_it():
    assert batch_sentences(build_report(baseline_best())) == ()


def with_epoch(configuration):
    """A study of a script with an epoch of 2,048 samples, whose winner is this."""
    record = study_record()
    first = record.trials[0]
    won = dataclasses.replace(record.trials[11], configuration=configuration)
    facts = dataclasses.replace(FACTS, epoch=EpochFacts(2048, drops_last=False))
    verdict = dataclasses.replace(record.verdict, winner=configuration)
    return dataclasses.replace(record, facts=facts, trials=(first, won), repeats=(), verdict=verdict)


def test_the_steps_of_an_epoch_are_told_where_the_global_batch_changes():
    assert batch_sentences(build_report(with_epoch(Configuration(batch_size=256)))) == (
        "The global batch changes from 16 to 256 samples per optimizer step.",
        "An epoch has 8 instead of 128 optimizer steps.",
        "No whole number of micro-batches of 256 keeps the global batch, so look at the learning rate.",
    )


def test_a_global_batch_of_several_micro_batches_and_processes_is_told_with_them():
    record = accumulating(with_epoch(Configuration(batch_size=32)), 4, num_processes=2)
    assert batch_sentences(build_report(record)) == (
        (
            "The global batch changes from 128 (4 x 16 in each of 2 processes) to 256 (4 x 32 in each of 2 processes) "
            "samples per optimizer step."
        ),
        "An epoch has 16 instead of 32 optimizer steps.",
        "To keep the global batch, accumulate gradients over 2 micro-batches instead of 4.",
    )


def test_a_global_batch_that_was_kept_is_told_with_the_accumulation_that_keeps_it():
    record = with_epoch(Configuration(batch_size=4, accumulation=4))
    assert batch_sentences(build_report(record)) == (
        "The global batch stays 16 samples per optimizer step, now as 4 x 4.",
    )
    assert build_report(record).winner.accumulation == 4


def with_tokens(*shape, ahead=None):
    """The facts of a script whose batches bring tokens to its model."""
    tokens = Arrived("Net 0", 1000.0, shape=shape, is_tokens=True)
    arrivals = Arrivals(16, (Arrived("Net mask", 16.0, shape=(16,)), tokens))
    return dataclasses.replace(FACTS, batch_control=BatchControl("loaders", arrivals=arrivals), ahead=ahead)


def ahead_of(*lengths, names=("ids",)):
    """Batches of 16 texts that were read ahead, by their lengths."""
    batches = [SeenBatch(number, 16 * one, dict.fromkeys(names, (16, one))) for number, one in enumerate(lengths, 1)]
    least, *_, most = sorted(batches, key=lambda one: one.elements)
    varying = tuple((Dimension(name, 1),) for name in names)
    sizes = tuple((one,) * len(names) for one in lengths)
    return LookAhead(tuple(16 * one for one in lengths), least, most, (), True, True, "", varying, sizes)


def test_the_speed_is_told_in_tokens_too():
    record = study_record(facts=with_tokens(16, 1024))
    assert batch_sentences(build_report(record))[-1] == (
        "A sample has 1,024 tokens, padding included: 187.2 samples/s are 191,650 tokens/s."
    )
    (said,) = batch_sentences(build_report(dataclasses.replace(baseline_best(), facts=with_tokens(16, 1024))))
    assert said.startswith("A sample has 1,024 tokens, padding included: ")
    assert with_tokens(16, 1024, ahead=ahead_of(10, 30, 21)).tokens_per_sample == 1024, "others differ in length"
    record = study_record(facts=with_tokens(ahead=ahead_of(10, 30, 21)))
    assert "A sample has 20.3 tokens, " in batch_sentences(build_report(record))[-1]


def test_the_mean_length_is_that_of_samples():
    """Guards batches of so many tokens, of which those of short texts have more samples."""
    of_many, of_few = (SeenBatch(1, 80, {"ids": (8, 10)}), SeenBatch(2, 100, {"ids": (2, 50)}))
    varying = ((Dimension("ids", 0),), (Dimension("ids", 1),))
    ahead = LookAhead((80, 100), of_many, of_few, (), True, True, "", varying, ((8, 10), (2, 50)))
    assert ahead.mean_length == 18


@pytest.mark.parametrize(
    "facts",
    [FACTS, with_tokens(), with_tokens(ahead=ahead_of(10, 30, names=("source", "target")))],
    ids=["no tokens", "batches differ", "two lengths"],
)
def test_tokens_are_not_told_that_could_not_be_counted(facts):
    assert facts.tokens_per_sample is None
    assert "tokens" not in " ".join(batch_sentences(build_report(study_record(facts=facts))))


def test_the_global_batch_is_spoken_of_even_where_the_baseline_was_not_measured():
    record = study_record(repeats=())
    made = build_report(dataclasses.replace(record, trials=record.trials[1:]))
    assert made.baseline is None
    assert batch_sentences(made)[0].endswith("from 16 to 48 samples per optimizer step.")


def test_a_study_under_way_counts_what_has_ended():
    assert verdict_sentence(build_report(cpu_study())).startswith("No answer yet: 13 trials so far")
    assert verdict_sentence(build_report(unfinished())).startswith("Nothing is known yet")


def test_a_study_under_way_names_what_is_ahead_of_the_script():
    record = study_record(verdict=None, repeats=())
    told = "No answer yet: 17 trials so far, the fastest 186.4 samples/s (batch 48, Block+:1:4 gelu+:1:-1)."
    assert verdict_sentence(build_report(record)) == told
    spec = dataclasses.replace(record.spec, objective=Objective("memory"))
    smallest = verdict_sentence(build_report(dataclasses.replace(record, spec=spec)))
    assert smallest.startswith("No answer yet: 17 trials so far, the smallest peak ")
    own = dataclasses.replace(record, trials=record.trials[:1])
    assert verdict_sentence(build_report(own)) == "No answer yet: 1 trial so far."


def test_a_repeated_winner_counts_for_its_verdict():
    made = build_report(study_record())
    assert made.winner.repetitions == made.baseline.repetitions == 3
    assert made.winner.text == str(WINNER)


def test_strings_that_do_not_print_are_shown_so_that_they_do():
    made = build_report(study_record(name="a\x1b[31m\u2028\ud800"))
    assert made.study.name == "a\\x1b[31m\\u2028\\ud800"


def test_the_table_says_how_far_simulated_memory_is_from_measured_memory():
    def said(**changes):
        calibration = dataclasses.replace(FACTS.calibration, **changes)
        return calibration_sentence(describe_facts(dataclasses.replace(FACTS, calibration=calibration)))

    assert said().endswith("1.2% of what was measured, without plans and with the most recomputed")
    assert said(engine="inductor").endswith(
        "1.2% of what was measured in generated code without plans, and is scaled by that; "
        "with plans it may be off by a fifth"
    )
    assert said(error=None, reason="it has side effects") == "memory is not predicted: it has side effects"
    assert calibration_sentence(describe_facts(dataclasses.replace(FACTS, calibration=None))) == ""
    failed = dataclasses.replace(FACTS.calibration, error=None, reason="it has side effects")
    said_elsewhere = dataclasses.replace(FACTS, calibration=failed, undescribed=TimedOut("no time"))
    assert calibration_sentence(describe_facts(said_elsewhere)) == ""


def test_before_discovery_a_target_is_known_without_a_limit():
    spec = dataclasses.replace(study_record().spec, memory_limit_bytes=None, objective=Objective(target_memory_bytes=7))
    made = build_report(study_record(spec=spec, facts=None, trials=(), repeats=(), verdict=None))
    assert (made.limit_bytes, made.target_bytes) == (None, 7)


def test_a_batch_size_that_was_given_and_not_seen_is_the_scripts_own_everywhere():
    record = study_record()
    facts = dataclasses.replace(
        record.facts, batch_size=None, baseline=dataclasses.replace(record.facts.baseline, batch_size=32)
    )
    record = dataclasses.replace(record, facts=facts)
    assert build_report(record).batch_size == 32
    assert build_stack(record, facts.baseline).script_batch_size == 32
    assert not build_space(facts, record.spec).batch_sizes, "what arrives could not be checked"


def test_what_nothing_confirmed_is_the_best_so_far_and_no_winner():
    made = build_report(study_record())
    answer = dataclasses.replace(made.verdict, is_confirmed=False)
    for shown, word, other in (
        (made, "winner", "best so far"),
        (dataclasses.replace(made, verdict=answer), "best so far", "winner"),
    ):
        texts = [row[-1] for table in (front_table(shown), trial_table(shown)) for row in table.rows]
        assert any(word in text for text in texts)
        assert not any(other in text for text in texts)


def test_the_front_of_a_gpus_study_names_the_smallest_card_for_each_setting():
    on_gpu = build_report(study_record())
    table = front_table(on_gpu)
    assert table.columns[-1] == "Smallest card"
    cards = list(dict.fromkeys(row[-1] for row in table.rows))
    assert cards == ["rtx3060-12gb", "rtx4080-16gb", "l4-24gb", "rtx4090-24gb"], "the least memory first"
    on_cpu = dataclasses.replace(on_gpu, environment=dataclasses.replace(on_gpu.environment, device_kind="cpu"))
    assert front_table(on_cpu).columns == table.columns[:-1]
    assert front_table(on_cpu).rows == tuple(row[:-1] for row in table.rows)


def test_an_answer_is_confirmed_by_repetitions_and_a_proof_or_is_the_script_itself():
    def is_confirmed(*, repeats=None, **changes):
        record = study_record()
        verdict = dataclasses.replace(record.verdict, **changes)
        repeats = record.repeats if repeats is None else repeats
        made = build_report(dataclasses.replace(record, verdict=verdict, repeats=repeats))
        return made.verdict.is_confirmed

    assert is_confirmed()
    assert not is_confirmed(repeats=()), "nothing was measured again"
    assert not is_confirmed(proofs=()), "nobody looked at the gradients"
    assert not is_confirmed(needed_s=60.0), "there was no time for all of it"
    assert is_confirmed(winner=None, proofs=()), "the script itself needs none"


def test_a_batch_size_that_was_set_where_the_scripts_own_is_unknown_is_told_alone():
    record = study_record()
    facts = dataclasses.replace(FACTS, batch_size=None, baseline=dataclasses.replace(FACTS.baseline, batch_size=None))
    made = build_report(dataclasses.replace(record, facts=facts))
    assert batch_sentences(made) == ("Batch size 48 per process; the script's own is not known.",)


def undescribed(failure, **changes):
    facts = dataclasses.replace(FACTS, clusters=(), undescribed=failure)
    return undescribed_sentence(describe_facts(dataclasses.replace(facts, **changes)))


def test_what_could_not_be_described_is_told_with_what_can_be_searched_all_the_same():
    failure = Fallback("the script has side effects.", advice="no advice of a fallback")
    assert undescribed(None) == ""
    assert undescribed(failure) == (
        "The script was measured, but could not be described: the script has side effects. So there are no plans, and "
        "memory is not predicted; batch sizes and choices can still be searched."
    )
    alone = undescribed(failure, batch_control=BatchControl("none", reason="no loader"))
    assert alone.endswith("memory is not predicted; choices can still be searched.")
    assert "plans are known, but what they cost may not be" in undescribed(failure, clusters=FACTS.clusters)


def test_a_description_for_which_there_was_no_time_says_how_to_have_more():
    assert undescribed(TimedOut("no time", advice="Allow more.")).endswith("choices can still be searched. Allow more.")


def test_sizes_that_grow_with_the_batch_are_told_with_the_batch_that_they_were_seen_in():
    seen = DescribedScript(dimensions={"nodes": 1200, "dim": 64}, per_sample={"nodes": 75.0}, batch_size=16)
    assert dimensions_sentence(seen) == ("nodes = 1,200 (at most 75 a sample), dim = 64, in a batch of 16")
    known = dataclasses.replace(seen, dimensions={"batch": 16, "nodes": 1200})
    assert dimensions_sentence(known) == "batch = 16, nodes = 1,200 (at most 75 a sample)"


def test_a_proof_is_spoken_of_where_there_is_a_setting_that_can_differ_from_the_script():
    made = build_report(study_record())
    assert proof_sentence(made) == made.verdict.proof.statement
    assert proof_sentence(build_report(unfinished())) == ""
    record = study_record()
    unproven = dataclasses.replace(record, verdict=dataclasses.replace(record.verdict, proofs=()))
    assert proof_sentence(build_report(unproven)).startswith("Not checked yet")
    assert proof_sentence(build_report(baseline_best())) == "", "the script as it is"
    assert format_figures(None) == "not measured"


def test_the_first_line_says_in_words_what_to_do_and_what_it_brings():
    said = headline(build_report(study_record()))
    assert said == (
        "Recompute 4 of 12 Blocks and all 12 gelu operators and train 48 instead of 16 at a time: 1.18x the samples "
        "per second at a peak of 22.1 GiB. Checked: recompute changes no bit of the gradients."
    )


def test_the_first_line_claims_the_scripts_own_bits_only_where_they_were_seen():
    def proven(**changes):
        record = study_record()
        proofs = tuple(dataclasses.replace(one, **changes) for one in record.verdict.proofs)
        verdict = dataclasses.replace(record.verdict, proofs=proofs)
        return headline(build_report(dataclasses.replace(record, verdict=verdict)))

    assert proven(equal_to_script=True).endswith(". Checked: gradients are bit-identical at that batch size.")
    assert proven(answer="close").endswith(". Checked: gradients are equal up to rounding at that batch size.")
    assert "proven" not in proven(answer="unknown")


def test_the_first_line_turns_choices_on_and_off():
    report = build_report(study_record())
    assert report.winner is not None
    chosen = dataclasses.replace(report.winner.configuration, choices=("compute-optimizer=0", "tcmalloc=1"))
    winner = dataclasses.replace(report.winner, configuration=chosen)
    said = headline(dataclasses.replace(report, winner=winner))
    assert ", train 48 instead of 16 at a time, turn compute-optimizer off and turn tcmalloc on: " in said


def study_of_model(**proven):
    """A finished study of an ONNX model whose winner is made into 8 bits; without ``proven`` nothing was proven."""
    plain = Configuration("onnxruntime", batch_size=16)
    winner = dataclasses.replace(plain, batch_size=48, choices=("int8=1",))
    record = study_record()
    trials = tuple(
        Trial(number, one, "finished", measured(rate, one.batch_size, 2.0), ENVIRONMENT)
        for number, (one, rate) in enumerate(((plain, 100.0), (winner, 200.0)))
    )
    repeats = tuple(
        dataclasses.replace(one, configuration=winner if one.configuration == WINNER else plain)
        for one in record.repeats
    )
    (compared,) = record.verdict.comparisons
    verdict = dataclasses.replace(
        record.verdict,
        winner=winner,
        comparisons=(dataclasses.replace(compared, configuration=winner),),
        proofs=(Proof(winner, **proven),) if proven else (),
    )
    facts = dataclasses.replace(FACTS, baseline=plain, clusters=(), split=None)
    spec = dataclasses.replace(record.spec, script="/home/ada/model.onnx", engine="onnxruntime", choices=("int8",))
    return build_report(
        dataclasses.replace(record, spec=spec, facts=facts, trials=trials, repeats=repeats, verdict=verdict)
    )


def test_a_converted_model_is_said_to_be_so_far_off_and_not_to_round_otherwise():
    off = GroupDifference("outputs", 3, 3, name="logits", step=2, absolute=0.1, relative=0.0086)
    made = study_of_model(answer="close", statement="", steps=3, to_script=(off,))
    assert headline(made).endswith(". Checked: outputs are within 0.86 % of the model's own at that batch size.")
    assert badge_words(made) == ("outputs within 0.86 %", True)
    same = study_of_model(answer="exact", statement="", steps=3, equal_to_script=True)
    assert headline(same).endswith(". Checked: outputs are bit-identical at that batch size.")


def test_of_a_model_without_a_proof_outputs_were_not_compared():
    assert proof_sentence(study_of_model()) == "Not checked yet: its outputs were not compared."


def test_batch_sizes_of_a_model_are_said_to_be_around_its_own():
    assert ("Batch sizes", "around the model's own") in setting_rows(study_of_model())


def test_what_nothing_confirmed_is_the_best_so_far_in_the_first_line():
    said = headline(build_report(study_record(repeats=())))
    assert said.startswith("Best so far, not confirmed yet: recompute 4 of 12 Blocks")


def test_the_first_line_of_a_study_under_way_is_how_far_it_is():
    for make in (cpu_study, unfinished):
        made = build_report(make())
        assert headline(made) == verdict_sentence(made)


def test_that_the_baseline_is_the_best_is_the_first_line_and_remarks_stand_below():
    record = baseline_best()
    verdict = dataclasses.replace(record.verdict, remarks=(Remark("machine_busy", "The machine was busy."),))
    made = build_report(dataclasses.replace(record, verdict=verdict))
    assert headline(made) == record.verdict.reason.text
    assert answer_below(made) == "The machine was busy."


def test_the_first_line_speaks_of_memory_where_that_was_asked_for():
    record = study_record()
    spec = dataclasses.replace(record.spec, objective=Objective(goal="memory", max_slowdown=0.05))
    said = headline(build_report(dataclasses.replace(record, spec=spec)))
    assert "x the memory at 1.18x the samples per second" in said


def test_what_an_answer_rests_on_is_told_with_its_noise():
    assert trust_sentences(build_report(study_record())) == (
        "measured in 3 repetitions in turns with your script",
        "your script's repetitions lie within 1.17 %",
        "other programs were busy in none of 6 runs of the confirmation",
    )
    once = trust_sentences(build_report(study_record(repeats=())))
    assert (once[0], once[-1]) == ("measured once", "other programs were busy in none of 13 trials")
    assert trust_sentences(build_report(unfinished())) == ()
    alone = tuple(one for one in study_record().repeats if one.configuration == WINNER)
    assert trust_sentences(build_report(study_record(repeats=alone)))[0] == "measured in 3 repetitions"
    record = study_record()
    first = record.repeats[0]
    busy = dataclasses.replace(first.outcome.measurement, contended=True)
    repeats = (dataclasses.replace(first, outcome=Measured(busy)), *record.repeats[1:])
    said = trust_sentences(build_report(dataclasses.replace(record, repeats=repeats)))
    assert said[-1] == "other programs were busy in 1 of 6 runs of the confirmation"


def test_the_scripts_figures_are_of_the_confirmation_that_the_answer_was_measured_in():
    record = study_record()
    # A later confirmation of the script and another setting, on a machine that has become twice as fast, and of more
    # repetitions.
    others = [one for one in record.repeats if one.configuration != WINNER]
    later = tuple(
        dataclasses.replace(one, confirmation=2, repetition=number, outcome=twice_as_fast(one.outcome))
        for number, one in enumerate(others + others)
    )
    both = dataclasses.replace(record, repeats=(*record.repeats, *later))
    assert build_report(both).baseline == build_report(record).baseline
    assert build_stack(both, WINNER).baseline_figures == build_stack(record, WINNER).baseline_figures


def twice_as_fast(outcome):
    measurement = outcome.measurement
    halved = tuple(one / 2 for one in measurement.step_times_s)
    return Measured(dataclasses.replace(measurement, step_times_s=halved))


def test_a_trial_whose_loss_is_no_number_leads_nothing():
    record = study_record(verdict=None, repeats=())
    fastest = max(
        (trial for trial in record.trials if trial.measured and trial.configuration != FACTS.baseline),
        key=lambda trial: (build_report(record).points[trial.number].may_win, trial.measured.samples_per_s),
    )
    assert str(fastest.configuration) in verdict_sentence(build_report(record))
    diverged = dataclasses.replace(fastest.measured, nonfinite_loss=True)
    trials = tuple(
        dataclasses.replace(one, outcome=Measured(diverged)) if one is fastest else one for one in record.trials
    )
    made = build_report(dataclasses.replace(record, trials=trials))
    assert f"({fastest.configuration})" not in verdict_sentence(made)
    assert not made.points[fastest.number].may_win
    assert "so it cannot win" in trial_table(made).rows[fastest.number][-1]


def test_where_the_script_does_not_fit_the_first_line_has_the_speed_beside_it_and_no_gain():
    record = study_record()
    verdict = dataclasses.replace(record.verdict, kind_of_answer="baseline_does_not_fit")
    made = build_report(dataclasses.replace(record, verdict=verdict))
    assert [row[-1] for row in finalist_table(made).rows] == ["", ""], "no finalist has to be better"
    said = headline(made)
    assert "at a time: 187.2 samples/s at a peak of 22.1 GiB, 1.18x your script's speed. Checked: recompute" in said
    assert said.endswith("no bit of the gradients. Your script as it is does not fit.")
    alone = dataclasses.replace(verdict, comparisons=())
    said = headline(build_report(dataclasses.replace(record, verdict=alone)))
    assert "at a time: 187.2 samples/s at a peak of 22.1 GiB. Checked: recompute" in said


def test_what_is_not_confirmed_says_first_that_the_script_does_not_fit():
    record = study_record(repeats=())
    verdict = dataclasses.replace(record.verdict, kind_of_answer="baseline_does_not_fit", comparisons=(), proofs=())
    made = build_report(dataclasses.replace(record, verdict=verdict))
    assert not made.verdict.is_confirmed
    said = headline(made)
    assert said.startswith(
        "Your script does not fit in 24 GiB. Best so far, not confirmed yet: recompute 4 of 12 Blocks"
    )
    assert badge_words(made) == ("gradients not checked yet", False)


def test_without_a_confirmation_the_first_line_compares_with_nothing_and_says_nothing_of_what_fits():
    record = study_record(repeats=())
    record = dataclasses.replace(record, verdict=dataclasses.replace(record.verdict, comparisons=()))
    said = headline(build_report(record))
    assert said.endswith("at a time: 186.4 samples/s against your script's 158.3 samples/s, measured once.")
    assert "does not fit" not in said


def test_an_answer_that_is_open_names_the_best_so_far_in_the_first_line():
    record = study_record(repeats=())
    verdict = dataclasses.replace(record.verdict, kind_of_answer="undecided", comparisons=(), proofs=())
    said = headline(build_report(dataclasses.replace(record, verdict=verdict)))
    assert said.startswith(
        "Best so far, not confirmed yet: recompute 4 of 12 Blocks and all 12 gelu operators and train"
    )
    assert said.endswith("at a time: 186.4 samples/s against your script's 158.3 samples/s, measured once.")
    own = dataclasses.replace(verdict, winner=record.facts.baseline)
    made = build_report(dataclasses.replace(record, verdict=own))
    assert headline(made) == verdict_sentence(made)


def test_a_speed_whose_samples_could_not_be_counted_is_said_and_not_shown_as_zero():
    figures = dataclasses.replace(build_report(study_record()).points[1].figures, samples_per_s=0.0)
    cells = figure_cells(figures)
    assert (cells["Samples/s"], cells["Spread"]) == ("", "")
    assert cells["Peak"]
    assert format_figures(figures) == f"samples not counted at a peak of {cells['Peak']}"
