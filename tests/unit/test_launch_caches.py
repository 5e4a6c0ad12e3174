"""Compile caches are lent to one run at a time, and keep nothing of a run that was killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotune.launch import caches
from autotune.launch.caches import CompileCaches, Loan, remove_caches


def put(loan: Loan, name: str) -> Path:
    """A file that a run compiles."""
    path = Path(loan.variables["TORCHINDUCTOR_CACHE_DIR"]) / "ab" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(name)
    return path


def let_time_pass(folder: Path) -> None:
    """Until files are later than those that are there: file systems count in milliseconds."""
    (folder / "before").touch()
    while True:
        (folder / "after").touch()
        if (folder / "after").stat().st_ctime_ns > (folder / "before").stat().st_ctime_ns:
            return


def dies(loan: Loan) -> None:
    """The controller is killed: the kernel takes its lock back, and nobody tidies up."""
    os.close(loan._lock)


def test_what_a_run_has_compiled_is_there_for_the_next(tmp_path: Path) -> None:
    caches = CompileCaches(tmp_path)
    first = caches.lend(())
    kept = put(first, "kernel.so")
    first.take_back(ended_well=True)

    second = caches.lend(())

    assert second.variables == first.variables
    assert kept.exists()


def test_of_a_run_that_was_killed_nothing_stays_and_what_was_there_before_does(tmp_path: Path) -> None:
    caches = CompileCaches(tmp_path)
    first = caches.lend(())
    kept = put(first, "kernel.so")
    first.take_back(ended_well=True)
    let_time_pass(tmp_path)
    second = caches.lend(())
    half = put(second, "half.so")
    os.utime(half, (1, 1))  # as a file that was copied there keeps its times
    second.take_back(ended_well=False)

    assert kept.exists()
    assert not half.exists()
    assert caches.lend(()).variables == first.variables


def test_a_cache_whose_controller_was_killed_is_never_used_again(tmp_path: Path) -> None:
    first = CompileCaches(tmp_path).lend(())
    half = put(first, "half.so")
    dies(first)

    second = CompileCaches(tmp_path).lend(())

    assert not half.exists()
    assert not set(second.variables.values()) & set(first.variables.values()), "a dying compiler may still write there"


def test_a_cache_from_before_the_machine_was_started_is_never_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = CompileCaches(tmp_path).lend(())
    put(first, "kernel.so")
    first.take_back(ended_well=True)
    monkeypatch.setattr(caches, "_boot", lambda: "another")

    second = CompileCaches(tmp_path).lend(())

    assert second.variables != first.variables


def test_a_cache_of_other_instructions_is_never_used_again(tmp_path: Path) -> None:
    first = CompileCaches(tmp_path, {"ATEN_CPU_CAPABILITY": "avx2"}).lend(())
    first.take_back(ended_well=True)

    second = CompileCaches(tmp_path, {}).lend(())

    assert second.variables != first.variables


def test_a_cache_that_does_not_say_what_it_is_for_is_thrown_away(tmp_path: Path) -> None:
    first = CompileCaches(tmp_path).lend(())
    kernel = put(first, "kernel.so")
    first.take_back(ended_well=True)
    (kernel.parents[2] / "made-for").unlink()

    CompileCaches(tmp_path).lend(())

    assert not kernel.exists()


def test_runs_at_the_same_time_share_no_cache(tmp_path: Path) -> None:
    loans = [CompileCaches(tmp_path).lend(devices) for devices in ((), (), (0,), (1,))]

    assert len({loan.variables["TORCHINDUCTOR_CACHE_DIR"] for loan in loans}) == 4


def test_caches_that_no_run_uses_are_removed_and_others_stay(tmp_path: Path) -> None:
    caches = CompileCaches(tmp_path)
    first, second = caches.lend(()), caches.lend(())
    free, used = put(first, "kernel.so"), put(second, "kernel.so")
    first.take_back(ended_well=True)

    freed_bytes, used_bytes = remove_caches(tmp_path, dry_run=True)
    assert free.exists()
    assert freed_bytes > 0
    assert used_bytes > 0

    assert remove_caches(tmp_path) == (freed_bytes, used_bytes)
    assert not free.exists()
    assert used.exists()
    second.take_back(ended_well=True)
    assert remove_caches(tmp_path) == (used_bytes, 0)
    assert remove_caches(tmp_path) == (0, 0)
    put(caches.lend(()), "kernel.so")


def test_neither_links_nor_folders_of_somebody_else_are_taken_for_caches(tmp_path: Path) -> None:
    precious = tmp_path / "else/a/b"
    precious.mkdir(parents=True)
    (precious / "made-for").touch()
    (precious / "file").touch()
    root = tmp_path / "caches"
    (root / "cpu/other").mkdir(parents=True)
    (root / "device-0").symlink_to(tmp_path / "else/a")
    (root / "cpu/linked").symlink_to(precious)
    (tmp_path / "link").symlink_to(tmp_path / "else")

    assert remove_caches(root) == (0, 0)
    assert remove_caches(tmp_path / "link") == (0, 0)
    assert sorted(path.name for path in precious.iterdir()) == ["file", "made-for"]
    assert list((root / "cpu/other").iterdir()) == []
