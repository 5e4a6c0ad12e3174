"""NVIDIA's GPUs through NVML: which a process sees, and how much of their memory a run takes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ..devices import Device, Gpus
from .deadline import MeterWithDeadline, NoAnswerError, Questions
from .nvidia_listing import list_gpus
from .nvidia_meter import NvmlMeter
from .nvml import module_of

# Without its persistence daemon the driver starts each card anew, which takes seconds.
_LIST_S = 30.0
_SAMPLE_S = 5.0


class Nvidia:
    """The vendor: see ``Vendor``.

    Args:
        nvml: a module like ``pynvml``, which is the default; all meters share it, once it is open.
        list_within_s: the time that NVML has to list the GPUs, and to start a meter.
        sample_within_s: the time that it has for a sample.
    """

    def __init__(self, nvml: Any = None, *, list_within_s: float = _LIST_S, sample_within_s: float = _SAMPLE_S) -> None:
        self._nvml = nvml
        self._list_within_s = list_within_s
        self._sample_within_s = sample_within_s
        self._questions = Questions("NVML")

    def list_gpus(self, variables: Mapping[str, str]) -> Gpus:
        """All GPUs and slices (MIG) of them, or the entries of ``CUDA_VISIBLE_DEVICES`` where that is set."""
        try:
            question = partial(list_gpus, module_of(self._nvml), variables)
            return self._questions.ask(question, within_s=self._list_within_s)
        except NoAnswerError as error:
            return Gpus((), "NVML", problem=str(error))

    def make_meter(self, device: Device) -> MeterWithDeadline:
        """The meter of one of them."""
        return MeterWithDeadline(
            NvmlMeter(device.uuid, nvml=self._nvml),
            library="NVML",
            start_within_s=self._list_within_s,
            sample_within_s=self._sample_within_s,
        )
