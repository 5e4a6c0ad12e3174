"""Listing of the NVIDIA GPUs that a process sees, and of the variables that give a run one of them.

Numbers in ``CUDA_VISIBLE_DEVICES`` are taken in PCI bus order, as ``nvidia-smi`` counts; CUDA without
``CUDA_DEVICE_ORDER=PCI_BUS_ID`` puts the fastest card first. So a run that is given its device by number is given that
variable as well. Where CUDA may count differently all the same, the run is given the UUID.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..devices import Device, Gpus


def module_of(nvml: Any = None) -> Any:
    """Return ``pynvml``, imported late, or the module that a test has in its place."""
    if nvml is None:
        import pynvml

        return pynvml
    return nvml


@functools.cache
def open_nvml(module: Any) -> None:
    """Open a module like ``pynvml``, once; its NVMLError where it cannot be opened, and the next call tries again.

    It may hang: ask with a deadline (``Questions``). Without NVIDIA's persistence daemon, the driver takes seconds to
    start a card for whoever opens NVML. So NVML stays open until this process ends: closing is one more call that may
    hang.
    """
    module.nvmlInit()


@dataclass(frozen=True)
class Memory:
    """The memory of a device, in bytes: all of it, what the driver keeps to itself, and what processes use."""

    total: int
    reserved: int
    used: int


class NoFigureError(Exception):
    """NVML does not know a device's memory, or what it says cannot be true."""


def memory_of(nvml: Any, handle: Any) -> Memory:
    """Return the memory of a device; NoFigureError with the reason if NVML has no figure."""
    try:
        found = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except nvml.NVMLError as error:
        raise NoFigureError(str(error)) from None
    memory = Memory(int(found.total), int(found.reserved), int(found.used))
    # NVML_VALUE_NOT_AVAILABLE is 2**64 - 1, and layers that share a GPU out have let their counters wrap around.
    if memory.used > memory.total or not memory.total:
        raise NoFigureError(f"{memory.used} of {memory.total} bytes are said to be in use")
    return memory


_MPS_PIPES = "/tmp/nvidia-mps"  # noqa: S108 - where the service has them by default


def list_gpus(nvml: Any, variables: Mapping[str, str]) -> Gpus:
    """List the GPUs that a process with these environment variables sees, numbered from 0. May hang."""
    try:
        open_nvml(nvml)
        cards = [_slots(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
        visible = _visible(cards, variables.get("CUDA_VISIBLE_DEVICES"))
        by_number = not _is_shared_out(variables) and _cuda_counts_alike(nvml, cards)
        devices = tuple(_describe(nvml, index, slot, by_number=by_number) for index, slot in enumerate(visible))
        return Gpus(devices, nvml.nvmlSystemGetDriverVersion())
    except nvml.NVMLError as error:
        return Gpus((), problem=str(error))


@dataclass(frozen=True)
class _Slot:
    """A handle of NVML's before it is numbered."""

    handle: Any
    card: int
    uuid: str
    card_uuid: str
    name: str


def _slots(nvml: Any, index: int) -> list[_Slot]:
    """Return the devices of a card that CUDA can be given: the card itself, its MIG devices, or none if it is mute."""
    try:
        card = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = nvml.nvmlDeviceGetUUID(card)
        name = nvml.nvmlDeviceGetName(card)
    except nvml.NVMLError:
        return []  # fallen off the bus, or not given to this container; the others still count from their own index
    try:
        mig, _ = nvml.nvmlDeviceGetMigMode(card)
    except nvml.NVMLError:
        mig = 0  # a card without the feature
    if not mig:
        return [_Slot(card, index, uuid, uuid, name)]
    slots = []
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(card)):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, place)
        except nvml.NVMLError:
            continue  # no device was made in this place
        slots.append(_Slot(handle, index, nvml.nvmlDeviceGetUUID(handle), uuid, nvml.nvmlDeviceGetName(handle)))
    return slots


def _visible(cards: Sequence[list[_Slot]], setting: str | None) -> list[_Slot]:
    """Number the devices by ``CUDA_VISIBLE_DEVICES``.

    The rules are CUDA's (CUDA C++ Programming Guide, environment variables): entries are indices or UUIDs, shortened
    as long as they are unambiguous; the first entry that is no device ends the list; a repeated one empties it.
    """
    if setting is None:
        return [slot for slots in cards for slot in slots]
    chosen: list[_Slot] = []
    for entry in (text.strip() for text in setting.split(",")):
        slot = _lookup(cards, entry)
        if slot is None:
            break
        if slot in chosen:
            return []
        chosen.append(slot)
    return chosen


def _lookup(cards: Sequence[list[_Slot]], entry: str) -> _Slot | None:
    if entry.isdecimal():
        slots = cards[int(entry)] if int(entry) < len(cards) else []
        return slots[0] if slots else None
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    every = [slot for slots in cards for slot in slots]
    named = [slot for slot in every if slot.uuid.startswith(entry) or slot.card_uuid.startswith(entry)]
    return named[0] if len({slot.card_uuid for slot in named}) == 1 else None


def _is_shared_out(variables: Mapping[str, str]) -> bool:
    """Tell whether CUDA's Multi-Process Service may be running.

    Its clients count the devices that the service was given itself. Source: the documentation of MPS, environment
    variables.
    """
    return Path(variables.get("CUDA_MPS_PIPE_DIRECTORY") or _MPS_PIPES).exists()


def _cuda_counts_alike(nvml: Any, cards: Sequence[list[_Slot]]) -> bool:
    """Return whether CUDA, told to go by the PCI bus, gives each card the number that NVML gives it.

    CUDA leaves out cards that do not answer, and where one card is sliced it shows one slice and no whole card. Source:
    the Multi-Instance GPU User Guide, CUDA Device Enumeration.
    """
    places = []
    for slots in cards:
        if len(slots) != 1 or slots[0].uuid != slots[0].card_uuid:
            return False
        try:
            pci = nvml.nvmlDeviceGetPciInfo(slots[0].handle)
        except nvml.NVMLError:
            return False
        places.append((pci.domain, pci.bus, pci.device))
    return places == sorted(places)


def _describe(nvml: Any, index: int, slot: _Slot, *, by_number: bool) -> Device:
    # An index, as DeepSpeed's launcher takes nothing else, and some scripts neither.
    numbered = {"CUDA_VISIBLE_DEVICES": str(slot.card), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    try:
        memory = memory_of(nvml, slot.handle)
    except NoFigureError:
        memory = None
    return Device(
        index=index,
        uuid=slot.uuid,
        name=slot.name,
        variables=numbered if by_number else {"CUDA_VISIBLE_DEVICES": slot.uuid},
        # NVML's UUID without the prefix; older versions of CUDA call a slice by its card's. Source: cuDeviceGetUuid and
        # cuDeviceGetUuid_v2 in the CUDA Driver API.
        torch_uuids=tuple(dict.fromkeys(uuid.partition("-")[2] for uuid in (slot.uuid, slot.card_uuid))),
        memory_bytes=None if memory is None else memory.total,
        reserved_bytes=None if memory is None else memory.reserved,
        used_bytes=None if memory is None else memory.used,
    )
