"""What a measurement was made in; two measurements compare only where these agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["DeviceKind", "Environment"]

DeviceKind = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Environment:
    """The machine and the software of one run, as the training process saw them.

    ``device_memory_bytes`` is the card's total memory, or on CPU the memory the process may use (the host's, or its
    container's limit). ``variables`` are the environment variables that change speed or memory, as they were set.
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
