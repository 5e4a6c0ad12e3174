"""What specs and configurations mean for the worker."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from autotune.errors import UsageError
from autotune.launch.requests import (
    description_request,
    discovery_request,
    fill_arguments,
    has_placeholder,
    repetition_request,
    trial_request,
    verify_request,
)
from autotune.records.configuration import Configuration
from autotune.records.engines import Engine
from autotune.records.facts import AccumulationControl, BatchControl, Facts, StepsFacts
from autotune.records.plan import parse_plans
from autotune.records.run import Verifying
from autotune.records.study import StudySpec
from tests.fakes.study_record import study_record


def spec(*arguments: str, **fields: object) -> StudySpec:
    return StudySpec("/train.py", arguments=arguments, **fields)  # type: ignore[arg-type]


def test_placeholders_are_found_with_and_without_the_scripts_own_size() -> None:
    assert has_placeholder(["--bs={batch_size}"])
    assert has_placeholder(["--bs", "{batch_size:32}"])
    assert not has_placeholder(["--bs", "{batch_size:x}", "{batch}"])


def test_every_placeholder_is_filled() -> None:
    filled = fill_arguments(["-b{batch_size:8}", "--eval={batch_size}", "x"], Configuration(batch_size=16))
    assert filled == ("-b16", "--eval=16", "x")


def test_without_a_batch_size_arguments_stay_as_they_are() -> None:
    assert fill_arguments(["-b{batch_size}"], Configuration()) == ("-b{batch_size}",)


@pytest.mark.parametrize(
    ("accumulation", "own", "filled"),
    [(0, None, ("-a4", "{accumulation}")), (0, 4, ("-a4", "4")), (2, None, ("-a2", "2")), (2, 4, ("-a2", "2"))],
)
def test_the_accumulation_is_the_configurations_or_else_the_scripts_own(
    accumulation: int, own: int | None, filled: tuple[str, ...]
) -> None:
    configuration = Configuration(batch_size=16, accumulation=accumulation)
    assert fill_arguments(["-a{accumulation:4}", "{accumulation}"], configuration, own_accumulation=own) == filled


def test_discovery_runs_with_the_accumulation_that_is_the_scripts_own() -> None:
    request = discovery_request(spec("--accumulate={accumulation:4}"))
    assert request.arguments == ("--accumulate=4",)
    assert request.accumulation_control == AccumulationControl("arguments", 4)
    assert request.accumulation is None
    assert discovery_request(spec("--lr", "1")).accumulation_control is None


@pytest.mark.parametrize(
    "arguments", [("{accumulation}",), ("{accumulation:0}",), ("{accumulation:2}", "{accumulation:4}")]
)
def test_an_accumulation_that_is_not_the_scripts_own_is_an_error_that_says_how_to_give_it(
    arguments: tuple[str, ...],
) -> None:
    with pytest.raises(UsageError) as caught:
        discovery_request(spec(*arguments))
    assert "{accumulation:4}" in caught.value.hint


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


@pytest.mark.parametrize(("steps", "most"), [(100, 12), (60, 9), (40, 4), (24, 2)])
def test_the_warm_up_in_cycles_of_batches_leaves_some_to_measure(steps: int, most: int) -> None:
    facts = study_record().facts
    assert facts is not None
    short, ahead = replace(facts, steps=StepsFacts(in_all=steps)), replace(spec(), look_ahead=1000)
    request = trial_request(ahead, short, [Configuration(batch_size=16)], 10**9)
    assert (request.look_ahead, request.measuring.max_warmup_steps) == (1000, most)


@pytest.mark.parametrize(("size", "most"), [(16, 12), (48, 8), (64, 5), (192, 2)])
def test_the_warm_up_of_a_script_with_few_steps_leaves_some_to_measure(size: int, most: int) -> None:
    """Guards trials of short scripts on busy machines, where step times do not settle."""
    facts = study_record().facts
    assert facts is not None
    assert facts.batch_size == 16
    short = replace(facts, steps=StepsFacts(in_all=40))
    request = trial_request(spec(), short, [Configuration(batch_size=size)], 10**9)
    assert request.measuring == replace(spec().measuring, max_warmup_steps=most)
    assert trial_request(spec(), facts, [Configuration(batch_size=size)], 10**9).measuring == spec().measuring


@pytest.mark.parametrize(
    ("size", "how", "is_set"),
    [(24, "loaders", 24), (24, "function", 24), (24, "none", None), (None, "loaders", None), (None, "none", None)],
)
def test_a_run_sets_a_batch_size_only_where_it_is_known_and_can_be_set(
    size: int | None, how: Literal["function", "loaders", "none"], is_set: int | None
) -> None:
    facts = study_record().facts
    assert facts is not None
    facts = replace(facts, batch_control=BatchControl(how))
    assert trial_request(spec(), facts, [Configuration(batch_size=size)], 10**9).batch_size == is_set


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
    heap = [Configuration(choices=("tcmalloc=1",))]
    assert trial_request(spec(), facts, heap, 10**9, may_fork=True).may_fork, "a fork server has that heap"
    assert not may_fork(replace(facts, fork_refusal="the script sets OMP_NUM_THREADS before it imports torch"))
    assert not may_fork(known), "what an earlier version has discovered does not say"


def test_kernels_are_searched_in_what_is_exported_and_not_where_settings_are_compared() -> None:
    facts = study_record().facts
    assert facts is not None
    one = Configuration("inductor", batch_size=8)
    assert trial_request(spec(), facts, [one], 10**9).kernel_search, "repetitions of a confirmation"
    assert not discovery_request(spec()).kernel_search, "trials are compared with it"
    assert not description_request(spec(), facts, 4, ends_at=None).kernel_search
    assert not trial_request(spec(), facts, [one], 10**9, kernel_search=False).kernel_search
    assert repetition_request(spec(), one, batch_control=facts.batch_control, accumulation_control=None).kernel_search
    for as_exported in (False, True):
        rules = Verifying(as_exported=as_exported)
        request = verify_request(spec(), one, rules, batch_control=facts.batch_control, limit_bytes=None)
        assert request.kernel_search is as_exported


def test_configurations_of_one_run_share_their_choices() -> None:
    facts = study_record().facts
    assert facts is not None
    two = (Configuration(batch_size=8), Configuration(batch_size=8, choices=("bf16=1",)))
    with pytest.raises(AssertionError, match="choices once"):
        trial_request(spec(), facts, two, 1)
