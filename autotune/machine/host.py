"""Properties of the host: platform, compiler, memory, a container's limits on it, the kernel's kills for memory."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import RunError

# cgroup v1 says "no limit" with the largest multiple of the page size that fits 63 bits.
_NO_LIMIT = 2**62


@dataclass(frozen=True)
class HostMemory:
    """The host's memory in bytes.

    ``available_bytes`` is what processes can take now without swapping, caches given back. ``limit_bytes`` is the
    lowest limit of the control groups (a container's, a batch job's) that this process is in, and
    ``left_bytes`` the least that one of them still allows; both None without a limit.
    """

    total_bytes: int
    available_bytes: int
    limit_bytes: int | None
    left_bytes: int | None


@dataclass(frozen=True)
class _Names:
    """The files of a memory control group. Source: the kernel's admin guide, cgroup-v1/memory and cgroup-v2."""

    limit: str
    usage: str
    cache: tuple[str, ...]
    kills: str


_V1 = _Names(
    "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"), "memory.oom_control"
)
_V2 = _Names("memory.max", "memory.current", ("inactive_file", "active_file"), "memory.events")


def check_platform() -> None:
    """Raise RunError where the worker's process groups, signals and /proc are not what Linux has."""
    if not sys.platform.startswith("linux"):
        raise RunError(
            f"autotune runs scripts on Linux only, this is {sys.platform!r}",
            hint="on Windows use WSL 2, elsewhere a Linux container; studies, show and export work here too",
        )


def find_cxx_compiler() -> str | None:
    """Return what extensions, and Inductor's code for CPUs, are compiled with: ``CXX``, or a compiler on the PATH."""
    names = (os.environ.get("CXX", "c++"), "c++", "g++", "clang++")
    return next(filter(None, map(shutil.which, names)), None)


def host_memory_limit(*, root: Path = Path("/")) -> int:
    """Return the bytes a run may take: what the host has available, or less where a container's limit leaves less."""
    memory = host_memory(root=root)
    return memory.available_bytes if memory.left_bytes is None else min(memory.available_bytes, memory.left_bytes)


def host_memory(*, root: Path = Path("/")) -> HostMemory:
    """Read the host's memory and the limits on it; ``root`` is where ``proc`` and ``sys`` are looked for."""
    host = _counters(root / "proc/meminfo")
    limits, left = [], []
    for folder, names in _control_groups(root):
        limit = _number(folder / names.limit)
        if limit is None or limit >= _NO_LIMIT:
            continue
        limits.append(limit)
        statistics = _counters(folder / "memory.stat")
        held = (_number(folder / names.usage) or 0) - sum(statistics.get(name, 0) for name in names.cache)
        left.append(max(0, limit - max(0, held)))
    total = host["MemTotal"] * 1024
    available = host.get("MemAvailable", host["MemTotal"]) * 1024
    return HostMemory(total, available, min(limits, default=None), min(left, default=None))


def oom_kills(*, root: Path = Path("/")) -> int | None:
    """Return how many processes the kernel has killed for memory so far, None if it does not say.

    Counted in this process's own control group, which a run shares, else on the whole host.
    """
    for folder, names in _control_groups(root):
        kills = _counters(folder / names.kills).get("oom_kill")
        if kills is not None:
            return kills
    return _counters(root / "proc/vmstat").get("oom_kill")


def _control_groups(root: Path) -> list[tuple[Path, _Names]]:
    """List the folders of this process's memory control groups, from its own up to the topmost that is mounted."""
    try:
        memberships = (root / "proc/self/cgroup").read_text().splitlines()
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return []  # a kernel without control groups
    paths: dict[str, str] = {}
    for line in memberships:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            paths["cgroup2"] = path
        elif "memory" in controllers.split(","):
            paths["cgroup"] = path
    found = []
    for line in mounts:
        # 36 35 98:0 /mounted-part /mount-point options [optional fields] - type source super-options
        place, _, kind = line.partition(" - ")
        mounted, mount_point = place.split(" ")[3:5]
        file_system, _, options = kind.split(" ", 2)
        if file_system not in paths or (file_system == "cgroup" and "memory" not in options.split(",")):
            continue
        top = root / mount_point.lstrip("/")
        # In a container the mount shows only a part of the tree, or the path leads out of it.
        inside = paths[file_system].removeprefix(mounted.rstrip("/")).lstrip("/")
        own = top / inside if ".." not in inside.split("/") and (top / inside).is_dir() else top
        names = _V2 if file_system == "cgroup2" else _V1
        found += [(folder, names) for folder in (own, *own.parents) if folder.is_relative_to(top)]
    return found


def _counters(path: Path) -> dict[str, int]:
    """Read lines of a name and a number; empty if there is no such file."""
    try:
        rows = [line.replace(":", " ").split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) >= 2 and row[1].isdecimal()}


def _number(path: Path) -> int | None:
    """Read the number in a file; None if there is no such file, or no number in it (``max``)."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
