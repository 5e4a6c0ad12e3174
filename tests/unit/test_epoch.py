"""An epoch's allocations, put together from those of a few of its steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from autotune.predict import epoch
from autotune.predict.epoch import with_epoch
from autotune.records.allocations import AllocationTrace, OperatorCall, TensorForm, Traced
from autotune.records.facts import BatchControl
from autotune.records.look_ahead import Dimension, LookAhead, SeenBatch

MIB = 1 << 20
START, FORWARD, BACKWARD, OPTIMIZER = range(4)


@dataclass
class Script:
    """Writes down what a script allocates that takes batches of (source, target) sizes."""

    kinds: str = ""
    numbers: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    calls: list[OperatorCall] = field(default_factory=list)
    left: list[list[int]] = field(default_factory=list)

    def add(self, kind: str, number: int) -> int:
        self.kinds += kind
        self.numbers.append(number)
        return number

    def make(self, size: int) -> int:
        self.sizes.append(size)
        return self.add("a", len(self.sizes) - 1)

    def call(self, name: str, *shape: int) -> int:
        form = TensorForm(shape, 4, "strided")
        self.calls.append(OperatorCall(name, (form,), {"dims": (1, 2)}, num_results=1))
        self.add("o", len(self.calls) - 1)
        return self.make(4 * shape[0] * shape[1])

    def micro_batch(self, source: int, target: int) -> None:
        inputs = self.make(8 * source)
        self.add("p", FORWARD)
        saved = [self.make(4096 * source), self.call("roll", source, target), self.make(512 * source * source + 8)]
        self.add("p", BACKWARD)
        for one in reversed(saved):
            self.make(64 * target)
            self.add("f", one)
            self.add("f", len(self.sizes) - 1)
        self.add("p", OPTIMIZER)
        self.add("f", inputs)

    def step(self, batches: Sequence[tuple[int, int]], *, keeps: int = 1) -> None:
        """Take a step, and keep what it makes for so many steps."""
        if self.kinds:
            self.add("p", START)
        for batch in batches:
            self.micro_batch(*batch)
        if len(self.left) == 0:
            self.make(3 * MIB)  # the optimizer's state
        self.left.append([self.make(MIB + 16 * batches[-1][0]), self.make(700)])
        for number in self.left[-1 - keeps] if len(self.left) > keeps else ():
            self.add("f", number)

    def trace(self) -> AllocationTrace:
        return AllocationTrace(self.kinds, tuple(self.numbers), tuple(self.sizes), tuple(self.calls))


SIZES = [(30, 40), (200, 25), (64, 64), (31, 170), (500, 90), (10, 10), (77, 203), (120, 333), (45, 45), (300, 10)]


def seen(number: int, source: int, target: int) -> SeenBatch:
    return SeenBatch(
        number, 8 * source + 8 * target, {"source": (8, source), "mask": (8, source), "target": (8, target)}
    )


def read(
    followed: Sequence[int],
    sizes: Sequence[tuple[int, int]] = SIZES,
    *,
    per_step: int = 1,
    take: Callable[[Script, Sequence[tuple[int, int]]], None] = Script.step,
) -> Traced:
    """Follow a step with the first batches, and then one with each of those named."""
    batches = [seen(number, *size) for number, size in enumerate(sizes, 1)]
    steps = [tuple(batches[:per_step]), *((batches[number - 1],) * per_step for number in followed)]
    script = Script()
    for step in steps:
        take(script, [sizes[one.number - 1] for one in step])
    varying = ((Dimension("source", 1), Dimension("mask", 1)), (Dimension("target", 1),))
    both = len({target for _, target in sizes}) > 1
    ahead = LookAhead(
        elements=tuple(one.elements for one in batches),
        smallest=min(batches, key=lambda one: one.size),
        largest=max(batches, key=lambda one: one.size),
        followed=tuple(steps),
        differ=True,
        is_whole=True,
        ended_by="",
        varying=varying if both else varying[:1],
        sizes=tuple(size if both else size[:1] for size in sizes),
    )
    return Traced(script.trace(), 8, BatchControl("none"), len(steps), process=1, ahead=ahead)


def whole(
    sizes: Sequence[tuple[int, int]] = SIZES,
    *,
    per_step: int = 1,
    take: Callable[[Script, Sequence[tuple[int, int]]], None] = Script.step,
) -> AllocationTrace:
    """Follow all steps of an epoch."""
    script = Script()
    for place in range(0, len(sizes) - per_step + 1, per_step):
        take(script, sizes[place : place + per_step])
    return script.trace()


def keeping(steps: int) -> Callable[[Script, Sequence[tuple[int, int]]], None]:
    return lambda script, batches: script.step(batches, keeps=steps)


@pytest.fixture(autouse=True)
def of_one_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch, "_EPOCHS", 1)


@pytest.mark.parametrize("keeps", [0, 1])
@pytest.mark.parametrize("per_step", [1, 2])
def test_steps_that_were_not_followed_allocate_what_they_would(per_step: int, keeps: int) -> None:
    traced = read((2, 4, 5, 6, 7, 8, 3), per_step=per_step, take=keeping(keeps))
    made = with_epoch(traced)
    assert made.trace == whole(per_step=per_step, take=keeping(keeps))
    assert made.ahead is not None
    numbers = [[one.number for one in step] for step in made.ahead.followed]
    assert numbers == [[place + part for part in range(per_step)] for place in range(1, len(SIZES) + 1, per_step)]
    assert made.ahead.followed[-1][-1] == seen(10, *SIZES[9])
    assert (made.notes, made.steps) == ((), 8)


def test_a_second_epoch_follows_with_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch, "_EPOCHS", 2)
    made = with_epoch(read((2, 4, 5, 6, 7, 8, 3)))
    assert made.trace == whole((*SIZES, *SIZES))
    assert made.ahead is not None
    assert [step[0].number for step in made.ahead.followed] == [*range(1, 11), *range(1, 11)]
    assert [made.ahead.epoch_of(step) for step in (0, 9, 10, 19)] == [1, 1, 2, 2]


@pytest.mark.parametrize("shuffles", [True, False])
def test_the_longest_of_a_last_batch_may_come_with_others_in_a_later_epoch(
    shuffles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch, "_EPOCHS", 2)
    traced = read((2, 4, 5, 6, 7, 8, 3))
    assert traced.ahead is not None
    ahead = replace(traced.ahead, elements=(*traced.ahead.elements, 900), lacking=(700, 20), shuffles=shuffles)
    made = with_epoch(replace(traced, ahead=ahead)).ahead
    assert made is not None
    second = sorted((step[0] for step in made.followed[10:]), key=lambda one: one.number)
    filled = [replace(seen(11, 700, 20), elements=8 * 700 * 2 + 8 * 20)] if shuffles else []
    assert second == [*(seen(number, *size) for number, size in enumerate(SIZES, 1)), *filled]
    order = [step[0].number for step in made.followed[10:] if step[0].number != 11]
    assert (order != [*range(1, 11)]) == shuffles


def test_what_stays_for_two_steps_is_freed_two_steps_later() -> None:
    made = with_epoch(read((2, 4, 5, 6, 7, 8, 2, 3), take=keeping(2)))
    assert made.trace == whole(take=keeping(2))


def test_of_one_size_four_batches_tell_all() -> None:
    sizes = [(n, 50) for n in (30, 200, 64, 31, 500, 10)]
    made = with_epoch(read((2, 4, 5, 6), sizes))
    assert made.trace == whole(sizes)
    few = sizes[:4]
    assert with_epoch(read((2, 3, 4), few)).trace == whole(few), "there are no other sizes"


def takes_otherwise(
    when: Callable[[int, Sequence[tuple[int, int]]], bool], more: int = 600
) -> Callable[[Script, Sequence[tuple[int, int]]], None]:
    """A script that does more in some steps, by the number of the step and its batches."""

    def take(script: Script, batches: Sequence[tuple[int, int]]) -> None:
        script.step(batches)
        if when(len(script.left), batches):
            script.make(more * batches[0][0] ** 2)

    return take


def test_first_steps_of_another_form_come_once_and_as_they_were() -> None:
    """Guards compilers, which compile again at the second size."""
    take = takes_otherwise(lambda step, _: step <= 3)
    followed = (2, 4, 5, 6, 7, 8, 2, 4, 3)
    made = with_epoch(read(followed, take=take))
    sizes = list(SIZES)
    sizes[1:3] = [SIZES[number - 1] for number in followed[:2]]
    assert made.trace == whole(sizes, take=take)
    assert made.ahead is not None
    assert [step[0].number for step in made.ahead.followed] == [1, 2, 4, *range(4, 11)]


def test_steps_that_allocate_hardly_more_are_as_others() -> None:
    """Guards scripts that log now and then."""
    sizes = [(source, 50) for source, _ in SIZES]
    take = takes_otherwise(lambda step, _: step % 5 == 0, more=1)
    made = with_epoch(read((2, 4, 5, 6, 7, 8, 9, 2, 4, 3), sizes, take=take))
    assert made.trace == whole(sizes)


@pytest.mark.parametrize(
    "when",
    [lambda step, _: step % 5 == 0, lambda _, batches: batches[0][0] > 250, lambda _, batches: batches[0][0] < 50],
    ids=["now and then", "with long batches", "with short batches"],
)
def test_steps_that_may_differ_by_their_batch_are_told(
    when: Callable[[int, Sequence[tuple[int, int]]], bool],
) -> None:
    """Guards scripts that do more with long batches, and those that do more now and then."""
    sizes = [(source, 50) for source, _ in SIZES]
    traced = read((2, 4, 5, 6, 7, 8, 9, 2, 4, 3), sizes, take=takes_otherwise(when))
    made = with_epoch(traced)
    assert made.trace is traced.trace
    assert " of those that were followed does something else" in made.notes[-1]


@pytest.mark.parametrize("is_followed", [True, False])
def test_a_last_batch_that_lacks_samples_comes_last_if_it_was_followed(is_followed: bool) -> None:
    """Guards formulas, which do not know of its size, and long texts in it."""

    def take(script: Script, batches: Sequence[tuple[int, int]]) -> None:
        made = len(script.sizes)
        script.step(batches)
        if batches[0] == SIZES[9]:
            script.sizes[made:] = [size * 3 for size in script.sizes[made:]]

    traced = read((2, 4, *([10] if is_followed else []), 5, 6, 7, 8, 2, 3), take=take)
    assert traced.ahead is not None
    lacking = replace(seen(10, *SIZES[9]), shapes={"source": (2, 300), "mask": (2, 300), "target": (2, 10)})
    followed = tuple(tuple(lacking if one.number == 10 else one for one in step) for step in traced.ahead.followed)
    made = with_epoch(replace(traced, ahead=replace(traced.ahead, followed=followed, sizes=traced.ahead.sizes[:-1])))
    true = whole(SIZES if is_followed else SIZES[:9], take=take)
    assert made.trace.storage_bytes == true.storage_bytes
    assert (made.trace.kinds, made.trace.numbers) == (true.kinds, true.numbers)
    assert made.ahead is not None
    assert (made.ahead.followed[-1] == (lacking,)) == is_followed


def test_where_all_batches_were_followed_nothing_is_to_be_told() -> None:
    traced = read((2, 3, 1), SIZES[:3], take=takes_otherwise(lambda step, _: step % 2 == 0))
    assert with_epoch(traced) is traced


def test_steps_of_unlike_forms_are_told() -> None:
    def take(script: Script, batches: Sequence[tuple[int, int]]) -> None:
        script.step(batches)
        for _ in script.left:
            script.add("f", script.make(99))

    traced = read((2, 4, 5, 6), take=take)
    made = with_epoch(traced)
    assert (made.trace, made.ahead) == (traced.trace, traced.ahead)
    assert made.notes[-1].endswith(": no two of its steps are alike")


def test_sizes_without_a_formula_are_told() -> None:
    rng = random.Random(1)

    def take(script: Script, batches: Sequence[tuple[int, int]]) -> None:
        script.step(batches)
        script.sizes[-1] = rng.randrange(20 * MIB)

    traced = read((2, 4, 5, 6, 7, 8, 3), take=take)
    made = with_epoch(traced)
    assert made.trace == traced.trace
    assert made.notes[-1].endswith("what a step allocates follows no formula in the sizes of its batch")


def test_of_a_long_epoch_the_steps_with_which_sizes_rise_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch, "_MOST_EVENTS", 0)
    rng = random.Random(2)
    sizes = [(rng.randrange(8, 4000), 20) for _ in range(300)]
    made = with_epoch(read((2, 3, 4, 5), sizes))
    assert made.ahead is not None
    numbers = [step[0].number for step in made.ahead.followed]
    assert numbers == sorted({*numbers})
    assert numbers[:5] == [1, 2, 3, 4, 5]
    assert 10 <= len(numbers) <= 18
    rising = [number for number, size in enumerate(sizes, 1) if size == max(sizes[:number])]
    assert {*rising} <= {*numbers}
    assert made.trace.storage_bytes == whole([sizes[number - 1] for number in numbers]).storage_bytes


def test_the_batch_that_needs_most_is_kept_though_another_has_more_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards lengths that differ in price."""
    monkeypatch.setattr(epoch, "_MOST_EVENTS", 0)
    rng = random.Random(2)
    sizes = [(rng.randrange(8, 300), rng.randrange(8, 300)) for _ in range(300)]
    sizes[20], sizes[203] = (10, 2000), (1200, 10)
    made = with_epoch(read((3, 5, 6, 7, 8, 9, 21, 11), sizes))
    assert made.ahead is not None
    numbers = [step[0].number for step in made.ahead.followed]
    assert {21, 204} <= {*numbers}
    assert len(numbers) < 50


def test_batches_of_other_tensors_are_told_apart_by_all_their_elements() -> None:
    sizes = [(n, n) for n in (30, 200, 64, 31, 500, 10)]
    traced = read((2, 5, 6, 3), sizes)
    assert traced.ahead is not None
    made = with_epoch(replace(traced, ahead=replace(traced.ahead, varying=(), sizes=((),) * 6)))
    assert made.trace == whole(sizes)
    assert made.ahead is not None
    assert made.ahead.followed[3][0].sizes == "496 elements"


def test_without_batches_that_differ_nothing_changes() -> None:
    traced = read((2, 4))
    assert traced.ahead is not None
    alike = replace(traced, ahead=replace(traced.ahead, differ=False))
    assert with_epoch(alike) is alike
    assert with_epoch(replace(traced, ahead=None)).trace == traced.trace
