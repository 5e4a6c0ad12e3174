"""Reserved memory of a device that is not there: the allocator, what kernels take, and traces that go through both."""

from __future__ import annotations

import contextlib
import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from autotune.errors import FormatError
from autotune.predict.caching_allocator import Block, CachingAllocator, DeviceFullError, ExpandableAllocator
from autotune.predict.device_peak import DevicePeak, outside_bytes, peak_of, step_peaks
from autotune.records.allocations import AllocationTrace, OperatorCall, TensorForm, Traced, Workspaces, between
from autotune.records.cards import CARDS
from autotune.records.codec import dumps, loads
from autotune.records.facts import BatchControl
from autotune.records.run import Line

KIB, MIB = 1 << 10, 1 << 20
A100 = CARDS["a100-40gb"]


def trace_of(*sizes: int, kept: int = 0) -> AllocationTrace:
    """Make a trace that allocates storages of these sizes, the first ``kept`` for good, and frees the others."""
    numbers = range(len(sizes))
    freed = numbers[kept:]
    return AllocationTrace("a" * len(sizes) + "f" * len(freed), (*numbers, *freed), sizes)


class TestAllocator:
    def test_sizes_are_rounded_and_come_from_segments(self) -> None:
        memory = CachingAllocator()
        memory.allocate(1)
        assert (memory.allocated, memory.reserved) == (512, 2 * MIB)
        memory.allocate(2 * MIB)
        assert (memory.allocated, memory.reserved) == (512 + 2 * MIB, 22 * MIB)
        memory.allocate(19 * MIB)
        assert memory.reserved == 42 * MIB, "a segment of its own, in steps of 2 MiB"

    def test_nothing_is_allocated_for_no_bytes(self) -> None:
        memory = CachingAllocator()
        assert memory.allocate(0) is None
        memory.free(None)
        assert memory.reserved == 0

    def test_the_smallest_free_block_that_fits_is_taken(self) -> None:
        memory = CachingAllocator()
        blocks = [memory.allocate(size * MIB) for size in (30, 40, 50)]
        for block in blocks:
            memory.free(block)
        taken = memory.allocate(35 * MIB)
        assert taken is blocks[1]

    def test_a_remainder_of_a_large_block_is_split_off_only_above_a_mebibyte(self) -> None:
        memory = CachingAllocator()
        whole = memory.allocate(30 * MIB)
        memory.free(whole)
        near = memory.allocate(29 * MIB)
        assert near is not None
        assert near.size == 30 * MIB
        memory.free(near)
        smaller = memory.allocate(20 * MIB)
        assert smaller is not None
        assert smaller.size == 20 * MIB
        assert memory.reserved == 30 * MIB

    def test_free_neighbours_merge(self) -> None:
        memory = CachingAllocator()
        whole = memory.allocate(40 * MIB)
        memory.free(whole)
        parts = [memory.allocate(10 * MIB) for _ in range(4)]
        assert memory.reserved == 40 * MIB
        for part in (parts[1], parts[3], parts[2], parts[0]):
            memory.free(part)
        again = memory.allocate(40 * MIB)
        assert again is not None
        assert memory.reserved == 40 * MIB

    def test_the_cache_is_emptied_of_whole_segments_only(self) -> None:
        memory = CachingAllocator()
        whole = memory.allocate(30 * MIB)
        memory.free(whole)
        part = memory.allocate(10 * MIB)
        memory.free(memory.allocate(60 * MIB))
        memory.empty_cache()
        assert memory.reserved == 30 * MIB
        memory.free(part)
        memory.empty_cache()
        assert (memory.reserved, memory.peak_reserved) == (0, 90 * MIB)

    def test_a_full_device_frees_what_is_cached_before_it_gives_up(self) -> None:
        memory = CachingAllocator(100 * MIB)
        memory.allocate(40 * MIB)
        memory.free(memory.allocate(50 * MIB))
        memory.allocate(60 * MIB)
        assert (memory.reserved, memory.peak_reserved) == (100 * MIB, 100 * MIB)
        with pytest.raises(DeviceFullError):
            memory.allocate(2 * MIB)

    def test_what_is_cached_beside_something_in_use_cannot_be_freed(self) -> None:
        memory = CachingAllocator(100 * MIB)
        memory.free(memory.allocate(60 * MIB))
        memory.allocate(20 * MIB)
        with pytest.raises(DeviceFullError):
            memory.allocate(50 * MIB)

    def test_streams_do_not_share_free_blocks(self) -> None:
        memory = CachingAllocator()
        memory.free(memory.allocate(30 * MIB))
        memory.allocate(30 * MIB, stream=1)
        assert memory.reserved == 60 * MIB
        memory.allocate(30 * MIB)
        assert memory.reserved == 60 * MIB

    @pytest.mark.parametrize("kind", [CachingAllocator, ExpandableAllocator])
    @pytest.mark.parametrize("seed", range(20))
    def test_whatever_is_allocated_and_freed_the_books_balance(self, kind: type[CachingAllocator], seed: int) -> None:
        draws = random.Random(seed)
        memory = kind(600 * MIB)
        alive: list[Block] = []
        for _ in range(400):
            if alive and draws.random() < 0.5:
                memory.free(alive.pop(draws.randrange(len(alive))))
            elif draws.random() < 0.02:
                memory.empty_cache()
            else:
                with contextlib.suppress(DeviceFullError):
                    block = memory.allocate(int(2 ** draws.uniform(0, 26)), stream=draws.randrange(2))
                    assert block is not None
                    alive.append(block)
            assert memory.allocated == sum(block.size for block in alive) <= memory.reserved <= 600 * MIB
            for pool in {block.pool for block in alive}:
                taken = sorted((each.address, each.address + each.size) for each in alive if each.pool == pool)
                assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(taken))
        for block in alive:
            memory.free(block)
        memory.empty_cache()
        assert (memory.allocated, memory.reserved) == (0, 0)


class TestExpandableSegments:
    def test_a_segment_grows_by_pages(self) -> None:
        memory = ExpandableAllocator()
        memory.allocate(1)
        assert memory.reserved == 2 * MIB
        memory.allocate(15 * MIB)
        memory.allocate(30 * MIB)
        assert memory.reserved == 2 * MIB + 60 * MIB
        memory.allocate(15 * MIB)
        assert memory.reserved == 2 * MIB + 60 * MIB, "it fills up the last page"

    def test_a_free_block_at_its_end_grows(self) -> None:
        memory = ExpandableAllocator()
        memory.allocate(20 * MIB)
        memory.free(memory.allocate(40 * MIB))
        memory.allocate(100 * MIB)
        assert memory.reserved == 120 * MIB

    def test_remainders_are_split_off_from_512_bytes_on(self) -> None:
        memory = ExpandableAllocator()
        memory.free(memory.allocate(20 * MIB))
        block = memory.allocate(20 * MIB - 512)
        assert block is not None
        assert block.size == 20 * MIB - 512

    def test_a_block_between_others_is_taken_before_the_one_that_can_grow(self) -> None:
        memory = ExpandableAllocator()
        between = memory.allocate(60 * MIB)
        memory.allocate(20 * MIB)
        last = memory.allocate(40 * MIB)
        memory.free(between)
        memory.free(last)
        assert memory.allocate(40 * MIB) is between

    def test_pages_are_given_back_from_the_middle_of_a_segment(self) -> None:
        memory = ExpandableAllocator()
        blocks = [memory.allocate(30 * MIB) for _ in range(3)]
        memory.free(blocks[1])
        memory.empty_cache()
        assert memory.reserved == 80 * MIB, "the free 30 MiB hold one whole page"
        memory.allocate(60 * MIB)
        assert memory.reserved == 140 * MIB, "addresses behind the last block have room for it"
        memory.allocate(25 * MIB)
        assert memory.reserved == 160 * MIB, "the page in the middle is there again"

    def test_a_full_device_gives_pages_back_before_it_gives_up(self) -> None:
        memory = ExpandableAllocator(100 * MIB)
        memory.free(memory.allocate(60 * MIB, stream=1))
        memory.allocate(80 * MIB)
        assert memory.reserved == 80 * MIB
        with pytest.raises(DeviceFullError):
            memory.allocate(21 * MIB)

    def test_a_trace_with_them_is_simulated_with_them(self) -> None:
        """40 and 60 MiB are freed, and 100 MiB allocated in their place."""
        trace = AllocationTrace("aaffa", (0, 1, 0, 1, 2), (40 * MIB, 60 * MIB, 100 * MIB))
        assert peak_of(trace, A100).reserved == 200 * MIB
        assert peak_of(replace(trace, expands=True), A100).reserved == 100 * MIB


class TestTraces:
    def test_a_trace_survives_its_json(self) -> None:
        call = OperatorCall("convolution", (TensorForm((2, 3), 4, "strided"),), {"stride": (1, 1)})
        trace = AllocationTrace("pao", (1, 0, 0), (512,), (call,))
        traced = Traced(trace, 8, BatchControl("none", reason="it has none"), 2, process=1, asked=("a.py:3",))
        assert loads(Line, dumps(traced)) == traced

    def test_sizes_at_another_batch_size_lie_on_a_line(self) -> None:
        low, high = trace_of(100, 10 * MIB), trace_of(100, 20 * MIB)
        assert between(low, high, 3.0).storage_bytes == (100, 40 * MIB)
        assert between(low, high, -0.5).storage_bytes == (100, 5 * MIB)

    def test_the_forms_of_operators_lie_on_it_too(self) -> None:
        def at(batch: int) -> AllocationTrace:
            call = OperatorCall("convolution", (TensorForm((batch, 3), 4),), {"groups": (1,)})
            return AllocationTrace("o", (0,), (), (call,))

        assert between(at(8), at(16), 3.0) == at(32)

    def test_other_operators_cannot_be_put_on_a_line(self) -> None:
        with pytest.raises(FormatError, match="runs other operators"):
            between(trace_of(1, 2), trace_of(1, 2, 3), 2.0)

    def test_a_peak_is_the_most_at_a_time(self) -> None:
        peak = peak_of(trace_of(100 * MIB, 50 * MIB, kept=1), A100)
        assert (peak.allocated, peak.reserved) == (150 * MIB, 150 * MIB)

    def test_a_kernel_takes_its_workspace_while_it_runs(self) -> None:
        image = TensorForm((1, 16, 256, 1024), 4)
        weight = TensorForm((16, 16, 3, 3), 4)
        call = OperatorCall("convolution_backward", (image, image, weight), {"groups": (1,)})
        bare = AllocationTrace("a", (0,), (MIB,))
        trace = AllocationTrace("oa", (0, 0), (MIB,), (replace(call, num_results=1),))
        without = peak_of(bare, A100)
        peak = peak_of(trace, A100)
        assert peak.allocated - without.allocated == 32 * MIB

    def test_a_workspace_is_gone_when_the_next_operator_allocates(self) -> None:
        call = OperatorCall("_softmax", (TensorForm((100, MIB), 1, "strided"),), num_results=1)
        trace = AllocationTrace("oaa", (0, 0, 1), (100 * MIB, 100 * MIB), (call,))
        assert peak_of(trace, A100).allocated == 200 * MIB

    def test_workspaces_follow_one_another(self) -> None:
        """Guards the backward of attention: 0.5 MiB of results, then a product, then the gradients of queries."""
        query = TensorForm((2, 4, 100, 80), 4)
        call = OperatorCall("_scaled_dot_product_efficient_attention_backward", (query, query), num_results=1)
        peak = peak_of(AllocationTrace("oa", (0, 0), (MIB // 2,), (call,)), A100)
        # 100 queries are two tiles of 64, as are 80 places.
        assert peak.allocated == MIB // 2 + 2 * 4 * 2 * 2 * (16 + 64 * 64 * 4)
        halves = replace(call, tensors=(replace(query, item_bytes=2),) * 2)
        assert peak_of(AllocationTrace("oa", (0, 0), (MIB // 2,), (halves,)), A100) == peak

    @pytest.mark.parametrize(
        ("kernel", "query", "key_heads", "takes"),
        [
            ("flash", (16, 8, 1024, 64), 8, 524_288 + 33_554_432),
            ("flash", (2, 8, 333, 80), 8, 24_576 + 2_359_296),
            ("flash", (2, 8, 300, 200), 8, 24_576 + 6_291_456),
            ("flash", (4, 16, 512, 64), 4, 131_072 + 8_388_608 + 2 * 4_194_304),
            ("cudnn", (16, 8, 1024, 64), 8, 34_078_720),
            ("cudnn", (2, 8, 333, 80), 8, 1_726_464),
            ("cudnn", (4, 16, 512, 64), 4, 8_519_680),
        ],
    )
    def test_the_backward_of_attention_sums_up_in_single_precision(
        self, kernel: str, query: tuple[int, ...], key_heads: int, takes: int
    ) -> None:
        """Guards what torch 2.14 has allocated for bfloat16 on an A100 and an H100 without kernels."""
        key = TensorForm((query[0], key_heads, *query[2:]), 2)
        inputs = (TensorForm(query, 2), TensorForm(query, 2), key, key)
        call = OperatorCall(f"_scaled_dot_product_{kernel}_attention_backward", inputs)
        assert peak_of(AllocationTrace("o", (0,), (), (call,)), A100).allocated == takes

    @pytest.mark.parametrize(
        ("name", "options", "takes"),
        [
            ("_softmax_backward_data", {}, 32 * MIB),
            ("roll", {"dims": (1, 2)}, 32 * MIB),
            ("roll", {"dims": (0, 1, 1)}, 64 * MIB),
            ("roll", {"dims": (1,)}, 0),
            ("roll", {}, 0),
            ("mean", {"dim": (0,)}, 64 * MIB),
        ],
        ids=str,
    )
    def test_kernels_take_memory_beside_their_results(
        self, name: str, options: dict[str, tuple[int, ...]], takes: int
    ) -> None:
        call = OperatorCall(name, (TensorForm((16384, 512), 4),), options)
        peak = peak_of(AllocationTrace("o", (0,), (), (call,)), CARDS["h100-80gb"])
        assert peak.allocated == takes

    def test_dropout_allocates_its_mask_first(self) -> None:
        """A free segment of 40 MiB goes to the mask of 30 MiB, not to the result of 35 MiB."""
        call = OperatorCall("native_dropout", (), num_results=2)
        trace = AllocationTrace("afoaa", (0, 0, 0, 1, 2), (40 * MIB, 35 * MIB, 30 * MIB), (call,))
        assert peak_of(trace, A100).reserved == (40 + 36) * MIB

    def test_a_sum_of_one_value_takes_nothing(self) -> None:
        call = OperatorCall("sum", ())
        assert peak_of(AllocationTrace("o", (0,), (), (call,)), A100).allocated == 0

    def test_trying_algorithms_empties_the_cache_once_for_each_form(self) -> None:
        image = TensorForm((1, 1, 8, 8), 4)
        call = OperatorCall("convolution", (image, image), {"groups": (1,), "benchmark": (1,)})
        plain = replace(call, options={"groups": (1,), "benchmark": (0,)})

        # 60 MiB are freed, an operator runs, and 40 MiB are allocated: twice.
        def trace(*calls: OperatorCall) -> AllocationTrace:
            return AllocationTrace("afoafo", (0, 0, 0, 1, 1, 1), (60 * MIB, 80 * MIB), calls)

        assert peak_of(trace(plain, plain), A100).reserved == 140 * MIB
        assert peak_of(trace(call, call), A100).reserved == 80 * MIB

    def test_depthwise_convolutions_try_no_algorithms(self) -> None:
        call = OperatorCall(
            "convolution",
            (TensorForm((1, 8, 8, 8), 4), TensorForm((8, 1, 3, 3), 4)),
            {"groups": (8,), "benchmark": (1,)},
        )
        last = replace(call, tensors=tuple(replace(tensor, layout="channels_last") for tensor in call.tensors))

        def reserved(call: OperatorCall) -> int:
            return peak_of(AllocationTrace("afoa", (0, 0, 0, 1), (40 * MIB, 60 * MIB), (call,)), A100).reserved

        assert (reserved(call), reserved(last)) == (100 * MIB, 60 * MIB)

    def test_another_stream_allocates_from_its_own_blocks(self) -> None:
        trace = AllocationTrace("afsasa", (0, 0, 1, 1, 0, 2), (40 * MIB,) * 3)
        assert peak_of(trace, A100).reserved == 80 * MIB

    @pytest.mark.parametrize(
        ("given", "takes"),
        [
            ({}, 32 * MIB),
            ({"weight": (32, 32, 1, 1)}, 0),
            ({"groups": 32}, 0),
            ({"groups": 32, "transposed": 1}, 32 * MIB),
            ({"groups": 32, "layout": "channels_last"}, 32 * MIB),
            ({"groups": 32, "item_bytes": 2}, 0),
            ({"groups": 32, "item_bytes": 2, "float16": 1}, 16 * MIB),
            ({"groups": 32, "item_bytes": 2, "float16": 1, "dilation": 2}, 0),
            ({"groups": 16, "channels": 16, "item_bytes": 2, "float16": 1}, 0),
        ],
        ids=str,
    )
    def test_convolutions_of_one_point_take_none_and_depthwise_ones_only_in_cudnn(
        self, given: dict[str, Any], takes: int
    ) -> None:
        layout, item_bytes = given.get("layout", "contiguous"), given.get("item_bytes", 4)
        channels = given.get("channels", 32)
        image = TensorForm((1, channels, 128, 32 * MIB // (2 * 4 * channels * 128)), item_bytes, layout)
        weight = TensorForm(given.get("weight", (32, 32, 3, 3)), item_bytes)
        options = {name: (given.get(name, 0),) for name in ("transposed", "float16")}
        options |= {"groups": (given.get("groups", 1),), "dilation": (given.get("dilation", 1),) * 2}
        call = OperatorCall("convolution_backward", (image, image, weight), options)
        peak = peak_of(AllocationTrace("o", (0,), (), (call,)), A100)
        assert peak.allocated == takes

    @pytest.mark.parametrize(
        ("shape", "dims", "takes"),
        [((16384, 1536), (0,), 132 * MIB), ((16384, 512), (0,), 64 * MIB), ((64, 512), (0,), 0), ((4096, 64), (1,), 0)],
        ids=["a wide bias", "a bias", "a small batch", "rows"],
    )
    def test_a_sum_over_many_rows_is_split_among_blocks(
        self, shape: tuple[int, int], dims: tuple[int, ...], takes: int
    ) -> None:
        """Guards what torch 2.14 has allocated on an H100 without kernels for these sums."""
        call = OperatorCall("sum", (TensorForm(shape, 4),), {"dim": dims})
        peak = peak_of(AllocationTrace("o", (0,), (), (call,)), CARDS["h100-80gb"])
        assert peak.allocated == takes

    def test_each_thread_that_multiplies_has_a_workspace_of_cublas(self) -> None:
        call = OperatorCall("mm", (TensorForm((4, 4), 4),))
        forward = AllocationTrace("poo", (1, 0, 1), (), (call, call))
        both = AllocationTrace("popo", (1, 0, 2, 1), (), (call, call))
        found = [peak_of(trace, A100) for trace in (forward, both)]
        assert [one.allocated for one in found] == [8 * MIB + 128 * KIB, 2 * (8 * MIB + 128 * KIB)]
        hopper = peak_of(both, CARDS["h100-80gb"])
        assert hopper.allocated == 64 * MIB

    @pytest.mark.parametrize(
        ("workspaces", "name", "mebibytes"),
        [
            *(("kept", "mm", 2 * 32), ("kept", "addmm", 2 * 32)),
            *(("kept apart", "mm", 2 * 32), ("kept apart", "addmm", 2 * 33)),
            *(("freed", "mm", 32), ("freed", "addmm", 1)),
        ],
    )
    def test_workspaces_are_those_of_the_release_of_torch(
        self, workspaces: Workspaces, name: str, mebibytes: int
    ) -> None:
        """Guards what torch 2.11, 2.14 and 2.15 have allocated on an H100 without kernels."""
        call = OperatorCall(name, (TensorForm((4,), 4), TensorForm((4, 4), 4)))
        trace = AllocationTrace("popo", (1, 0, 2, 1), (), (call, call), workspaces=workspaces)
        assert peak_of(trace, CARDS["h100-80gb"]).allocated == mebibytes * MIB

    def test_each_stream_that_multiplies_has_one_too(self) -> None:
        call = OperatorCall("mm", (TensorForm((4, 4), 4),))
        trace = AllocationTrace("posoo", (1, 0, 1, 1, 1), (), (call, call))
        assert peak_of(trace, A100).allocated == 2 * (8 * MIB + 128 * KIB)


def test_each_step_has_a_peak_of_its_own_beside_what_was_reserved_until_then() -> None:
    start, forward = (AllocationTrace.PHASES.index(phase) for phase in ("start", "forward"))
    steps = AllocationTrace(
        "apafpafpapaf", (0, forward, 1, 1, start, 2, 2, start, 3, forward, 4, 4), (MIB, *[4 * MIB, 2 * MIB] * 2)
    )
    first, second, third = step_peaks(steps, A100)
    assert first == DevicePeak(5 * MIB, 22 * MIB)
    assert second == DevicePeak(3 * MIB, 22 * MIB)
    assert third == DevicePeak(7 * MIB, 22 * MIB)
    assert peak_of(steps, A100) == DevicePeak(7 * MIB, 22 * MIB)


def test_the_step_in_which_memory_runs_out_is_the_last_one() -> None:
    """Guards gaps: the tensors of each step would fit."""
    start = AllocationTrace.PHASES.index("start")
    steps = AllocationTrace("afpapapaf", (0, 0, start, 1, start, 2, start, 3, 3), (100 * MIB, 12 * MIB, 100 * MIB, MIB))
    roomy = step_peaks(steps, A100)
    assert [one.allocated for one in roomy] == [100 * MIB, 12 * MIB, 112 * MIB, 113 * MIB]
    assert roomy[-1].reserved == 202 * MIB
    full = step_peaks(steps, A100, outside_bytes(steps) + 150 * MIB)
    assert full == (*roomy[:2], DevicePeak(12 * MIB, 100 * MIB))
