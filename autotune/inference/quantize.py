"""The ways of converting a model, by ONNX Runtime's own tools."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16

from ..records.inference import Conversion
from .feeds import Feed

# ONNX files are protocol buffers, which end at 2 GiB; what is above this much gets its weights in a file beside it.
_LARGE_BYTES = 1_500_000_000


class _Reader(CalibrationDataReader):  # type: ignore[misc]  # it has no types
    def __init__(self, feeds: Sequence[Feed]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self._feeds, None)


def _to_fp16(model: Path, target: Path, feeds: Sequence[Feed]) -> None:
    del feeds
    half = convert_float_to_float16(onnx.load(str(model)), keep_io_types=True)
    large = half.ByteSize() > _LARGE_BYTES
    onnx.save(half, str(target), save_as_external_data=large, location=f"{target.name}.data")


def _to_int8(model: Path, target: Path, feeds: Sequence[Feed]) -> None:
    del feeds
    quantize_dynamic(model, target, weight_type=QuantType.QInt8, use_external_data_format=_is_large(model))


def _to_static_int8(model: Path, target: Path, feeds: Sequence[Feed]) -> None:
    with tempfile.TemporaryDirectory(prefix="autotune-quantize-") as prepared:
        ready = Path(prepared) / "model.onnx"
        quant_pre_process(str(model), str(ready), skip_symbolic_shape=True, save_as_external_data=_is_large(model))
        quantize_static(
            ready,
            target,
            _Reader(feeds),
            quant_format=QuantFormat.QDQ,
            weight_type=QuantType.QInt8,
            use_external_data_format=_is_large(model),
        )


def _is_large(model: Path) -> bool:
    """Return whether the model with its weights may not fit one file; what is beside it may be the weights."""
    return sum(one.st_size for one in map(os.stat, model.parent.glob(f"{model.stem}*"))) > _LARGE_BYTES


WAYS: Mapping[Conversion, Callable[[Path, Path, Sequence[Feed]], None]] = {
    "fp16": _to_fp16,
    "int8": _to_int8,
    "int8-static": _to_static_int8,
}
"""What writes a converted model: from a file, to a file, and the inputs that it is calibrated on."""
