"""Every record survives its JSON; plans and mem_opt.json are read as ONNX Runtime reads them."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pkgutil
import string
import types
import typing
from typing import Any, Literal, Union

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune import records
from autotune.errors import FormatError, PlanError
from autotune.records.codec import dumps, from_json, loads, to_json
from autotune.records.configuration import Configuration, SizedPlans
from autotune.records.facts import Preload
from autotune.records.measurement import Peaks
from autotune.records.outcome import Outcome
from autotune.records.plan import ALL, Plan, dump_mem_opt, load_mem_opt, parse_plan, parse_plans
from autotune.records.progress import Progress
from autotune.records.run import Line
from autotune.records.stack import Stack
from autotune.records.study import StudyRecord
from tests.fakes.study_record import baseline_best, cpu_study, study_record, unfinished

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
# JSON text in a file is UTF-8, which has no lone surrogates.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
CLUSTER_IDS = st.lists(st.text(string.ascii_letters + string.digits + "_.", min_size=1, max_size=8), min_size=1).map(
    lambda operators: "".join(operator + "+" for operator in operators)
)
PLANS = st.builds(Plan, CLUSTER_IDS, st.sampled_from([0, 1, 2]), st.integers(ALL, 1000))


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values that fit a type hint, of the kinds that the codec knows."""
    if hint is Plan:
        return PLANS
    if hint in (str, int, float, bool, type(None)):
        return {str: TEXTS, int: st.integers(), float: FLOATS, bool: st.booleans(), type(None): st.none()}[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(member) for member in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, arguments))
    if origin is dict:
        return st.dictionaries(TEXTS, values_of(arguments[1]), max_size=2)
    assert dataclasses.is_dataclass(hint), hint
    hints = typing.get_type_hints(hint)
    return st.builds(hint, **{field.name: values_of(hints[field.name]) for field in dataclasses.fields(hint)})


ALL_RECORDS = [
    record
    for module in pkgutil.iter_modules(records.__path__, f"{records.__name__}.")
    for _, record in inspect.getmembers(importlib.import_module(module.name), inspect.isclass)
    if record.__module__ == module.name and dataclasses.is_dataclass(record)
    if not (
        record is Progress or inspect.isabstract(record) or record.__name__.startswith("_")
    )  # Progress is bytes, not JSON
]

quick = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("record", ALL_RECORDS, ids=lambda record: record.__name__)
def test_every_record_survives_its_json(record):
    @quick
    @given(values_of(record))
    def survives(value):
        text = dumps(value)
        assert "\n" not in text, "a record is one line of results.jsonl"
        assert loads(record, text) == value
        assert loads(record, dumps(value, indent=2)) == value

    survives()


@pytest.mark.parametrize("union", [Outcome, Line], ids=["Outcome", "Line"])
def test_tagged_unions_come_back_as_the_member_that_was_written(union):
    @quick
    @given(values_of(union))
    def survives(value):
        again = loads(union, dumps(value))
        assert type(again) is type(value)
        assert again == value

    survives()


@pytest.mark.parametrize("make", [study_record, baseline_best, unfinished, cpu_study])
def test_whole_studies_survive_their_json(make):
    record = make()
    assert loads(StudyRecord, dumps(record)) == record


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@quick
@given(st.sampled_from(ALL_RECORDS), ANY_JSON)
def test_json_of_any_other_shape_is_a_format_error_or_a_record(record, data):
    try:
        value = from_json(record, data)
    except (FormatError, PlanError):
        return
    assert isinstance(value, record)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_stack_with_any_one_value_replaced_is_a_format_error_or_a_stack(data):
    good = json.loads(dumps(_stack()))
    field = data.draw(st.sampled_from(sorted(good)))
    try:
        value = from_json(Stack, good | {field: data.draw(ANY_JSON)})
    except FormatError as error:
        said = str(error)
    else:
        said = field
        assert isinstance(value, Stack)
    assert field in said


def _stack() -> Stack:
    from autotune.export.stack import build_stack
    from tests.fakes.study_record import WINNER

    return build_stack(study_record(), WINNER)


def test_unknown_keys_are_passed_over_so_that_older_readers_read_newer_writers():
    data = to_json(Configuration("aot", (), 0, 8)) | {"added_later": [1, 2]}
    assert from_json(Configuration, data) == Configuration("aot", (), 0, 8)


def test_a_missing_key_is_named_with_its_place():
    with pytest.raises(FormatError, match=r"'strategy' is missing"):
        from_json(Configuration, {"plans": [{"cluster_id": "gelu+", "count": 1}]})


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_without_a_json_form_are_refused_when_written(number):
    with pytest.raises(FormatError):
        dumps({"rate": number})


@given(
    st.builds(
        Progress,
        st.sampled_from(["start", "forward", "backward", "optimizer"]),
        st.integers(0, 2**16 - 1),
        *[st.integers(0, 2**32 - 1)] * 4,
        FLOATS,
        measuring_since_s=FLOATS,
    )
)
def test_progress_survives_its_bytes(progress):
    data = progress.to_bytes()
    assert len(data) == Progress.SIZE
    assert Progress.from_bytes(data) == progress


@given(st.binary(max_size=64))
def test_progress_of_other_bytes_is_not_there_yet(data):
    assert Progress.from_bytes(data) is None or data.startswith(b"ATP2")


# Plans


@given(PLANS)
def test_a_plan_is_written_and_read_alike(plan):
    assert parse_plan(str(plan)) == plan


@given(st.lists(PLANS, max_size=6))
def test_plans_joined_by_commas_are_the_same_as_plans_in_a_list(plans):
    texts = [str(plan) for plan in plans]
    assert parse_plans(texts) == (parse_plans([",".join(texts)]) if texts else ())


@given(st.lists(PLANS, max_size=6))
def test_of_two_plans_for_one_cluster_the_last_one_wins(plans):
    last = {plan.cluster_id: plan for plan in plans}
    assert set(parse_plans(map(str, plans))) == set(last.values())


@given(st.text(max_size=20))
def test_any_text_is_a_plan_or_a_plan_error(text):
    try:
        plan = parse_plan(text)
    except PlanError:
        return
    assert isinstance(plan, Plan)


@pytest.mark.parametrize(
    "text", ["", "gelu+", "gelu+:1", "gelu+:1:-1:0", ":1:-1", "gelu+:3:-1", "gelu+:1:-2", "gelu+:one:1", "gelu+:1:1.5"]
)
def test_malformed_plans_are_shown_and_explained(text):
    with pytest.raises(PlanError, match=r"plan|cluster") as caught:
        parse_plan(text)
    assert "gelu+:1:-1" in caught.value.hint


def test_counts_mean_the_first_occurrences():
    assert [Plan("gelu+", 1, count).applies_to(12) for count in (ALL, 0, 5, 20)] == [12, 0, 5, 12]
    assert Plan("gelu+", 0, ALL).applies_to(12) == 0


# mem_opt.json


def as_onnx_runtime_reads(text: str) -> dict[str, tuple[int, int]]:
    """ONNX Runtime's own rules, written down independently: strings of exactly three fields, the last one wins."""
    chosen = {}
    for entry in json.loads(text):
        for plan in entry.split(","):
            cluster_id, strategy, count = plan.split(":")
            assert strategy in {"0", "1", "2"}
            assert count == "-1" or count.isdecimal()
            chosen[cluster_id] = (int(strategy), int(count))
    return chosen


@given(st.lists(PLANS, max_size=6))
def test_onnx_runtime_reads_what_we_write(plans):
    merged = parse_plans(map(str, plans))
    text = dump_mem_opt(merged)
    assert as_onnx_runtime_reads(text) == {plan.cluster_id: (plan.strategy, plan.count) for plan in merged}
    assert load_mem_opt(text) == merged


def test_the_file_is_this_byte_for_byte():
    text = dump_mem_opt(parse_plans(["Reshape+Where+:1:-1", "BiasGelu+:1:12"]))
    assert text == '[\n  "BiasGelu+:1:12",\n  "Reshape+Where+:1:-1"\n]\n'
    assert dump_mem_opt(()) == "[]\n"


@pytest.mark.parametrize(
    "text",
    [
        '[\n    "BiasGelu+:1:1",\n    "Dropout+:1:-1"\n]',  # indented as people write it
        '["BiasGelu+:1:1,Dropout+:1:-1"]',  # a combination in one entry
        '["Dropout+:0:3", "BiasGelu+:1:1", "Dropout+:1:-1"]',  # the last one wins
        '["BiasGelu+:1:1", " Dropout+:1:-1 "]',
    ],
)
def test_files_that_people_have_are_read(text):
    assert load_mem_opt(text) == (Plan("BiasGelu+", 1, 1), Plan("Dropout+", 1, ALL))


@pytest.mark.parametrize("text", ["", "{}", "[1]", '["gelu+"]', "null", '[["gelu+:1:1"]]', "[" * 10])
def test_other_files_are_refused(text):
    with pytest.raises(PlanError):
        load_mem_opt(text)


def test_of_two_processes_in_the_same_step_the_one_in_the_earlier_phase_is_less_far():
    """Guards the phase of a run that hangs: the others wait in their backwards for the one that is stuck before."""
    stuck = Progress("forward", 0, 5, 1, 2, 1001, 7.0)
    waiting = dataclasses.replace(stuck, phase="backward", rank=0, process=1000)
    ahead = dataclasses.replace(stuck, steps=6)
    begun = dataclasses.replace(stuck, rank=2, process=1002, marks=stuck.marks + 1)
    assert min([waiting, ahead, begun, stuck], key=lambda progress: progress.place) == stuck


@pytest.mark.parametrize("device", ["", "ffc79498-8ff3-c2dc-3b0d-fafd804516ae"])
def test_progress_survives_its_file_and_is_none_while_that_is_not_written_yet(device):
    progress = Progress("backward", 2, 5, 1, 4, 1001, 7.5, device, marks=2**31 + 1)
    data = progress.to_bytes()
    assert len(data) == Progress.SIZE
    assert Progress.from_bytes(data) == progress
    assert Progress.from_bytes(data[:-1]) is None
    assert Progress.from_bytes(bytes(len(data))) is None


def test_trials_are_numbered_for_people_as_they_ended_and_without_gaps():
    record = study_record()
    first, second, third, fourth = record.trials[:4]
    given_back = dataclasses.replace(second, outcome=None, recovered=True)
    running = dataclasses.replace(fourth, number=5, outcome=None, finished_at=None, state="running")
    late = dataclasses.replace(third, number=3, finished_at=third.finished_at + 100)
    early = dataclasses.replace(second, number=4, finished_at=second.finished_at + 50)
    shown = dataclasses.replace(record, trials=(first, given_back, late, early, running)).shown
    assert [one.number for one in shown] == [0, 1, 2, 3]
    assert [one.configuration for one in shown] == [one.configuration for one in (first, early, late, running)]
    assert dataclasses.replace(record, trials=(first, given_back, late, early)).shown_number(4) == 1


@dataclasses.dataclass
class _Odd:
    value: Any


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", float("inf")])
def test_what_has_no_json_form_is_refused(value):
    with pytest.raises(FormatError, match="has no JSON form"):
        dumps(_Odd(value))


def test_a_peak_is_what_the_card_or_the_host_loses_and_none_is_no_figure():
    assert Peaks(reserved=7, non_torch=2, resident=100).fit_bytes == 9
    assert Peaks(reserved=7).fit_bytes == 7
    assert Peaks(allocated=3, resident=100).fit_bytes == 100
    assert Peaks(allocated=3).fit_bytes is None


def test_of_what_is_imported_ahead_nothing_is_left_from_the_first_that_is_refused_on():
    wanted = Preload(("accelerate", "rich", "transformers"), ("numpy",), brings_torch=True)
    assert wanted.up_to({"peft"}) == wanted
    assert wanted.up_to({"transformers", "rich"}) == dataclasses.replace(wanted, modules=("accelerate",))
    assert wanted.up_to({"accelerate"}) == Preload()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"choices": ("bf16=1",)},
        {"accumulation": 3},
        {"sized": (SizedPlans(((4, 225),)), SizedPlans(((4, 450),), (Plan("gelu+", 1, 2),)))},
    ],
    ids=repr,
)
def test_a_configuration_comes_back_from_its_key(changes):
    made = Configuration("aot", (Plan("Block+", 1, -1),), 1, 8, **changes)
    assert Configuration.from_key(made.key) == made
    assert len({made.key, Configuration("aot", (Plan("Block+", 1, -1),), 1, 8).key}) == 1 + bool(changes)


def test_plans_for_smaller_batches_hold_for_no_call_without_tensors():
    assert not SizedPlans(()).hold_for(())
    assert not SizedPlans(((4, 9),)).hold_for(())
