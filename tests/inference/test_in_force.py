"""That each setting of memory does what it says, by what a process comes to."""

from __future__ import annotations

import platform

import pytest

from tests.fakes.onnx_models import chain, save
from tests.fakes.session_figures import figures_of

# A tensor of the chain has 16 MiB at 4096 rows.
LARGE, SMALL = 4096, 16
TENSOR = 16


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save(chain(), tmp_path_factory.mktemp("model") / "chain.onnx")


@pytest.fixture(scope="module")
def plain(model):
    return figures_of(model, [], LARGE, LARGE, SMALL)


def test_an_arena_keeps_what_was_freed(model, plain):
    without = figures_of(model, ["cpu-arena=0"], LARGE, LARGE, SMALL)
    assert plain["VmRSS"] > without["VmRSS"] + 2 * TENSOR


def test_a_pattern_is_memory_for_all_of_a_run_in_one_piece(model, plain):
    without = figures_of(model, ["mem-pattern=0"], LARGE, LARGE, SMALL)
    assert plain["VmRSS"] > without["VmRSS"] + TENSOR


def test_without_reuse_each_tensor_has_memory_of_its_own(model):
    apart = ["cpu-arena=0", "mem-pattern=0"]
    reused, not_reused = (figures_of(model, [*apart, *more], LARGE, LARGE) for more in ([], ["mem-reuse=0"]))
    assert not_reused["VmHWM"] > reused["VmHWM"] + 2 * TENSOR


def test_an_arena_that_grows_as_requested_reserves_less_than_one_that_doubles(model):
    sizes = (300, 700, 1500, 3100)
    doubling, requested = (
        figures_of(model, ["mem-pattern=0", *more], *sizes) for more in ([], ["arena-as-requested=1"])
    )
    assert doubling["VmPeak"] > requested["VmPeak"] + TENSOR / 2


def test_a_shrunk_arena_gives_back_what_a_larger_run_took(model, plain):
    shrunk = figures_of(model, ["shrink-arena=1"], LARGE, LARGE, SMALL)
    assert plain["VmRSS"] > shrunk["VmRSS"] + 2 * TENSOR


@pytest.mark.skipif("glibc" not in platform.platform(), reason="it is a setting of glibc")
def test_a_threshold_has_large_blocks_mapped_whatever_was_freed_before(model, plain):
    fixed = figures_of(model, ["mmap-threshold=1"], LARGE, LARGE, SMALL)
    assert fixed["mapped"] == fixed["kept"]
    assert plain["mapped"] < plain["kept"]
