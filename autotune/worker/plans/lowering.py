"""What Inductor makes of a joint graph's nodes: loops, reductions, operators that run by themselves, or nothing.

Written down as letters and numbers of formulas (see ``records/graph.py``), for the simulation of what it fuses.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch import fx

from .joint import is_tensor, is_view, traced_size, value_of

__all__ = [
    "IMAGE_DIMENSIONS",
    "fixing",
    "has_channels_last",
    "keeps_constants_open",
    "layout_splits",
    "limits",
    "lowered",
    "shape_of",
    "shapes",
    "unusual_settings",
]

aten = torch.ops.aten

IMAGE_DIMENSIONS = 4

# They write into a buffer that Inductor allocates; other operators without a loop of their own allocate themselves.
_INTO_BUFFERS = ("mm", "bmm", "addmm", "baddbmm", "inductor_seeds")
_REDUCTIONS = ("sum", "mean", "amax", "amin", "max", "min", "any", "all", "prod", "var", "var_mean", "argmax", "argmin")
# Their lowerings realize the result.
_REALIZED = ("inductor_random", "inductor_randint", "cumsum", "cumprod")
_WRITES_TO_PLACES = ("index_put", "scatter_add", "scatter_reduce", "_unsafe_masked_index_put")
# Those that StorageBox.should_realize_on_reuse may take for costly on CPU.
_COSTLY = frozenset({"exp", "log", "log10", "log1p", "log2", "sigmoid", "tanh"})

# What of torch._inductor.config decides what is allocated on CPU, and the values under which that is simulated;
# max_fusion_size is that of predict/groups.py.
_SETTINGS: dict[str, Any] = {
    "max_fusion_size": 64,
    "aggressive_fusion": False,
    "allow_buffer_reuse": True,
    "combo_kernels": False,
    "cpp_wrapper": False,
    "epilogue_fusion": True,
    "freezing": False,
    "inplace_buffers": True,
    "max_autotune": False,
    "max_autotune_gemm": False,
    "memory_planning": False,
    "reorder_for_peak_memory": True,
}


def unusual_settings() -> str:
    """The settings of Inductor's that are not those under which its code is simulated, as code; empty if none.

    Names and values are those of torch 2.13; a setting that torch has not counts as the usual one.
    """
    from torch._inductor import config

    pairs = ((name, getattr(config, name, usual)) for name, usual in _SETTINGS.items())
    return ", ".join(f"{name} = {value!r}" for name, value in pairs if value != _SETTINGS[name])


def limits() -> tuple[int, int, int]:
    """The numbers of ``ActivationGraph.limits``."""
    from torch._inductor import config

    # Since torch 2.13 the CPU has numbers of its own, where these are not set.
    operations, reads = config.realize_opcount_threshold, config.realize_acc_reads_threshold
    if operations is None:
        operations = config.realize_cpu_opcount_threshold
    if reads is None:
        reads = config.realize_cpu_acc_reads_threshold
    return operations, reads, config.realize_reads_threshold


def keeps_constants_open() -> bool:
    """Whether readers compute anew what reads nothing and outlives its half; before torch 2.13 they read it."""
    from torch._inductor import config

    return bool(getattr(config, "delay_realize_cheap_outputs", False))


@functools.cache
def costly_operators() -> frozenset[str]:
    """Those that Inductor computes once where several read them; which they are differs between versions of torch."""
    from torch._inductor.ir import StorageBox

    found: set[Any] = set()
    for constant in StorageBox.should_realize_on_reuse.__code__.co_consts:
        found.update(constant if isinstance(constant, tuple) else (constant,))
    return _COSTLY & found


def lowered(nodes: Sequence[fx.Node], formula: Callable[[Any], int]) -> tuple[str, tuple[tuple[int, ...], ...]]:
    """The letters of ``ActivationGraph.lowering`` and the rows of ``loops``.

    Args:
        nodes: the joint graph's, in order.
        formula: gives the number of a size's formula.
    """
    letters = {node: _letter(node) for node in nodes}
    for node in nodes:
        product = _joined_product(node)
        if product is not None:
            letters[product], letters[node] = "j", "x"
    images = _images(nodes, letters)
    loops = tuple(
        _loop(node, letters[node], formula, images) if letters[node] in "ldhmskrcwp" else () for node in nodes
    )
    return "".join(letters.values()), loops


def fixing(nodes: Sequence[fx.Node], letters: str) -> list[fx.Node]:
    """The operators for which Inductor fixes how what they read lies, where others read that as well.

    Source: ``torch/_inductor/graph.py: run_node``. A view of what does not exist yet is made for that, in its shape.
    """
    operators = [aten.mm.default, aten._int_mm.default, aten.convolution_backward.default]
    if not has_channels_last():
        operators.append(aten.convolution.default)
    # A product that is computed with an addition is none of them.
    return [node for node, letter in zip(nodes, letters, strict=True) if node.target in operators and letter != "j"]


def shapes(nodes: Sequence[fx.Node]) -> tuple[int, ...]:
    """For each node a number, the same for (first) results of one shape."""
    known: dict[tuple[Any, ...], int] = {}
    found = [tuple(tuple(shape_of(value)) for value in _values(node)[:1]) for node in nodes]
    return tuple(known.setdefault(shape, len(known)) for shape in found)


def _letter(node: fx.Node) -> str:
    from torch._inductor import lowering

    if node.target is operator.getitem:
        return "p" if _is_part(node) else "v"
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return "-"
    if is_view(node):
        return "p" if _is_part(node) else "v"
    name = node.target._overloadpacket.__name__
    if name == "cat":
        return "k"
    if name.startswith(_WRITES_TO_PLACES):
        return "s"
    if node.target._schema.is_mutable or name in _REALIZED:
        return "m"
    if name in _INTO_BUFFERS:
        return "x"
    known = node.target in lowering.lowerings and node.target not in lowering.fallbacks
    if not known or node.target in lowering.needs_realized_inputs or not _values(node):
        return "f"
    if name in _REDUCTIONS and node.target._overloadname != "other":
        if not _reduces_last(node):
            return "c"
        return "w" if name == "var_mean" and _takes_two_steps(node) else "r"
    if name == "inductor_lookup_seed":
        return "d"
    return "h" if name in costly_operators() else "l"


def _is_part(node: fx.Node) -> bool:
    """Whether a view, or what unpacks views, has fewer elements than the tensor that it looks at."""
    source = node.all_input_nodes[0]
    if node.target is operator.getitem:
        if not is_view(source):
            return False
        source = source.all_input_nodes[0]
    if not is_tensor(node) or not is_tensor(source):
        return False
    own, whole = (
        math.prod(traced_size(size) if isinstance(size, torch.SymInt) else size for size in value_of(each).shape)
        for each in (node, source)
    )
    return own < whole


def _joined_product(addition: fx.Node) -> fx.Node | None:
    """The matrix product that Inductor computes together with an addition.

    Source: ``torch/_inductor/fx_passes/post_grad.py: is_valid_addmm_fusion``, on CPU; of two products the second.
    """
    if addition.target is not aten.add.Tensor:
        return None
    for product, other in (addition.args[1::-1], addition.args[:2]):
        if not isinstance(product, fx.Node) or product.target is not aten.mm.default or len(product.users) != 1:
            continue
        if not isinstance(other, fx.Node) or not is_tensor(other):
            continue
        result, added = value_of(product), value_of(other)
        sizes = zip(added.shape[::-1], result.shape[::-1], strict=False)
        if added.dim() <= result.dim() and added.dtype == result.dtype and all(own in (1, size) for own, size in sizes):
            return product
    return None


def _images(nodes: Sequence[fx.Node], letters: Mapping[fx.Node, str]) -> set[fx.Node]:
    """What a convolution or its backward gives, and loops of it: Inductor has their channels last."""
    images: set[fx.Node] = set()
    if not has_channels_last():
        return images
    for node in nodes:
        if not is_tensor(node) or value_of(node).dim() != IMAGE_DIMENSIONS:
            continue
        source = node.all_input_nodes[0] if node.target is operator.getitem else node
        is_loop = letters[node] in "lhm" and not images.isdisjoint(node.all_input_nodes)
        if is_loop or source.target in (aten.convolution.default, aten.convolution_backward.default):
            images.add(node)
    return images


def has_channels_last() -> bool:
    """Whether Inductor lays out on CPU what convolutions read and give with the channels last."""
    from torch._inductor import config

    return bool(config.layout_optimization and torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled)


def _loop(node: fx.Node, letter: str, formula: Callable[[Any], int], images: set[fx.Node]) -> tuple[int, ...]:
    """The row of ``ActivationGraph.loops``."""
    result = _values(node)[0]
    results = shape_of(result)
    if letter == "p":
        return (formula(sympy.prod(results) * result.element_size()),)
    inputs = _inputs(node)
    # What is written to places in it comes last.
    ranges = shape_of(inputs[-1] if letter == "s" else inputs[0]) if letter in "srcw" else results
    is_image = node in images or (letter in "rcw" and not images.isdisjoint(node.all_input_nodes))
    if is_image and len(ranges) == IMAGE_DIMENSIONS:
        splits = {
            split for each in node.all_input_nodes if is_tensor(each) for split in _image_splits(ranges, each, images)
        }
    else:
        splits = {split for each in inputs for split in layout_splits(ranges, each)}
    splits.update(_scattered_splits(node, ranges))
    sizes = [sympy.prod(ranges), sympy.prod(results), *sorted(splits, key=str)]
    return tuple(formula(size) for size in sizes)


def _scattered_splits(node: fx.Node, ranges: Sequence[Any]) -> list[Any]:
    """The same for loops that put a tensor to a place along one dimension: they ask at each step whether that is it."""
    if node.target not in (aten.select_scatter.default, aten.slice_scatter.default):
        return []
    put: Any = node.args[1]
    given: Any = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
    if shape_of(value_of(put)) == list(ranges):
        return []
    dimension = given % len(ranges)
    # Nothing is outside of the first dimension or inside of the last.
    inner = [ranges[dimension:] if dimension else [], ranges[dimension + 1 :]]
    return [sympy.prod(sizes) for sizes in inner if sizes]


def _image_splits(ranges: Sequence[Any], node: fx.Node, images: set[fx.Node]) -> Iterable[Any]:
    """The same for loops over images, whose channels come last, that read a node."""
    shape, strides = shape_of(value_of(node)), [_expression(stride) for stride in value_of(node).stride()]
    missing = IMAGE_DIMENSIONS - len(shape)
    if missing < 0:
        return []
    shape, strides = ([sympy.Integer(fill)] * missing + own for fill, own in ((1, shape), (0, strides)))
    if node in images:
        channels, height, width = shape[1:]
        strides = [channels * height * width, sympy.Integer(1), channels * width, channels]
    ranges, shape, strides = ([own[0], *own[2:], own[1]] for own in (ranges, shape, strides))
    return _splits(ranges, shape, strides)


def layout_splits(ranges: Sequence[Any], value: torch.Tensor) -> Iterable[Any]:
    """Where loops over ``ranges`` that read a value cannot run over two neighbouring dimensions as over one.

    Given as the number of inner steps that make one step of the outer dimension.
    """
    missing = len(ranges) - value.dim()
    if missing < 0:
        return []
    shape = [sympy.Integer(1)] * missing + shape_of(value)
    strides = [sympy.Integer(0)] * missing + [_expression(stride) for stride in value.stride()]
    return _splits(ranges, shape, strides)


def _splits(ranges: Sequence[Any], shape: Sequence[Any], strides: Sequence[Any]) -> Iterable[Any]:
    if any(own not in (1, size) for own, size in zip(shape, ranges, strict=True)):
        return
    dimensions = [
        (size, stride if own == size else sympy.Integer(0))
        for own, size, stride in zip(shape, ranges, strides, strict=True)
        if size != 1
    ]
    steps = sympy.Integer(1)
    for (_, outer), (size, inner) in zip(dimensions[-2::-1], dimensions[:0:-1], strict=True):
        steps *= size
        if outer != inner * size:
            yield steps


def _reduces_last(node: fx.Node) -> bool:
    """Whether a reduction runs over the last dimensions and no others, those of size 1 aside."""
    ranges = shape_of(_inputs(node)[0])
    given: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    # Without any it is over all of them.
    gone = {each % max(1, len(ranges)) for each in ([given] if isinstance(given, int) else given or range(len(ranges)))}
    return all(place in gone or ranges[place] == 1 for place in range(min(gone, default=0), len(ranges)))


def _takes_two_steps(node: fx.Node) -> bool:
    """Whether a variance is computed from the mean, and not along with it (``lowering.py: use_two_step_variance``)."""
    from torch._inductor import config

    # Torch 2.11 has no threshold for the CPU, and takes two steps below the one for all devices.
    most = getattr(config.cpp, "use_two_step_variance_threshold", config.unroll_reductions_threshold - 1)
    results, total = (sympy.prod(shape_of(each)) for each in (_values(node)[0], _inputs(node)[0]))
    reduced = total / results
    return bool(reduced.is_number) and reduced <= most and results != 1


def _inputs(node: fx.Node) -> list[torch.Tensor]:
    return [value_of(source) for source in node.all_input_nodes if is_tensor(source)]


def _values(node: fx.Node) -> list[torch.Tensor]:
    value = value_of(node)
    parts = value if isinstance(value, (tuple, list)) else [value]
    return [part for part in parts if isinstance(part, torch.Tensor)]


def shape_of(value: torch.Tensor) -> list[Any]:
    """The sizes of a tensor's dimensions as expressions."""
    return [_expression(size) for size in value.shape]


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)
