"""Simulated peaks brought to the scale of measured ones."""

from __future__ import annotations

import pytest

from autotune.predict import Scaling


def test_exact_peaks_give_an_offset_and_a_slope() -> None:
    scaling = Scaling.fitted([[(1000, 1300), (2000, 2500)]], noise=0)
    assert scaling(3000) == pytest.approx(3700)


def test_peaks_closer_together_than_their_noise_give_an_offset_only() -> None:
    scaling = Scaling.fitted([[(1000, 1300), (1001, 2500), (1002, 1302)]], noise=0.02)
    assert scaling.slope == pytest.approx(1, abs=0.01)
    assert scaling.offset_bytes == pytest.approx(300, abs=10)


def test_one_peak_gives_an_offset_and_none_gives_nothing() -> None:
    assert Scaling.fitted([[(1000, 1300)]], noise=0) == Scaling.fitted([[(1000, 1300)]], noise=0.02) == Scaling(300.0)
    assert Scaling.fitted([], noise=0.02) == Scaling(0.0, 1.0)


def test_groups_share_the_slope_and_the_offset_is_the_last_ones() -> None:
    scaling = Scaling.fitted([[(1000, 5000), (2000, 6200)], [(1000, 1300)]], noise=0)
    assert scaling.slope == pytest.approx(1.2)
    assert scaling(2000) == pytest.approx(2500)
