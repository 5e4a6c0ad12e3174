"""Reading of an ONNX file: the model's inputs, the batch dimension, and the values that inputs may hold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto, helper

# Names that exporters give to the first dimension; of others the one that every input begins with is taken.
_BATCH = ("batch", "batch_size", "n", "N")
# Operators that hand indices on as they are.
_PASSING = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Clip")
# Operators with subgraphs that a run may leave out.
_CHOOSING = ("If", "Loop", "Scan")


class ModelError(Exception):
    """The file is no model that can be run; ``advice`` is the next step."""

    def __init__(self, cause: str, advice: str) -> None:
        super().__init__(cause)
        self.advice = advice


@dataclass(frozen=True)
class Input:
    """One input: ``shape`` holds numbers, and the names of symbolic dimensions; None for one without a name.

    ``dtype`` is NumPy's name of its type. ``below`` is the number of rows that it picks from, where it is an index.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]
    below: int | None = None


@dataclass(frozen=True)
class Model:
    """A model without its weights.

    ``batch`` is the name of the batch dimension; empty where the batch is fixed. ``weight_bytes`` are those of the
    initializers. ``operators`` counts the nodes by type, subgraphs included. ``branches``: some operators do not need
    each other. ``chooses``: some operators need not run.
    """

    inputs: tuple[Input, ...]
    batch: str
    weight_bytes: int
    num_parameters: int
    operators: dict[str, int]
    branches: bool
    chooses: bool

    @property
    def fixed_batch(self) -> int:
        """The size that every input begins with, where the model's batch is fixed; else 1."""
        first = {one.shape[0] if one.shape else None for one in self.inputs}
        size = first.pop() if len(first) == 1 else None
        return size if isinstance(size, int) else 1

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of all dimensions that have one, but the batch's, each once."""
        names = (size for one in self.inputs for size in one.shape if isinstance(size, str) and size != self.batch)
        return tuple(dict.fromkeys(names))


def read_model(path: Path) -> Model:
    """Read a model without its weights; ModelError where it is none, or is not whole."""
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        raise ModelError(
            f"{path.name} is not an ONNX model: {' '.join(str(error).split())[:200]}",
            "give a file that onnx.load reads",
        ) from error
    if not model.graph.node:
        raise ModelError(f"{path.name} has no operators", "export the model anew")
    for tensor in model.graph.initializer:
        _check_external(tensor, path)
    weights = {one.name: one for one in model.graph.initializer}
    indexed = dict(_indexed(model.graph, weights))
    inputs = tuple(_input(one, indexed) for one in model.graph.input if one.name not in weights)
    if not inputs:
        raise ModelError(f"{path.name} has no inputs", "export the model with its inputs")
    numbers = {name: math.prod(one.dims) for name, one in weights.items()}
    sizes = {name: helper.tensor_dtype_to_np_dtype(one.data_type).itemsize for name, one in weights.items()}
    operators = Counter(node.op_type for node in _nodes(model.graph))
    return Model(
        inputs,
        batch=_batch_of(inputs),
        weight_bytes=sum(number * sizes[name] for name, number in numbers.items()),
        num_parameters=sum(numbers.values()),
        operators=operators,
        branches=_branches(model.graph),
        chooses=any(kind in _CHOOSING for kind in operators),
    )


def _check_external(tensor: onnx.TensorProto, path: Path) -> None:
    if tensor.data_location != TensorProto.EXTERNAL:
        return
    location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    if not (path.parent / location).is_file():
        raise ModelError(
            f"the weights of {path.name} are in {location!r}, which is not there",
            "put that file into the model's folder, or export the model with its weights inside",
        )


def _input(value: onnx.ValueInfoProto, indexed: dict[str, int]) -> Input:
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        raise ModelError(f"input {value.name!r} is no tensor", "autotune feeds tensors only")
    if not kind.HasField("shape"):
        raise ModelError(
            f"input {value.name!r} has no shape",
            "export the model with the shapes of its inputs; a size that may change is a name in them",
        )
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    shape = tuple(one.dim_value if one.HasField("dim_value") else one.dim_param or None for one in kind.shape.dim)
    return Input(value.name, str(dtype), shape, indexed.get(value.name))


def _batch_of(inputs: tuple[Input, ...]) -> str:
    """Return the batch dimension: the one with such a name, else the one that all named first ones are."""
    named = [one.shape[0] for one in inputs if one.shape and isinstance(one.shape[0], str)]
    known = next((size for size in named if size.lower() in _BATCH or "batch" in size.lower()), "")
    return known or (named[0] if named and all(size == named[0] for size in named) else "")


def _indexed(graph: onnx.GraphProto, weights: dict[str, onnx.TensorProto]) -> Iterator[tuple[str, int]]:
    """Yield the inputs that pick rows of a weight, each with the number of rows."""
    made_by = {output: node for node in graph.node for output in node.output}
    names = {one.name for one in graph.input}
    for node in graph.node:
        if node.op_type != "Gather" or node.input[0] not in weights:
            continue
        axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
        source = node.input[1]
        while source in made_by and made_by[source].op_type in _PASSING:
            source = made_by[source].input[0]
        if source in names:
            yield source, weights[node.input[0]].dims[axis]


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for inner in _inner(node):
            yield from _nodes(inner)


def _inner(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the subgraphs of a node."""
    for attribute in node.attribute:
        yield from [attribute.g, *attribute.graphs] if attribute.HasField("g") or attribute.graphs else []


def _branches(graph: onnx.GraphProto) -> bool:
    """Tell whether some operator does not read the one before it, in the graph or in a subgraph.

    The nodes of a graph are in a topological order. So without such an operator, each one needs all those before it.
    """
    made_by: dict[str, int] = {}
    for number, node in enumerate(one for one in graph.node if one.op_type != "Constant"):
        if any(_branches(inner) for inner in _inner(node)):
            return True
        direct = {made_by[name] for name in _reads(node) if name in made_by}
        if number and number - 1 not in direct:
            return True
        made_by |= dict.fromkeys(node.output, number)
    return False


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names of a node's inputs, subgraphs included."""
    yield from node.input
    for inner in _inner(node):
        for one in inner.node:
            yield from _reads(one)
