"""The page's colours: text can be read, and who sees fewer colours tells parts and marks apart.

Contrast is that of the Web Content Accessibility Guidelines 2.2: 4.5 for text (criterion 1.4.3), 3 for what is drawn
(1.4.11). Colour blindness is simulated with the matrices, for linear RGB, that Machado, Oliveira and Fernandes give for
severity 1.0 ("A Physiologically-based Model for Simulation of Color Vision Deficiency", IEEE Transactions on
Visualization and Computer Graphics 15(6), 2009). Colours are so far apart as in CIELAB under D65 (CIE 1976), where some
2.3 can just be seen.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re

import pytest

from autotune.report import page
from autotune.report.build import build_report
from autotune.report.chart import Mark, draw_chart
from autotune.report.page import read_asset
from tests.fakes.study_record import study_record

SEEN_BY = {
    "most people": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}
# Of sRGB (IEC 61966-2-1), each row divided by the white of D65.
TO_XYZ = (
    (0.4124564 / 0.95047, 0.3575761 / 0.95047, 0.1804375 / 0.95047),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339 / 1.08883, 0.1191920 / 1.08883, 0.9503041 / 1.08883),
)
TEXT, DRAWN = ("ink", "soft", "winner", "bad"), ("ink", "measured", "winner", "baseline", "bad")
# Any two may lie side by side: a script may have no optimizer state, no gradients, or no blocks.
PARTS = ("rest", "parameters", "optimizer", "gradients", "block-0", "block-1", "outside", "passing")
APART = 15.0

CSS = read_asset("report.css")


def colours(scheme):
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
        for block in re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)[:2]
    )
    return light if scheme == "light" else light | dark


def linear(colour):
    values = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return tuple(value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values)


def times(matrix, vector):
    return tuple(sum(one * other for one, other in zip(row, vector, strict=True)) for row in matrix)


def contrast(one, other):
    dark, light = sorted(times(TO_XYZ, own)[1] for own in (one, other))
    return (light + 0.05) / (dark + 0.05)


def lab(colour, matrix):
    seen = tuple(min(1.0, max(0.0, value)) for value in times(matrix, linear(colour)))
    x, y, z = (
        value ** (1 / 3) if value > (6 / 29) ** 3 else value / (3 * (6 / 29) ** 2) + 4 / 29
        for value in times(TO_XYZ, seen)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def mixed(one, other, share):
    """``color-mix(in srgb, one share, other)``."""
    parts = [(int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in parts)


def test_the_formulas_agree_with_known_values():
    assert contrast(linear("#000000"), linear("#ffffff")) == pytest.approx(21, abs=0.01)
    assert contrast(linear("#777777"), linear("#ffffff")) == pytest.approx(4.48, abs=0.01)
    assert lab("#ff0000", SEEN_BY["most people"]) == pytest.approx((53.24, 80.09, 67.20), abs=0.02)
    for matrix in SEEN_BY.values():
        assert lab("#808080", matrix) == pytest.approx((53.59, 0, 0), abs=0.05), "grey stays grey"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_a_contrast_of_four_and_a_half_on_whatever_it_stands(scheme):
    own = colours(scheme)
    grounds = {name: own[name] for name in ("paper", "panel")}
    share = int(re.search(r"tr\.winner td \{ background: color-mix\(in srgb, var\(--winner\) (\d+)%", CSS)[1]) / 100
    pairs = [(text, name, ground) for text in TEXT for name, ground in grounds.items()]
    pairs += [("ink", "track", own["track"]), ("ink", "the winner's row", mixed(own["winner"], own["paper"], share))]
    low = {
        (text, name): round(found, 2)
        for text, name, ground in pairs
        if (found := contrast(linear(own[text]), linear(ground))) < 4.5
    }
    assert low == {}


def test_text_has_no_other_colours():
    used = set(re.findall(r"[{; ]color: var\(--([\w-]+)\)", CSS))
    used |= {
        name for style, name in re.findall(r"\.chart ([^{]*)\{[^}]*fill: var\(--([\w-]+)\)", CSS) if "text" in style
    }
    assert used == set(TEXT)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("ground", ["paper", "panel", "track"])
def test_what_is_drawn_has_a_contrast_of_three(scheme, ground):
    own = colours(scheme)
    low = {name for name in DRAWN if contrast(linear(own[name]), linear(own[ground])) < 3}
    assert low == set()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("who", SEEN_BY)
@pytest.mark.parametrize("series", [PARTS, DRAWN])
def test_colours_beside_each_other_differ_for_everybody(scheme, who, series):
    own = colours(scheme)
    near = {
        (one, other): round(found, 1)
        for one, other in itertools.combinations(series, 2)
        if (found := math.dist(lab(own[one], SEEN_BY[who]), lab(own[other], SEEN_BY[who]))) < APART
    }
    assert near == {}


def test_parts_of_the_memory_are_drawn_in_the_colours_that_are_checked():
    assert set(re.findall(r"--part: (.*?);", CSS)) == {f"var(--{name})" for name in PARTS}


def shape(kind):
    """A mark as it is drawn, apart from its size and colours: its outline, and whether it is hollow."""
    chart = dataclasses.replace(
        draw_chart(build_report(study_record())), lines=(), failures=(), marks=(Mark(kind, 50.0, 50.0, 50.0, 50.0, ""),)
    )
    drawn = page.templates().get_template("chart.svg").render(chart=chart, name="")
    [mark] = re.findall(r'<(?:path|circle) class="mark" [^>]*>', drawn)
    rules = [style for names, style in re.findall(r"([^{}]*)\{([^{}]*)\}", CSS) if f".{kind} .mark" in names]
    return re.sub(r' r="\d+"', "", mark), any("fill: var(--paper)" in style for style in rules)


@pytest.mark.parametrize("kinds", [("winner", "best", "finalist", "fits", "over", "flawed"), ("plain", "planned")])
def test_marks_differ_without_colours(kinds):
    assert len({shape(kind) for kind in kinds}) == len(kinds)


def test_the_mark_of_the_script_is_told_by_its_label():
    marks = draw_chart(build_report(study_record())).marks
    assert [mark.label for mark in marks if mark.kind == "baseline"] == ["your script"]


@pytest.mark.parametrize("kind", ["winner", "baseline", "fits", "over", "flawed"])
def test_the_legend_names_each_mark(kind):
    html = page.render_html(build_report(study_record()))
    assert re.search(rf'<figcaption class="legend">.*<span class="{kind}">\w', html)
