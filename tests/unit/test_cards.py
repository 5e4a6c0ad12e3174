"""What fits cards that are not there: names of cards, the allocator, traces at other sizes, and the answer."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from autotune.errors import DiscoveryError, FormatError, UsageError
from autotune.launch.port import RunResult
from autotune.predict.caching_allocator import Block, CachingAllocator, DeviceFullError
from autotune.predict.device_peak import outside_bytes, peak_of
from autotune.records.allocations import AllocationTrace, OperatorCall, TensorForm, Traced, between
from autotune.records.cards import CARDS, Card, CardFit, read_cards
from autotune.records.codec import dumps, loads
from autotune.records.facts import BatchControl
from autotune.records.outcome import ScriptError
from autotune.records.run import Line, Request
from autotune.records.study import StudySpec
from autotune.report.cards import cards_sentences, cards_table
from autotune.tuning.card_fit import trace_cards

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
AMPERE, A100 = (8, 0), CARDS["a100-40gb"]


def trace_of(*sizes: int, kept: int = 0) -> AllocationTrace:
    """Make a trace that allocates storages of these sizes, the first ``kept`` for good, and frees the others."""
    numbers = range(len(sizes))
    freed = numbers[kept:]
    return AllocationTrace("a" * len(sizes) + "f" * len(freed), (*numbers, *freed), sizes)


class TestNames:
    def test_cards_are_named_with_or_without_the_b_in_any_case(self) -> None:
        assert [card.name for card in read_cards("A100-40g, h100-80GB")] == ["a100-40gb", "h100-80gb"]

    def test_a_size_stands_for_any_card_of_that_memory(self) -> None:
        (card,) = read_cards("48GiB")
        assert (card.name, card.memory_bytes) == ("48GiB", 48 * GIB)

    @pytest.mark.parametrize(
        ("text", "offered"), [("a100", "a100-40gb or a100-80gb"), ("h10-80gb", "h100-80gb"), ("zzz", "t4-16gb")]
    )
    def test_an_unknown_card_is_refused_and_the_nearest_are_offered(self, text: str, offered: str) -> None:
        with pytest.raises(UsageError) as refused:
            read_cards(text)
        assert repr(text) in str(refused.value)
        assert offered in str(refused.value.hint)
        assert "48GiB" in str(refused.value.hint)

    @pytest.mark.parametrize("text", ["", " , "])
    def test_no_card_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError, match="no card is named"):
            read_cards(text)

    def test_a_card_has_less_than_the_memory_in_its_name(self) -> None:
        for name, card in CARDS.items():
            named = int(name.rsplit("-", 1)[1].removesuffix("gb"))
            assert 0.9 * named < card.memory_bytes / GIB < named, name

    def test_a_card_named_twice_is_one(self) -> None:
        assert len(read_cards("t4-16g,t4-16gb")) == 1


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

    @pytest.mark.parametrize("seed", range(20))
    def test_whatever_is_allocated_and_freed_the_books_balance(self, seed: int) -> None:
        draws = random.Random(seed)
        memory = CachingAllocator()
        alive: list[Block] = []
        for _ in range(400):
            if alive and draws.random() < 0.5:
                memory.free(alive.pop(draws.randrange(len(alive))))
            else:
                block = memory.allocate(int(2 ** draws.uniform(0, 26)))
                assert block is not None
                alive.append(block)
            assert memory.allocated == sum(block.size for block in alive) <= memory.reserved
            taken = sorted((block.address, block.address + block.size) for block in alive)
            assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(taken))
        for block in alive:
            memory.free(block)
        memory.empty_cache()
        assert (memory.allocated, memory.reserved) == (0, 0)


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

    def test_each_stream_that_multiplies_has_one_too(self) -> None:
        call = OperatorCall("mm", (TensorForm((4, 4), 4),))
        trace = AllocationTrace("posoo", (1, 0, 1, 1, 1), (), (call, call))
        assert peak_of(trace, A100).allocated == 2 * (8 * MIB + 128 * KIB)


NO_CONTROL = BatchControl("none", reason="no DataLoader feeds training")


def script_at(batch: int, *, control: BatchControl | None = None, blocks: int = 0, checkpointed: int = 0) -> Traced:
    """Make the trace of a script that keeps 1 GiB, and 1 GiB for each sample, or half of that with all checkpointed."""
    control = control or BatchControl("loaders", loaders=(0,))
    share = 1 - checkpointed / blocks / 2 if blocks else 1
    trace = trace_of(GIB, int(batch * GIB * share), kept=1)
    return Traced(trace, batch, control, 2, process=1, blocks={"Block": blocks} if blocks else {})


def growing(batch: int) -> Traced:
    """Make the trace of a script whose second half of a step takes twice as much as its first, at other times."""
    sizes = (GIB, batch * GIB // 2, batch * GIB)
    trace = AllocationTrace("aafaf", (0, 1, 1, 2, 2), sizes)
    return Traced(trace, batch, BatchControl("loaders", loaders=(0,)), 2, process=1)


def run_with(traced: Callable[[Request], Traced | None]) -> tuple[Callable[[Request, str], RunResult], list[Request]]:
    asked: list[Request] = []

    def run(request: Request, name: str) -> RunResult:
        del name
        asked.append(request)
        found = traced(request)
        outcome = (
            None if found else ScriptError("ValueError: no", advice="mend it", log_tail=(), traceback="Traceback\n")
        )
        return RunResult((outcome,), None, None, Path("/run"), traced=found)

    return run, asked


def cards(*gib: float) -> list[Card]:
    return [Card(f"card-{size}", "a GPU", int(size * GIB), AMPERE, 108) for size in gib]


def plain(request: Request) -> Traced:
    return script_at(request.batch_size or 4)


def with_blocks(request: Request) -> Traced:
    wanted = request.checkpointed_blocks
    return script_at(request.batch_size or 4, blocks=8, checkpointed=8 if wanted < 0 else wanted)


def answer(traced: Callable[[Request], Traced | None], *gib: float) -> tuple[str, ...]:
    found, fits = trace_cards(StudySpec("/train.py"), cards(*gib), run_with(traced)[0])
    return cards_sentences(found, fits)


def largest(fits: Iterable[CardFit], way: Literal["plain", "checkpointed"] = "plain") -> list[int | None]:
    found = (getattr(one, way) for one in fits)
    return [None if one.largest is None else one.largest.batch_size for one in found]


class TestFits:
    def test_the_largest_batch_size_is_told_for_each_card(self) -> None:
        run, asked = run_with(plain)
        own, fits = trace_cards(StudySpec("/train.py"), cards(4, 12, 100), run)
        assert own.batch_size == 4
        assert [request.batch_size for request in asked] == [None, 8, 16], "the last one only checks the line"
        # 1.4 GiB lie outside of torch's allocator, and a peak may be 6 % higher.
        assert largest(fits) == [1, 8, 91]
        for one in fits:
            assert one.plain is not None
            assert one.plain.largest is not None
            peak = one.plain.largest.peak_bytes
            assert peak * (1 + one.error) <= one.card.memory_bytes < (peak + GIB) * (1 + one.error)

    def test_a_size_fits_that_only_does_once_the_cache_is_freed(self) -> None:
        """1 GiB is kept, and each sample takes half a GiB and then a whole one, of which one is there at a time."""
        run, _ = run_with(lambda request: growing(request.batch_size or 4))
        found, fits = trace_cards(StudySpec("/train.py"), cards(6.7, 7, 8.5), run)
        owns = [one.plain.own for one in fits if one.plain]
        assert [own.fits for own in owns] == [False, True, True]
        outside = outside_bytes(found.trace)
        assert {own.roomy_bytes - outside for own in owns} == {7 * GIB}
        assert [own.peak_bytes - outside for own in owns] == [5 * GIB, 5 * GIB, 7 * GIB]
        assert largest(fits) == [3, 4, 5]
        told = cards_sentences(found, fits)
        assert [one for one in told if "cached" in one] == [
            "On card-7, torch must free what it has cached to hold that, which takes time."
        ]

    def test_blocks_are_checkpointed_in_two_traces_more(self) -> None:
        run, asked = run_with(with_blocks)
        _, fits = trace_cards(StudySpec("/train.py"), cards(12), run)
        assert Counter(request.checkpointed_blocks for request in asked) == {0: 3, -1: 2}
        assert largest(fits) == [8]
        assert largest(fits, "checkpointed") == [17]

    @pytest.mark.parametrize(("gib", "fewest"), [(12, None), (6, 3), (5, 7), (4.7, 8), (4, None)])
    def test_the_fewest_blocks_with_which_a_card_holds_it_are_looked_for(self, gib: float, fewest: int | None) -> None:
        """A block saves a quarter of a GiB of 6.4 GiB."""
        run, asked = run_with(with_blocks)
        _, fits = trace_cards(StudySpec("/train.py"), cards(gib), run)
        assert (fits[0].fewest.blocks if fits[0].fewest else None) == fewest
        tried = [request.checkpointed_blocks for request in asked if request.checkpointed_blocks > 0]
        assert len(tried) <= 3
        if fewest is None:
            assert not tried

    def test_cards_of_a_generation_share_runs_with_as_many_blocks(self) -> None:
        run, asked = run_with(with_blocks)
        _, fits = trace_cards(StudySpec("/train.py"), cards(6, 6.01), run)
        assert [fit.fewest and fit.fewest.blocks for fit in fits] == [3, 3]
        tried = [request.checkpointed_blocks for request in asked]
        assert len([each for each in tried if each > 0]) == len({each for each in tried if each > 0})

    def test_blocks_of_which_some_cannot_be_checkpointed_are_all_needed(self) -> None:
        def traced(request: Request) -> Traced | None:
            return None if request.checkpointed_blocks > 0 else with_blocks(request)

        _, fits = trace_cards(StudySpec("/train.py"), cards(6), run_with(traced)[0])
        assert fits[0].fewest is not None
        assert fits[0].fewest.blocks == 8

    def test_blocks_that_cannot_be_checkpointed_leave_the_rest(self) -> None:
        def traced(request: Request) -> Traced | None:
            return None if request.checkpointed_blocks else with_blocks(request)

        _, fits = trace_cards(StudySpec("/train.py"), cards(12), run_with(traced)[0])
        assert largest(fits) == [8]
        assert fits[0].checkpointed is None

    def test_cards_of_another_generation_have_traces_of_their_own(self) -> None:
        run, asked = run_with(plain)
        trace_cards(StudySpec("/train.py"), [CARDS["a100-40gb"], CARDS["rtx4090-24gb"], CARDS["h100-80gb"]], run)
        assert Counter(request.card and request.card.name for request in asked) == {"a100-40gb": 3, "h100-80gb": 3}

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda found, size: script_at(4), "its batches had 4 samples where 8 were asked for"),
            (
                lambda found, size: replace(found, trace=trace_of(1, 2, 3)),
                "at another batch size the script runs other",
            ),
            (lambda found, size: None, "cannot be followed without the GPU at batch 8: ValueError: no"),
            (lambda found, size: replace(found, trace=trace_of(GIB, size**2 * GIB, kept=1)), "is no straight line"),
            (lambda found, size: found if size == 8 else None, "cannot be followed without the GPU at batch 16"),
        ],
        ids=["the loader keeps its size", "other operators", "it fails", "its square", "the data end"],
    )
    def test_a_size_that_does_not_follow_leaves_the_own_one_with_its_reason(
        self, change: Callable[[Traced, int], Traced | None], reason: str
    ) -> None:
        def traced(request: Request) -> Traced | None:
            found = plain(request)
            return found if request.batch_size is None else change(found, request.batch_size)

        found, fits = trace_cards(StudySpec("/train.py"), cards(4, 100), run_with(traced)[0])
        assert largest(fits) == [None, None]
        assert [one.plain is not None and one.plain.own.fits for one in fits] == [False, True]
        assert any(
            sentence.startswith("Other batch sizes are not told: ") and reason in sentence
            for sentence in cards_sentences(found, fits)
        )
        assert [row[4] for row in cards_table(found, fits).rows] == ["not known"] * 2

    def test_a_script_that_fails_is_told_with_its_cause(self) -> None:
        with pytest.raises(DiscoveryError, match="cannot be followed without the GPU: ValueError: no") as failed:
            trace_cards(StudySpec("/train.py"), cards(4), run_with(lambda _: None)[0])
        assert failed.value.hint == "mend it Its whole output is in /run"
        assert failed.value.detail == "Traceback"

    def test_a_script_that_puts_nothing_on_the_gpu_is_refused(self) -> None:
        empty = replace(script_at(4), trace=AllocationTrace("", (), ()))
        with pytest.raises(DiscoveryError, match="nothing of the script's is on the GPU"):
            trace_cards(StudySpec("/train.py"), cards(4), run_with(lambda _: empty)[0])


class TestAnswer:
    def test_it_names_the_smallest_card_that_holds_the_script(self) -> None:
        found, fits = trace_cards(StudySpec("/train.py"), cards(100, 4, 12), run_with(plain)[0])
        assert cards_sentences(found, fits)[0] == (
            "The script should fit card-12 at its own batch size of 4, the smallest of these cards that holds it: it "
            "needs 6.4 GiB (6.01 GiB to 6.78 GiB) there."
        )
        table = cards_table(found, fits)
        assert [row[0] for row in table.rows] == ["card-4", "card-12", "card-100"]
        assert [row[3] for row in table.rows] == ["does not fit", "fits", "fits"]
        assert [row[4] for row in table.rows] == ["1", "8", "91"]
        assert len(table.columns) == 5

    def test_where_no_card_holds_it_checkpointing_is_named_that_makes_it_fit(self) -> None:
        assert answer(with_blocks, 6, 5)[0] == (
            "The script should fit card-5 at its own batch size of 4 with the first 7 of its 8 blocks (Block) "
            "checkpointed, the smallest of these cards that holds it: it needs 4.65 GiB (4.37 GiB to 4.93 GiB) there."
        )
        assert "with all 8 of its blocks (Block) checkpointed: it needs 4.4 GiB" in answer(with_blocks, 4.7)[0]

    def test_where_a_smaller_card_holds_it_with_checkpointing_that_is_said_too(self) -> None:
        found, fits = trace_cards(StudySpec("/train.py"), cards(12, 6, 4), run_with(with_blocks)[0])
        assert cards_sentences(found, fits)[0].endswith(
            "there. With the first 3 of its 8 blocks (Block) checkpointed, card-6 should hold it too."
        )
        assert [row[-1] for row in cards_table(found, fits).rows] == ["", "3 of 8", "none"]

    def test_else_a_smaller_size_is_named(self) -> None:
        assert answer(plain, 4, 3)[0] == (
            "The script fits none of these cards at its own batch size of 4: it needs 6.4 GiB (6.01 GiB to 6.78 GiB). "
            "Batch 1 should fit card-4."
        )

    def test_one_card_is_no_choice(self) -> None:
        assert answer(plain, 100)[0].startswith("The script should fit card-100 at its own batch size of 4: it needs")
        assert answer(plain, 4)[0].startswith("The script does not fit card-4 at its own batch size of 4: it needs")

    def test_a_size_that_cannot_be_set_is_told_alone(self) -> None:
        run, asked = run_with(lambda _: script_at(4, control=NO_CONTROL))
        found, fits = trace_cards(StudySpec("/train.py"), cards(4, 12), run)
        assert len(asked) == 1
        assert largest(fits) == [None, None]
        assert [row[3] for row in cards_table(found, fits).rows] == ["does not fit", "fits"]
        assert "Other batch sizes are not told: no DataLoader feeds training." in cards_sentences(found, fits)

    def test_a_card_that_the_script_refuses_leaves_the_others(self) -> None:
        def traced(request: Request) -> Traced | None:
            assert request.card is not None
            return None if request.card.capability < AMPERE else plain(request)

        named = [CARDS["t4-16gb"], CARDS["a100-40gb"]]
        found, fits = trace_cards(StudySpec("/train.py"), named, run_with(traced)[0])
        assert [row[3] for row in cards_table(found, fits).rows] == ["does not run", "fits"]
        assert any(
            sentence.startswith("On t4-16gb, the script cannot be followed without the GPU: ValueError: no.")
            for sentence in cards_sentences(found, fits)
        )

    def test_values_that_the_script_asked_for_are_named_with_their_lines(self) -> None:
        said = answer(lambda request: replace(plain(request), asked=("a.py:3", "b.py:9")), 100)
        assert any("at a.py:3 and b.py:9: it got 1" in sentence for sentence in said)

    def test_whole_numbers_that_the_script_asked_for_come_with_a_warning(self) -> None:
        said = answer(lambda request: replace(plain(request), asked_integers=("a.py:3",)), 100)
        assert (
            said[1] == "Peaks are far too low if a size depends on the whole numbers asked for at a.py:3: each was 1."
        )

    def test_another_batch_size_on_another_generation_stands_beside_its_peak(self) -> None:
        def traced(request: Request) -> Traced:
            assert request.card is not None
            return script_at(request.batch_size or (4 if request.card.capability >= AMPERE else 2))

        named = [CARDS["a100-40gb"], CARDS["t4-16gb"]]
        table = cards_table(*trace_cards(StudySpec("/train.py"), named, run_with(traced)[0]))
        assert [row[2] for row in table.rows] == ["4.4 GiB at 2", "6.4 GiB"]
