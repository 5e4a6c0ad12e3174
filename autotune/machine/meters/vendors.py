"""Whose GPUs are found and read. A new vendor is a file beside this one, and a name in ``VENDORS``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..devices import Gpus, find_device
from .nvidia import Nvidia
from .port import Vendor
from .run_meter import RunMeter

VENDORS: tuple[Vendor, ...] = (Nvidia(),)


def read_gpus(variables: Mapping[str, str] = os.environ, *, vendors: Sequence[Vendor] = VENDORS) -> Gpus:
    """The GPUs that a process with these environment variables sees; never raises."""
    return _present(variables, vendors)[1]


def meter_for(device: int | None, *, vendors: Sequence[Vendor] = VENDORS) -> RunMeter:
    """The meter of a run on that GPU, or on any that it sees; UsageError for a device that isn't there."""
    vendor, gpus = _present(os.environ, vendors)
    devices = gpus.devices if device is None else (find_device(device, gpus),)
    return RunMeter(((found, vendor.make_meter(found)) for found in devices), problem=gpus.problem)


def _present(variables: Mapping[str, str], vendors: Sequence[Vendor]) -> tuple[Vendor, Gpus]:
    """The first vendor that has GPUs here, as a torch is built for one only; without any, what each finds amiss."""
    found = [(vendor, vendor.list_gpus(variables)) for vendor in vendors]
    problem = "; ".join(gpus.problem for _, gpus in found if gpus.problem)
    vendor, first = found[0]
    return next(((vendor, gpus) for vendor, gpus in found if gpus.devices), (vendor, replace(first, problem=problem)))
