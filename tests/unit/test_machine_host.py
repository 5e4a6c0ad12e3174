"""The host's memory and a container's limits on it, from trees of files as the kernel lays them out."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from autotune.machine.host import HostMemory, host_memory, host_memory_limit, oom_kills

GIB = 2**30
_V2_MOUNT = "30 24 0:26 {mounted} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
_V1_MOUNT = "33 25 0:29 {mounted} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"


def _tree(root: Path, files: dict[str, object]) -> Path:
    whole = {"proc/meminfo": f"MemTotal: {64 * GIB // 1024} kB\nMemAvailable: {48 * GIB // 1024} kB\n", **files}
    for name, text in whole.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


def test_without_control_groups_the_host_is_the_limit(tmp_path: Path) -> None:
    root = _tree(tmp_path, {})

    assert host_memory(root=root) == HostMemory(64 * GIB, 48 * GIB, None, None)
    assert host_memory_limit(root=root) == 48 * GIB


def test_version_2_limits_count_on_every_level(tmp_path: Path) -> None:
    job = "sys/fs/cgroup/batch/job"
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/batch/job",
            "proc/self/mountinfo": _V2_MOUNT.format(mounted="/"),
            f"{job}/memory.max": "max",
            f"{job}/memory.current": 5 * GIB,
            "sys/fs/cgroup/batch/memory.max": 16 * GIB,
            "sys/fs/cgroup/batch/memory.current": 6 * GIB,
            "sys/fs/cgroup/batch/memory.stat": f"anon {2 * GIB}\ninactive_file {3 * GIB}\nactive_file {1 * GIB}",
        },
    )

    assert host_memory(root=root).limit_bytes == 16 * GIB
    assert host_memory_limit(root=root) == 14 * GIB  # what is used, less what is only cache


def test_version_1_limits_count_and_its_huge_number_is_none(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/memory/docker/abc"
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/",
            "proc/self/mountinfo": _V1_MOUNT.format(mounted="/"),
            f"{group}/memory.limit_in_bytes": 8 * GIB,
            f"{group}/memory.usage_in_bytes": 3 * GIB,
            f"{group}/memory.stat": f"total_inactive_file {GIB}\ntotal_active_file 0",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": 9223372036854771712,
        },
    )

    assert host_memory(root=root) == HostMemory(64 * GIB, 48 * GIB, 8 * GIB, 6 * GIB)


@pytest.mark.parametrize(
    ("path", "mounted"), [("/docker/abc", "/docker/abc"), ("/docker/abc", "/"), ("/../../other", "/"), ("/", "/")]
)
def test_a_container_sees_its_own_group_at_the_mount_point(tmp_path: Path, path: str, mounted: str) -> None:
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": f"0::{path}",
            "proc/self/mountinfo": _V2_MOUNT.format(mounted=mounted),
            "sys/fs/cgroup/memory.max": 4 * GIB,
            "sys/fs/cgroup/memory.current": 0,
        },
    )

    assert host_memory_limit(root=root) == 4 * GIB


def test_a_group_that_is_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/",
            "proc/self/mountinfo": _V2_MOUNT.format(mounted="/"),
            "sys/fs/cgroup/memory.max": GIB,
            "sys/fs/cgroup/memory.current": 2 * GIB,
        },
    )

    assert host_memory_limit(root=root) == 0


def test_the_kernels_kills_are_counted_in_the_own_group(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/job",
            "proc/self/mountinfo": _V2_MOUNT.format(mounted="/"),
            "sys/fs/cgroup/job/memory.events": "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2",
            "proc/vmstat": "oom_kill 99",
        },
    )

    assert oom_kills(root=root) == 2


def test_version_1_has_the_count_in_another_file(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/",
            "proc/self/mountinfo": _V1_MOUNT.format(mounted="/"),
            "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5",
        },
    )

    assert oom_kills(root=root) == 5


def test_outside_any_group_the_hosts_count_serves_and_an_old_kernel_has_none(tmp_path: Path) -> None:
    assert oom_kills(root=_tree(tmp_path / "new", {"proc/vmstat": "nr_free_pages 7\noom_kill 4"})) == 4
    assert oom_kills(root=_tree(tmp_path / "old", {"proc/vmstat": "nr_free_pages 7"})) is None


def test_this_machine_can_be_read() -> None:
    memory = host_memory()

    assert memory.total_bytes == psutil.virtual_memory().total
    assert 0 < host_memory_limit() <= memory.total_bytes
