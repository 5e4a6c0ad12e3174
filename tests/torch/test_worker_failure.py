"""What an exception that ended a script is called."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from autotune.records import OutOfMemory, ScriptError
from autotune.worker.failure import ends_with, exit_words, failure_of


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA driver error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`"),
        RuntimeError("NCCL error in: x.cpp:1\nLast error:\nCuda failure 2 'out of memory'"),
        RuntimeError(
            "\n\n-- Process 0 terminated with the following error:\ntorch.OutOfMemoryError: CUDA out of memory."
        ),
    ],
    ids=lambda error: str(error)[-30:] or type(error).__name__,
)
def test_memory_that_ran_out_is_known_by_what_libraries_say(error: Exception) -> None:
    found = failure_of(error, phase="backward", limit_bytes=7)

    assert isinstance(found, OutOfMemory)
    assert (found.phase, found.limit_bytes) == ("backward", 7)
    assert "\n" not in found.cause


def raised(*, out_of: Exception | None = None, in_place_of: Exception | None = None) -> Exception:
    """An error that was raised ``from`` another, or while another was being handled."""
    try:
        try:
            raise (out_of or in_place_of or LookupError())
        except Exception as error:
            wrapped = RuntimeError("step 3 failed")
            if out_of is not None:
                raise wrapped from error
            raise wrapped  # noqa: B904
    except RuntimeError as error:
        return error


def test_memory_that_ran_out_is_found_behind_what_the_script_made_of_it() -> None:
    cause = torch.OutOfMemoryError("CUDA out of memory.")

    for error in (raised(out_of=cause), raised(in_place_of=cause)):
        assert isinstance(failure_of(error, phase="forward", limit_bytes=None), OutOfMemory)


def test_anything_else_is_the_scripts_own_error() -> None:
    found = failure_of(raised(in_place_of=ValueError("odd")), phase="forward", limit_bytes=None)

    assert isinstance(found, ScriptError)
    assert found.cause == "RuntimeError: step 3 failed"
    assert "ValueError: odd" in found.traceback


def test_a_process_ends_with_what_is_raised_or_was_shown_last(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ends_with() is None
    raised_now = LookupError()
    try:
        raise raised_now
    except LookupError:
        assert ends_with() is raised_now
    shown = ValueError()
    monkeypatch.setattr(sys, "last_value", shown, raising=False)
    assert ends_with() is shown


@pytest.mark.parametrize("status", [0, None, 1])
def test_an_exit_is_an_error_where_it_came_of_one(status: int | None) -> None:
    cause = ValueError()
    try:
        try:
            raise cause
        except ValueError:
            sys.exit(status)
    except SystemExit:
        assert ends_with() is (cause if status else None)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (EOFError("EOF when reading a line"), "A run has no standard input"),
        (FileNotFoundError(2, "No such file", "data/a.txt"), "'data/a.txt' was looked up in "),
        (FileNotFoundError(2, "No such file", "/data/a.txt"), "Run the script by itself first"),
        (ImportError("attempted relative import with no known parent package"), "start it by its name, as in -m"),
        (ModuleNotFoundError("No module named 'einops.layers'", name="einops.layers"), "Install einops for "),
        (KeyError("lr"), "Run the script by itself first"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_differs_from_running_it_by_hand_is_advised_on(error: Exception, advice: str) -> None:
    for one in (error, raised(out_of=error)):
        found = failure_of(one, phase="start", limit_bytes=None)
        assert isinstance(found, ScriptError)
        assert advice in found.advice


def test_a_file_that_is_not_in_the_scratch_folder_is_told_where_it_was_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / ".autotune/scratch"
    scratch.mkdir(parents=True)
    for folder, advice in ((tmp_path, "Start autotune in the folder"), (scratch, "Leave out --scratch")):
        monkeypatch.chdir(folder)
        found = failure_of(FileNotFoundError(2, "No such file", "a.txt"), phase="start", limit_bytes=None)
        assert isinstance(found, ScriptError)
        assert advice in found.advice


def test_an_exit_is_told_by_its_number_or_its_message_on_one_line() -> None:
    assert exit_words(3) == "the script exited with status 3"
    assert exit_words("no data\n in\tx") == "the script exited with the message 'no data in x'"
