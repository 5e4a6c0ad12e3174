"""The dashboard for Grafana: its queries, as Grafana sends them, run by a reader and held against our own figures."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
import yaml

from autotune.records.gate import Gate, Gauge, PastGate
from autotune.records.outcome import Measured
from autotune.records.study import Objective, Remark, Repeat
from autotune.records.study_results import figures_of
from autotune.store.database import open_store
from autotune.verdict.memory_limit import answer_limit_of
from tests.fakes.grafana import as_sent
from tests.fakes.hostile_names import HOSTILE_NAMES
from tests.fakes.postgresql import postgresql_schema
from tests.fakes.study_record import BASELINE, GIB, WINNER, baseline_best, measured, study_record

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "dashboards/grafana"
DASHBOARD = json.loads((FOLDER / "studies.json").read_text(encoding="utf-8"))
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"]}
QUERIES = {title: target["rawSql"] for title, panel in PANELS.items() for target in panel["targets"]}
STUDIES, RATES, PEAKS = "Studies", "Samples per second", "Peaks and the limit"
OUTCOMES, GATES = "Outcomes", "Gates"
SPEEDS, GROWTHS = "Gates: samples/s now, as a share of before", "Gates: memory growth"

NOW = time.time()
# The second speaks to SQL, the third to Grafana, whose macros are replaced in texts too.
NAMES = ("train-9f2c", HOSTILE_NAMES["SQL"], "$__timeFrom() $__unixEpochFilter(1) ${study}", HOSTILE_NAMES["quotes"])


def fill(store, name, record):
    """Put a study into a database as a run of it does; gives it as it is there."""
    study = store.create(name, record.spec)
    if record.facts is not None:
        study.set_facts(record.facts)
    for trial in record.trials:
        number = study.optuna.ask().number
        assert study.begin(number, trial.configuration, trial.run_directory)
        if trial.outcome is not None:
            assert study.finish(number, trial.outcome, trial.environment)
    for repeat in record.repeats:
        study.add_repeat(repeat)
    if record.verdict is not None:
        study.set_verdict(record.verdict)
    return study.record()


def gate(answer, script="train.py", **gauges):
    figures = {"speed": (100.0, 1.0), "memory": (8.0 * GIB, 1.0)} | gauges
    return PastGate(
        NOW - 60.0,
        script,
        "0" * 64,
        WINNER.key,
        Gate(
            answer,
            ("It is.",),
            "stored",
            3,
            tuple(
                Gauge(name, now / change, now, change, None, None, 0.05, "within")
                for name, (now, change) in figures.items()
            ),
        ),
    )


class Reader:
    """Somebody in Grafana, with the role that looks at studies."""

    def __init__(self, url):
        self._engine = sa.create_engine(sa.make_url(url), poolclass=sa.NullPool)

    def ask(self, sql, study="0", *, begin=NOW - 3600, end=NOW + 3600):
        with self._engine.connect() as connection:
            # As a driver without parameters sends it: a percent sign is one.
            sent = as_sent(sql, {"study": study}, begin=begin, end=end).replace("%", "%%")
            return [dict(row._mapping) for row in connection.exec_driver_sql(sent)]

    def panel(self, title, name=None, **times):
        return self.ask(QUERIES[title], "0" if name is None else self.studies()[name], **times)

    def studies(self):
        """What the variable offers: the values by what is shown."""
        (variable,) = DASHBOARD["templating"]["list"]
        return {row["__text"]: row["__value"] for row in self.ask(variable["query"])}


@pytest.fixture
def database():
    """Gives a store to fill, and who may only read it."""
    with (
        postgresql_schema() as place,
        open_store(place.url) as store,
        place.reader() as reader,
    ):
        yield store, Reader(reader)


@pytest.fixture(scope="module")
def filled():
    """A database with a study of each name, all of them alike but for one trial less each, and with three gates."""
    with postgresql_schema() as place:
        with open_store(place.url) as store:
            record = study_record()
            kept = {
                name: fill(store, name, dataclasses.replace(record, trials=record.trials[: len(record.trials) - index]))
                for index, name in enumerate(NAMES)
            }
            store.add_gate(gate("pass"))
            store.add_gate(gate("regression", "other.py", speed=(90.0, 0.9), memory=(9.0 * GIB, 1.125)))
            failed = Gate("failed", ("It did not run.",), "stored", 0)
            store.add_gate(PastGate(NOW - 30.0, "train.py", "0" * 64, WINNER.key, failed))
        with place.reader() as url:
            yield kept, Reader(url)


def shown(reader, name):
    (row,) = (row for row in reader.panel(STUDIES) if row["study"] == name)
    return row


def best(row):
    return row["best samples/s"], row["its peak"]


def as_figures(record, configuration):
    figures = figures_of(record, configuration)
    return pytest.approx(figures.samples_per_s), figures.peaks.fit_bytes


# -- what each panel shows


@pytest.mark.postgresql
@pytest.mark.parametrize("title", PANELS)
def test_a_reader_gets_rows_for_every_panel_with_times_in_order(filled, title):
    rows = filled[1].panel(title, NAMES[0])
    assert rows
    if PANELS[title]["type"] == "timeseries":
        times = [row.pop("time").timestamp() for row in rows]
        assert times == sorted(times)
        assert all(NOW - 3600 < one < NOW + 3600 for one in times)
        assert all(isinstance(value, int | float) for row in rows for name, value in row.items() if name != "metric")


@pytest.mark.postgresql
def test_the_studies_are_listed_with_what_their_answers_come_to(filled):
    kept, reader = filled
    rows = reader.panel(STUDIES)
    assert [row["study"] for row in rows] == list(reversed(NAMES))
    for row in rows:
        record = kept[row["study"]]
        assert row["script"] == record.spec.script
        assert row["state"] == record.verdict.kind_of_answer == "winner"
        assert row["trials"] == sum(trial.outcome is not None for trial in record.trials)
        assert best(row) == as_figures(record, record.verdict.winner)
        assert row["begun"].timestamp() == pytest.approx(record.created_at, abs=1e-5)
        assert row["last trial"].timestamp() == pytest.approx(
            max(trial.finished_at for trial in record.trials), abs=1e-5
        )


@pytest.mark.postgresql
def test_of_several_confirmations_the_latest_with_most_repetitions_counts(database):
    store, reader = database
    confirmations = [(1, 3, 180.0), (2, 4, 190.0), (3, 4, 185.0), (4, 2, 200.0)]
    repeats = [
        Repeat(WINNER, number, measured(rate + number, 48, 20.0 + number, seed=number), confirmation=confirmation)
        for confirmation, repetitions, rate in confirmations
        for number in range(repetitions)
    ]
    record = fill(store, "s", study_record(repeats=tuple(repeats)))
    rate, peak = best(shown(reader, "s"))
    assert (rate, peak) == as_figures(record, WINNER)
    assert 186 < rate < 188
    assert peak == 23 * GIB


@pytest.mark.postgresql
def test_a_repetition_that_failed_is_no_figure(database):
    store, reader = database
    record = study_record()
    lost = Repeat(WINNER, 3, record.trials[3].outcome)
    record = fill(store, "s", dataclasses.replace(record, repeats=(*record.repeats, lost)))
    assert best(shown(reader, "s")) == as_figures(record, WINNER)


@pytest.mark.postgresql
def test_without_repetitions_the_first_trial_of_the_answer_counts(database):
    store, reader = database
    record = study_record()
    (first,) = (trial for trial in record.trials if trial.configuration == WINNER)
    again = dataclasses.replace(first, outcome=measured(150.0, 48, 19.0))
    record = fill(store, "s", dataclasses.replace(record, trials=(*record.trials, again), repeats=()))
    assert best(shown(reader, "s")) == as_figures(record, WINNER)


@pytest.mark.postgresql
def test_the_script_as_it_stands_can_be_the_best(database):
    store, reader = database
    record = fill(store, "s", baseline_best())
    row = shown(reader, "s")
    assert row["state"] == "baseline_best"
    assert best(row) == as_figures(record, BASELINE)


@pytest.mark.postgresql
@pytest.mark.parametrize(
    "record",
    [
        study_record(verdict=None),
        study_record(facts=None, trials=(), repeats=(), verdict=None),
        study_record(verdict=dataclasses.replace(study_record().verdict, kind_of_answer="nothing_fits", winner=None)),
    ],
    ids=["not finished", "just begun", "no winner"],
)
def test_a_study_without_an_answer_has_no_best(database, record):
    store, reader = database
    fill(store, "s", record)
    row = shown(reader, "s")
    assert row["state"] == ("nothing_fits" if record.verdict else "not finished")
    assert row["trials"] == len(record.trials)
    assert best(row) == (None, None)


@pytest.mark.postgresql
@pytest.mark.parametrize("verdict", [study_record().verdict, None], ids=["answered", "not finished"])
def test_what_is_no_text_to_postgresql_hides_no_study(database, verdict):
    store, reader = database
    record = study_record()
    spec = dataclasses.replace(record.spec, arguments=(*HOSTILE_NAMES.values(), "\x00", "\\u0000"), script="/训练/é.py")
    facts = dataclasses.replace(record.facts, notes=("a\udcff\x00",))
    verdict = verdict and dataclasses.replace(verdict, reason=Remark("winner", "a\udcff\x00"))
    record = fill(store, "s", dataclasses.replace(record, spec=spec, facts=facts, verdict=verdict))
    assert shown(reader, "s")["script"] == "/训练/é.py"
    assert {row["limit"] for row in reader.panel(PEAKS, "s")} == {answer_limit_of(record)}


@pytest.mark.postgresql
def test_the_chosen_study_s_rates_and_peaks_are_those_of_its_measured_trials(filled):
    kept, reader = filled
    trials = sorted((one for one in kept[NAMES[0]].trials if one.measured), key=lambda one: one.finished_at)
    measurements = [trial.measured for trial in trials]
    times = [pytest.approx(trial.finished_at, abs=1e-5) for trial in trials]
    rates, peaks = reader.panel(RATES, NAMES[0]), reader.panel(PEAKS, NAMES[0])
    assert [row["samples/s"] for row in rates] == [one.samples_per_s for one in measurements]
    assert [row["peak"] for row in peaks] == [one.peaks.fit_bytes for one in measurements]
    assert [row["time"].timestamp() for row in rates] == times
    assert [row["time"].timestamp() for row in peaks] == times


LIMITS = {
    "the device's": {},
    "asked for": {"memory_limit_bytes": 20 * GIB},
    "more than there is": {"memory_limit_bytes": 99 * GIB},
    "a target below it": {
        "memory_limit_bytes": 20 * GIB,
        "objective": Objective(target_memory_bytes=12 * GIB),
    },
}


@pytest.mark.postgresql
@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "not finished"])
@pytest.mark.parametrize("asked", LIMITS.values(), ids=LIMITS)
def test_peaks_are_held_against_the_limit_of_the_answer(database, asked, is_answered):
    store, reader = database
    record = study_record()
    spec = dataclasses.replace(record.spec, **asked)
    limit = min(23 * GIB, asked.get("memory_limit_bytes", 23 * GIB))  # of its device something was taken already
    verdict = dataclasses.replace(record.verdict, memory_limit_bytes=limit) if is_answered else None
    record = fill(store, "s", dataclasses.replace(record, spec=spec, verdict=verdict))
    assert {row["limit"] for row in reader.panel(PEAKS, "s")} == {answer_limit_of(record)}


@pytest.mark.postgresql
def test_outcomes_are_counted_by_kind(filled):
    kept, reader = filled
    kinds = [trial.outcome.kind for trial in kept[NAMES[0]].trials]
    rows = reader.panel(OUTCOMES, NAMES[0])
    assert {row["outcome"]: row["trials"] for row in rows} == {kind: kinds.count(kind) for kind in kinds}
    assert len(rows) == 4


@pytest.mark.postgresql
def test_trials_that_run_or_were_given_back_have_no_outcome(database):
    store, reader = database
    record = study_record()
    unmeasured = dataclasses.replace(record.trials[0], outcome=None)
    fill(store, "s", dataclasses.replace(record, trials=(*record.trials[:2], unmeasured, unmeasured)))
    store.open("s").release(3)
    assert reader.panel(OUTCOMES, "s") == [{"outcome": Measured.kind, "trials": 2}]
    assert shown(reader, "s")["trials"] == 2


@pytest.mark.postgresql
def test_gates_are_shown_with_their_verdicts_ratios_and_growth(filled):
    rows = filled[1].panel(GATES)
    assert [row["verdict"] for row in rows] == ["failed", "pass", "regression"]
    failed, passed, lost = rows
    assert failed["speed, of before"] is failed["memory growth"] is None
    assert (passed["script"], passed["speed, of before"], passed["memory growth"]) == ("train.py", 1.0, 0.0)
    assert (lost["script"], lost["speed, of before"], lost["memory growth"]) == ("other.py", 0.9, 0.125)
    assert (lost["samples/s"], lost["peak"], lost["setting"]) == (90.0, 9 * GIB, WINNER.key)
    assert lost["held"].timestamp() == pytest.approx(NOW - 60.0, abs=1e-5)


@pytest.mark.postgresql
def test_gates_over_time_are_a_line_for_each_script_and_setting(filled):
    speeds, growths = filled[1].panel(SPEEDS), filled[1].panel(GROWTHS)
    passed, lost = f"train.py {WINNER.key}", f"other.py {WINNER.key}"
    assert {row["metric"]: row["value"] for row in speeds} == {passed: 1.0, lost: 0.9}
    assert {row["metric"]: row["value"] for row in growths} == {passed: 0.0, lost: 0.125}


# -- what a viewer chooses


@pytest.mark.postgresql
@pytest.mark.parametrize("name", NAMES)
def test_a_study_is_chosen_whatever_its_name_holds(filled, name):
    kept, reader = filled
    rates = [trial.measured.samples_per_s for trial in kept[name].trials if trial.measured]
    assert [row["samples/s"] for row in reader.panel(RATES, name)] == rates
    assert sum(row["trials"] for row in reader.panel(OUTCOMES, name)) == len(kept[name].trials)


@pytest.mark.postgresql
@pytest.mark.parametrize("title", [RATES, PEAKS, OUTCOMES])
@pytest.mark.parametrize("value", ["", "x", "' OR '1'='1", "'); DROP TABLE autotune_study;--", "1' --"])
def test_what_is_typed_for_the_variable_is_never_sql(filled, title, value):
    assert filled[1].ask(QUERIES[title], value) == []


@pytest.mark.postgresql
@pytest.mark.parametrize("title", PANELS)
def test_outside_of_the_time_range_there_is_nothing(filled, title):
    assert filled[1].panel(title, NAMES[0], begin=NOW - 7200, end=NOW - 3600) == []
    assert filled[1].panel(title, NAMES[0], begin=NOW + 3600, end=NOW + 7200) == []


# -- how it is shown


UNITS = {
    STUDIES: {"best samples/s": "suffix: samples/s", "its peak": "bytes"},
    RATES: {"samples/s": "suffix: samples/s"},
    PEAKS: {"peak": "bytes", "limit": "bytes"},
    GATES: {
        "samples/s": "suffix: samples/s",
        "speed, of before": "percentunit",
        "peak": "bytes",
        "memory growth": "percentunit",
    },
    SPEEDS: {"value": "percentunit"},
    GROWTHS: {"value": "percentunit"},
}
"""Grafana's names: ``bytes`` are powers of 1024, ``percentunit`` is a share."""


@pytest.mark.postgresql
@pytest.mark.parametrize("title", PANELS)
def test_every_figure_has_its_unit_and_every_override_a_column(filled, title):
    config = PANELS[title]["fieldConfig"]
    columns = {column for row in filled[1].panel(title, NAMES[0]) for column in row}
    overrides = {one["matcher"]["options"]: one["properties"] for one in config["overrides"]}
    assert overrides.keys() <= columns
    units = {}
    for column in columns - {"time", "metric"}:
        own = [prop["value"] for prop in overrides.get(column, ()) if prop["id"] == "unit"]
        units[column] = own[0] if own else config["defaults"].get("unit")
    assert {column: unit for column, unit in units.items() if unit} == UNITS.get(title, {})


def test_every_panel_asks_the_data_source_that_is_provisioned():
    (source,) = yaml.safe_load((FOLDER / "datasource.yml").read_text(encoding="utf-8"))["datasources"]
    named = {"type": source["type"], "uid": source["uid"]}
    asked = [variable["datasource"] for variable in DASHBOARD["templating"]["list"]]
    for panel in PANELS.values():
        asked += [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
    assert all(one == named for one in asked)


def test_the_guide_names_every_variable_that_grafana_has_to_be_given():
    files = [(FOLDER / name).read_text(encoding="utf-8") for name in ("datasource.yml", "dashboards.yml")]
    wanted = {name for text in files for name in re.findall(r"\$([A-Z_]+)", text) if name != "NAME"}
    guide = (ROOT / "docs/guides/grafana.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", guide, re.MULTILINE)) == wanted


def test_no_password_and_no_host_is_in_the_files():
    (source,) = yaml.safe_load((FOLDER / "datasource.yml").read_text(encoding="utf-8"))["datasources"]
    private = [source["url"], source["user"], source["jsonData"]["database"], *source["secureJsonData"].values()]
    assert all(re.fullmatch(r"\$[A-Z_]+", value) for value in private)
