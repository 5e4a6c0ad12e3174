"""Classification of the exception that ended a script."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator

from ..records.configuration import Configuration
from ..records.facts import BatchControl
from ..records.outcome import OutOfMemory, Phase, ScriptError
from ..records.units import parse_bytes
from .script import own_traceback

# What allocators and CUDA's libraries (cuBLAS, cuDNN, cuSOLVER, cuFFT, NCCL) say without raising
# torch.OutOfMemoryError, and what is left of that one where a process that is gone is quoted.
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "_ALLOC_FAILED", "_ALLOCATION_FAILED")

# Torch's words for memory that its allocator holds for no tensor (torch 2.11 to 2.15).
_IDLE = re.compile(r"([\d.]+ [KMG]iB) is reserved by PyTorch but unallocated")

EXIT_ADVICE = "Its last lines say why; the script's own arguments go after `--`."

BY_ITSELF = "Run the script by itself first: autotune needs a script that trains."
ON_THE_GPU = "On a machine with such a GPU, run `autotune fit` without --for, or `autotune discover`."
# What torch makes of an exception in another process or thread: `torch._utils.ExceptionWrapper`.
_QUOTED = re.compile(r"Caught (?P<name>\S+) (?P<place>in .*)\.\s+Original Traceback")
_RENDEZVOUS = os.path.join("torch", "distributed", "rendezvous.py")  # noqa: PTH118
_BY_LAUNCHER = "Name the launcher, with its options, before the script, as in `autotune run -- torchrun ... train.py`."
_AS_ONE_OF_SEVERAL = "Name as many GPUs as the script trains on, as in --for 8xh100-80g."
_LOADER = os.path.join("torch", "utils", "data", "dataloader.py")  # noqa: PTH118
_LOADER_ADVICE = (
    "A worker that was killed for memory ends like this, and one that finds /dev/shm full: give the DataLoader fewer "
    "workers. With num_workers=0 the script shows an error of its own."
)

_COMPILER = ("/torch/_dynamo/", "/torch/_functorch/", "/torch/_inductor/")


def failure_of(
    error: BaseException,
    *,
    phase: Phase,
    limit_bytes: int | None,
    setting: Configuration | None = None,
    control: BatchControl | None = None,
    by_itself: str = BY_ITSELF,
) -> OutOfMemory | ScriptError:
    """Out of memory by its phase, also where the script wrapped it; anything else with the script's own traceback.

    ``setting`` is what was changed of the script. Where it is None, the script runs as it stands or at another batch
    size alone, and ``by_itself`` is the advice. ``control`` set its batch size.
    """
    for one in _chain(error):
        line = _out_of_memory(one)
        if line is not None:
            idle = _IDLE.search(str(one))
            return OutOfMemory(
                cause=f"out of memory in {phase}: {line}",
                advice="Larger plans, a smaller batch or a higher --memory-limit would fit.",
                phase=phase,
                limit_bytes=limit_bytes,
                idle_bytes=None if idle is None else parse_bytes(idle[1]),
            )
    lost = _lost_loader_worker(error)
    if setting is None:
        on_setting = (control and _advice_on_size(error, None, control)) or by_itself
    else:
        on_setting = _advice_on_setting(error, setting, control)
    if _lacks_launcher(error):
        on_setting = _AS_ONE_OF_SEVERAL if by_itself == ON_THE_GPU else _BY_LAUNCHER
    return ScriptError(
        cause=f"a worker process of a DataLoader died: {_told(error)}" if lost else _told(error),
        advice=_LOADER_ADVICE if lost else _advice(error) or on_setting,
        traceback=own_traceback(error),
    )


def _told(error: BaseException) -> str:
    """Return an exception in one line: what torch quotes of it, its message, or where it was raised."""
    name, lines = type(error).__name__, [line.strip() for line in str(error).splitlines() if line.strip()]
    if quoted := _QUOTED.match(str(error)):
        raised = [line for line in lines[1:] if line.startswith(quoted["name"])] or lines[-1:]
        return f"{raised[-1][:400]} ({quoted['place']})"
    if lines:
        return f"{name}: {lines[0]}"[:500]
    frames = traceback.extract_tb(error.__traceback__)
    return f"{name} in {os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}" if frames else name  # noqa: PTH119


def _lost_loader_worker(error: BaseException) -> bool:
    if isinstance(error, RuntimeError) and str(error).startswith("DataLoader worker (pid"):
        return True
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    between_processes = bool(files) and os.sep + "multiprocessing" + os.sep in files[-1]
    waited = any(file.endswith(_LOADER) for file in files)
    return isinstance(error, (OSError, EOFError)) and between_processes and waited


def let_children_end() -> None:
    """Have the end of a child raise nothing from here on: a DataLoader's handler raises wherever the main thread is."""
    for _ in range(2):  # a signal that has come already is handled first, in `signal.signal`
        with contextlib.suppress(BaseException):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def exit_words(status: object) -> str:
    """Say how a script ended that gave this status, a number or a message, to ``sys.exit``."""
    if isinstance(status, int):
        return f"the script exited with status {status}"
    return f"the script exited with the message {' '.join(str(status).split())[:300]!r}"


def raised_by_compiler(error: BaseException) -> bool:
    """Return whether torch's compiler raised it, and not what it compiled."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and any(part in frame.tb_frame.f_code.co_filename for part in _COMPILER)


def ends_with() -> BaseException | None:
    """Return the exception that this process ends with, if any, asked while it ends.

    ``multiprocessing`` runs its finalizers while it unwinds, ``atexit`` comes after Python has shown the traceback.
    ``mp.spawn`` makes every exception ``SystemExit(1)``, and what was raised its context.
    """
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    while isinstance(error, SystemExit):
        error = error.__context__ if error.code else None
    return error


def _advice(error: BaseException) -> str:
    """Return what to do where a run differs from what the user does by hand; else empty."""
    for one in _chain(error):
        if isinstance(one, EOFError) and "reading a line" in str(one):
            return "A run has no standard input, so `input()` finds nothing: let the script take it as an argument."
        if isinstance(one, FileNotFoundError) and isinstance(one.filename, str) and one.filename[:1] != "/":
            return _advice_on_path(one.filename)
        if isinstance(one, ImportError) and "relative import" in str(one):
            return "The script is a module of a package: start it by its name, as in -m package.train."
        # One that the script met, to do without the module, says nothing.
        if isinstance(one, ModuleNotFoundError) and one.name and one in (error, error.__cause__):
            name = one.name.partition(".")[0]
            return f"Install {name} for {sys.executable}, or choose another interpreter with --python."
    return ""


def _lacks_launcher(error: BaseException) -> bool:
    """Return whether the script asks for the variables that a launcher sets, and was started without one."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    asks = bool(files) and files[-1].endswith(_RENDEZVOUS)
    return asks and isinstance(error, ValueError) and "RANK" not in os.environ


def _advice_on_setting(error: BaseException, setting: Configuration, control: BatchControl | None) -> str:
    kept = "" if control is None else _advice_on_size(error, setting.batch_size, control)
    if kept and not setting.plans:
        return kept
    ways = ["keep to sizes that it can take with --batch-sizes LOW:HIGH"] if setting.batch_size else []
    own = None if control is None or control.arrivals is None else control.arrivals.batch_size
    if control is not None and control.how == "loaders" and (option := control.option(own)):
        ways += [f"pass the batch size as `{option}` behind `--`"]
    ways += ["leave plans out with --engine eager"] if setting.plans else []
    ways += ["mend it for this setting"]
    usual = f"If the script trains by itself, it cannot take this setting: {', or '.join(ways)}."
    return f"{kept} {usual}".lstrip()


# An error about the size of a batch speaks of one of these.
_ABOUT_SIZES = re.compile(r"size|shape|dimension|batch", re.IGNORECASE)


def _advice_on_size(error: BaseException, batch_size: int | None, control: BatchControl) -> str:
    """Return what to do where the script's own batch size stands in an error at another one; else empty."""
    own, told = None if control.arrivals is None else control.arrivals.batch_size, _told(error)
    if own is None or own in (1, batch_size) or not isinstance(error, (RuntimeError, ValueError)):
        return ""
    advice = control.advice_to_pass(own)
    if not advice or not _ABOUT_SIZES.search(told) or not re.search(rf"(?<![\w.]){own}(?![\w.])", told):
        return ""
    return f"The error names {own}, your own batch size, so another part of the script seems to keep it. {advice}"


def _advice_on_path(relative: str) -> str:
    here = os.getcwd()  # noqa: PTH109
    looked = f"{relative!r} was looked up in {here}."
    if here.endswith("/.autotune/scratch"):
        return f"{looked} Leave out --scratch, or give the script an absolute path."
    return f"{looked} Start autotune in the folder that the script's paths start from, or give it an absolute path."


def _out_of_memory(error: BaseException) -> str | None:
    """Return the line of an exception that says that memory ran out; None if it is about something else."""
    lines = str(error).splitlines()
    found = next((line.strip() for line in lines if any(sign in line for sign in _OUT_OF_MEMORY)), None)
    if found is None and (isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"):
        return lines[0] if lines else type(error).__name__
    return found


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out, also where the script wrapped the exception that said so."""
    return any(_out_of_memory(one) is not None for one in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ if one.__cause__ is not None or one.__suppress_context__ else one.__context__
