"""The meter of a trial on the device that this process trains on."""

from __future__ import annotations

import functools

import torch

from ...metering.clocks import WaitingTime
from ...metering.trial_meter import TrialMeter
from ...records.run import Measuring
from .clocks import DeviceClock
from .peaks import MemoryWatch


def make_meter(measuring: Measuring, *, fixed_length: bool, device: int | None = None) -> TrialMeter:
    """A meter; ``device`` is the CUDA index of the device that is trained on, None for the CPU."""
    memory = MemoryWatch(device)
    if device is None:
        return TrialMeter(measuring, fixed_length=fixed_length, memory=memory)
    return TrialMeter(
        measuring,
        fixed_length=fixed_length,
        memory=memory,
        make_clock=functools.partial(DeviceClock, device),
        synchronize=functools.partial(torch.cuda.synchronize, device),
        # The thread in which the script calls backward waits for that of the device. Source: torch's
        # csrc/autograd/engine.cpp, which names the latter.
        make_waiting=functools.partial(WaitingTime, launching="pt_autograd_"),
    )
