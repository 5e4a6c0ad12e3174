"""What Inductor's code allocates, on graphs small enough to count by hand: a matrix of 16 by 16 takes 1000 bytes."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import pytest

from autotune.predict import Simulation
from autotune.predict.buffers import Buffers
from autotune.predict.fusion import Fusion
from autotune.predict.lifetimes import Peak
from autotune.records import ActivationGraph
from tests.unit.test_predict_simulation import GRAPH, HIDDEN, MASK, OUT, PAIR

ROW = 16
FULL = ROW * ROW


@dataclass
class Node:
    """A node: its letter, its inputs, its elements, where its ranges are split, and the kind of its elements."""

    letter: str
    inputs: tuple[str, ...] = ()
    elements: int = FULL
    splits: tuple[int, ...] = ()
    kind: int = 0


GIVEN = Node("-")


class Half:
    """A half of these nodes, each with a storage of its own; those without inputs are parameters.

    One named ``saved`` or ``tangent`` is there at the beginning, and freed.
    """

    def __init__(self, outputs: tuple[str, ...], **nodes: Node) -> None:
        self.names = list(nodes)
        self._outputs = [self.names.index(name) for name in outputs]
        inputs = tuple(tuple(map(self.names.index, node.inputs)) for node in nodes.values())
        self._given = [place for place, sources in enumerate(inputs) if not sources]
        numbers = [0, *{size for node in nodes.values() for size in (FULL, node.elements, *node.splits)}]
        self.sizes = [
            1000 * node.elements // FULL if node.inputs or name in ("saved", "tangent") else 0
            for name, node in nodes.items()
        ]
        self._values = numbers
        self.graph = ActivationGraph(
            names=tuple(self.names),
            inputs=inputs,
            storages=tuple((place,) for place in range(len(nodes))),
            sizes=(0,) * len(nodes),
            formulas=("0",),
            forward_outputs=tuple(self._outputs),
            backward_outputs=(),
            last_forward=len(nodes) - 1,
            primals=tuple(place for place in self._given if self.names[place] != "tangent"),
            tangents=tuple(place for place in self._given if self.names[place] == "tangent"),
            constants=(),
            symbols=(),
            getitems=(),
            random=(),
            updates=(),
            checkpoints=(),
            layers=(),
            occurrences=(),
            rng_state_bytes=0,
            kinds=tuple(node.kind for node in nodes.values()),
            lowering="".join(node.letter for node in nodes.values()),
            loops=tuple(
                tuple(map(numbers.index, (FULL if node.letter in "rc" else node.elements, node.elements, *node.splits)))
                for node in nodes.values()
            ),
        )
        self._order = [place for place, sources in enumerate(inputs) if sources]
        self.redrawn: frozenset[int] = frozenset()

    def changed(self, *, more: int = 0, **fields: object) -> Half:
        """The same half with other fields of its graph, nodes by name, and ``more`` storages as large as a matrix."""

        def numbered(value: object) -> object:
            if isinstance(value, tuple):
                return tuple(map(numbered, value))
            return self.names.index(value) if isinstance(value, str) else value

        other = copy.copy(self)
        count = len(self.names) + more
        same = {"sizes": (0,) * count, "kinds": self.graph.kinds + (0,) * more}
        other.graph = replace(self.graph, **(same | {name: numbered(value) for name, value in fields.items()}))  # type: ignore[arg-type]
        other.sizes = self.sizes + [1000] * more
        return other

    def given(self, *names: str) -> Half:
        """The same half with these nodes for its inputs."""
        other = copy.copy(self)
        other._given = [self.names.index(name) for name in names]
        other._order = [place for place in self._order if place not in other._given]
        return other

    def without(self, name: str) -> Half:
        """The half that does not run this node."""
        other = copy.copy(self)
        place = self.names.index(name)
        other._order = [each for each in self._order if each != place]
        other._outputs = [each for each in self._outputs if each != place]
        return other

    def with_loop(self, name: str, total: int, results: int) -> Half:
        """The same half with a loop over so many elements, and with so many results."""
        row = (self._values.index(total), self._values.index(results))
        loops = [row if name == each else own for each, own in zip(self.names, self.graph.loops, strict=True)]
        return self.changed(loops=tuple(loops))

    def groups(self) -> list[list[str]]:
        """The kernels by name, fused ones together."""
        fusion = Fusion(self.graph)
        given = fusion.given(self._order, self._given, self.sizes)
        kernels, _ = fusion.kernels(
            self._order, given=given, outputs=self._outputs, values=self._values, redrawn=self.redrawn
        )
        return [
            [self.names[kernel.node] for kernel in group]
            for group in fusion.fused(kernels, fusion.with_twins(self.sizes))
        ]

    def run(self, *, is_forward: bool = True, **workspace: int) -> Peak:
        """The half's highest point, with what some operators allocate while they run."""
        return Buffers(self.graph).run(
            self._order,
            given=self._given,
            outputs=self._outputs,
            sizes=self.sizes,
            all_sizes=self.sizes,
            values=self._values,
            workspace=lambda node: workspace.get(self.names[node], 0),
            redrawn=self.redrawn,
            start_bytes=sum(
                self.sizes[each] for each in {each for place in self._given for each in self.graph.storages[place]}
            ),
            is_forward=is_forward,
        )


def test_loops_are_computed_where_they_are_read() -> None:
    half = Half(("c",), x=GIVEN, a=Node("l", ("x",)), b=Node("l", ("a",)), c=Node("x", ("b",)))
    assert half.groups() == [["b"], ["c"]]
    assert half.run() == Peak(2000, half.names.index("c"), 1000)


def test_what_costs_much_and_is_read_twice_is_made_once() -> None:
    for letter, made in (("l", [["b", "c"]]), ("h", [["a", "b", "c"]])):
        nodes = {"a": Node(letter, ("x",)), "b": Node("l", ("a",)), "c": Node("l", ("a",))}
        half = Half(("b", "c"), x=GIVEN, **nodes)
        assert half.groups() == made
        # Nobody but the loops that it is fused with reads it, so it never exists.
        assert half.run().bytes == 2000


def test_what_reads_very_much_is_made() -> None:
    def half(number: int) -> Half:
        given = {f"x{place}": GIVEN for place in range(number)}
        return Half(("b",), **given, a=Node("l", tuple(given)), b=Node("l", ("a",)))

    assert half(12).groups() == [["b"]]
    assert half(13).groups() == [["a", "b"]]
    # With the limits of torch 2.11.
    assert half(8).changed(limits=(30, 8, 4)).groups() == [["b"]]
    assert half(9).changed(limits=(30, 8, 4)).groups() == [["a", "b"]]


def test_what_takes_very_many_operations_is_made() -> None:
    nodes = {f"n{place}": Node("l", (f"n{place - 1}" if place else "x",)) for place in range(32)}
    half = Half(("n31",), x=GIVEN, **nodes)
    assert half.groups() == [["n31"]]
    assert half.changed(limits=(30, 8, 4)).groups() == [["n30", "n31"]]


def test_a_loop_writes_over_what_it_is_the_last_to_read() -> None:
    nodes = {"a": Node("x", ("x",)), "b": Node("l", ("a",)), "c": Node("x", ("b",))}
    assert Half(("b", "c"), x=GIVEN, **nodes).run() == Peak(2000, 3, 2000)
    nodes["d"] = Node("x", ("a", "c"))
    assert Half(("b", "c", "d"), x=GIVEN, **nodes).run().bytes == 4000


@pytest.mark.parametrize(("given", "bytes_"), [("saved", 1000), ("tangent", 2000)])
def test_a_loop_writes_over_what_the_forward_saved_and_never_over_a_gradient(given: str, bytes_: int) -> None:
    half = Half(("a",), x=GIVEN, **{given: GIVEN}, a=Node("l", ("x", given)))
    assert (half.run().bytes, half.run().end_bytes) == (bytes_, 1000)


def test_a_loop_writes_over_nothing_of_another_type_of_elements() -> None:
    for kind, highest in ((0, 1000), (1, 2000)):
        half = Half(("b",), x=GIVEN, a=Node("x", ("x",)), b=Node("l", ("a",), kind=kind))
        assert half.run().bytes == highest


def test_rows_of_a_reduction_and_of_a_loop_run_as_one_and_what_is_between_never_exists() -> None:
    half = Half(
        ("c",),
        x=GIVEN,
        a=Node("x", ("x",)),
        b=Node("r", ("a",), elements=ROW),
        c=Node("l", ("a", "b"), splits=(ROW,)),
    )
    assert half.groups() == [["a"], ["b", "c"]]
    assert half.run().bytes == 1000


@pytest.mark.parametrize(
    ("letter", "splits", "fused"), [("r", (ROW,), True), ("r", (), False), ("c", (ROW,), True), ("r", (4,), False)]
)
def test_a_loop_runs_along_with_a_reduction_where_its_ranges_are_split_alike(
    letter: str, splits: tuple[int, ...], fused: bool
) -> None:
    half = Half(
        ("b", "c"),
        x=GIVEN,
        a=Node("x", ("x",)),
        b=Node("l", ("a",), splits=splits),
        c=Node(letter, ("b",), elements=ROW),
    )
    assert half.groups() == ([["a"], ["b", "c"]] if fused else [["a"], ["b"], ["c"]])


def test_loops_with_an_operator_between_them_stay_apart() -> None:
    nodes = {"a": Node("m", ("x",)), "b": Node("x", ("a",)), "c": Node("l", ("a", "b"))}
    assert Half(("c",), x=GIVEN, **nodes).groups() == [["a"], ["b"], ["c"]]


def test_loops_that_only_share_an_input_run_as_one_when_they_are_near() -> None:
    def half(between: int) -> Half:
        nodes = {"a": Node("l", ("x",)), "y0": Node("x", ("x",))}
        nodes |= {f"y{place + 1}": Node("x", (f"y{place}",)) for place in range(between)}
        return Half(("a", "b", f"y{between}"), x=GIVEN, **nodes, b=Node("l", ("x",)))

    assert ["a", "b"] in half(10).groups()
    assert ["a"] in half(70).groups()


def test_loops_that_read_different_parts_of_an_input_have_nothing_in_common() -> None:
    def half(one: str, other: str) -> Half:
        parts = {"first": Node("p", ("x",)), "second": Node("p", ("x",)), "turned": Node("v", ("first",))}
        loops = {"a": Node("l", (one,)), "b": Node("l", (other,))}
        return Half(("a", "b"), x=GIVEN, **parts, **loops)

    assert half("first", "second").groups() == [["a"], ["b"]]
    assert half("first", "turned").groups() == [["a", "b"]]


def test_nothing_is_freed_between_loops() -> None:
    nodes = {
        "a": Node("x", ("x",)),
        "b": Node("r", ("a",), elements=ROW),
        "c": Node("m", ("b",), elements=4 * FULL),
        "d": Node("x", ("c",), elements=ROW),
    }
    half = Half(("d",), x=GIVEN, **nodes)
    assert half.groups() == [["a"], ["b"], ["c"], ["d"]]
    # The matrix is read by the first of two loops, and there until the second has run.
    assert half.run().bytes == 1000 + 62 + 4000


def test_a_product_runs_where_it_is_added() -> None:
    nodes = {
        "a": Node("m", ("x",)),
        "b": Node("j", ("a", "x")),
        "c": Node("x", ("x",), elements=ROW),
        "d": Node("x", ("b", "c")),
    }
    half = Half(("d",), x=GIVEN, **nodes)
    assert half.groups() == [["a"], ["c"], ["d"]]
    assert half.run().bytes == 1000 + 62 + 1000
    # What the product itself allocates is allocated there.
    assert half.run(b=500).bytes == 1000 + 62 + 1000 + 500


@pytest.mark.parametrize(("letter", "kind", "kept_bytes"), [("x", 0, 1000), ("x", 1, 0), ("f", 0, 0)])
def test_a_buffer_is_kept_for_a_later_one_of_its_form_while_that_is_no_peak(
    letter: str, kind: int, kept_bytes: int
) -> None:
    nodes = {
        "large": Node("x", ("x",), elements=4 * FULL),
        "a": Node(letter, ("large",)),
        "b": Node("x", ("a",), elements=ROW),
        "c": Node("x", ("b",), elements=ROW),
        "d": Node("x", ("c",), kind=kind),
    }
    half = Half(("d",), x=GIVEN, **nodes)
    assert half.run().bytes == 5000
    assert half.run(c=9000).bytes == kept_bytes + 62 + 62 + 9000


def test_a_tensor_of_the_graphs_own_is_read_and_not_made() -> None:
    nodes = {"constant": Node("-", ("x",), elements=0), "a": Node("l", ("constant", "x"))}
    assert Half(("a",), x=GIVEN, **nodes).groups() == [["a"]]


def test_kernels_run_in_the_order_that_needs_less_memory() -> None:
    nodes = {
        "a": Node("x", ("x",), elements=2 * FULL),
        "b": Node("x", ("x",), elements=2 * FULL),
        "c": Node("x", ("a",), elements=ROW),
        "d": Node("x", ("b", "c"), elements=ROW),
    }
    assert Half(("d",), x=GIVEN, **nodes).run().bytes == 2000 + 62 + 62
    # Nor is it reordered for nothing: "c" would leave less behind.
    half = Half(("b", "c"), x=GIVEN, a=Node("x", ("x",)), b=Node("x", ("a",)), c=Node("x", ("a",), elements=ROW))
    assert half.run(b=500) == Peak(2500, half.names.index("b"), 1062)


def test_what_is_allocated_by_itself_takes_nobodys_buffer() -> None:
    nodes = {
        "large": Node("x", ("x",), elements=4 * FULL),
        "a": Node("x", ("large",)),
        "b": Node("x", ("a",), elements=ROW),
        "c": Node("x", ("b",), elements=ROW),
        "d": Node("f", ("c",)),
    }
    assert Half(("d",), x=GIVEN, **nodes).run(c=9000).bytes == 62 + 62 + 9000


def test_what_the_compiler_recomputes_anyway_is_no_part_of_a_plan() -> None:
    always = replace(GRAPH, always=(HIDDEN, PAIR, OUT, MASK))
    simulated, plain = (Simulation([graph]).run(dimensions={"batch": 8}) for graph in (always, GRAPH))
    assert simulated.saved_bytes == GRAPH.rng_state_bytes
    assert plain.saved_bytes == 880
    assert (simulated.num_recomputed, simulated.recompute_time_s) == (0, 0.0)
