"""What fits cards that are not there: names of cards, the allocator, traces at other sizes, and the answer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest

from autotune.errors import DiscoveryError, UsageError
from autotune.launch.port import RunResult
from autotune.launch.requests import trace_request
from autotune.predict.device_peak import outside_bytes
from autotune.records.allocations import AllocationTrace, Traced
from autotune.records.cards import CARDS, Card, CardFit, read_cards, smallest_card
from autotune.records.codec import dumps, loads
from autotune.records.facts import BatchControl
from autotune.records.look_ahead import Dimension, LookAhead, SeenBatch
from autotune.records.outcome import ScriptError
from autotune.records.run import ALL_BLOCKS, Request
from autotune.records.study import StudySpec
from autotune.records.units import format_bytes
from autotune.report.batches import batch_table
from autotune.report.cards import cards_sentences, cards_table
from autotune.tuning import card_fit
from autotune.tuning.card_fit import trace_cards, trace_setting

from .test_device_peak import trace_of

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
AMPERE, A100 = (8, 0), CARDS["a100-40gb"]


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

    def test_the_smallest_card_has_room_for_the_error_too(self) -> None:
        t4 = CARDS["t4-16gb"].memory_bytes
        assert smallest_card(int(t4 / 1.07), 0.06) == CARDS["t4-16gb"]
        assert smallest_card(int(t4 / 1.05), 0.06) == CARDS["rtx4080-16gb"]
        assert smallest_card(1000 * GIB, 0.06) is None

    def test_a_card_has_less_than_the_memory_in_its_name(self) -> None:
        for name, card in CARDS.items():
            named = int(name.rsplit("-", 1)[1].removesuffix("gb"))
            assert 0.9 * named < card.memory_bytes / GIB < named, name

    @pytest.mark.parametrize("text", ["8xh100-80g", "8 x H100-80GB", "1x8xh100-80g"])
    def test_several_of_a_card_are_named_with_their_number(self, text: str) -> None:
        (card,) = read_cards(text)
        assert (card.name, card.number, card.memory_bytes) == ("8xh100-80gb", 8, CARDS["h100-80gb"].memory_bytes)

    def test_one_of_a_card_is_the_card(self) -> None:
        assert read_cards("1xt4-16g,t4-16g") == (CARDS["t4-16gb"],)
        assert read_cards("2x48GiB")[0].memory_bytes == 48 * GIB

    @pytest.mark.parametrize("text", ["0xh100-80g", "8x", "x8"])
    def test_no_card_of_a_number_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError, match=r"there is no card|not a size"):
            read_cards(text)

    def test_a_card_named_twice_is_one(self) -> None:
        assert len(read_cards("t4-16g,t4-16gb")) == 1


NO_CONTROL = BatchControl("none", reason="no DataLoader feeds training")


def script_at(batch: int, *, control: BatchControl | None = None, blocks: int = 0, checkpointed: int = 0) -> Traced:
    """Make the trace of a script that keeps 1 GiB, and 1 GiB for each sample, or half of that with all checkpointed."""
    control = control or BatchControl("loaders", loaders=(0,))
    share = 1 - checkpointed / blocks / 2 if blocks else 1
    trace = trace_of(GIB, int(batch * GIB * share), kept=1)
    return Traced(trace, batch, control, 2, process=1, blocks={"Block": blocks} if blocks else {})


def growing(batch: int, *, blocks: int = 0, checkpointed: int = 0) -> Traced:
    """Make the trace of a script whose second half of a step takes twice as much as its first, at other times."""
    samples = batch * (1 - checkpointed / blocks / 2 if blocks else 1)
    trace = AllocationTrace("aafaf", (0, 1, 1, 2, 2), (GIB, int(samples * GIB / 2), int(samples * GIB)))
    control = BatchControl("loaders", loaders=(0,))
    return Traced(trace, batch, control, 2, process=1, blocks={"Block": blocks} if blocks else {})


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
        assert "needs 6.4 GiB (6.01 GiB to 6.78 GiB)" in answer(lambda _: found, 7)[0]
        assert "needs 8.4 GiB (7.89 GiB to 8.5 GiB)" in answer(lambda _: found, 8.5)[0]
        assert largest(fits) == [3, 4, 5]
        told = cards_sentences(found, fits)
        (said,) = (one for one in told if "cached" in one)
        assert said == (
            "On card-7, torch must free what it has cached to hold that, which takes time. "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True should spare it."
        )

    def test_expandable_segments_are_named_where_only_they_make_it_fit(self) -> None:
        """2 MiB lie in what was freed of a segment, which is wanted whole again."""

        def pinned(request: Request) -> Traced:
            batch = request.batch_size or 4
            trace = AllocationTrace("aafaa", (0, 1, 1, 2, 3), (GIB, batch * GIB, 2 * MIB, batch * GIB))
            return replace(growing(batch), trace=replace(trace, expands=expands))

        said = "With PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, card-8 should hold batch size 4."
        for expands in (False, True):
            told = answer(pinned, 8)
            assert (said in told) is not expands
            assert ("does not fit" in told[0]) is not expands
        expands = False
        assert not [one for one in answer(pinned, 12) if "expandable" in one]

    def test_a_card_must_hold_it_with_all_of_its_memory_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Guards traces that fit less memory alone: a cache that is freed earlier may leave other pieces."""

        def needed(trace: AllocationTrace, card: Card, memory_bytes: float = math.inf) -> int | None:
            del trace
            return None if memory_bytes == card.memory_bytes else 8 * GIB

        monkeypatch.setattr(card_fit, "process_bytes", needed)
        own = replace(script_at(4), batch_control=NO_CONTROL)
        assert answer(lambda _: own, 6)[0].startswith("The script does not fit card-6")

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

    def test_blocks_are_few_where_a_full_card_frees_what_is_cached(self) -> None:
        """A run in 5.66 GiB needs 15 of 16 blocks if nothing is freed, and 6 if all that is cached can be."""

        def traced(request: Request) -> Traced:
            wanted = request.checkpointed_blocks
            return growing(request.batch_size or 4, blocks=16, checkpointed=16 if wanted < 0 else wanted)

        _, fits = trace_cards(StudySpec("/train.py"), cards(6), run_with(traced)[0])
        assert fits[0].fewest is not None
        assert (fits[0].fewest.blocks, fits[0].fewest.fits) == (6, True)

    def test_checkpointing_that_saves_only_what_is_cached_is_looked_through_too(self) -> None:
        """7 GiB are reserved however many blocks are checkpointed; without any a full card frees 1 GiB, else 3 GiB."""

        def traced(request: Request) -> Traced:
            freed = GIB if request.checkpointed_blocks == 0 else 3 * GIB
            # The last one does not go into what is free.
            trace = AllocationTrace("aafa", (0, 1, 1, 2), (4 * GIB - freed, freed, 3 * GIB + 2 * MIB))
            return replace(growing(request.batch_size or 4, blocks=8), trace=trace)

        _, fits = trace_cards(StudySpec("/train.py"), cards(6.4), run_with(traced)[0])
        owns = [way.own for way in (fits[0].plain, fits[0].checkpointed) if way]
        assert owns[0].roomy_bytes == owns[1].roomy_bytes
        assert [own.fits for own in owns] == [False, True]
        assert fits[0].fewest is not None
        assert fits[0].fewest.blocks == 1

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

    def test_a_setting_takes_one_run_of_a_generation(self) -> None:
        run, asked = run_with(with_blocks)
        found, fits = trace_setting(cards(6, 12), lambda card: trace_request(StudySpec("/train.py"), card), run)
        assert len(asked) == 1
        assert [fit.plain is not None and fit.plain.own.fits for fit in fits] == [False, True]
        assert [(fit.checkpointed, fit.fewest) for fit in fits] == [(None, None)] * 2
        assert not any("Other batch sizes" in sentence for sentence in cards_sentences(found, fits))

    def test_cards_of_another_generation_have_traces_of_their_own(self) -> None:
        run, asked = run_with(plain)
        trace_cards(StudySpec("/train.py"), [CARDS["a100-40gb"], CARDS["rtx4090-24gb"], CARDS["h100-80gb"]], run)
        assert Counter(request.card and request.card.name for request in asked) == {"a100-40gb": 3, "h100-80gb": 3}

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (
                lambda found, size: replace(found, trace=trace_of(1, 2, 3)),
                "at another batch size the script runs other",
            ),
            (lambda found, size: None, "cannot be followed without the GPU at batch 8: ValueError: no"),
            (lambda found, size: replace(found, trace=trace_of(GIB, size**2 * GIB, kept=1)), "is no straight line"),
            (lambda found, size: found if size == 8 else None, "cannot be followed without the GPU at batch 16"),
        ],
        ids=["other operators", "it fails", "its square", "the data end"],
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

    def test_several_of_a_card_have_traces_of_their_own(self) -> None:
        run, asked = run_with(plain)
        (one,) = cards(12)
        found, fits = trace_cards(StudySpec("/train.py"), (one, replace(one, name="2xcard", number=2)), run)
        assert Counter(request.card.number for request in asked if request.card) == {1: 3, 2: 3}
        said = cards_sentences(found, fits[1:])
        assert said[0].startswith("The script should fit 2xcard at its own batch size of 4 in each process: it needs ")
        assert "on each GPU." in said[0]
        assert any(one.startswith("Memory is that of one GPU: ") for one in said)
        assert [row[1] for row in cards_table(found, fits).rows] == ["12 GiB", "2 x 12 GiB"]

    def test_a_script_that_fails_is_told_with_its_cause(self) -> None:
        with pytest.raises(DiscoveryError, match="cannot be followed without the GPU: ValueError: no") as failed:
            trace_cards(StudySpec("/train.py"), cards(4), run_with(lambda _: None)[0])
        assert failed.value.hint == "mend it Its whole output is in /run"
        assert failed.value.detail == "Traceback"

    def test_a_script_that_puts_nothing_on_the_gpu_is_refused(self) -> None:
        empty = replace(script_at(4), trace=AllocationTrace("", (), ()))
        with pytest.raises(DiscoveryError, match="nothing of the script's is on the GPU"):
            trace_cards(StudySpec("/train.py"), cards(4), run_with(lambda _: empty)[0])


class TestBatches:
    """A script whose batches were read ahead: 1 GiB is the model's, and each element takes a MiB."""

    @staticmethod
    def read(*elements: int, followed: Iterable[int], is_whole: bool = True, ended_by: str = "") -> Traced:
        batches = [SeenBatch(number, one, {"ids": (2, one // 2)}) for number, one in enumerate(elements, 1)]
        steps = [(batches[number - 1],) for number in followed]
        start = AllocationTrace.PHASES.index("start")
        kinds, numbers, sizes = "a", [0], [GIB]
        for place, (batch,) in enumerate(steps):
            kinds += "af" if place == len(steps) - 1 else "afp"
            numbers += [len(sizes), len(sizes), *([] if place == len(steps) - 1 else [start])]
            sizes.append(batch.elements * MIB)
        few, many = (choose(batches, key=lambda one: one.elements) for choose in (min, max))
        ahead = LookAhead(
            tuple(elements),
            few,
            many,
            tuple(steps),
            len({*elements[:-1]}) > 1,
            is_whole,
            ended_by,
            varying=((Dimension("ids", 1),),),
            sizes=tuple((one // 2,) for one in elements),
        )
        return replace(growing(2), trace=AllocationTrace(kinds, tuple(numbers), tuple(sizes)), ahead=ahead)

    def test_batches_that_a_card_has_no_room_for_are_counted_by_their_sizes(self) -> None:
        traced = self.read(100, 400, 200, 900, 390, 650, followed=(1, 2, 5, 4))
        room = outside_bytes(traced.trace) + GIB + 650 * MIB
        run, _ = run_with(lambda _: traced)
        found, (small, large) = trace_cards(StudySpec("/train.py"), cards(room / GIB, 12), run, look_ahead=50)
        assert [one.batch.number for one in small.batches] == [1, 2, 4]
        assert [one.tensor_bytes for one in small.batches] == [GIB + size * MIB for size in (100, 400, 900)]
        assert (small.batches_over, large.batches_over) == (1, 0)
        told = cards_sentences(found, (small, large))
        assert told[1] == (
            "Of the 6 batches of an epoch, batch 4 needs the most: ids 2x450. The smallest has ids 2x50."
        )
        assert (
            told[3] == "Half of the batches need at most 1.39 GiB of tensors, nine in ten 1.76 GiB, and all 1.88 GiB."
        )
        assert (
            told[4] == f"On {small.card.name} there is no room for the tensors of about 1 of the 6 batches of an epoch."
        )
        assert told[5] == f"On {small.card.name} memory runs out at batch 4."
        assert "All steps of two epochs were simulated, from those that were followed." in told
        table = batch_table(small)
        assert table.rows[-1][:3] == ("4", "ids 2x450", "1.88 GiB")

    @staticmethod
    def reading(*, samples: int = 10**9, blocks: int = 0) -> Callable[[Request], Traced | None]:
        """Make traces of a script with so many samples, that needs 1 GiB and 500 MiB for each sample of a batch."""

        def traced(request: Request) -> Traced | None:
            size = request.batch_size or 2
            if size > samples // 2:
                return None
            each = 500 if not blocks or not request.checkpointed_blocks else 100
            found = TestBatches.read(*(size * share * each // 4 for share in (1, 4, 2)), followed=(1, 2, 3, 1))
            return replace(found, batch_size=size, blocks={"Block": blocks} if blocks else {})

        return traced

    @pytest.mark.parametrize("gib", [4, 12, 70])
    def test_each_other_batch_size_takes_a_run_that_reads_ahead(self, gib: float) -> None:
        run, asked = run_with(self.reading())
        found, (fit,) = trace_cards(StudySpec("/train.py"), cards(gib), run, look_ahead=50)
        tried = [request.batch_size or 2 for request in asked]
        assert [request.look_ahead for request in asked] == [max(16, 50 * 2 // size) for size in tried]
        assert tried[:2] == [2, 4]
        assert len(tried) == len({*tried}) <= 8
        told = largest([fit])[0]
        assert told in tried
        assert cards_table(found, [fit]).rows[0][4] == str(told)
        assert gib * GIB > told * 500 * MIB + GIB
        assert min(size for size in tried if size > told) <= max(told + 1, 1.1 * told)
        assert not [one for one in cards_sentences(found, [fit]) if "batch sizes are not told" in one]

    def test_checkpointed_blocks_are_followed_at_other_batch_sizes_too(self) -> None:
        run, asked = run_with(self.reading(blocks=8))
        _, (fit,) = trace_cards(StudySpec("/train.py"), cards(12), run, look_ahead=50)
        (plain,), (checkpointed,) = largest([fit]), largest([fit], "checkpointed")
        assert plain is not None
        assert checkpointed is not None
        assert checkpointed > 4 * plain
        assert (checkpointed, ALL_BLOCKS) in [(request.batch_size, request.checkpointed_blocks) for request in asked]

    @pytest.mark.parametrize(("samples", "most"), [(100, 50), (9, 4)])
    def test_a_batch_size_fits_that_an_epoch_has_steps_for(self, samples: int, most: int) -> None:
        run, _ = run_with(self.reading(samples=samples))
        found, (fit,) = trace_cards(StudySpec("/train.py"), cards(70), run, look_ahead=50)
        fitting = largest([fit])[0] or 0
        assert 0.9 * most <= fitting <= most
        assert cards_table(found, [fit]).rows[0][4] == f"{fitting} or more"
        reason = "the script cannot be followed without the GPU at batch"
        assert any(
            one.startswith(f"Some larger batch sizes are not told: {reason}") for one in cards_sentences(found, [fit])
        )

    def test_where_the_size_changes_nothing_no_run_takes_many_times_the_size_of_those_before(self) -> None:
        traced = self.read(100, 400, 200, followed=(1, 2, 3, 1))
        run, asked = run_with(lambda request: replace(traced, batch_size=request.batch_size or 2))
        found, fits = trace_cards(StudySpec("/train.py"), cards(12), run, look_ahead=50)
        tried = [request.batch_size or 2 for request in asked]
        assert len(tried) <= 8
        assert cards_table(found, fits).rows[0][4] == f"{max(tried)} or more"
        told = "Some larger batch sizes are not told: no more than 6 runs look for the largest."
        assert told in cards_sentences(found, fits)
        assert max(after / before for before, after in pairwise(tried)) <= 8

    def test_a_size_is_found_though_guesses_from_small_ones_lead_to_far_too_small_ones(self) -> None:
        def traced(request: Request) -> Traced:
            size = request.batch_size or 4
            needed = int(1000 * size**0.5) & ~1  # what doubles from 4 to 16 samples
            return replace(self.read(needed, needed // 2, needed // 3 & ~1, followed=(1, 2, 3, 1)), batch_size=size)

        run, asked = run_with(traced)
        found, fits = trace_cards(StudySpec("/train.py"), cards(12), run, look_ahead=50)
        (told,) = largest(fits)
        tried = [request.batch_size or 4 for request in asked]
        assert told is not None
        assert told >= 40
        assert min(size for size in tried if size > told) <= 1.5 * told
        assert cards_table(found, fits).rows[0][4] == str(told)

    def test_a_size_of_which_an_epoch_has_too_few_batches_is_not_told(self) -> None:
        """Guards the last batch, which lacks samples: its longest may come with as many as others in a later epoch."""

        def traced(request: Request) -> Traced | None:
            found = self.reading()(request)
            assert found is not None
            assert found.ahead is not None
            few = replace(found.ahead, differ=False, sizes=found.ahead.sizes[:1])
            return replace(found, ahead=few) if (found.batch_size or 0) > 20 else found

        found, fits = trace_cards(StudySpec("/train.py"), cards(70), run_with(traced)[0], look_ahead=50)
        (told,) = largest(fits)
        assert told is not None
        assert 4 < told <= 20
        assert cards_table(found, fits).rows[0][4] == f"{told} or more"
        (reason,) = (one for one in cards_sentences(found, fits) if one.startswith("Some larger"))
        assert "an epoch has too few batches of " in reason

    def test_where_no_second_size_can_be_followed_the_reason_is_told(self) -> None:
        found, fits = trace_cards(StudySpec("/train.py"), cards(70), run_with(self.reading(samples=6))[0], look_ahead=9)
        assert largest(fits) == [None]
        reason = "the script cannot be followed without the GPU at batch 4: ValueError: no"
        assert f"Other batch sizes are not told: {reason}." in cards_sentences(found, fits)

    def test_a_card_that_holds_no_sample_has_no_batch_size(self) -> None:
        run, asked = run_with(self.reading())
        found, fits = trace_cards(StudySpec("/train.py"), cards(2), run, look_ahead=50)
        assert [request.batch_size for request in asked] == [None, 1]
        assert cards_table(found, fits).rows[0][4] == "none"

    def test_memory_may_run_out_though_no_batch_alone_is_too_large(self) -> None:
        """Guards gaps in torch's cache: a block of 20 MiB is reserved for each tensor of 10 MiB that differs."""
        traced = self.read(100, 400, 200, 900, followed=(1, 2, 3, 4))
        found, (fit,) = trace_cards(StudySpec("/train.py"), cards(1), run_with(lambda _: traced)[0], look_ahead=50)
        last = fit.batches[-1].batch
        told = cards_sentences(found, (replace(fit, batches_over=0, runs_out_at=last),))
        assert told[4] == (
            f"On {fit.card.name} memory runs out at batch 4: its tensors would fit, but batches before it leave gaps "
            "in torch's cache."
        )
        assert "expandable" not in " ".join(told)

    def test_the_size_is_told_to_which_batches_may_be_cut(self) -> None:
        elements = (100, 400, 200, 900, 640, 10)
        traced = self.read(*elements, followed=(1, 2, 3, 4, 6))
        small, large = cards(0.5, 3.2)
        found, fits = trace_cards(StudySpec("/train.py"), (small, large), run_with(lambda _: traced)[0], look_ahead=50)
        by_name = {one.card.name: one for one in fits}
        assert by_name[small.name].cut_to is None, "it is told for the largest card alone"
        cut = by_name[large.name].cut_to
        assert cut is not None
        assert traced.ahead is not None
        assert cut.number == 4
        room = large.holds_up_to(fits[0].error) - outside_bytes(traced.trace) - GIB
        assert 0.9 * room <= cut.elements * MIB <= room
        told = f"With all batches cut to ids 2x{cut.elements // 2} at most, {large.name} should hold them."
        assert told in cards_sentences(found, fits)
        as_cut = self.read(*(min(one, cut.elements) for one in elements), followed=(1, 2, 3, 4, 6))
        _, (fit,) = trace_cards(StudySpec("/train.py"), (large,), run_with(lambda _: as_cut)[0], look_ahead=50)
        assert fit.plain is not None
        assert fit.plain.own.fits
        assert fit.cut_to is None

    def test_where_two_sizes_vary_no_cut_is_told(self) -> None:
        traced = self.read(100, 400, 200, 900, followed=(1, 2, 3, 4))
        assert traced.ahead is not None
        sizes = tuple((one // 2, 3 * one % 7) for one in traced.ahead.elements)
        varying = (*traced.ahead.varying, (Dimension("other", 0),))
        shapes = {"ids": (2, 450), "other": (5,)}
        ahead = replace(
            traced.ahead, varying=varying, sizes=sizes, largest=replace(traced.ahead.largest, shapes=shapes)
        )
        run, _ = run_with(lambda _: replace(traced, ahead=ahead))
        _, (fit,) = trace_cards(StudySpec("/train.py"), cards(2), run, look_ahead=50)
        assert fit.plain is not None
        assert not fit.plain.own.fits
        assert fit.cut_to is None

    def test_a_batch_as_large_is_listed_once_though_parts_of_a_step_before_are_left(self) -> None:
        traced = self.read(100, 400, 400, 90, followed=(1, 2, 3, 4))
        sizes = list(traced.trace.storage_bytes)
        sizes[3] += 64 * 1024  # with the third batch
        traced = replace(traced, trace=replace(traced.trace, storage_bytes=tuple(sizes)))
        _, (fit,) = trace_cards(StudySpec("/train.py"), cards(12), run_with(lambda _: traced)[0], look_ahead=50)
        assert [one.batch.number for one in fit.batches] == [1, 2]

    def test_a_batch_that_came_twice_is_listed_with_the_higher_peak(self) -> None:
        traced = self.read(100, 400, 50, followed=(1, 2, 2))
        sizes = list(traced.trace.storage_bytes)
        sizes[3] += 64 * MIB
        fit = card_fit._fit_own(replace(traced, trace=replace(traced.trace, storage_bytes=tuple(sizes))), cards(12)[0])
        assert [(one.batch.number, one.tensor_bytes) for one in fit.batches] == [
            (1, GIB + 100 * MIB),
            (2, GIB + 464 * MIB),
        ]

    def test_the_table_has_the_first_batch_and_the_last_few(self) -> None:
        elements = tuple(range(100, 2100, 100))
        traced = self.read(*elements, followed=(1, 2, 5, 11, 20))
        _, (fit,) = trace_cards(StudySpec("/train.py"), cards(12), run_with(lambda _: traced)[0], look_ahead=50)
        assert len(fit.batches) == 20
        assert [row[0] for row in batch_table(fit).rows] == ["1", *map(str, range(13, 21))]

    def test_gaps_that_expandable_segments_spare_are_told(self) -> None:
        traced = self.read(100, 400, 200, 900, followed=(1, 2, 3, 4))
        found, (fit,) = trace_cards(StudySpec("/train.py"), cards(12), run_with(lambda _: traced)[0], look_ahead=50)
        assert fit.plain is not None
        assert fit.expandable is not None
        less = replace(fit.expandable, roomy_bytes=fit.plain.own.roomy_bytes * 9 // 10)
        assert cards_sentences(found, (replace(fit, expandable=less),))[4] == (
            "Batches of many sizes leave gaps in torch's cache: with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, "
            f"{fit.card.name} should need {format_bytes(less.roomy_bytes)} instead of "
            f"{format_bytes(fit.plain.own.roomy_bytes)}."
        )
        as_much = replace(fit, expandable=fit.plain.own)
        assert "leave gaps" not in " ".join(cards_sentences(found, (as_much,)))

    @pytest.mark.parametrize(
        ("elements", "over", "most"),
        [((100, 400, 90), 1, "3"), ((100, 400, 90, 900), 2, "4"), ((100, 400, 400), 1, "3")],
    )
    def test_a_batch_of_fewer_elements_may_need_more(self, elements: tuple[int, ...], over: int, most: str) -> None:
        traced = self.read(*elements, followed=range(1, len(elements) + 1))
        sizes = list(traced.trace.storage_bytes)
        sizes[3] = 700 * MIB  # of the third batch
        traced = replace(traced, trace=replace(traced.trace, storage_bytes=tuple(sizes)))
        room = outside_bytes(traced.trace) + GIB + 500 * MIB
        run, _ = run_with(lambda _: traced)
        found, (fit,) = trace_cards(StudySpec("/train.py"), cards(room / GIB), run, look_ahead=9)
        assert [one.batch.number for one in fit.batches] == list(range(1, len(elements) + 1))
        assert fit.batches_over == over
        assert f"of an epoch, batch {most} needs the most: ids 2x" in cards_sentences(found, (fit,))[1]

    def test_batches_of_one_size_leave_the_other_runs_as_they_were(self) -> None:
        run, asked = run_with(
            lambda request: replace(growing(request.batch_size or 4), ahead=self.read(8, 8, 6, followed=(1, 1)).ahead)
        )
        found, fits = trace_cards(StudySpec("/train.py"), cards(12), run, look_ahead=50)
        assert [request.look_ahead for request in asked] == [50, 0, 0, 0]
        assert largest(fits) == [8]
        assert (fits[0].batches, fits[0].batches_over) == ((), 0)
        assert "All of the 3 batches of an epoch are of one size." in cards_sentences(found, fits)

    def test_what_was_read_survives_its_json(self) -> None:
        traced = self.read(100, 400, followed=(1, 2), is_whole=False, ended_by="2 were asked for")
        assert loads(Traced, dumps(traced)) == traced
        _, fits = trace_cards(StudySpec("/train.py"), cards(12), run_with(lambda _: traced)[0], look_ahead=2)
        assert loads(CardFit, dumps(fits[0])) == fits[0]


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
