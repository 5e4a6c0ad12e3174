"""Device memory that CUDA kernels take besides their results, by operator.

Each rule names its source in torch or NVIDIA's libraries. A rule called empirical was chosen on measured peaks, and
follows from no specification.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..records.allocations import OperatorCall, TensorForm
from ..records.cards import Card

Workspace = Callable[[OperatorCall, Card], int]

_MIB = 1 << 20
_LEAST_CHANNELS = 32  # of a depthwise convolution in float16 that cuDNN computes


@dataclass(frozen=True)
class Kernel:
    """The memory that an operator's kernel takes while it runs.

    ``before`` is there while the results are allocated. ``after`` are allocated once they are, each in place of the one
    before it; ``together`` are allocated then, too, and freed as the kernel ends. All are in bytes of a call.
    ``multiplies``: it runs in cuBLAS or cuBLASLt. ``tries_algorithms``: with ``torch.backends.cudnn.benchmark``, cuDNN
    tries some at each new form, and torch empties its cache after that (native/cudnn/Conv_v8.cpp). ``last_first``: it
    allocates the last of its results first. ``options`` are the arguments that the rules read, by their place.
    """

    before: Workspace = lambda *_: 0
    after: tuple[Workspace, ...] = ()
    together: tuple[Workspace, ...] = ()
    multiplies: bool = False
    tries_algorithms: bool = False
    last_first: bool = False
    options: Mapping[str, int] = field(default_factory=dict)

    @property
    def reads_sizes(self) -> bool:
        """Return whether it depends on the form of a call's tensors."""
        return self.before is not Kernel.before or bool(self.after + self.together) or self.tries_algorithms


def cublas_workspace_bytes(card: Card) -> int:
    """Return the workspace of a handle of cuBLAS, of which each thread has one (ATen/cuda/CublasHandlePool.cpp)."""
    return 32 * _MIB if card.capability[0] >= 9 else 2 * 4 * _MIB + 8 * 16 * 1024


CUBLASLT_WORKSPACE_BYTES = _MIB
"""What cuBLASLt has where it shares none with cuBLAS (ATen/cuda/CUDABlas.cpp)."""


def in_cublaslt(call: OperatorCall) -> bool:
    """Return whether cuBLASLt multiplies: it adds a bias on the way (native/cuda/Blas.cpp)."""
    return call.name == "addmm" and len(call.tensors[0].shape) == 1


def tensor_bytes(tensor: TensorForm) -> int:
    """Return the bytes of a dense tensor of this form."""
    return math.prod(tensor.shape) * tensor.item_bytes


def _copies(call: OperatorCall, _: Card) -> int:
    """Kernels that take contiguous inputs only copy the others first (native/cuda/Normalization.cuh and others)."""
    return sum(tensor_bytes(one) for one in call.tensors if one.layout == "strided")


def _product(call: OperatorCall, _: Card) -> int:
    """Return the bytes of the gradient times the output (native/cuda/SoftMax.cu)."""
    return tensor_bytes(call.tensors[0])


def _roll(call: OperatorCall, _: Card) -> int:
    """Dimensions are rolled one after the other, and all results are kept (native/TensorTransformations.h)."""
    return tensor_bytes(call.tensors[0]) * max(0, len(call.options.get("dims", ())) - 1)


def _image_copy(call: OperatorCall, _: Card) -> int:
    """CuDNN and torch's own kernels take images contiguous or channels-last (native/Convolution.cpp)."""
    first = call.tensors[0]
    return tensor_bytes(first) if first.layout == "strided" else 0


def _convolution_backward(call: OperatorCall, _: Card) -> int:
    """Kernels of more than one point have copies of input and result in another layout (empirical).

    Depthwise convolutions in NCHW are torch's own kernels, which need none (native/cuda/DepthwiseConv2d.cu).
    """
    result, image, weight = call.tensors[:3]
    if not in_cudnn(call) or math.prod(weight.shape[2:]) == 1:
        return 0
    return tensor_bytes(image) + tensor_bytes(result)


def in_cudnn(call: OperatorCall) -> bool:
    """Return whether cuDNN computes a convolution (native/Convolution.cpp, use_cudnn_depthwise).

    Depthwise ones are torch's own kernels, but for channels-last images and most in float16. What torch asks there of
    the sizes of float16 is left out.
    """
    image = call.tensors[call.name.endswith("backward")]
    groups, channels = call.options["groups"][0], image.shape[1]
    is_depthwise = 1 < groups == channels and not any(call.options.get("transposed", ()))
    if not is_depthwise or image.layout == "channels_last":
        return True
    is_dilated = max(call.options.get("dilation", (1,))) > 1
    is_float16 = any(call.options.get("float16", ()))
    return is_float16 and not is_dilated and channels >= _LEAST_CHANNELS


def _product_with_result(call: OperatorCall, _: Card) -> int:
    """The sum over ``grad_out * out`` has the product in full in float32 (transformers/cuda/attention_backward.cu)."""
    first = call.tensors[0]
    return tensor_bytes(first) if first.item_bytes > 2 else 0


def _query_gradients(call: OperatorCall, _: Card) -> int:
    """Blocks of queries have their gradients in float32, with a lock (mem_eff_attention/kernel_backward.h).

    The product of sums over keys is in tiles of 64 queries and 64 places of a head; some are of 128.
    """
    query = call.tensors[1]
    *heads, length, width = query.shape
    tiles = math.prod(heads) * -(-length // _TILE) * -(-width // _TILE)
    return tiles * (_LOCK_BYTES + _TILE * _TILE * 4)


def _query_gradients_and_sums(call: OperatorCall, _: Card) -> int:
    """Gradients of queries are summed up in float32, beside a sum for each row (cudnn_frontend/node/sdpa_bwd)."""
    query = call.tensors[1].shape
    return 4 * (math.prod(query) + math.prod(query[:-1]))


def _flash_row_sums(call: OperatorCall, _: Card) -> int:
    """FlashAttention's backward has a sum for each query, in blocks of 128 (flash_attn/flash_api.cpp)."""
    *heads, length, _width = call.tensors[1].shape
    return 4 * math.prod(heads) * _up_to(length, 128)


def _flash_query_gradients(call: OperatorCall, _: Card) -> int:
    """It sums up gradients of queries in float32, with heads as wide as its kernels are (flash_attn/flash_api.cpp)."""
    *heads, length, width = call.tensors[1].shape
    return 4 * math.prod(heads) * _up_to(length, 128) * _up_to(width, 32 if width <= 128 else 64)


def _flash_expanded(call: OperatorCall, _: Card) -> int:
    """Where heads share keys, each has gradients of its own before they are added (flash_attn/flash_api.cpp)."""
    query, key = call.tensors[1], call.tensors[2]
    (batch, heads, *_length), (*_heads, length, width) = query.shape, key.shape
    return 0 if heads == key.shape[1] else batch * heads * length * width * query.item_bytes


def _up_to(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


_TILE, _LOCK_BYTES = 64, 16
_BLOCK, _VECTOR, _WARP = 512, 4, 32  # threads of a reduction's block, elements that one loads, threads of a warp
_LEAST_VALUES, _MOST_VALUES = 16, 256  # that a thread sums up


def _reduction(call: OperatorCall, card: Card) -> int:
    """A sum of many values is split among blocks, which leave their parts in memory (native/cuda/Reduce.cuh)."""
    if not call.tensors:
        return 0
    tensor = call.tensors[0]
    sizes = tensor.shape
    reduced = {place % len(sizes) for place in call.options.get("dim", ()) or range(len(sizes))}
    outputs = math.prod(size for place, size in enumerate(sizes) if place not in reduced)
    inputs = math.prod(sizes) // outputs if outputs else 0
    if not inputs:
        return 0
    along_rows = len(sizes) - 1 in reduced
    vector = 1
    if not along_rows:
        vector = next(number for number in (_VECTOR, 2, 1) if not sizes[-1] % number)
    first, second = (inputs, outputs) if along_rows else (outputs // vector, inputs)
    threads = _BLOCK // vector
    width = min(_power_of_two(first, threads), _WARP)
    height = min(_power_of_two(second, threads), threads // width)
    width = min(_power_of_two(first, threads), threads // height)
    step, columns = (width, outputs) if along_rows else (1, -(-(outputs // vector) // width))
    values = -(-inputs // step)
    if values < min(height * _LEAST_VALUES, _MOST_VALUES):
        return 0
    step *= height
    values = -(-inputs // step)
    wanted = card.num_processors * (card.threads_per_processor // (width * height))
    if values < _MOST_VALUES or columns > wanted:
        return 0
    most = min(-(-wanted // columns), -(-values // _LEAST_VALUES))
    blocks = max(most, -(-values // _MOST_VALUES))
    if blocks <= 1:
        return 0
    # Sums of halves are kept in single precision.
    return max(4, tensor.item_bytes) * outputs * blocks * (1 if along_rows else width * vector)


def _power_of_two(number: int, most: int) -> int:
    """Return the largest power of two up to a number, and up to ``most``."""
    return min(1 << max(number, 1).bit_length() - 1, most)


_CONVOLUTION = {"dilation": 5, "transposed": 6, "groups": 8}
_BACKWARD = {name: place + 1 for name, place in _CONVOLUTION.items()}  # its first argument is the result's gradient
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
            "max_pool2d_with_indices",
        ),
        _COPIES,
    ),
    "_scaled_dot_product_efficient_attention_backward": Kernel(after=(_product_with_result, _query_gradients)),
    "_scaled_dot_product_flash_attention_backward": Kernel(
        together=(_flash_row_sums, _flash_query_gradients, _flash_expanded, _flash_expanded)
    ),
    "_scaled_dot_product_cudnn_attention_backward": Kernel(after=(_query_gradients_and_sums,)),
    "_softmax_backward_data": Kernel(after=(_product,)),
    "native_dropout": Kernel(last_first=True),
    "roll": Kernel(before=_roll, options={"dims": 2}),
    **dict.fromkeys(("sum", "mean"), Kernel(after=(_reduction,), options={"dim": 1})),
    "convolution": Kernel(before=_image_copy, tries_algorithms=True, options=_CONVOLUTION),
    "convolution_backward": Kernel(
        before=_image_copy, after=(_convolution_backward,), tries_algorithms=True, options=_BACKWARD
    ),
}
"""Kernels by operator; all others take nothing besides their results."""
