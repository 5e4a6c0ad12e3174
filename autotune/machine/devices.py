"""A GPU as the rest of autotune sees it. ``meters/`` finds them and reads their memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import UsageError

# Where CUDA reads which devices a process sees, as numbers or UUIDs with commas between them.
_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, kw_only=True)
class Device:
    """A GPU, or a slice of one.

    ``index`` counts what the user sees. ``variables`` are the environment variables that give a process this device
    only, and ``torch_uuids`` the names by which torch may call it in there. ``memory_bytes`` is all of its memory; of
    that the driver keeps ``reserved_bytes`` to itself, and ``used_bytes`` were taken by processes when it was read. The
    three are None where the device has no memory of its own (Grace and Jetson share the host's).
    """

    index: int
    uuid: str
    name: str
    variables: Mapping[str, str]
    torch_uuids: tuple[str, ...]
    memory_bytes: int | None
    reserved_bytes: int | None
    used_bytes: int | None

    @property
    def usable_bytes(self) -> int | None:
        """Return what there is for processes; None where the driver does not tell what it keeps to itself."""
        return self.memory_bytes - self.reserved_bytes if self.memory_bytes and self.reserved_bytes else None

    @property
    def free_bytes(self) -> int | None:
        """Return what neither processes nor the driver held when it was read."""
        if self.memory_bytes is None or self.reserved_bytes is None or self.used_bytes is None:
            return None
        return self.memory_bytes - self.reserved_bytes - self.used_bytes


@dataclass(frozen=True)
class Gpus:
    """The GPUs that NVML lists.

    ``problem`` is NVML's error where it lists nothing, and then there are no devices. ``driver`` is the driver's
    version.
    """

    devices: tuple[Device, ...]
    driver: str | None = None
    problem: str = ""


def find_device(index: int, gpus: Gpus) -> Device:
    """Return the device with this index; UsageError names those that there are."""
    for device in gpus.devices:
        if device.index == index:
            return device
    there = ", ".join(f"{device.index} ({device.name})" for device in gpus.devices)
    raise UsageError(
        f"there is no device {index}: " + (f"found {there}" if there else f"no GPU was found. {gpus.problem}".rstrip()),
        hint="--devices takes indices as `autotune doctor` shows them, within CUDA_VISIBLE_DEVICES where that is set",
    )


def variables_of(devices: Sequence[Device]) -> dict[str, str]:
    """Return the environment variables that give a process these devices only, numbered in this order."""
    variables: dict[str, str] = {}
    for device in devices:
        for name, value in device.variables.items():
            is_list = name == _VISIBLE and name in variables
            variables[name] = f"{variables[name]},{value}" if is_list else value
    return variables
