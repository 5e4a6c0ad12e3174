"""The landscapes that searches are replayed against, and the replay itself."""

from __future__ import annotations

import dataclasses
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.records.configuration import Configuration
from autotune.records.outcome import Measured, OutOfMemory
from autotune.records.plan import parse_plans
from autotune.records.study import StudySpec
from autotune.search.proposal import Proposal
from autotune.search.space import build_space
from tests.benchmarks.landscapes.physics import (
    KEPT,
    OPEN,
    Allocator,
    Gpu,
    Model,
    Operator,
    Step,
    is_tight,
    landscape_of,
)
from tests.benchmarks.landscapes.record import Recorder, record, reduced
from tests.benchmarks.landscapes.replay import NEAR, OTHERS, Replay
from tests.benchmarks.landscapes.synthetic import Formula, Part, formulas, on_gpus, transformer
from tests.benchmarks.landscapes.table import Entry, Landscape, Process, Table, load, save
from tests.fakes.launcher import FakeLauncher

pytestmark = pytest.mark.slow  # guards benchmarks, and nothing that is shipped

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "tests/benchmarks/landscapes"
MIB = 1 << 20
SMALL = transformer("small", own=8, sizes=(4, 8, 16, 32), fits=20, layers=4)
LANDSCAPE = SMALL.landscape()


def process_of(table, number=0):
    return Process(table.landscape, random.Random(number), number)


@pytest.fixture(scope="module")
def shipped():
    return list(load(SHIPPED))


def test_there_are_twenty_and_each_has_something_that_fits(shipped):
    assert len(shipped) >= 20
    assert len({landscape.name for landscape in shipped}) == len(shipped)
    for landscape in shipped:
        table = Table(landscape)
        assert table.best > 0, landscape.name
        assert isinstance(table.measure(table.facts.baseline, process_of(table)), Measured), landscape.name


def test_a_file_says_what_was_saved(tmp_path):
    path = save(LANDSCAPE, tmp_path)
    assert json.loads(path.read_text())["schema"] == 1
    (again,) = load(tmp_path)
    assert again == LANDSCAPE


def test_a_recording_that_was_cut_off_goes_on_with_the_run_that_it_was_in(tmp_path):
    spec, keep = StudySpec("train.py", batch_sizes=(4, 8)), tmp_path / "kept.json"
    space = reduced(build_space(LANDSCAPE.facts, spec), (4, 8), 2)
    table = Table(LANDSCAPE)

    def cut_off(run):
        if run == 3:
            raise KeyboardInterrupt

    def recorder(before=lambda run: None):
        launcher = FakeLauncher(
            lambda configuration: table.measure(LANDSCAPE.facts.baseline, process_of(table)),
            facts=LANDSCAPE.facts,
            root=tmp_path,
            before=before,
        )
        return launcher, Recorder(spec, launcher, keep, devices=())

    first, one = recorder(cut_off)
    assert one.discover() == LANDSCAPE.facts
    with pytest.raises(KeyboardInterrupt):
        record(one, space, 2, ends_at=float("inf"))
    assert len(one.costs) == 2
    second, other = recorder()
    assert other.discover() == LANDSCAPE.facts
    assert not record(other, space, 2, ends_at=0.0)
    assert not second.runs, "there is no time, and discovery is known"
    assert record(other, space, 2, ends_at=float("inf"))
    asked = [run.request.configurations for run in second.runs]
    assert asked[0] not in [run.request.configurations for run in first.runs[1:3]]
    assert {*other.rates} == {space.baseline, *space.configurations()}
    assert {len(rates) for rates in other.rates.values()} == {len(peaks) for peaks in other.peaks.values()} == {2}


def test_the_table_is_the_whole_space():
    table = Table(LANDSCAPE)
    assert len(table.configurations) == len(LANDSCAPE.table)
    for entry in LANDSCAPE.table:
        engine = "aot" if entry.plans else "eager"
        assert table.entry(Configuration(engine, parse_plans(entry.plans), 0, entry.batch_size)) == entry


def test_a_search_chooses_from_the_table_only_where_that_is_not_every_combination():
    chance = random.Random(1)
    some = tuple(entry for entry in LANDSCAPE.table if not entry.plans or chance.random() < 0.3)
    table = Table(dataclasses.replace(LANDSCAPE, table=some))
    assert len(table.configurations) == len(some)
    for sampler in ("model", "tpe"):
        replay = Replay(table, 0, sampler)
        replay.run()
        assert all(table.entry(trial.configuration) in some for trial in replay.trials)


def test_a_plan_without_a_row_is_refused_by_name():
    entry = Entry(8, ("tanh+:1:-1",), 0, "measured", 1.0, MIB)
    with pytest.raises(SystemExit, match=r"tanh\+:1:-1 has no row"):
        Table(dataclasses.replace(LANDSCAPE, table=(*LANDSCAPE.table, entry)))


def test_what_is_measured_scatters_around_the_table_and_peaks_do_not():
    noisy = Table(dataclasses.replace(LANDSCAPE, noise_cv=0.03))
    outcomes = [noisy.measure(noisy.facts.baseline, process_of(noisy, number)).measurement for number in range(400)]
    rates = [one.samples_per_s / noisy.speed(noisy.facts.baseline) for one in outcomes]
    assert sum(rates) / len(rates) == pytest.approx(1.0, abs=0.01)
    assert max(rates) > 1.05
    assert len({one.peaks.fit_bytes for one in outcomes}) == 1


def test_what_the_table_has_over_the_limit_runs_out_of_memory():
    table = Table(LANDSCAPE)
    largest = table.space.plain(32)
    assert isinstance(table.measure(largest, process_of(table)), OutOfMemory)
    assert table.speed(largest) == 0.0


def test_savings_in_a_formula_overlap_and_what_layers_cover_is_not_saved_twice():
    parts = (Part("a+", 4, 10 * MIB, 0.01), Part("b+", 4, 10 * MIB, 0.01))
    formula = Formula("x", 8, (8,), 1 << 40, 0, 0.0, parts, Part("Block+", 4, MIB, 0.1), fragmentation=0.0)
    both = {"a+": 4, "b+": 4}
    alone = dataclasses.replace(formula, overlap=0.0)
    assert formula.peak_bytes(8, {"a+": 4}) == alone.peak_bytes(8, {"a+": 4})
    assert formula.peak_bytes(8, both) > alone.peak_bytes(8, both)
    assert formula.peak_bytes(8, {"Block+": 4}) == formula.peak_bytes(8, {"Block+": 4, "a+": 4})


def test_a_replay_counts_what_it_took_and_never_repeats_itself():
    replay = Replay(Table(LANDSCAPE), 0, "model")
    row = replay.run()
    assert row.stopped.trials == len(replay.trials) - 1
    assert row.stopped.seconds == 25.0 * row.stopped.runs + 5.0 * row.stopped.trials
    assert row.duplicates == 0
    assert row.found is not None
    assert row.found.trials <= row.stopped.trials
    assert max(replay.table.speed(trial.configuration) for trial in replay.trials) >= NEAR * replay.table.best


def test_without_switching_each_run_has_one_trial():
    row = Replay(Table(LANDSCAPE, switches=False), 0, "model").run()
    assert row.stopped.runs == row.stopped.trials


def test_where_a_search_stops_other_seeds_of_the_draws_are_asked_and_nothing_else_changes(monkeypatch):
    replay = Replay(Table(LANDSCAPE), 0, "model")
    row = replay.run()
    assert row.gone_on is not None
    assert 0 <= row.gone_on <= OTHERS
    trials = len(replay.optuna.get_trials(deepcopy=False))
    asked = []

    def going_on(knowledge, *, most, start, seed):
        assert start == LANDSCAPE.cost.run_start_s / LANDSCAPE.cost.trial_s
        asked.append((knowledge, most, seed))
        return Proposal((SMALL.landscape().facts.baseline,) if len(asked) > 4 else ())

    monkeypatch.setattr("tests.benchmarks.landscapes.replay.propose", going_on)
    assert replay._gone_on() == OTHERS - 4
    knowledge, rooms, seeds = zip(*asked, strict=True)
    assert len(set(map(id, knowledge))) == len(set(rooms)) == 1
    assert len({*seeds, replay._spec.seed}) == OTHERS + 1
    assert len(replay.optuna.get_trials(deepcopy=False)) == trials


def test_a_sampler_of_optunas_is_not_asked_where_it_stops():
    assert Replay(Table(LANDSCAPE), 0, "tpe").run().gone_on is None


def test_no_answer_loses_all_but_where_there_is_nothing_to_find():
    def tight(peak_bytes):
        table = tuple(
            dataclasses.replace(one, outcome="measured", samples_per_s=10.0, peak_memory_bytes=peak_bytes)
            for one in LANDSCAPE.table
        )
        return Table(dataclasses.replace(LANDSCAPE, table=table, memory_limit_bytes=10 * MIB))

    row = Replay(tight(11 * MIB), 0, "model").run()
    assert (row.answer, row.loss, row.answer_loss) == ("nothing_fits", 0.0, 0.0)
    assert Replay(tight(9 * MIB), 0, "model").run().answer_loss == 0.0
    hidden = Replay(tight(9 * MIB), 0, "model")
    hidden._measure = lambda configuration, process: OutOfMemory("out of memory", limit_bytes=10 * MIB)
    hidden.trials.clear()
    assert hidden.run().answer_loss == 1.0


def test_where_all_speeds_are_alike_nothing_wins():
    answers = [Replay(Table(LANDSCAPE).all_alike(0.027), seed, "model").run().answer for seed in range(5)]
    assert answers == ["baseline_best"] * 5


def benchmark(*options):
    command = [sys.executable, str(ROOT / "tests/benchmarks/search.py"), *options]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.process
def test_the_benchmark_prints_the_same_rows_and_summary_however_many_processes_there_are(tmp_path):
    save(LANDSCAPE, tmp_path)
    save(dataclasses.replace(LANDSCAPE, name="another", noise_cv=0.02), tmp_path)
    options = ["--landscapes", str(tmp_path), "--seeds", "1", "--false-wins", "2", "--json"]
    one, two = (benchmark(*options, "--processes", count) for count in ("1", "2"))
    assert one.stdout == two.stdout
    printed = json.loads(one.stdout)
    assert [row["landscape"] for row in printed["rows"]] == ["another", "small"]
    assert all(row["rivals"].keys() == {"tpe", "heuristic"} for row in printed["rows"])
    assert printed["summary"]["studies"] == 2
    assert printed["summary"]["duplicates"] == 0
    assert {"times_tpe", "times_heuristic", "heuristic_loss_mean"} <= printed["summary"].keys()
    assert bool(printed["missed"]) == bool(one.returncode)


@pytest.mark.process
def test_the_benchmark_refuses_rivals_that_there_are_not():
    done = benchmark("--rivals", "tpe,nobody")
    assert done.returncode == 2
    assert "'nobody': not of tpe,gp,random" in done.stderr


@pytest.mark.process
def test_nothing_is_shown_of_the_kept_half_but_the_summary():
    options = ("--physics", "kept", "--seeds", "1", "--rivals", "none", "--false-wins", "0")
    for done in (benchmark(*options), benchmark(*options, "--json")):
        assert "studies" in done.stdout
        assert "physics-" not in done.stdout + done.stderr


def test_a_discovered_graph_on_an_imagined_gpu_is_predicted_well_after_discovery():
    (imagined, *_) = on_gpus()
    small = dataclasses.replace(imagined, up=1)
    table = Table(small.landscape())
    row = Replay(table, 0, "model").run()
    assert row.peak_error_at_once is not None
    assert row.peak_error_at_once < 0.06
    assert row.duplicates == 0


def test_the_shipped_ones_are_what_the_generator_writes(tmp_path, shipped):
    name = "only-layers-fit"
    (formula,) = (one for one in formulas() if one.name == name)
    (there,) = (one for one in shipped if one.name == name)
    assert isinstance(there, Landscape)
    assert formula.landscape() == there


# -- landscapes that come of executed steps

GPU = Gpu("a test's", 1e12, 1e12, 10, 8 << 30, 0, 1e-5)


def test_an_allocator_keeps_segments_and_gives_their_blocks_again():
    allocator = Allocator()
    small, other = allocator.take(1), allocator.take(600)
    assert allocator.reserved_bytes == 2 * MIB, "both lie in one segment"
    large = allocator.take(50 * MIB)
    assert allocator.reserved_bytes == 52 * MIB
    allocator.give(large)
    halves = [allocator.take(20 * MIB), allocator.take(20 * MIB)]
    assert allocator.reserved_bytes == 52 * MIB, "the free segment was split"
    third = allocator.take(20 * MIB)
    assert allocator.reserved_bytes == 72 * MIB, "what is left of it is too small"
    for block in (*halves, third, small, other):
        allocator.give(block)
    allocator.take(50 * MIB)
    assert allocator.reserved_bytes == 72 * MIB, "freed neighbours are one block again"
    allocator.take(2 * MIB)
    assert allocator.reserved_bytes == 72 * MIB


def one_operator(bytes_each=40 * MIB, rows=64.0):
    product = Operator("a+", bytes_each, 0.0, 1e9, (rows, 128))
    return Model(((product,),) * 4, (Operator("", 4.0, 4.0),), MIB, 4.0, has_layers=True)


def test_a_kernel_takes_whole_waves_of_tiles():
    busy = [Step(one_operator(), GPU, batch, {}).seconds for batch in (20, 21, 40)]
    assert busy[0] < 0.8 * busy[1], "one tile more is another wave"
    assert busy[1] == pytest.approx(busy[2], rel=0.1)


def test_a_step_of_small_kernels_takes_as_long_as_issuing_them():
    tiny = Operator("a+", 4.0, 4.0)
    model = Model(((tiny,) * 5,) * 10, (tiny,), MIB, 4.0, has_layers=False)
    assert Step(model, GPU, 1, {}).seconds == pytest.approx(Step(model, GPU, 64, {}).seconds, rel=0.01)


def test_what_is_recomputed_is_not_kept_and_takes_its_time_again():
    plain, half, layers = (Step(one_operator(), GPU, 8, counts) for counts in ({}, {"a+": 2}, {"Block+": 4}))
    assert plain.peak_bytes > half.peak_bytes > layers.peak_bytes
    assert plain.seconds < half.seconds < layers.seconds


def test_landscapes_of_a_seed_are_the_same_and_every_half_has_thirty():
    assert landscape_of(100) == landscape_of(100)
    assert len(OPEN) == len(KEPT) == 30
    assert [sum(map(is_tight, half)) for half in (OPEN, KEPT)] == [10, 10]
    assert not set(OPEN) & set(KEPT)
    table = Table(landscape_of(103))
    assert table.best > 0
    assert Replay(table, 0, "model").run().covered[0].compared > 0


def test_where_memory_is_tight_the_best_recomputes_and_where_it_is_not_it_does_not():
    tight, roomy = Table(landscape_of(123)), Table(landscape_of(103))
    assert tight.best_without_plans < 0.9 * tight.best
    assert roomy.best_without_plans == roomy.best


def test_a_finer_landscape_has_sizes_between_the_listed_and_is_the_same_else():
    coarse, fine = landscape_of(104), landscape_of(104, finer=True)
    listed, sizes = ({entry.batch_size for entry in one.table} for one in (coarse, fine))
    assert (sorted(listed), coarse.between) == ([1, 2, 3, 4, 6, 8, 12, 16], ())
    assert (sizes, fine.between) == (listed | {5, 7, 10, 14}, (5, 7, 10, 14))
    assert tuple(entry for entry in fine.table if entry.batch_size in listed) == coarse.table
    assert dataclasses.replace(fine, table=coarse.table, between=()) == coarse
    table = Table(fine)
    assert table.space.batch_sizes == tuple(sorted(sizes))
    assert table.best >= table.best_of_listed == Table(coarse).best


def test_above_sixteen_sizes_between_are_multiples_of_eight_that_are_not_there_yet():
    own = landscape_of(103, finer=True)
    listed = {entry.batch_size for entry in landscape_of(103).table}
    assert {48, 72} <= listed
    assert 64 in own.between or 56 in own.between
    assert all(size % 8 == 0 for size in own.between)
    assert not listed & set(own.between)


@pytest.mark.parametrize("kind", ["tails", "modes", "drift"])
def test_speeds_scatter_in_other_ways_too(kind):
    table = Table(dataclasses.replace(LANDSCAPE, noise_kind=kind, noise_cv=0.01))
    own = table.facts.baseline
    chance = random.Random(5)
    shifts = []
    for number in range(300):
        process = Process(table.landscape, chance, number)
        rates = [table.measure(own, process).measurement.samples_per_s for _ in range(2)]
        shifts.append(tuple(rate / table.speed(own) - 1 for rate in rates))
    far = [one for one in shifts if abs(one[0]) > 0.04]
    assert far, "an even scatter of 1 % has none"
    both = sum(abs(other) > 0.02 for _, other in far) / len(far)
    if kind == "modes":
        assert both > 0.9, "a process is slow from its beginning to its end"
    if kind == "tails":
        assert both < 0.5
    if kind == "drift":
        assert len(far) < 20
