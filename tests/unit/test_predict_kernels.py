"""Kernels that Inductor makes beside one for each node, and what their buffers are written over and counted as."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.predict import Simulation
from autotune.predict.fusion import Fusion
from autotune.records import ALWAYS, IF_KEPT, IF_OTHERWISE
from tests.unit.test_predict_fusion import FULL, GIVEN, ROW, Half, Node


def test_what_an_operator_with_a_saved_state_took_as_it_came_is_copied_for_the_next() -> None:
    nodes = {"q": Node("l", ("x",)), "draw": Node("f", ("q",)), "turned": Node("v", ("draw",))}
    nodes |= {"back": Node("f", ("q", "draw")), "end": Node("x", ("turned", "back"))}
    half = Half(("end",), x=GIVEN, **nodes)
    total = half.graph.loops[half.names.index("q")][0]
    first = len(half.names)
    half = half.changed(
        more=3,
        storages=tuple(
            (place if name != "turned" else half.names.index("draw"),) for place, name in enumerate(half.names)
        ),
        copies=(
            ("back", "q", first, IF_OTHERWISE, total),
            ("back", "draw", first + 1, IF_OTHERWISE, total),
            ("turned", "draw", first + 2, IF_OTHERWISE, total),
        ),
        loose=(("draw", "q", "draw"),),
    )
    assert half.groups() == [["q"], ["draw"], ["back"], ["end"]]
    assert half.run().bytes == 3000
    half.redrawn = frozenset({half.names.index("draw")})
    assert half.groups() == [["q", "q"], ["draw"], ["draw", "draw"], ["back"], ["end"]]
    # The copy of the input, the result and its copies.
    assert half.run().bytes == 4000


@pytest.mark.parametrize(
    ("is_forward", "bytes_", "end_bytes"),
    [(True, 1000 + 1000 + 100, 1000 + 100), (False, 1000 + 1000 - 100, 1000 - 100)],
)
def test_a_generators_state_is_kept_where_an_operator_draws_and_goes_where_it_has_drawn_again(
    is_forward: bool, bytes_: int, end_bytes: int
) -> None:
    half = Half(("end",), x=GIVEN, draw=Node("f", ("x",)), end=Node("x", ("draw",))).changed(rng_state_bytes=100)
    half.redrawn = frozenset({half.names.index("draw")})
    peak = half.run(is_forward=is_forward)
    assert (peak.bytes, peak.end_bytes) == (bytes_, end_bytes)
    # While it draws, it has the generator's own state as well.
    assert half.run(is_forward=is_forward, draw=5000).bytes == 1000 + 5000 + 100


def test_what_needs_another_layout_in_any_case_is_copied_always() -> None:
    half = Half(("b",), x=GIVEN, a=Node("x", ("x",)), b=Node("f", ("a",)))
    total = half.graph.loops[half.names.index("a")][0]
    assert half.changed(more=1, copies=(("b", "a", 3, ALWAYS, total),)).groups() == [["a"], ["a"], ["b"]]
    assert half.changed(more=1, copies=(("b", "a", 3, IF_OTHERWISE, total),)).groups() == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("outputs", "copied"), [(("view", "end"), True), (("view", "a", "end"), False), (("end",), False)]
)
def test_who_gets_a_view_of_what_a_loop_makes_gets_it_laid_out_as_traced(
    outputs: tuple[str, ...], copied: bool
) -> None:
    nodes = {"a": Node("m", ("x",)), "end": Node("x", ("a",), elements=ROW), "view": Node("v", ("a",))}
    half = Half(outputs, x=GIVEN, **nodes)
    place, total = half.names.index("a"), half.graph.loops[half.names.index("a")][0]
    storages = tuple((place if name == "view" else own,) for own, name in enumerate(half.names))
    half = half.changed(more=1, storages=storages, copies=(("view", "a", len(storages), IF_KEPT, total),))
    assert half.groups() == [["a"] * (1 + copied), ["end"]]
    assert half.run().bytes == 1000 + 62 + 1000 * copied


def test_a_view_of_what_the_half_is_given_lies_as_traced() -> None:
    half = Half(("view",), saved=GIVEN, view=Node("v", ("saved",)))
    half = half.changed(more=1, storages=((0,), (0,)), copies=(("view", "saved", 2, IF_KEPT, 0),))
    assert half.groups() == []


def test_an_input_that_the_backward_gets_as_a_copy_is_read_as_that() -> None:
    nodes = {"image": GIVEN, "a": Node("x", ("image",), elements=ROW)}
    half = Half(("image", "a"), **nodes).changed(more=1, copies=(("image", "image", 2, IF_KEPT, 0),))
    assert half.groups() == [["image"], ["a"]]
    assert half.run().end_bytes == 1000 + 62
    fusion = Fusion(half.graph)
    assert fusion.given([1], [0], half.sizes, is_forward=False) == {0: (2,)}
    assert Half(("a",), **nodes).changed(more=1, copies=(("image", "image", 2, IF_KEPT, 0),)).groups() == [["a"]]


def test_the_copy_of_an_input_lives_from_the_forward_until_the_backward_has_read_it() -> None:
    nodes = {"image": GIVEN, "a": Node("x", ("image",)), "tangent": GIVEN, "b": Node("x", ("image", "tangent"))}
    plain = replace(
        Half(("a",), **nodes).graph,
        formulas=("1000",),
        backward_outputs=(3,),
        last_forward=1,
        loops=((0, 0),) * len(nodes),
    )
    copied = replace(plain, sizes=(0,) * 5, kinds=(0,) * 5, copies=((0, 0, 4, IF_KEPT, 0),))
    one, other = (Simulation([graph]).levels({}) for graph in (plain, copied))
    assert (other.forward_end, other.backward_begin) == (one.forward_end + 1000, one.backward_begin + 1000)
    assert other.backward_end == one.backward_end


def test_what_reads_nothing_is_computed_by_other_loops_though_it_is_made() -> None:
    nodes = {"zeros": Node("l", ("number",)), "seen": Node("v", ("zeros",)), "a": Node("m", ("x", "seen"))}
    half = Half(("zeros", "a", "end"), x=GIVEN, number=GIVEN, **nodes, end=Node("x", ("zeros",), elements=ROW))
    zeros = half.names.index("zeros")
    held = {"number": (), "seen": (zeros,)}
    half = half.changed(storages=tuple(held.get(name, (place,)) for place, name in enumerate(half.names)))
    # An operator reads it.
    assert half.groups() == [["zeros"], ["a"], ["end"]]


@pytest.mark.parametrize(("open_", "groups"), [(True, [["zeros"], ["a"]]), (False, [["zeros", "a"]])])
def test_what_reads_nothing_and_outlives_its_half_may_be_read_all_the_same(
    open_: bool, groups: list[list[str]]
) -> None:
    nodes = {"zeros": Node("l", ("number",)), "a": Node("m", ("x", "zeros"))}
    half = Half(("zeros", "a"), x=GIVEN, number=GIVEN, **nodes)
    storages = tuple(() if name == "number" else (place,) for place, name in enumerate(half.names))
    assert half.changed(storages=storages, keeps_constants_open=open_).groups() == groups


@pytest.mark.parametrize(
    ("letter", "groups"), [("d", [["seeds"], ["one"], ["other"]]), ("l", [["seeds"], ["one", "other"]])]
)
def test_loops_that_read_an_element_each_have_nothing_in_common(letter: str, groups: list[list[str]]) -> None:
    nodes = {name: Node(letter, ("seeds",), elements=1) for name in ("one", "other")}
    assert Half(("one", "other"), x=GIVEN, seeds=Node("x", ("x",), elements=2), **nodes).groups() == groups


def test_what_is_written_to_places_is_filled_before() -> None:
    nodes = {
        "row": Node("x", ("x",), elements=ROW),
        "zeros": Node("l", ("x",)),
        "places": Node("s", ("zeros", "row")),
        "end": Node("x", ("places",), elements=ROW),
    }
    half = Half(("end",), x=GIVEN, **nodes)
    assert half.groups() == [["row"], ["places", "places"], ["end"]]
    assert half.with_loop("places", ROW, FULL).groups() == [["row"], ["places"], ["places"], ["end"]]
    assert half.with_loop("places", ROW, FULL).run().bytes == 62 + 1000 + 62 - 62


def test_what_reads_places_that_were_written_to_does_not_run_along_with_filling_them() -> None:
    nodes = {"row": Node("x", ("x",), elements=ROW), "zeros": Node("l", ("x",)), "places": Node("s", ("zeros", "row"))}
    half = Half(("end",), x=GIVEN, **nodes, end=Node("m", ("places",))).with_loop("places", ROW, FULL)
    assert half.groups() == [["row"], ["places"], ["places"], ["end"]]


def test_a_loop_over_one_range_is_split_as_others_of_its_shape_are_and_no_others() -> None:
    nodes = {"rows": Node("l", ("x",), splits=(ROW,)), "more": Node("l", ("x",), splits=(ROW,))}
    half = Half(("rows", "more", "flat"), x=GIVEN, **nodes, flat=Node("l", ("x",)))
    assert half.changed(shapes=(0, 1, 1, 1)).groups() == [["rows", "more", "flat"]]
    assert half.changed(shapes=(0, 1, 1, 2)).groups() == [["rows", "more"], ["flat"]]
    # Both are split alike, so that they run as one; what is of two shapes is of none.
    assert half.changed(shapes=(0, 1, 2, 1)).groups() == [["rows", "more"], ["flat"]]
    assert half.changed(shapes=(0, 2, 1, 1)).groups() == [["rows", "more"], ["flat"]]


@pytest.mark.parametrize(
    ("letter", "sources", "fixing", "kept", "is_view_shaped"),
    [
        ("l", ("x",), ("product",), (), True),
        ("l", ("x", "y"), ("product",), (), False),
        ("l", ("x",), (), (), False),
        ("l", ("x",), ("product",), ("flat",), False),
        ("m", ("x",), ("product",), (), False),
        ("h", ("x",), ("product",), (), True),
    ],
)
def test_what_reads_little_is_made_in_the_shape_of_a_view_that_is_read_twice_and_laid_out_for_an_operator(
    letter: str, sources: tuple[str, ...], fixing: tuple[str, ...], kept: tuple[str, ...], is_view_shaped: bool
) -> None:
    nodes = {
        "rows": Node("l", ("x",), splits=(ROW,)),
        "flat": Node(letter, sources),
        "view": Node("v", ("flat",)),
        "product": Node("x", ("view",)),
        "other": Node("x", ("view",)),
    }
    half = Half(("rows", "product", "other", *kept), x=GIVEN, y=GIVEN, **nodes)
    held = tuple((half.names.index("flat" if name == "view" else name),) for name in half.names)
    half = half.changed(storages=held, fixing=fixing, shapes=tuple(int(name == "view") for name in half.names))
    assert half.groups()[:-2] == ([["rows"], ["flat"]] if is_view_shaped else [["rows", "flat"]])
    # The other half has the other reader: only one is left.
    assert half.without("other").groups()[:-1] == [["rows", "flat"]]


def test_no_more_than_sixteen_loops_run_as_one_that_only_share_an_input() -> None:
    names = [f"loop{number}" for number in range(20)]
    groups = Half(tuple(names), x=GIVEN, **{name: Node("m", ("x",)) for name in names}).groups()
    assert max(map(len, groups)) == 16


def test_variances_of_short_rows_are_sums_then_means_then_variances() -> None:
    half = Half(("end",), x=GIVEN, a=Node("x", ("x",)), rows=Node("w", ("a",), elements=ROW), end=Node("x", ("rows",)))
    rows, count = half.names.index("rows"), len(half.names)
    storages = tuple((place, count) if place == rows else (place,) for place in range(count))
    half = half.with_loop("rows", FULL, ROW).changed(more=1, storages=storages)
    half.sizes[-1] = 62
    assert half.groups() == [["a"], ["rows", "rows", "rows"], ["end"]]
    # The sums never exist.
    assert half.run().bytes == 1000 + 62 + 62


@pytest.mark.parametrize(("letter", "highest"), [("m", 1000 + 62), ("k", 2000 + 62)])
def test_a_concatenation_is_not_written_over(letter: str, highest: int) -> None:
    nodes = {"a": Node(letter, ("x",)), "b": Node("x", ("a",), elements=ROW), "c": Node("m", ("a", "b"))}
    assert Half(("c",), x=GIVEN, **nodes).run().bytes == highest


def test_what_is_written_over_no_other_loop_reads_unless_that_comes_before_for_certain() -> None:
    nodes = {"a": Node("x", ("x",)), "b": Node("m", ("a",)), "c": Node("m", ("a",))}
    assert Half(("b", "c"), x=GIVEN, **nodes).run().bytes == 3000
    nodes["c"] = Node("m", ("a", "b"))
    assert Half(("b", "c"), x=GIVEN, **nodes).run().bytes == 2000


def test_what_is_handed_on_within_a_kernel_exists_if_it_is_written_over() -> None:
    half = Half(("c",), x=GIVEN, a=Node("x", ("x",)), b=Node("m", ("a",)), c=Node("m", ("b", "a")))
    assert half.groups() == [["a"], ["b", "c"]]
    # "c" takes the place of "b", which it reads first, and not that of "a".
    assert half.run().bytes == 2000


@pytest.mark.parametrize(("first", "second", "kept"), [("a", "saved", 0), ("saved", "a", 1000)])
def test_a_loop_writes_over_what_it_reads_first(first: str, second: str, kept: int) -> None:
    """What it does not write over is kept for a later buffer, unless the half was given it."""
    nodes = {
        "a": Node("x", ("x",)),
        "c": Node("m", (first, second)),
        "row": Node("x", ("c",), elements=ROW),
        "end": Node("x", ("row",)),
    }
    half = Half(("c", "end"), x=GIVEN, saved=GIVEN, **nodes)
    assert half.run(row=9000).bytes == 1000 + 62 + 9000 + kept


@pytest.mark.parametrize("waits", [False, True])
def test_loops_that_would_wait_for_each_other_keep_others_from_sharing_outer_loops(waits: bool) -> None:
    """``a`` and ``b`` run as one; then ``c``, which waits for the one, cannot with ``d``, which the other waits for."""
    nodes = {
        "a": Node("m", ("x",)),
        "one": Node("x", ("a",), elements=ROW),
        "c": Node("m", ("y", "one"), elements=4 * FULL),
        "d": Node("m", ("y",), elements=4 * FULL),
        "other": Node("x", ("d",), elements=ROW),
        "b": Node("m", ("x", "other") if waits else ("x",)),
        "rows": Node("r", ("b",), elements=ROW),
        "spread": Node("m", ("rows",), splits=(ROW,)),
    }
    half = Half(("a", "c", "d", "spread"), x=GIVEN, y=GIVEN, **nodes)
    assert (["rows", "spread"] in half.groups()) is not waits


@pytest.mark.parametrize(("given", "kept"), [("saved", 1000), ("tangent", 0)])
def test_gradients_that_are_given_are_no_reason_to_keep_a_buffer(given: str, kept: int) -> None:
    """A buffer is kept as long as that is no peak; to Inductor a peak with what the forward saved, not with those."""
    nodes = {
        "a": Node("x", ("x", given)),
        "row": Node("x", ("a",), elements=ROW),
        "wide": Node("x", ("row",), elements=FULL // 2),
        "end": Node("x", ("wide",)),
    }
    half = Half(("end",), x=GIVEN, **{given: GIVEN}, **nodes)
    assert half.run(wide=9000).bytes == 62 + 500 + 9000 + kept


def test_what_was_given_of_a_tensor_is_apart_from_what_is_computed_of_it_anew() -> None:
    nodes = {"product": Node("x", ("x",)), "row": Node("x", ("product",), elements=ROW)}
    half = Half(("end",), x=GIVEN, saved=GIVEN, **nodes, end=Node("x", ("saved", "row")))
    product = half.names.index("product")
    storages = tuple((product,) if name == "saved" else (place,) for place, name in enumerate(half.names))
    # The product is gone when the end comes, and what was given still there.
    assert half.changed(storages=storages).run(row=9000, end=9500).bytes == max(
        2000 + 62 + 9000, 1000 + 62 + 1000 + 9500
    )


def test_of_what_is_given_a_part_is_counted_where_only_that_is_looked_at() -> None:
    nodes = {
        "part": Node("p", ("saved",), elements=ROW),
        "a": Node("x", ("x", "part")),
        "row": Node("x", ("a",), elements=ROW),
        "wide": Node("x", ("row",), elements=FULL // 2),
        "end": Node("x", ("wide",)),
    }
    half = Half(("end",), x=GIVEN, saved=GIVEN, **nodes)
    saved = half.names.index("saved")
    storages = tuple((saved,) if name == "part" else (place,) for place, name in enumerate(half.names))
    half = half.changed(storages=storages).given("x", "part")
    # With the whole counted, keeping "a" for the end would be no peak.
    assert half.run(wide=9000).bytes == 62 + 500 + 9000
