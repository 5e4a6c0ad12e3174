"""Which devices are alike, so that figures of one can be held against figures of the other."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.records.environment import device_differences
from tests.fakes.landscape import ENVIRONMENT

GIB = 1 << 30
GPU = dataclasses.replace(ENVIRONMENT, device_kind="cuda", device_memory_bytes=100 * GIB, num_threads=8)
CPU = dataclasses.replace(GPU, device_kind="cpu")


@pytest.mark.parametrize(
    ("before", "changes", "expected"),
    [
        (GPU, {}, []),
        (GPU, {"device_name": "another"}, ["device"]),
        (GPU, {"num_devices": 7}, ["number of devices"]),
        (GPU, {"num_threads": 4}, []),
        (CPU, {"num_threads": 4}, ["number of threads"]),
        (GPU, {"device_memory_bytes": 99 * GIB}, []),
        (GPU, {"device_memory_bytes": 97 * GIB}, ["device memory in bytes"]),
        (CPU, {"device_memory_bytes": 50 * GIB}, ["device memory in bytes"]),
        (GPU, {"hostname": "elsewhere", "torch": "2.14.0"}, []),
    ],
)
def test_what_differs_is_named_where_figures_do_not_compare(before, changes, expected):
    differences = device_differences(before, dataclasses.replace(before, **changes))
    assert [what for what, _, _ in differences] == expected


def test_a_difference_has_what_was_and_what_is():
    assert device_differences(CPU, dataclasses.replace(CPU, num_threads=4)) == (("number of threads", 8, 4),)
