"""Device memory that CUDA kernels take besides their results, by operator.

Each rule names its source in torch or NVIDIA's libraries. A rule called empirical was chosen on measured peaks, and
follows from no specification.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..records.allocations import OperatorCall, TensorForm

Workspace = Callable[[OperatorCall], int]

_MIB = 1 << 20
_CONVOLUTION = {"stride": 3, "padding": 4, "dilation": 5, "transposed": 6, "groups": 8}
_CONVOLUTION_BACKWARD = {"stride": 4, "padding": 5, "dilation": 6, "transposed": 7, "groups": 9, "output_mask": 10}


@dataclass(frozen=True)
class Kernel:
    """The memory that an operator's kernel takes while it runs.

    ``before`` is there while the results are allocated, ``after`` is allocated once they are; both in bytes of a call.
    ``multiplies``: it runs in cuBLAS. ``options`` are the arguments that the rules read, by their place.
    """

    before: Workspace = lambda _: 0
    after: Workspace = lambda _: 0
    multiplies: bool = False
    options: Mapping[str, int] = field(default_factory=dict)


def cublas_workspace_bytes(capability: tuple[int, int]) -> int:
    """Return what a handle of cuBLAS keeps, one for each thread that multiplies (ATen/cuda/CublasHandlePool.cpp)."""
    return 32 * _MIB if capability[0] == 9 else 2 * 4 * _MIB + 8 * 16 * 1024


def tensor_bytes(tensor: TensorForm) -> int:
    """Return the bytes of a dense tensor of this form."""
    return math.prod(tensor.shape) * tensor.item_bytes


def _copies(call: OperatorCall) -> int:
    """Kernels that take contiguous inputs only copy the others first (native/cuda/Normalization.cuh and others)."""
    return sum(tensor_bytes(one) for one in call.tensors if one.layout == "strided")


def _image_copy(call: OperatorCall) -> int:
    """cuDNN and torch's own kernels take images contiguous or channels-last (native/Convolution.cpp)."""
    first = call.tensors[0]
    return tensor_bytes(first) if first.layout == "strided" else 0


def _convolution_backward(call: OperatorCall) -> int:
    """Kernels of more than one point have copies of input and result in another layout (empirical).

    Depthwise convolutions in NCHW are torch's own kernels, which need none (native/cuda/DepthwiseConv2d.cu).
    """
    result, image, weight = call.tensors[:3]
    groups, channels = call.options["groups"][0], image.shape[1]
    is_depthwise = groups > 1 and groups == channels and image.layout != "channels_last"
    if is_depthwise or math.prod(weight.shape[2:]) == 1:
        return 0
    return tensor_bytes(image) + tensor_bytes(result)


def _product_with_result(call: OperatorCall) -> int:
    """The sum over ``grad_out * out`` has the product in full in float32 (transformers/cuda/attention_backward.cu)."""
    first = call.tensors[0]
    return tensor_bytes(first) if first.item_bytes > 2 else 0


_COPIES = Kernel(before=_copies)
_MULTIPLIES = Kernel(multiplies=True)

KERNELS: Mapping[str, Kernel] = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm"), _MULTIPLIES),
    **dict.fromkeys(
        (
            "native_batch_norm",
            "native_batch_norm_backward",
            "native_layer_norm",
            "native_layer_norm_backward",
            "native_group_norm",
            "native_group_norm_backward",
            "_softmax",
            "_softmax_backward_data",
            "max_pool2d_with_indices",
        ),
        _COPIES,
    ),
    "_scaled_dot_product_efficient_attention_backward": Kernel(before=_product_with_result),
    "convolution": Kernel(before=_image_copy, options=_CONVOLUTION),
    "convolution_backward": Kernel(before=_image_copy, after=_convolution_backward, options=_CONVOLUTION_BACKWARD),
}
"""Kernels by operator; all others take nothing besides their results."""
