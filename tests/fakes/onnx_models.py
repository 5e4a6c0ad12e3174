"""ONNX models that the tests make: a convolutional net, one that picks rows, one with a branch."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["branching", "chain", "convolutional", "picking", "save"]


def save(model, path):
    """Check it and write it; gives the path."""
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path


def convolutional(*, batch="N", channels=(8, 16)):
    """Images of 3 x 16 x 16 to ten classes."""
    generator = np.random.default_rng(0)
    nodes, weights, last, before = [], [], "image", 3
    for number, after in enumerate(channels):
        weights += [_weight(generator, f"w{number}", after, before, 3, 3), _weight(generator, f"b{number}", after)]
        inputs = [last, f"w{number}", f"b{number}"]
        nodes.append(helper.make_node("Conv", inputs, [f"c{number}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        last, before = f"r{number}", after
    weights += [_weight(generator, "head", before, 10)]
    nodes += [
        helper.make_node("GlobalAveragePool", [last], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "head"], ["classes"]),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 3, 16, 16])
    classes = helper.make_tensor_value_info("classes", TensorProto.FLOAT, [batch, 10])
    return _model(helper.make_graph(nodes, "convolutional", [image], [classes], weights))


def picking(*, rows=50, width=64):
    """Words of any number to numbers: rows of a table, through a mask."""
    generator = np.random.default_rng(0)
    weights = [_weight(generator, "table", rows, width), _weight(generator, "out", width, width)]
    nodes = [
        helper.make_node("Cast", ["words"], ["index"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "index"], ["picked"]),
        helper.make_node("MatMul", ["picked", "out"], ["mixed"]),
        helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["mixed", "kept"], ["numbers"]),
    ]
    words = helper.make_tensor_value_info("words", TensorProto.INT32, ["batch", "length"])
    mask = helper.make_tensor_value_info("mask", TensorProto.BOOL, ["batch", "length", 1])
    numbers = helper.make_tensor_value_info("numbers", TensorProto.FLOAT, ["batch", "length", width])
    return _model(helper.make_graph(nodes, "picking", [words, mask], [numbers], weights))


def branching():
    """Adds or subtracts one, by the sum of what it is given."""
    one = numpy_helper.from_array(np.ones(1, np.float32), "one")

    def branch(name, operator):
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4])
        return helper.make_graph([helper.make_node(operator, ["x", "one"], [name])], name, [], [value])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["condition"], to=TensorProto.BOOL),
        helper.make_node(
            "If", ["condition"], ["y"], then_branch=branch("more", "Add"), else_branch=branch("less", "Sub")
        ),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])
    return _model(helper.make_graph(nodes, "branching", [x], [y], [one]))


def chain(*, length=10, weight_rows=0):
    """Rows of 1024 numbers through so many operators, each of which makes as many again; at the end through weights."""
    weights = []
    nodes, last = [], "x"
    for number in range(length):
        nodes.append(helper.make_node("Sin" if number % 2 else "Cos", [last], [f"t{number}"]))
        last = f"t{number}"
    if weight_rows:
        # Of no matter what: there may be too many to be drawn.
        weights.append(numpy_helper.from_array(np.full((1024, weight_rows), 0.01, np.float32), "w"))
        nodes.append(helper.make_node("MatMul", [last, "w"], ["product"]))
        last = "product"
    nodes.append(helper.make_node("ReduceSum", [last], ["y"], keepdims=0))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1024])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [])
    return _model(helper.make_graph(nodes, "chain", [x], [y], weights))


def _weight(generator, name, *shape):
    return numpy_helper.from_array((generator.standard_normal(shape) * 0.1).astype(np.float32), name)


def _model(graph):
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model
