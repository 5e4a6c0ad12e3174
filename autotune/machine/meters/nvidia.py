"""NVIDIA's GPUs through NVML: which a process sees, and how much of their memory a run takes.

Numbers in ``CUDA_VISIBLE_DEVICES`` are taken in PCI bus order, as ``nvidia-smi`` counts; CUDA without
``CUDA_DEVICE_ORDER=PCI_BUS_ID`` puts the fastest card first. A run is therefore given its device by UUID, which means
the same to NVML and to CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...errors import RunError
from ..devices import Device, Gpus
from .deadline import MeterWithDeadline, NoAnswerError, Questions

__all__ = ["Nvidia", "NvmlMeter"]

_MIB = 2**20
# Without its persistence daemon the driver starts each card anew, which takes seconds.
_LIST_S = 30.0
_SAMPLE_S = 5.0
_BLIND = "NVML does not list the run among the GPU's processes: what others have taken meanwhile would be in the peak"


class Nvidia:
    """The vendor: see ``Vendor``.

    Args:
        nvml: a module like ``pynvml``, which is the default.
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
            return self._questions.ask(partial(_list_gpus, self._nvml, variables), within_s=self._list_within_s)
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


def _list_gpus(nvml: Any, variables: Mapping[str, str]) -> Gpus:
    nvml = _module(nvml)
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Gpus((), "NVML", problem=str(error))
    try:
        cards = [_slots(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
        visible = _visible(cards, variables.get("CUDA_VISIBLE_DEVICES"))
        devices = tuple(_describe(nvml, index, slot) for index, slot in enumerate(visible))
        return Gpus(devices, "NVML", nvml.nvmlSystemGetDriverVersion())
    except nvml.NVMLError as error:
        return Gpus((), "NVML", problem=str(error))
    finally:
        nvml.nvmlShutdown()


class NvmlMeter:
    """The device's used memory, less what other processes hold.

    What others hold is read before the run begins; when they move later, the figure is corrected by as much and
    ``contended`` is set. How well others can be told from the run depends on what NVML shows:

    - its process list holds the run's pids: everything else is others;
    - a container, where the list holds the host's pids: those that were there at the start are others, new ones are
      taken for the run's own, unless there are more of them than the run has processes;
    - a list without memory figures (some drivers and containers): others count as moved when one of them has gone, or
      when more have come than the run has processes; the figure cannot be corrected then;
    - a list in which the run is missing, or none: nothing can be told of others, and ``problem`` says so.

    Where NVML has no figure of the device, or one that cannot be true, what it lists for the run's processes is added
    up: GPUs that share the host's memory (GB10) have nothing but that. ``problem`` says so, too.

    Args:
        uuid: the device's, or the MIG device's.
        nvml: a module like ``pynvml``, which is the default.
        list_every: the process list is dearer than the memory figure, so it is read at every so many samples, and
            whenever the figure has moved: so no sample holds what others have only just taken.
        moved_bytes: others must move by more than this to count as contention.
    """

    def __init__(self, uuid: str, *, nvml: Any = None, list_every: int = 10, moved_bytes: int = 8 * _MIB) -> None:
        self._nvml = _module(nvml)
        self._uuid = uuid
        self._list_every = list_every
        self._moved_limit_bytes = moved_bytes
        self._handle: Any = None
        self._before: _Memory | None = None
        self._why_unknown = ""
        self._others: dict[int, int | None] | None = None
        self._moved_bytes = 0
        self._sees_own_pids = False
        self._is_blind = False
        self._samples = 0
        self._looked_at_bytes = 0
        self.contended = False
        self.problem = ""

    def start(self) -> None:
        """Note what the device's memory holds before the run. RunError if NVML does not know the device."""
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise self._unreadable(error) from None
        try:
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(self._uuid)
        except self._nvml.NVMLError as error:
            self._nvml.nvmlShutdown()
            raise self._unreadable(error) from None
        try:
            self._before = _memory(self._nvml, self._handle)
        except _NoFigureError as error:
            self._why_unknown = str(error)
        self._others = self._processes()

    def sample(self, pids: Sequence[int]) -> int | None:
        """The device's used bytes that are the run's own; None where NVML has no figure."""
        self.problem = ""
        own = set(pids)
        try:
            used = self._used()
            if self._samples % self._list_every == 0 or abs(used - self._looked_at_bytes) > self._moved_limit_bytes:
                self._look_at_others(own)
                # What came or went between the two looks would be counted, or taken out, by one of them only.
                used = min(used, self._used())
                self._looked_at_bytes = used
        except _NoFigureError as error:
            return self._listed_bytes(own, why=str(error))
        self._samples += 1
        assert self._before is not None
        held = max(0, used - self._before.used - self._moved_bytes)
        if self._is_blind and held > self._moved_limit_bytes:
            self.problem = _BLIND
        return held

    def close(self) -> None:
        """Let go of NVML."""
        if self._handle is None:
            return
        self._handle = None
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            pass  # of a GPU that was lost meanwhile, for example

    def _unreadable(self, error: Exception) -> RunError:
        return RunError(
            f"NVML cannot read the memory of device {self._uuid!r}: {error}",
            hint="`autotune doctor` shows what NVML finds",
        )

    def _used(self) -> int:
        """The device's used bytes; _NoFigureError if they, or what they were before the run, are not known."""
        if self._before is None:
            raise _NoFigureError(self._why_unknown)
        # By the same call as before the run: the older one adds what the driver keeps to itself.
        return _memory(self._nvml, self._handle, versions=(self._before.version,)).used

    def _listed_bytes(self, own: set[int], *, why: str) -> int | None:
        """What NVML lists for the run's processes, as the device itself has no figure; None where it lists none."""
        now = self._processes()
        figures = None if now is None else [now[pid] for pid in self._run_in(now, own)]
        if not figures or None in figures:
            self.problem = f"NVML: {why}"
            return None
        self.problem = f"the peak is what NVML lists for the run's processes: of the whole GPU it has no figure ({why})"
        return sum(figure or 0 for figure in figures)

    def _run_in(self, now: Mapping[int, int | None], own: set[int]) -> set[int]:
        """Those of the listed processes that are the run's: by their pids, or in a container for being new."""
        if self._others is None:
            return set()
        # A pid that was there before the run is a stranger's, of the host, where a container shows the host's pids.
        new = now.keys() - self._others.keys()
        self._sees_own_pids = self._sees_own_pids or bool(own & new)
        if self._sees_own_pids:
            return own & new
        return new if len(new) <= len(own) else set()

    def _look_at_others(self, own: set[int]) -> None:
        now = self._processes()
        self._is_blind = True
        if now is None or self._others is None:
            return  # NVML keeps the list to itself: what the device held at the start is all there is to go by
        run = self._run_in(now, own)
        new = now.keys() - self._others.keys()
        self._is_blind = not (new or self._sees_own_pids)
        gone = self._others.keys() - now.keys()
        too_many = bool(new - run)
        others = [pid for pid in now if pid in self._others or (self._sees_own_pids and pid not in run)]
        figures = [now[pid] for pid in others] + list(self._others.values())
        if any(figure is None for figure in figures):
            self._moved_bytes = 0
            self.contended = bool(gone) or too_many
            return
        self._moved_bytes = sum(now[pid] or 0 for pid in others) - sum(held or 0 for held in self._others.values())
        self.contended = abs(self._moved_bytes) > self._moved_limit_bytes or (too_many and not self._sees_own_pids)

    def _processes(self) -> dict[int, int | None] | None:
        """Bytes by pid of all processes on the device, computing or drawing; None if NVML does not list them."""
        computing = self._listed(self._nvml.nvmlDeviceGetComputeRunningProcesses)
        if computing is None:
            return None
        found: dict[int, int | None] = {}
        # A card for computing only has no list of those that draw.
        for process in (*computing, *(self._listed(self._nvml.nvmlDeviceGetGraphicsRunningProcesses) or ())):
            known, size = found.get(process.pid), process.usedGpuMemory
            if size is not None and self._before is not None and size > self._before.total:
                size = None  # a driver whose records are of another length than pynvml takes them to be
            # A process that computes and draws is in both lists, with the same figure.
            found[process.pid] = size if known is None else max(known, size or 0)
        return found

    def _listed(self, read: Callable[[Any], list[Any]]) -> list[Any] | None:
        try:
            return read(self._handle)
        except (self._nvml.NVMLError, self._nvml.NVMLLibraryMismatchError):
            return None  # the latter is no NVMLError: a driver without the version of the call that pynvml makes


@dataclass(frozen=True)
class _Slot:
    """A handle of NVML's before it is numbered."""

    handle: Any
    uuid: str
    card_uuid: str
    name: str

    def is_named(self, prefix: str) -> bool:
        """Whether ``CUDA_VISIBLE_DEVICES`` may mean this by a (possibly shortened) UUID."""
        return self.uuid.startswith(prefix) or self.card_uuid.startswith(prefix)


def _module(nvml: Any) -> Any:
    if nvml is not None:
        return nvml
    import pynvml

    return pynvml


def _slots(nvml: Any, index: int) -> list[_Slot]:
    """What CUDA can be given of a card: the card itself, or its MIG devices; nothing if the card does not answer."""
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
        return [_Slot(card, uuid, uuid, name)]
    slots = []
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(card)):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, place)
        except nvml.NVMLError:
            continue  # no device was made in this place
        slots.append(_Slot(handle, nvml.nvmlDeviceGetUUID(handle), uuid, nvml.nvmlDeviceGetName(handle)))
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
    try:
        memory = _memory(nvml, slot.handle)
    except _NoFigureError:
        memory = None
    return Device(
        index=index,
        uuid=slot.uuid,
        name=slot.name,
        variables={"CUDA_VISIBLE_DEVICES": slot.uuid},
        # NVML's UUID without the prefix; older versions of CUDA call a slice by its card's. Source: cuDeviceGetUuid and
        # cuDeviceGetUuid_v2 in the CUDA Driver API.
        torch_uuids=tuple(dict.fromkeys(uuid.partition("-")[2] for uuid in (slot.uuid, slot.card_uuid))),
        memory_bytes=None if memory is None else memory.total,
        reserved_bytes=None if memory is None else memory.reserved,
        used_bytes=None if memory is None else memory.used,
    )


@dataclass(frozen=True)
class _Memory:
    """What a device holds, in bytes, by which version of NVML's call.

    Version 2 keeps what the driver reserves apart from what processes use; drivers before 510 have version 1 only,
    where the two are one figure.
    """

    version: int
    total: int
    reserved: int
    used: int


class _NoFigureError(Exception):
    """NVML does not know a device's memory, or what it says cannot be true."""


def _memory(nvml: Any, handle: Any, *, versions: Sequence[int] = (2, 1)) -> _Memory:
    """The memory of a device by the first of the calls that gives it; _NoFigureError with the reason if none does."""
    problem = ""
    for version in versions:
        try:
            if version == 2:
                found = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
                memory = _Memory(2, int(found.total), int(found.reserved), int(found.used))
            else:
                found = nvml.nvmlDeviceGetMemoryInfo(handle)
                memory = _Memory(1, int(found.total), 0, int(found.used))
        except nvml.NVMLError as error:
            problem = str(error)
            continue
        if memory.used <= memory.total and memory.total > 0:
            return memory
        # NVML_VALUE_NOT_AVAILABLE is 2**64 - 1, and layers that share a GPU out have let their counters wrap around.
        problem = f"{memory.used} of {memory.total} bytes are said to be in use"
    raise _NoFigureError(problem)
