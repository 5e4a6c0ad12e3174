"""What specs and configurations mean for the worker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.errors import UsageError
from autotune.launch import discovery_request, fill_arguments, has_placeholder, trial_request
from autotune.records import BatchControl, Configuration, Engine, Facts, StudySpec, parse_plans
from tests.fakes.study_record import study_record


def spec(*arguments: str, **fields: object) -> StudySpec:
    return StudySpec("/train.py", arguments=arguments, **fields)  # type: ignore[arg-type]


def test_placeholders_are_found_with_and_without_the_scripts_own_size() -> None:
    assert has_placeholder(["--bs={batch_size}"])
    assert has_placeholder(["--bs", "{batch_size:32}"])
    assert not has_placeholder(["--bs", "{batch_size:x}", "{batch}"])


def test_every_placeholder_is_filled() -> None:
    assert fill_arguments(["-b{batch_size:8}", "--eval={batch_size}", "x"], 16) == ("-b16", "--eval=16", "x")


def test_without_a_batch_size_arguments_stay_as_they_are() -> None:
    assert fill_arguments(["-b{batch_size}"], None) == ("-b{batch_size}",)


def test_discovery_leaves_a_script_without_placeholder_alone() -> None:
    request = discovery_request(spec("--lr", "1"))
    assert request.mode == "discover"
    assert request.arguments == ("--lr", "1")
    assert request.configurations == (Configuration(),)
    assert request.batch_control is None
    assert request.memory_limit_bytes is None


@pytest.mark.parametrize("given", [spec("--bs={batch_size:8}"), spec("--bs={batch_size}", own_batch_size=8)])
def test_discovery_runs_with_the_size_that_is_the_scripts_own(given: StudySpec) -> None:
    request = discovery_request(given)
    assert request.arguments == ("--bs=8",)
    assert request.configurations == (Configuration(batch_size=8),)
    assert request.batch_control == BatchControl("arguments")


def test_a_placeholder_without_the_scripts_own_size_is_an_error_that_says_how_to_give_it() -> None:
    with pytest.raises(UsageError) as caught:
        discovery_request(spec("--bs={batch_size}"))
    assert "{batch_size:32}" in caught.value.hint


def test_a_trial_carries_limit_control_and_filled_arguments() -> None:
    facts = study_record().facts
    assert facts is not None
    configurations = [Configuration("aot", parse_plans(["gelu+:1:-1"]), batch_size=24), Configuration(batch_size=24)]
    request = trial_request(spec("--bs={batch_size:8}"), facts, configurations, 10**9)
    assert request.mode == "measure"
    assert request.arguments == ("--bs=24",)
    assert request.configurations == tuple(configurations)
    assert request.memory_limit_bytes == 10**9
    assert request.batch_control == facts.batch_control


def test_a_trial_may_be_forked_where_caller_script_and_engine_allow_it() -> None:
    known = study_record().facts
    assert known is not None
    facts = replace(known, fork_refusal="")

    def may_fork(facts: Facts, engine: Engine = "aot", *, asked: bool = True) -> bool:
        return trial_request(spec(engine=engine), facts, [Configuration()], 10**9, may_fork=asked).may_fork

    assert may_fork(facts)
    assert may_fork(facts, "eager")
    assert not may_fork(facts, asked=False)
    assert not may_fork(facts, "ortmodule")
    chosen = [Configuration(choices=("expandable-segments=1",))]
    assert not trial_request(spec(), facts, chosen, 10**9, may_fork=True).may_fork
    assert not may_fork(replace(facts, fork_refusal="the script sets OMP_NUM_THREADS before it imports torch"))
    assert not may_fork(known), "what an earlier version has discovered does not say"


def test_configurations_of_one_run_share_their_choices() -> None:
    facts = study_record().facts
    assert facts is not None
    two = (Configuration(batch_size=8), Configuration(batch_size=8, choices=("bf16=1",)))
    with pytest.raises(AssertionError, match="choices once"):
        trial_request(spec(), facts, two, 1)
