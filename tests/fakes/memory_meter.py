"""A memory meter that reads from a function, and a GPU that is not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.machine.devices import Device
from autotune.machine.meters.port import Neighbours
from autotune.records.environment import DeviceReading


class FakeMeter:
    """``used(pids)`` gives the bytes that the run holds; the other attributes can be set at any time."""

    def __init__(self, used: Callable[[Sequence[int]], int | None] = lambda pids: None) -> None:
        self.contended = False
        self.neighbours = Neighbours()
        self.problem = ""
        self.reading: DeviceReading | None = None
        self.state = "new"
        self._used = used

    def start(self) -> None:
        self.state = "started"

    def sample(self, pids: Sequence[int]) -> int | None:
        assert self.state == "started"
        return self._used(pids)

    def close(self) -> None:
        self.state = "closed"


def fake_gpu(
    uuid: str,
    *,
    index: int = 0,
    card: str | None = None,
    total: int | None = 1000,
    reserved: int = 100,
    used: int = 300,
) -> Device:
    """A GPU of NVIDIA's, or the slice of a ``card``; it has no memory of its own where ``total`` is None."""
    return Device(
        index=index,
        uuid=uuid,
        name="Fake",
        variables={"CUDA_VISIBLE_DEVICES": uuid},
        torch_uuids=tuple(name.partition("-")[2] for name in (uuid, card) if name is not None),
        memory_bytes=total,
        reserved_bytes=None if total is None else reserved,
        used_bytes=None if total is None else used,
    )
