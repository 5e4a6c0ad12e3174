"""The GPUs, as NVML lists them and as ``CUDA_VISIBLE_DEVICES`` numbers them.

A device index here counts what the user sees: all GPUs, or the entries of an already set ``CUDA_VISIBLE_DEVICES``.
Numbers in that variable are taken in PCI bus order, as ``nvidia-smi`` counts; CUDA without
``CUDA_DEVICE_ORDER=PCI_BUS_ID`` puts the fastest card first. A run is therefore given its device by UUID, which means
the same to NVML and to CUDA.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError

__all__ = ["Device", "Gpus", "find_device", "nvml_memory", "read_gpus"]


@dataclass(frozen=True)
class Device:
    """A GPU, or a slice (MIG) of one.

    ``index`` is the user's, ``uuid`` what ``CUDA_VISIBLE_DEVICES`` understands. ``memory_bytes`` is all of its memory;
    of that the driver keeps ``reserved_bytes`` to itself, and ``used_bytes`` were taken by processes when it was read.
    The three are None where the device has no memory of its own (Grace and Jetson share the host's). ``card_uuid`` is
    that of the card which a slice is of.
    """

    index: int
    uuid: str
    name: str
    memory_bytes: int | None
    reserved_bytes: int | None
    used_bytes: int | None
    card_uuid: str | None = None

    @property
    def cuda_uuids(self) -> tuple[str, ...]:
        """What CUDA may call it: NVML's UUID without the prefix; a slice goes by its card's in older versions.

        Source: cuDeviceGetUuid and cuDeviceGetUuid_v2 in the CUDA Driver API.
        """
        return tuple(uuid.partition("-")[2] for uuid in (self.uuid, self.card_uuid) if uuid is not None)

    @property
    def free_bytes(self) -> int | None:
        """What neither processes nor the driver held when it was read."""
        if self.memory_bytes is None or self.reserved_bytes is None or self.used_bytes is None:
            return None
        return self.memory_bytes - self.reserved_bytes - self.used_bytes


@dataclass(frozen=True)
class Gpus:
    """What NVML says; ``problem`` is its error message where it says nothing, and then there are no devices."""

    devices: tuple[Device, ...]
    driver: str | None
    problem: str = ""


@dataclass(frozen=True)
class _Slot:
    """A handle of NVML's before it is numbered."""

    handle: Any
    uuid: str
    card_uuid: str

    def is_named(self, prefix: str) -> bool:
        """Whether ``CUDA_VISIBLE_DEVICES`` may mean this by a (possibly shortened) UUID."""
        return self.uuid.startswith(prefix) or self.card_uuid.startswith(prefix)


def read_gpus(variables: Mapping[str, str] = os.environ, *, nvml: Any = None) -> Gpus:
    """List the GPUs that a process with these environment variables sees; never raises.

    Args:
        variables: where ``CUDA_VISIBLE_DEVICES`` is looked up.
        nvml: a module like ``pynvml``, which is the default.
    """
    if nvml is None:
        import pynvml

        nvml = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Gpus((), None, str(error))
    try:
        cards = [_slots(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
        visible = _visible(cards, variables.get("CUDA_VISIBLE_DEVICES"))
        devices = tuple(_describe(nvml, index, slot) for index, slot in enumerate(visible))
        return Gpus(devices, nvml.nvmlSystemGetDriverVersion())
    except nvml.NVMLError as error:
        return Gpus((), None, str(error))
    finally:
        nvml.nvmlShutdown()


def find_device(index: int, gpus: Gpus) -> Device:
    """The device with this index; UsageError names those that there are."""
    for device in gpus.devices:
        if device.index == index:
            return device
    there = ", ".join(f"{device.index} ({device.name})" for device in gpus.devices)
    raise UsageError(
        f"there is no device {index}: " + (f"found {there}" if there else f"no GPU was found. {gpus.problem}".rstrip()),
        hint="--devices takes indices as nvidia-smi counts them, within CUDA_VISIBLE_DEVICES where that is set",
    )


def nvml_memory(nvml: Any, handle: Any) -> tuple[int, int, int] | None:
    """Total, reserved and used bytes of a device; None where NVML does not know.

    Version 2 of the call keeps what the driver reserves apart from what processes use; drivers before 510 have
    version 1 only, where the two are one figure.
    """
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        return int(memory.total), int(memory.reserved), int(memory.used)
    except nvml.NVMLError:
        pass  # an old driver; version 1 tells whether it is more than that
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(memory.total), 0, int(memory.used)
    except nvml.NVMLError:
        return None


def _slots(nvml: Any, index: int) -> list[_Slot]:
    """What CUDA can be given of a card: the card itself, or its MIG devices; nothing if the card does not answer."""
    try:
        card = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = nvml.nvmlDeviceGetUUID(card)
    except nvml.NVMLError:
        return []  # fallen off the bus, or not given to this container; the others still count from their own index
    try:
        mig, _ = nvml.nvmlDeviceGetMigMode(card)
    except nvml.NVMLError:
        mig = 0  # a card without the feature
    if not mig:
        return [_Slot(card, uuid, uuid)]
    slots = []
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(card)):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, place)
        except nvml.NVMLError:
            continue  # no device was made in this place
        slots.append(_Slot(handle, nvml.nvmlDeviceGetUUID(handle), uuid))
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
    named = [slot for slots in cards for slot in slots if slot.is_named(entry)]
    return named[0] if len({slot.card_uuid for slot in named}) == 1 else None


def _describe(nvml: Any, index: int, slot: _Slot) -> Device:
    memory = nvml_memory(nvml, slot.handle)
    total, reserved, used = memory if memory is not None else (None, None, None)
    name = nvml.nvmlDeviceGetName(slot.handle)
    card_uuid = slot.card_uuid if slot.card_uuid != slot.uuid else None
    return Device(index, slot.uuid, name, total, reserved, used, card_uuid)
