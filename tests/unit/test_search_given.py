"""Plans that were brought along: which of them a script has, and that a search begins with those."""

from __future__ import annotations

import dataclasses

import pytest

from autotune import pipeline
from autotune.records.configuration import Configuration
from autotune.records.facts import ClusterFacts
from autotune.records.plan import Plan, parse_plans
from autotune.records.study import StudySpec
from autotune.search.space import build_space
from autotune.store.database import open_store
from autotune.tuning.budget import Interruption
from tests.fakes.landscape import ENVIRONMENT, Landscape
from tests.fakes.launcher import FakeLauncher
from tests.fakes.watcher import FakeWatcher

FACTS = Landscape().facts


def spec_with(*entries, engine="aot", **fields):
    return StudySpec(script="train.py", engine=engine, plans_first=entries, **fields)


def given_of(*entries, facts=FACTS, engine="aot"):
    return build_space(facts, spec_with(*entries, engine=engine)).given


def row(name, saving=100, *, frequency=12, strategy=1, is_layer=False):
    return ClusterFacts(name, strategy, frequency, saving, "", 0.01, is_layer=is_layer)


def facts_with(*rows):
    return dataclasses.replace(FACTS, clusters=rows)


def test_plans_of_the_script_are_tried_first_and_those_of_another_engine_are_named():
    given = given_of("gelu+:1:-1,BiasGelu+:1:-1", "FusedMatMul+Add+:1:-1", "_softmax+:1:3")
    assert given.sets == ((Plan("gelu+", 1, -1),), (Plan("_softmax+", 1, 3),))
    assert given.unknown == (Plan("BiasGelu+", 1, -1), Plan("FusedMatMul+Add+", 1, -1))


def test_names_are_compared_to_the_letter():
    assert given_of("Gelu+:1:-1").unknown == (Plan("Gelu+", 1, -1),)


def test_a_strategy_that_the_script_s_cluster_does_not_have_is_unknown():
    assert given_of("gelu+:2:-1").unknown == (Plan("gelu+", 2, -1),)
    space = build_space(facts_with(row("gelu+"), row("gelu+", 50, strategy=2)), spec_with("gelu+:2:-1"))
    assert space.given.sets == ((Plan("gelu+", 2, -1),),)
    assert [cluster.strategy for cluster in space.clusters] == [2]


def test_of_two_strategies_for_a_cluster_the_first_is_tried():
    facts = facts_with(row("gelu+"), row("gelu+", 50, strategy=2))
    given = given_of("gelu+:1:-1", "gelu+:2:-1", facts=facts)
    assert given.sets == ((Plan("gelu+", 1, -1),),)
    assert given.passed_over == ((Plan("gelu+", 2, -1),),)


def test_a_count_that_was_given_is_in_the_space():
    space = build_space(FACTS, spec_with("gelu+:1:5,Block+:1:1"))
    assert space.counts["gelu+"] == (0, 5, 6, 12)
    assert space.counts["Block+"] == (0, 1, 3, 6, 9, 12)
    assert space.counts["_softmax+"] == (0, 6, 12)


def test_a_cluster_that_was_given_is_in_the_space_though_it_saves_next_to_nothing():
    facts = facts_with(row("gelu+", 10_000), row("add+", 10), row("view+", 0))
    space = build_space(facts, spec_with("add+:1:-1", "view+:1:-1"))
    assert space.counts.keys() == {"gelu+", "add+"}
    assert space.given.unknown == (Plan("view+", 1, -1),), "it saves nothing"


def test_what_was_on_together_is_taken_whole_and_more_only_while_there_is_room():
    rows = [row(f"op{i}+", 100 - i) for i in range(12)]
    together = ",".join(f"op{i}+:1:-1" for i in range(9))
    space = build_space(facts_with(*rows), spec_with(together, "op0+:1:-1", "op11+:1:-1"))
    assert [len(plans) for plans in space.given.sets] == [9, 1]
    assert space.given.passed_over == ((Plan("op11+", 1, -1),),)
    assert space.counts == {f"op{i}+": (0, 12) for i in range(9)}


def test_more_clusters_than_a_search_can_vary_are_passed_over():
    rows = [row(f"op{i}+", 100 - i) for i in range(13)]
    together = ",".join(f"op{i}+:1:-1" for i in range(13))
    space = build_space(facts_with(*rows), spec_with(together, "op12+:1:-1"))
    assert space.given.sets == ((Plan("op12+", 1, -1),),)
    assert [len(plans) for plans in space.given.passed_over] == [13]
    assert len(space.clusters) == 6


def test_few_sets_are_tried_where_each_takes_a_run_of_its_own():
    entries = [f"{name}:1:-1" for name in ("gelu+", "_softmax+", "mul+add+", "native_dropout+")]
    assert len(given_of(*entries).sets) == 4
    compiled = given_of(*entries, engine="inductor")
    assert (len(compiled.sets), len(compiled.passed_over)) == (3, 1)


def test_what_recomputes_nothing_is_no_plan():
    assert given_of("gelu+:0:-1", "gelu+:1:0") == given_of()


# -- in a study


def tuned(folder, spec):
    landscape = Landscape()
    script = folder / "train.py"
    script.write_text("import torch\n")
    watcher = FakeWatcher()
    launcher = FakeLauncher(
        landscape.measure, environment=ENVIRONMENT, facts=dataclasses.replace(landscape.facts), root=folder / "runs"
    )
    with open_store(str(folder / "studies.db")) as store:
        record = pipeline.tune(
            store.create("x", dataclasses.replace(spec, script=str(script), working_directory=str(folder))),
            launcher=launcher,
            watcher=watcher,
            interruption=Interruption(),
            runs=folder / "runs",
        )
    return record, watcher


@pytest.mark.parametrize("engine", ["aot", "inductor"])
def test_a_study_tries_them_before_anything_else_at_the_script_s_own_batch_size(tmp_path, engine):
    entries = ("gelu+:1:5,_softmax+:1:-1", "BiasGelu+:1:-1", "Block+:1:-1")
    record, watcher = tuned(tmp_path, spec_with(*entries, engine=engine, max_trials=4))
    first = {trial.configuration for trial in record.trials[1:3]}
    assert first == {Configuration(engine, parse_plans([entry]), 0, 16) for entry in (entries[0], entries[2])}
    assert watcher.said.index("given") < watcher.said.index("searching")
    assert watcher.plans_given.unknown == (Plan("BiasGelu+", 1, -1),)


def test_a_study_without_them_begins_as_ever(tmp_path):
    record, watcher = tuned(tmp_path, spec_with(max_trials=1))
    assert record.trials[1].configuration.batch_size != 16
    assert "given" not in watcher.said


def test_where_none_of_them_is_the_script_s_the_search_begins_as_ever(tmp_path):
    record, watcher = tuned(tmp_path, spec_with("BiasGelu+:1:-1", max_trials=1))
    assert record.trials[1].configuration.batch_size != 16
    assert watcher.plans_given.sets == ()
