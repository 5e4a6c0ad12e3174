"""A database that is gone in the middle of a study loses nothing, and nothing is measured twice."""

from __future__ import annotations

import random

import pytest

from tests.benchmarks.outage import WAYS, go_through, own_server


@pytest.mark.slow
@pytest.mark.postgresql
@pytest.mark.parametrize("way", WAYS)
def test_a_study_whose_database_is_gone_for_a_while_waits_and_goes_on(tmp_path, way):
    with own_server() as server:
        assert server is not None
        outage = go_through(tmp_path, server, 1, way, seconds=5.0, chance=random.Random(0))

    assert not outage.wrong, outage
    assert outage.trials > 1
