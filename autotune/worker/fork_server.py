"""The fork server: a worker that imports torch once, touches no device, and forks the main process of each run.

It is started as ``python -P worker/__main__.py --fork-server FD LOGS``, with the environment that runs get and in a
session of its own. ``LOGS`` is where its output goes, ``FD`` is a socket of the kind that keeps messages apart; each
message is an object in JSON:

1. The server says ``{"refused": reason}``: an empty reason means that it is ready, any other that it ends now.
2. The controller asks for a run: ``{"directory": the run's folder, "mark": [variable, its value]}``. Before the first
   one it may say ``{"preload": Preload, "variables": those of the caches}``; the server imports these modules and says
   ``{"preloaded": reason, "module": name}``. Where there is a reason not to fork from what it has become, it names the
   module whose import has made it that, and ends.
3. The server answers ``{"pid": ...}``. The forked process makes a session and goes on as the bootstrap does.
4. When that has ended, the server says ``{"status": ...}``, a return code as ``subprocess`` has them. The process stays
   a zombie, so that its number is nobody else's, until the controller says ``{"reap": true}``; then from 2.

When the controller's end is closed, the server ends, and with it (``PR_SET_PDEATHSIG``) the run.

A script sees the same in a forked process as in a fresh one, with these exceptions: other modules that torch imports
are in ``sys.modules`` already, ``/proc/self/cmdline``, and the order of sets of strings, which is the same in all runs
of a server. Of modules that were imported ahead (``preloading.py``, ``hidden_modules.py``), importing one brings all.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import importlib
import json
import mmap
import os
import select
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..records.codec import from_json
from ..records.facts import Preload

if TYPE_CHECKING:
    from .hidden_modules import Hidden


_DEVICES = ("/dev/nvidia", "/dev/dri/", "/dev/kfd")
_THREADS_END_S = 1.0


def serve(descriptor: int) -> Hidden:
    """Serve until the controller hangs up; returns in each forked process, whose ``sys.argv`` names its run."""
    control = socket.socket(fileno=descriptor)
    reason = _import_torch()
    sys.stdout.flush()
    _tell(control, refused=reason)
    if reason:
        sys.stderr.write(f"autotune fork server: {reason}\n")
        sys.exit(0)
    from .hidden_modules import Hidden

    preload, others, pages = Preload(), tuple[str, ...](), _file_pages()
    while True:
        order = _receive(control)
        if "preload" in order:
            preload = from_json(Preload, order["preload"])
            os.environ.update(order["variables"])  # as each run does before its script begins
            others = _import_ahead(preload, control)
            pages = _file_pages()
            continue
        pid = os.fork()
        if pid == 0:
            control.close()
            _become_run(order, pages)
            return Hidden(preload, others)
        _tell(control, pid=pid)
        _tell(control, status=_status(control, pid))
        _receive(control)
        os.waitpid(pid, 0)


def _import_torch() -> str:
    """Import torch and the conductor; gives the reason why nothing may be forked from here."""
    try:
        os.close(os.pidfd_open(os.getpid()))
        _file_pages()
    except (AttributeError, OSError) as error:
        return f"this system cannot do what a fork server needs: {error}"
    try:
        importlib.import_module("torch")
    except Exception as error:
        return f"importing torch failed: {type(error).__name__}: {error}"
    importlib.import_module("..conductor", __name__)
    return _why_not_to_fork("torch")


def _import_ahead(preload: Preload, control: socket.socket) -> tuple[str, ...]:
    """Import modules and say so; gives all that came with them, and ends where nothing may be forked any more."""
    from .preloading import PreloadError
    from .preloading import preload as import_ahead

    try:
        others = import_ahead(preload, why_not_to_fork=_why_not_to_fork)
    except PreloadError as error:
        sys.stdout.flush()
        _tell(control, preloaded=str(error), module=error.module)
        sys.exit(0)
    sys.stdout.flush()
    _tell(control, preloaded="", module="")
    return others


def _why_not_to_fork(imported: str) -> str:
    torch: Any = sys.modules["torch"]
    if torch.cuda.is_initialized() or (device := _open_device()):
        return f"importing {imported} has opened {device or 'a GPU'}"
    return _rehearse(torch, imported)


def _open_device() -> str:
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if (target := os.readlink(link)).startswith(_DEVICES):  # noqa: PTH115
                return target
    return ""


def _rehearse(torch: Any, imported: str) -> str:
    """Fork once: threads that know of forks (OpenBLAS's) end before one, and CUDA says whether it was touched."""
    pid = os.fork()
    if pid == 0:
        os._exit(int(torch.cuda._is_in_bad_fork()))
    if os.waitpid(pid, 0)[1]:
        return (
            f"importing {imported} has counted the GPUs, and a process that was forked after that can use none of them"
        )
    # A thread that was joined is still listed for a moment.
    deadline_s = time.monotonic() + _THREADS_END_S
    while (threads := len(os.listdir("/proc/self/task"))) > 1 and time.monotonic() < deadline_s:  # noqa: PTH208
        time.sleep(0.005)
    return f"importing {imported} has started {threads - 1} threads, which a fork leaves behind" if threads > 1 else ""


def _become_run(order: dict[str, Any], pages: list[int]) -> None:
    """Become what a fresh process of the run would be at this point, but for modules that are there."""
    os.setsid()
    name, value = order["mark"]
    os.environ[name] = value
    for number, log in ((1, "stdout.log"), (2, "stderr.log")):
        descriptor = os.open(Path(order["directory"]) / log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.dup2(descriptor, number)
        os.close(descriptor)
    for arguments in (sys.argv, sys.orig_argv):
        arguments[-3:] = [str(order["directory"])]  # in the place of --fork-server FD LOGS
    importlib.invalidate_caches()
    # As in every new process; os.fork() has done it for Python's own generator.
    sys.modules["torch"].default_generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    for page in pages:
        ctypes.string_at(page, 1)


def _file_pages() -> list[int]:
    """Return the addresses of the pages of files (libraries, mostly) in this process's resident set.

    A fresh process has them in its resident set too. A fork drops some, so that the forked process has to touch them.
    """
    found: list[int] = []
    with Path("/proc/self/maps").open() as maps, Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
        for line in maps:
            addresses, permissions, _, _, inode, *_ = line.split()
            if inode == "0" or "r" not in permissions:
                continue
            begin, end = (int(one, 16) for one in addresses.split("-"))
            pagemap.seek(begin // mmap.PAGESIZE * 8)
            entries = array.array("Q", pagemap.read((end - begin) // mmap.PAGESIZE * 8))
            # The kernel's admin guide, mm/pagemap: bit 63 is "present", bit 61 "of a file".
            pages = (begin + number * mmap.PAGESIZE for number, entry in enumerate(entries) if entry >> 61 & 0b101 == 5)
            found += pages
    return found


def _status(control: socket.socket, pid: int) -> int:
    """Wait for the end of a run without reaping it; ends this process if the controller hangs up first."""
    descriptor = os.pidfd_open(pid)
    readable, _, _ = select.select([descriptor, control.fileno()], [], [])
    os.close(descriptor)
    if control.fileno() in readable:
        os._exit(1)  # a run is there still
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _receive(control: socket.socket) -> dict[str, Any]:
    """Return the controller's next message; ends this process if there is none to come."""
    try:
        data = control.recv(2**16)
    except ConnectionResetError:  # it has hung up without having read all
        data = b""
    if not data:
        os._exit(0)
    message: dict[str, Any] = json.loads(data)
    return message


def _tell(control: socket.socket, **message: Any) -> None:
    try:
        control.send(json.dumps(message).encode())
    except ConnectionError:
        os._exit(1)  # a run may be there
