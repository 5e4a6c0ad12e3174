"""The file of metrics that a launched run writes: what readers of its format make of it."""

from __future__ import annotations

import dataclasses
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_older

from autotune.records.measurement import Peaks
from autotune.records.metrics import RunMetrics
from autotune.records.stack import Figures
from autotune.worker.metrics import EVERY_S, MetricsFile, Progressed, StepMetrics, render_metrics
from tests.fakes.hostile_names import HOSTILE_NAMES

EXPECTED = Figures(187.5, 185.0, 190.25, 0.256, Peaks(device=3 << 30, allocated=2 << 30, reserved=5 << 29), 3)
INFO = {"study": "first", "script": "/home/user/train.py", "configuration": "batch 48, gelu+:1:-1", "autotune": "0.1.0"}
METRICS = RunMetrics("/run/gpt.prom", INFO, EXPECTED, 24 << 30)
FAR = Progressed(
    steps=120,
    samples=5760,
    samples_per_s=181.25,
    num_processes=2,
    last_step_at=1_780_000_000.5,
    peaks=Peaks(device=3 << 30, allocated=1 << 30, reserved=2 << 30, resident=7 << 28),
)


def values(text, read=read_openmetrics):
    """Each sample's value by its name without our prefix, and by its kind where it has one."""
    found = {}
    for family in read(text):
        for sample in family.samples:
            assert sample.timestamp is None
            assert sample.labels["run"] == "gpt"
            key = (sample.name.removeprefix("autotune_launch_"), sample.labels.get("kind"))
            assert key not in found
            found[key] = sample.value
    return found


class Bench:
    """A run whose clock a test turns."""

    def __init__(self, file, num_processes=1):
        self.file = file
        self.now_s = 100.0
        self.peaks = Peaks(resident=1 << 20)
        self.run = StepMetrics(
            MetricsFile(dataclasses.replace(METRICS, file=str(file))),
            num_processes=num_processes,
            peaks=self.read_peaks,
            clock=lambda: self.now_s,
        )

    def read_peaks(self):
        if self.peaks is None:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return self.peaks

    def step(self, after_s, samples=8):
        self.now_s += after_s
        self.run.step(samples)

    def written(self):
        return values(self.file.read_text())


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "gpt.prom")


# -- the text


def test_what_a_run_has_come_to_stands_beside_what_the_study_measured():
    assert values(render_metrics(METRICS, FAR)) == {
        ("info", None): 1,
        ("processes", None): 2,
        ("steps_total", None): 120,
        ("samples_total", None): 5760,
        ("samples_per_second", None): 181.25,
        ("last_step_timestamp_seconds", None): 1_780_000_000.5,
        ("peak_memory_bytes", "device"): 3 << 30,
        ("peak_memory_bytes", "allocated"): 1 << 30,
        ("peak_memory_bytes", "reserved"): 2 << 30,
        ("peak_memory_bytes", "resident"): 7 << 28,
        ("expected_samples_per_second", None): 187.5,
        ("expected_samples_per_second_low", None): 185.0,
        ("expected_samples_per_second_high", None): 190.25,
        ("expected_peak_memory_bytes", "device"): 3 << 30,
        ("expected_peak_memory_bytes", "allocated"): 2 << 30,
        ("expected_peak_memory_bytes", "reserved"): 5 << 29,
        ("memory_limit_bytes", None): 24 << 30,
    }


def test_before_the_first_step_there_is_only_what_is_known():
    text = render_metrics(dataclasses.replace(METRICS, expected=None), Progressed())
    assert all(family.samples for family in read_openmetrics(text))
    names = {name for name, _ in values(text)}
    assert names == {"info", "processes", "steps_total", "samples_total", "memory_limit_bytes"}


def test_families_say_what_they_are_and_in_which_unit():
    families = {family.name: family for family in read_openmetrics(render_metrics(METRICS, FAR))}
    assert all(family.documentation.endswith(".") for family in families.values())
    kinds = {name.removeprefix("autotune_launch_"): family.type for name, family in families.items()}
    assert {name for name, kind in kinds.items() if kind == "counter"} == {"steps", "samples"}
    assert set(kinds.values()) == {"counter", "gauge"}, "node_exporter's collector knows no type of OpenMetrics' own"
    units = {name: family.unit for name, family in families.items() if family.unit}
    assert len(units) == 4
    assert all(name.endswith(f"_{unit}") for name, unit in units.items())


def test_readers_of_the_older_format_find_the_same():
    text = render_metrics(METRICS, FAR)
    assert values(text, read_older) == values(text)


def info_of(text, read=read_openmetrics):
    (info,) = (one for family in read(text) for one in family.samples if one.name == "autotune_launch_info")
    return info.labels


@pytest.mark.parametrize("read", [read_openmetrics, read_older], ids=["OpenMetrics", "older"])
@pytest.mark.parametrize("name", HOSTILE_NAMES.values(), ids=HOSTILE_NAMES)
def test_a_label_holds_whatever_name_it_is_given(name, read):
    text = render_metrics(dataclasses.replace(METRICS, info={**INFO, "script": name}), FAR)
    shown = name.encode("utf-8", "backslashreplace").decode()
    assert info_of(text, read) == {**INFO, "script": shown, "run": "gpt"}


@given(st.text())
def test_every_text_comes_back_from_a_label(name):
    assert info_of(render_metrics(dataclasses.replace(METRICS, info={"study": name}), FAR))["study"] == name


# -- the run


def test_the_rate_is_of_the_time_between_two_writings(bench):
    bench.step(60.0)  # compilation
    assert ("samples_per_second", None) not in bench.written()
    bench.step(2.0)
    bench.step(3.0)
    assert bench.written()["samples_per_second", None] == 16 / 5
    for _ in range(5):
        bench.step(1.0, samples=40)
    assert bench.written()["samples_per_second", None] == 40
    assert bench.written()["samples_total", None] == 24 + 200


def test_the_file_is_left_alone_between_writings(bench):
    bench.step(60.0)
    bench.step(EVERY_S / 2)
    assert bench.written()["steps_total", None] == 1
    bench.step(EVERY_S / 2)
    assert bench.written()["steps_total", None] == 3


def test_the_end_of_a_run_is_written_and_leaves_the_rate(bench):
    bench.step(60.0)
    bench.step(5.0)
    bench.step(0.001)
    bench.run.end()
    assert bench.written()["steps_total", None] == 3
    assert bench.written()["samples_per_second", None] == 8 / 5


def test_a_short_run_has_a_rate_at_its_end(bench):
    bench.step(60.0)
    bench.step(0.5)
    bench.now_s += 1000  # the script tidies up
    bench.run.end()
    assert bench.written()["samples_per_second", None] == 16


def test_where_no_samples_are_seen_there_is_no_rate(bench):
    for _ in range(4):
        bench.step(5.0, samples=0)
    assert bench.written()["steps_total", None] == 4
    assert ("samples_per_second", None) not in bench.written()


def test_samples_are_those_of_all_processes(tmp_path):
    bench = Bench(tmp_path / "gpt.prom", num_processes=4)
    bench.step(60.0)
    bench.step(5.0)
    assert bench.written()["samples_total", None] == 64
    assert bench.written()["samples_per_second", None] == 32 / 5


def test_after_an_error_of_the_device_the_last_peaks_stay(bench):
    bench.step(1.0)
    bench.peaks = None
    bench.run.end()
    assert bench.written()["peak_memory_bytes", "resident"] == 1 << 20


# -- the file


def test_the_file_is_replaced_whole_and_nothing_stays_beside_it(bench):
    bench.step(1.0)
    with bench.file.open() as opened:
        bench.step(6.0)
        assert values(opened.read())["steps_total", None] == 1
    assert bench.written()["steps_total", None] == 2
    assert [path.name for path in bench.file.parent.iterdir()] == ["gpt.prom"]


def test_nothing_with_the_suffix_that_collectors_read_is_ever_half_written(bench, monkeypatch):
    names = []
    monkeypatch.setattr("pathlib.Path.write_text", lambda path, *_, **__: names.append(path.name))
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: None)
    bench.step(1.0)
    assert len(names) == 1
    assert not names[0].endswith(".prom")


def test_others_may_read_the_file_as_the_umask_says(bench):
    before = os.umask(0o022)
    try:
        bench.step(1.0)
    finally:
        os.umask(before)
    assert stat.S_IMODE(bench.file.stat().st_mode) == 0o644


def test_a_link_stays_one(bench, tmp_path):
    (tmp_path / "real.prom").touch()
    bench.file.symlink_to("real.prom")
    bench.step(1.0)
    assert bench.file.is_symlink()
    assert (tmp_path / "real.prom").read_text().endswith("# EOF\n")


def test_a_file_that_cannot_be_written_is_told_once_and_tried_again(tmp_path, capsys):
    bench = Bench(tmp_path / "later" / "gpt.prom")
    bench.step(1.0)
    bench.step(6.0)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("could not be written") == 1
    assert f"{str(bench.file)!r}: No such file or directory; training goes on" in said.err
    assert "next: " in said.err
    bench.file.parent.mkdir()
    bench.step(6.0)
    assert bench.written()["steps_total", None] == 3


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["a pipe", "a folder"])
def test_what_is_no_file_is_not_replaced(make, bench, capsys):
    make(bench.file)
    before = bench.file.stat()
    bench.step(1.0)
    assert "it is no plain file" in capsys.readouterr().err
    assert bench.file.stat().st_ino == before.st_ino
    assert [path.name for path in bench.file.parent.iterdir()] == ["gpt.prom"]
