"""The picture of the memory over a step: parts stand on each other, and both panels have one scale."""

from __future__ import annotations

import dataclasses
import re

import pytest

from autotune.report.build import build_report
from autotune.report.memory_chart import draw_steps
from autotune.report.page import render_html
from autotune.report.record import StepMemory
from tests.fakes.study_record import LIMIT_BYTES, study_record

GIB = 1 << 30


def step(name="your script", *, blocks=2, moments=4, size=GIB):
    rising = tuple(size * number // moments for number in range(moments))
    return StepMemory(
        name=name,
        parameters=2 * GIB,
        optimizer_state=4 * GIB,
        rest=GIB,
        gradients=(0,) * moments,
        block_names=tuple(f"Block {number + 1}" for number in range(blocks)),
        blocks=(rising,) * blocks,
        outside=(GIB // 2,) * moments,
        passing=rising,
        num_forward=moments // 2,
    )


def drawn(*steps, **changes):
    return draw_steps(dataclasses.replace(build_report(study_record()), steps=steps, **changes))


def heights(path):
    values = [float(value) for value in re.findall(r"[\d.]+", path)]
    return values[1::2]


def test_nothing_is_drawn_where_nothing_is_simulated():
    assert drawn() == ()


def test_parts_stand_on_each_other_from_what_is_always_there():
    (panel,) = drawn(step())
    assert [band.kind for band in panel.bands] == [
        "rest", "parameters", "optimizer", "block-0", "block-1", "outside", "passing",
    ]  # fmt: skip
    for below, above in zip(panel.bands, panel.bands[1:], strict=False):
        top = heights(below.path)[: len(heights(below.path)) // 2]
        bottom = heights(above.path)[len(heights(above.path)) // 2 :]
        assert top == bottom[::-1]
    assert panel.bands[1].title == "parameters and buffers: 2 GiB"
    assert panel.bands[3].title == "activations kept by Block 1: 768 MiB at most"


def test_both_panels_have_one_scale_and_stay_within_it():
    script, setting = drawn(step(), step("this setting", size=2 * GIB))
    assert script.upward == setting.upward
    for panel in (script, setting):
        values = [value for band in panel.bands for value in heights(band.path)]
        assert panel.top <= min(values)
        assert max(values) <= panel.bottom
    assert script.title == "your script, 9.75 GiB at its peak"


def test_the_backward_begins_where_the_forward_has_ended():
    (panel,) = drawn(step(moments=5))
    assert panel.backward == panel.left + (panel.right - panel.left) * 2 / 4


@pytest.mark.parametrize(("limit", "is_drawn"), [(LIMIT_BYTES, False), (12 * GIB, True)])
def test_a_limit_far_off_is_left_out(limit, is_drawn):
    (panel,) = drawn(step(), limit_bytes=limit)
    assert (panel.limit is not None) == is_drawn


def test_the_page_stays_small_with_the_picture_of_a_deep_model():
    many = (step(blocks=8, moments=80), step("this setting", blocks=8, moments=80))
    html = render_html(dataclasses.replace(build_report(study_record()), steps=many))
    assert html.count("<title>activations kept by Block 8") == 4
    assert len(html.encode()) < 200_000
