"""The part of a CUDA device that torch's C++ asks for: a device guard, and answers about the accelerator.

Autograd, autocast and device checks look a device up in two tables of virtual functions. Both are copied from tables
that this torch has, the guard's from device ``meta``, and a few entries are set to code that returns one number. Which
entries is read in the headers that the installed torch comes with, so that no version is written down here.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import re
from pathlib import Path
from typing import Any

import torch

_META, _CUDA = 14, 1  # c10/core/DeviceType.h
_GUARDS = "_ZN3c104impl26device_guard_impl_registryE"  # c10/core/impl/DeviceGuardImplInterface.h
_HOOKS = "_ZN2at6detail12getCUDAHooksEv"  # ATen/detail/CUDAHooksInterface.h
# A table is copied whole, and somewhat more: it lies in a library's data, with others behind it.
_MOST_ENTRIES = 64
_BEFORE_ENTRIES = 16  # bytes: what C++ keeps of the class in front of a table
# Machine code of `return (1, 0)` and `return (0, 0)`. As a Device that is cuda:0, as a Stream cuda:0's default stream.
_CODE = {"x86_64": ("b80100000031d2c3", "31c031d2c3")}
_ONE_OF_GUARD = ("type", "exchangeDevice", "getDevice", "getStream", "getDefaultStream", "exchangeStream")
_ONE_OF_HOOKS = ("isBuilt", "isAvailable", "hasPrimaryContext", "deviceCount")
_ZERO_OF_HOOKS = ("init", "setCurrentDevice", "getCurrentDevice", "exchangeDevice", "maybeExchangeDevice")
_SIZE_OF_CODE = 16


class CannotPretendError(RuntimeError):
    """This torch, or this machine, cannot be made to take CUDA for a device that it has."""


def pretend() -> None:
    """Make torch's C++ take ``cuda:0`` for a device that it has; nothing is ever computed or allocated there.

    Raises:
        CannotPretendError: with the reason, before anything was changed.
    """
    one, zero = _code()
    folder = Path(torch.__file__).parent
    try:
        libraries = [ctypes.CDLL(str(folder / "lib" / name)) for name in ("libc10.so", "libtorch_cpu.so")]
        guards = (ctypes.c_void_p * (_META + 1)).in_dll(libraries[0], _GUARDS)
        get_hooks = libraries[1][_HOOKS]
    except (OSError, ValueError, AttributeError) as error:
        raise CannotPretendError(f"torch {torch.__version__} has no table of devices: {error}") from error
    guard_names = _virtual_functions(folder / "include/c10/core/impl/DeviceGuardImplInterface.h", _ONE_OF_GUARD)
    hook_names = _virtual_functions(
        folder / "include/ATen/detail/AcceleratorHooksInterface.h", (*_ONE_OF_HOOKS, *_ZERO_OF_HOOKS)
    )
    meta = guards[_META]
    if not meta:
        raise CannotPretendError(f"torch {torch.__version__} has no guard of device meta to copy")
    guard = _copy_of_table(meta)
    asked = ctypes.CFUNCTYPE(ctypes.c_uint16, ctypes.c_void_p)
    told = [asked(guard[_place(guard_names, name)])(meta) & 0xFF for name in ("type", "getDevice")]
    if told != [_META, _META]:
        raise CannotPretendError(f"torch {torch.__version__} has its guards in another form than its headers say")
    for name in _ONE_OF_GUARD:
        guard[_place(guard_names, name)] = one
    instance = (ctypes.c_void_p * 4)(ctypes.addressof(guard) + _BEFORE_ENTRIES)
    get_hooks.restype = ctypes.c_void_p
    hooks = get_hooks()
    answers = _copy_of_table(hooks)
    if asked(answers[_place(hook_names, "isBuilt")])(hooks) & 0xFF not in (0, 1):
        raise CannotPretendError(f"torch {torch.__version__} has its hooks in another form than its headers say")
    for names, code in ((_ONE_OF_HOOKS, one), (_ZERO_OF_HOOKS, zero)):
        for name in names:
            answers[_place(hook_names, name)] = code
    _keep_whole(folder.parent / "torchgen/packaged/ATen/native/native_functions.yaml")
    guards[_CUDA] = ctypes.addressof(instance)
    ctypes.c_void_p.from_address(hooks).value = ctypes.addressof(answers) + _BEFORE_ENTRIES
    for each in (libraries, guard, instance, answers):
        _keep(each)


def _keep_whole(functions: Path) -> None:
    """Give CUDA a kernel for operators that have one there, and that autograd takes apart where they have none."""
    try:
        text = functions.read_text(encoding="utf-8")
    except OSError as error:
        raise CannotPretendError(f"torch {torch.__version__} came without {functions.name}") from error
    library = torch.library.Library("aten", "IMPL", "CUDA")
    for function in re.split(r"^- func: ", text, flags=re.MULTILINE)[1:]:
        name = function.partition("(")[0]
        has_kernel = "structured_delegate:" in function or re.search(r"^    [\w, ]*\bCUDA\b.*:", function, re.MULTILINE)
        if "CompositeImplicitAutograd:" in function and has_kernel and not _has_kernel_on_cuda(name):
            library.impl(name, _compute_nothing)
    _keep(library)


def _keep(thing: object) -> None:
    """Keep memory that torch points to: its threads and destructors may ask it after Python has cleared all modules."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _has_kernel_on_cuda(name: str) -> bool:
    native: Any = torch._C
    return bool(native._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CUDA"))


def _compute_nothing(*_: Any, **__: Any) -> None:
    raise RuntimeError("a tensor on a GPU that is not there is no fake tensor")


def _code() -> tuple[int, int]:
    """Put the two functions into memory, and return their addresses."""
    code = _CODE.get(platform.machine())
    if platform.system() != "Linux" or code is None:
        known = " and ".join(_CODE)
        raise CannotPretendError(
            f"a GPU that is not there is for Linux on {known}, and this is {platform.system()} on {platform.machine()}"
        )
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError as error:
        raise CannotPretendError(f"this system lets no process write code of its own: {error}") from error
    page.write(b"".join(bytes.fromhex(each).ljust(_SIZE_OF_CODE, b"\0") for each in code))
    _keep(page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return address, address + _SIZE_OF_CODE


def _virtual_functions(header: Path, needed: tuple[str, ...]) -> list[str]:
    """Read the virtual functions of the class in a header, in the order of its table."""
    try:
        text = header.read_text(encoding="utf-8")
    except OSError as error:
        raise CannotPretendError(f"torch {torch.__version__} came without {header.name}") from error
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    names = []
    for declared in re.finditer(r"\bvirtual\b([^{;=]*)", text):
        name = re.search(r"(~?\w+)\s*\(", declared[1])
        if name is not None:
            # A destructor has two entries.
            names += [name[1]] * (2 if name[1].startswith("~") else 1)
    missing = [name for name in needed if names.count(name) != 1]
    if missing:
        raise CannotPretendError(f"{header.name} of torch {torch.__version__} does not declare {', '.join(missing)}")
    return names


def _copy_of_table(instance: int) -> Any:
    table = ctypes.c_void_p.from_address(instance).value
    assert table is not None
    entries = ctypes.c_void_p * (_MOST_ENTRIES + _BEFORE_ENTRIES // 8)
    return entries(*entries.from_address(table - _BEFORE_ENTRIES))


def _place(names: list[str], name: str) -> int:
    return _BEFORE_ENTRIES // 8 + names.index(name)
