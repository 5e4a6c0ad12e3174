"""Memory that an allocator holds for no tensor, and what a session then searches: segments that grow, another heap."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.records.arrivals import Arrivals, Arrived
from autotune.records.measurement import Peaks
from autotune.records.outcome import Fallback
from autotune.records.plan import Plan
from autotune.records.study import Objective, StudyRecord, StudySpec, Trial
from autotune.search import optuna_trials
from autotune.search.space import build_space
from autotune.tuning import trials
from autotune.verdict.idle_memory import widening_to_begin_with
from tests.fakes.landscape import MIB, measured
from tests.fakes.session import Session, new_landscape

HEAP = "libtcmalloc_minimal.so.4"


@pytest.mark.parametrize("sampler", ["model", "tpe", "random"])
def test_however_a_sampler_comes_to_its_end_idle_memory_is_tried_after_it(tmp_path, sampler):
    changes = {"max_trials": 60, "sampler": sampler}
    session = Session(tmp_path, new_landscape(idle_share=0.2), changes=changes)
    record = session.tune()
    assert session.watcher.said.count("goes on with expandable-segments") == 1
    assert any(trial.configuration.choices for trial in record.trials)


def test_where_memory_lies_idle_the_search_goes_on_with_segments_that_grow(tmp_path):
    session = Session(tmp_path, new_landscape(idle_share=0.2), changes={"max_trials": 30})
    record = session.tune()
    assert session.watcher.said.count("goes on with expandable-segments") == 1
    assert "that no tensor used" in session.watcher.idle
    assert record.verdict.winner.choices == ("expandable-segments=1",)
    without = [trial for trial in record.trials if not trial.configuration.choices]
    first = next(trial.number for trial in record.trials if trial.configuration.choices)
    assert all(trial.number < first for trial in without), "what needs no setting of the process comes first"
    best = session.landscape.best(trial.configuration for trial in without)
    assert session.landscape.samples_per_s(record.verdict.winner) > 1.02 * best
    assert "--allow" not in record.verdict.sentences


def test_on_a_cpu_whose_heap_keeps_memory_the_search_begins_with_another_heap(tmp_path):
    landscape = new_landscape(idle_share=0.3, device_kind="cpu", heap_libraries=(HEAP,))
    changes = {"max_trials": 20, "objective": Objective("memory", max_slowdown=0.5)}
    session = Session(tmp_path, landscape, changes=changes)
    record = session.tune()
    assert session.watcher.said.count("goes on with tcmalloc") == 1
    assert session.watcher.idle.startswith("the C library's heap kept up to ")
    others = [trial.configuration for trial in record.trials if trial.configuration.key != session.facts.baseline.key]
    assert others
    assert all(one.choices == ("tcmalloc=1",) for one in others)
    assert record.verdict.winner.plans, "what they free is seen"
    assert landscape.peak_bytes(record.verdict.winner) < 0.5 * landscape.peak_bytes(landscape.baseline)


@pytest.mark.parametrize(("ceiling_mib", "begins"), [(4000, True), (40_000, False)])
def test_for_speed_another_heap_comes_first_where_some_batch_size_should_not_fit(tmp_path, ceiling_mib, begins):
    landscape = new_landscape(
        idle_share=0.1, device_kind="cpu", heap_libraries=(HEAP,), ceiling_bytes=ceiling_mib * MIB
    )
    session = Session(tmp_path, landscape, changes={"max_trials": 6})
    session.tune()
    assert session.watcher.said.count("goes on with tcmalloc") == begins


def test_on_a_cpu_without_another_heap_the_answer_says_how_to_have_one(tmp_path):
    landscape = new_landscape(idle_share=0.3, device_kind="cpu")
    session = Session(tmp_path, landscape, changes={"max_trials": 6, "objective": Objective("memory")})
    record = session.tune()
    assert not any(trial.configuration.choices for trial in record.trials)
    assert "with tcmalloc it may take less. Install libtcmalloc-minimal4 (its name in Debian and Ubuntu)" in (
        record.verdict.sentences
    )
    assert "start a new study by adding --study" in record.verdict.sentences


def test_where_another_heap_always_fails_the_search_goes_on_without_it_and_remembers_that(tmp_path):
    landscape = new_landscape(idle_share=0.3, device_kind="cpu", heap_libraries=(HEAP,))

    def outcome_of(configuration):
        if configuration.makes("tcmalloc"):
            return Fallback("tcmalloc=1 changed nothing: it is not on this node", advice="")
        return landscape.measure(configuration)

    changes = {"max_trials": 12, "objective": Objective("memory", max_slowdown=0.5)}
    session = Session(tmp_path, landscape, changes=changes, outcome_of=outcome_of)
    record = session.tune()
    made = [trial.configuration.makes("tcmalloc") for trial in record.trials[1:]]
    assert made[0]
    assert not made[-1], "others were tried after it"
    again = session.again()
    again.study.set_spec(dataclasses.replace(again.spec, max_trials=16))
    more = again.tune()
    assert "goes on with tcmalloc" not in again.watcher.said
    assert not any(trial.configuration.makes("tcmalloc") for trial in more.trials[len(record.trials) :])


def test_another_heap_is_not_tried_unasked_beside_a_choice_that_excludes_it(tmp_path):
    landscape = new_landscape(idle_share=0.3, device_kind="cpu", heap_libraries=(HEAP,))
    changes = {"max_trials": 6, "objective": Objective("memory"), "choices": ("mmap-threshold",)}
    record = Session(tmp_path, landscape, changes=changes).tune()
    made = {one for trial in record.trials for one in trial.configuration.choices}
    assert made == {"mmap-threshold=1"}


def test_given_plans_are_tried_with_another_heap_too(tmp_path):
    landscape = new_landscape(idle_share=0.3, device_kind="cpu", heap_libraries=(HEAP,))
    changes = {"max_trials": 6, "objective": Objective("memory"), "plans_first": ("gelu+:1:-1",)}
    record = Session(tmp_path, landscape, changes=changes).tune()
    (first,) = [trial.configuration for trial in record.trials if trial.configuration.plans == (Plan("gelu+", 1, -1),)]
    assert first.makes("tcmalloc")


def test_of_several_processes_each_needs_what_the_first_one_does():
    facts = new_landscape(idle_share=0.3, device_kind="cpu", heap_libraries=(HEAP,)).facts
    (row,) = facts.memory_matrix
    two = measured(100.0, 16, 2 * row.peak)
    two = dataclasses.replace(
        two, measurement=dataclasses.replace(two.measurement, num_processes=2, peaks=Peaks(resident=2 * row.peak))
    )
    trial = Trial(0, facts.baseline, "finished", two, facts.environment)
    record = StudyRecord("s", StudySpec("train.py"), 0.0, "0", facts, (trial,), ())
    assert widening_to_begin_with(record) is None
    alone = dataclasses.replace(two, measurement=dataclasses.replace(two.measurement, num_processes=1))
    more = dataclasses.replace(record, trials=(dataclasses.replace(trial, outcome=alone),))
    assert widening_to_begin_with(more).choice == "tcmalloc"


def test_where_batches_bring_more_data_at_times_nothing_is_said_of_the_heap(tmp_path):
    varying = Arrivals(16, (Arrived("x", 1000.0, error=0.2),))
    landscape = new_landscape(idle_share=0.3, device_kind="cpu", heap_libraries=(HEAP,), arrivals=varying)
    session = Session(tmp_path, landscape, changes={"max_trials": 6, "objective": Objective("memory")})
    record = session.tune()
    assert "tcmalloc" not in " ".join([*session.watcher.said, record.verdict.sentences])


def test_a_resumed_study_knows_that_memory_lies_idle(tmp_path):
    session = Session(tmp_path, new_landscape(idle_share=0.2), changes={"max_trials": 30})
    before = session.tune()
    again = session.again()
    record = again.tune()
    assert "goes on with expandable-segments" not in again.watcher.said
    assert record.verdict.winner == before.verdict.winner
    tried = [trial.configuration.key for trial in record.trials if not trial.recovered]
    assert len(tried) == len(set(tried))


def test_a_search_that_has_no_time_left_does_not_go_on_with_segments_that_grow(tmp_path, monkeypatch):
    session = Session(tmp_path, new_landscape(idle_share=0.2), changes={"max_trials": 30})
    run = trials.Trials._run_devices

    def run_out(own):
        end = run(own)
        session.interruption.finish.set()
        return end

    monkeypatch.setattr(trials.Trials, "_run_devices", run_out)
    record = session.tune()
    assert "goes on with expandable-segments" not in session.watcher.said
    assert "This study tries it if you resume it" in record.verdict.sentences


def test_a_study_that_stopped_early_searches_without_segments_that_grow_first(tmp_path):
    first = Session(tmp_path, new_landscape(idle_share=0.2), changes={"max_trials": 2})
    first.tune()
    second = first.again()
    second.study.set_spec(dataclasses.replace(second.spec, max_trials=40))
    record = second.tune()
    assert second.watcher.said.count("goes on with expandable-segments") == 1
    kinds = [bool(trial.configuration.choices) for trial in record.trials]
    assert kinds == sorted(kinds)
    assert kinds[-1]


def test_a_search_leaves_out_what_a_wider_one_of_another_process_has_tried(tmp_path):
    session = Session(tmp_path, new_landscape(idle_share=0.2), changes={"max_trials": 30})
    record = session.tune()
    made = {trial.number for trial in record.trials if trial.configuration.choices}
    assert made
    narrow = build_space(session.facts, session.spec)
    seen = optuna_trials.observe(session.study.optuna, narrow)
    assert made.isdisjoint(one.number for one in seen)
    wide = build_space(session.facts, session.spec, unasked=("expandable-segments",))
    known = {one.number: one.configuration for one in optuna_trials.observe(session.study.optuna, wide)}
    assert known == {trial.number: trial.configuration for trial in record.trials}


@pytest.mark.parametrize(
    ("share", "changes"),
    [(0.01, {}), (0.2, {"choices": ("expandable-segments",)}), (0.2, {"max_trials": 2})],
    ids=["little", "allowed", "no trial left"],
)
def test_the_search_does_not_go_on_with_segments_that_grow(tmp_path, share, changes):
    session = Session(tmp_path, new_landscape(idle_share=share), changes={"max_trials": 30, **changes})
    session.tune()
    assert "goes on with expandable-segments" not in session.watcher.said
