"""Environments of measurements: machine and software. Measurements compare only where their devices agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DeviceKind = Literal["cpu", "cuda"]

# How much of its memory two machines of a kind may differ by, as drivers and firmware keep some of it.
_SAME_MEMORY = 0.02


@dataclass(frozen=True)
class Environment:
    """The machine and the software of one run, as the training process saw them.

    ``device_memory_bytes`` is the card's total memory, or on CPU the memory the process may use (the host's, or its
    container's limit). ``variables`` are the environment variables that change speed or memory, as they were set.
    ``torch`` is empty where a model ran in ONNX Runtime, whose version ``onnxruntime`` then is.
    """

    device_kind: DeviceKind
    device_name: str
    device_memory_bytes: int
    num_devices: int
    num_threads: int
    hostname: str
    platform: str
    python: str
    torch: str
    cuda: str | None = None
    driver: str | None = None
    variables: dict[str, str] | None = None
    onnxruntime: str = ""

    @property
    def library(self) -> str:
        """Return what ran it, with its version."""
        return f"onnxruntime {self.onnxruntime}" if self.onnxruntime else f"torch {self.torch}"


def device_differences(before: Environment, now: Environment) -> tuple[tuple[str, str | int, str | int], ...]:
    """Return where two devices differ so that figures of one say nothing about the other: what, before, and now.

    Where a GPU computes, the host's threads only feed it.
    """
    found: list[tuple[str, str | int, str | int]] = [
        ("device", before.device_name, now.device_name),
        ("number of devices", before.num_devices, now.num_devices),
    ]
    memory = before.device_memory_bytes, now.device_memory_bytes
    if now.device_kind != "cuda":
        found.append(("number of threads", before.num_threads, now.num_threads))
    if abs(memory[0] - memory[1]) > _SAME_MEMORY * max(memory):
        found.append(("device memory in bytes", *memory))
    return tuple((what, there, here) for what, there, here in found if there != here)
