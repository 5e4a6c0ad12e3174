"""What an exception that ended a script is called."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from autotune.records.arrivals import Arrivals
from autotune.records.configuration import Configuration
from autotune.records.facts import BatchControl
from autotune.records.outcome import OutOfMemory, ScriptError
from autotune.records.plan import Plan
from autotune.worker.failure import BY_ITSELF, ON_THE_GPU, ends_with, exit_words, failure_of


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


@pytest.mark.parametrize(
    ("idle", "idle_bytes"), [("2.25 GiB is", 9 << 28), ("512.00 MiB is", 1 << 29), ("0 bytes is", None), ("", None)]
)
def test_what_torch_says_of_memory_for_no_tensor_is_told(idle: str, idle_bytes: int | None) -> None:
    said = f"Of the allocated memory 20.00 GiB is allocated by PyTorch, and {idle} reserved by PyTorch but unallocated."
    error = torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate 3.07 GiB. {said}")
    found = failure_of(raised(out_of=error), phase="forward", limit_bytes=None)
    assert isinstance(found, OutOfMemory)
    assert found.idle_bytes == idle_bytes


def test_anything_else_is_the_scripts_own_error() -> None:
    found = failure_of(raised(in_place_of=ValueError("odd")), phase="forward", limit_bytes=None)

    assert isinstance(found, ScriptError)
    assert found.cause == "RuntimeError: step 3 failed"
    assert "ValueError: odd" in found.traceback


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ValueError("two lines\n  of it"), "ValueError: two lines"),
        (AssertionError(), "AssertionError"),
        (
            OSError(
                "Caught OSError in DataLoader worker process 1.\nOriginal Traceback (most recent call last):\n"
                '  File "train.py", line 3, in __getitem__\nOSError: image 3 is truncated\n'
            ),
            "OSError: image 3 is truncated (in DataLoader worker process 1)",
        ),
    ],
    ids=["several lines", "no word", "quoted"],
)
def test_a_cause_is_one_line_that_says_what_was_raised(error: Exception, cause: str) -> None:
    assert failure_of(error, phase="forward", limit_bytes=None).cause == cause


@pytest.mark.parametrize(("by_itself", "advice"), [(BY_ITSELF, "torchrun"), (ON_THE_GPU, "--for 8xh100-80g")])
def test_a_script_that_was_started_without_its_launcher_is_told_how(
    by_itself: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match="RANK") as raised_here:
        torch.distributed.init_process_group("gloo")
    found = failure_of(raised_here.value, phase="start", limit_bytes=None, by_itself=by_itself)
    assert advice in found.advice


def test_an_error_without_a_word_is_told_by_its_place() -> None:
    try:
        assert False  # noqa: B011, PT015
    except AssertionError as error:
        error.args = ()  # what pytest has made of it
        found = failure_of(error, phase="forward", limit_bytes=None)

    assert re.fullmatch(r"AssertionError in test_worker_failure\.py, line \d+", found.cause)


def test_a_loader_whose_worker_is_gone_says_so_whichever_error_comes_of_it() -> None:
    def lost(name: str, error: Exception) -> Exception:
        """An error that is raised in a file of this name, which the DataLoader's has called."""
        call = compile("inner()", "/x/torch/utils/data/dataloader.py", "exec")
        fail = compile("raise error", name, "exec")
        try:
            exec(call, {"inner": lambda: exec(fail, {"error": error})})
        except OSError as found:
            return found
        raise AssertionError

    said = RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")
    for error in (
        said,
        lost("/x/multiprocessing/connection.py", ConnectionResetError(104, "Connection reset by peer")),
    ):
        found = failure_of(error, phase="forward", limit_bytes=None)
        assert found.cause.startswith("a worker process of a DataLoader died: ")
        assert "num_workers=0" in found.advice
    own = failure_of(lost("/x/dataset.py", ConnectionResetError()), phase="forward", limit_bytes=None)
    assert "DataLoader" not in own.cause


@pytest.mark.parametrize(
    ("setting", "ways"),
    [
        (None, "Run the script by itself first"),
        (Configuration("eager", (), 0, 32), "with --batch-sizes LOW:HIGH, or mend it"),
        (
            Configuration("aot", (Plan("gelu+", 1, -1),)),
            "cannot take this setting: leave plans out with --engine eager",
        ),
    ],
)
def test_what_to_do_about_a_script_that_fails_depends_on_what_was_changed(
    setting: Configuration | None, ways: str
) -> None:
    found = failure_of(KeyError("lr"), phase="forward", limit_bytes=None, setting=setting)

    assert ways in found.advice


@pytest.mark.parametrize(
    ("message", "how", "own", "is_kept"),
    [
        ("Expected hidden size (2, 32, 256), got [2, 16, 256]", "loaders", 16, True),
        ("shape '[16, -1]' is invalid for input of size 4096", "loaders", 16, True),
        ("shape '[16, -1]' is invalid for input of size 4096", "function", 16, False),
        ("expected 16 columns", "loaders", 16, False),
        ("shape '[16, -1]' is invalid for input of size 4096", "arguments", 16, False),
        ("mat1 and mat2 shapes cannot be multiplied (32x160 and 1.16x2)", "loaders", 16, False),
        ("size of tensor a (32) must match", "loaders", 32, False),
        ("index 1 is out of bounds", "loaders", 1, False),
        ("Expected hidden size (2, 32, 256), got [2, 16, 256]", "loaders", None, False),
    ],
)
def test_an_error_that_names_the_scripts_own_batch_size_says_to_pass_it(
    message: str, how: Any, own: int | None, *, is_kept: bool
) -> None:
    control = BatchControl(how, arrivals=None if own is None else Arrivals(own, ()), options={"--bs": 16})
    setting = Configuration(batch_size=32)
    found = failure_of(RuntimeError(message), phase="forward", limit_bytes=None, setting=setting, control=control)
    assert ("The error names 16, your own batch size" in found.advice) == is_kept
    assert ("--batch-sizes LOW:HIGH" in found.advice) == (not is_kept)


@pytest.mark.parametrize(("how", "is_named"), [("loaders", True), ("arguments", False), ("function", False)])
def test_a_script_that_fails_at_another_size_of_its_loader_may_be_passed_it_as_an_option(
    how: Any, *, is_named: bool
) -> None:
    control = BatchControl(how, arrivals=Arrivals(1, ()), options={"--batch_size": 4})
    setting = Configuration(batch_size=12)
    found = failure_of(AssertionError(), phase="start", limit_bytes=None, setting=setting, control=control)
    assert ("pass the batch size as `--batch_size={batch_size:4}` behind `--`, or mend it" in found.advice) == is_named


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


def test_a_module_that_the_script_does_without_is_not_advised_on() -> None:
    try:
        try:
            raise ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow")
        except ModuleNotFoundError:
            raise TypeError("something else")  # noqa: B904  # as scripts do
    except TypeError as error:
        found = failure_of(error, phase="start", limit_bytes=None)
    assert isinstance(found, ScriptError)
    assert "tensorflow" not in found.advice


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
