"""Import of modules ahead of a script in a fork server, where nobody could tell afterwards when they were imported."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from ..records.facts import Preload
from .hidden_modules import REPLACED_BY_TORCH
from .import_state import ImportState
from .native_writers import watch_native_writers

# Functions of torch that the worker replaces for a run.
_REPLACED = (("torch", "compile"), ("torch.autograd", "backward"))
# Where scripts put functions of their own in the place of torch's.
_PATCHED = (
    "torch",
    "torch.amp",
    "torch.autograd",
    "torch.nn",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.optim",
    "torch.utils.checkpoint",
    "torch.utils.data",
)

# torch.cuda, 2.11 to 2.15
_BY_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
_ASKS_NVML = ("_raw_device_count_nvml", "_raw_device_uuid_nvml")


def preload(wanted: Preload, *, why_not_to_fork: Callable[[str], str] = lambda _: "") -> tuple[str, ...]:
    """Import modules after torch; gives all that came with them. ``why_not_to_fork`` is asked after each, by its name.

    Raises:
        PreloadError: one of them has left something else than modules; those before it have not.
    """
    watch_native_writers()  # what copies a writer's name has to copy the wrapped one's
    known = set(sys.modules)
    arguments, sys.argv = sys.argv, _Arguments(sys.argv)
    came: tuple[str, ...] = ()
    try:
        with _counting_gpus_by_nvml(), _Originals() as originals:
            before = _Traces()
            for name in wanted.modules:
                try:
                    importlib.import_module(name)
                except BaseException as error:
                    raise PreloadError(name, f"importing {name} failed: {type(error).__name__}: {error}") from error
                came = tuple(one for one in sys.modules if one not in known)
                if sys.argv.was_read:
                    raise PreloadError(name, f"{name} reads the script's arguments while it is imported")
                if found := originals.use(came):
                    raise PreloadError(name, found)
                if found := before.change():
                    raise PreloadError(name, f"importing {name} {found}")
                if found := why_not_to_fork(name):
                    raise PreloadError(name, found)
    finally:
        sys.argv = arguments
    return came


@contextlib.contextmanager
def _counting_gpus_by_nvml() -> Iterator[None]:
    """Have ``torch.cuda.is_available`` ask NVML: libraries ask as they are imported, and CUDA could not be forked then.

    Without NVML torch asks CUDA, and nothing is forked. NVML is closed again, as it has files of the GPUs open.
    """
    cuda: Any = sys.modules["torch.cuda"]
    asks = {name: getattr(cuda, name) for name in _ASKS_NVML if hasattr(cuda, name)}
    before = os.environ.get(_BY_NVML)
    os.environ[_BY_NVML] = "1"
    for name, ask in asks.items():
        setattr(cuda, name, _closing_nvml(ask))
    try:
        yield
    finally:
        for name, ask in asks.items():
            setattr(cuda, name, ask)
        if before is None:
            del os.environ[_BY_NVML]
        else:
            os.environ[_BY_NVML] = before


def _closing_nvml(ask: Callable[[], Any]) -> Callable[[], Any]:
    @functools.wraps(ask)
    def call() -> Any:
        try:
            return ask()
        finally:
            # NVML counts who has opened it: whoever else has keeps it.
            with contextlib.suppress(OSError):
                ctypes.CDLL("libnvidia-ml.so.1").nvmlShutdown()

    return call


class PreloadError(Exception):
    """A ``module`` that cannot be imported ahead."""

    def __init__(self, module: str, why: str) -> None:
        super().__init__(why)
        self.module = module


class TorchState:
    """The settings of torch that a script may have changed and its functions: an import may depend on both."""

    def __init__(self) -> None:
        self._state = self._now()
        self._functions = {name: _functions(name) for name in _PATCHED if name in sys.modules}

    def change(self) -> str:
        """Return what differs by now; empty if nothing does."""
        for name, value in self._now().items():
            if self._state[name] != value:
                return f"the script changes {name}"
        for name, functions in self._functions.items():
            members = vars(sys.modules[name])
            if any(id(members.get(key)) != number for key, number in functions.items()):
                return f"the script changes functions of {name}"
        return ""

    @staticmethod
    def _now() -> dict[str, object]:
        torch: Any = sys.modules["torch"]
        return {
            "torch's default type": torch.get_default_dtype(),
            # What torch.set_default_device keeps it in; asking for it imports parts of torch.
            "torch's default device": id(
                getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
            ),
            "whether torch keeps gradients": torch.is_grad_enabled(),
            "torch's determinism": torch.are_deterministic_algorithms_enabled(),
        }


def _functions(name: str) -> dict[str, int]:
    """The functions and classes of a module, by their ids. Torch adds some later, as they are asked for."""
    members = vars(sys.modules[name]).items()
    return {key: id(value) for key, value in members if callable(value) and (name, key) not in REPLACED_BY_TORCH}


class _Traces:
    def __init__(self) -> None:
        self._import_state = ImportState()
        self._torch_state = TorchState()
        self._others = self._now()

    def change(self) -> str:
        for name, value in self._now().items():
            if value != self._others[name] and self._others[name] is not None:
                return f"changes {name}"
        found = self._import_state.any_change() or self._torch_state.change()
        return found.replace("the script ", "")

    @staticmethod
    def _now() -> dict[str, object]:
        torch: Any = sys.modules["torch"]
        numpy: Any = sys.modules.get("numpy.random")
        drawn = None if numpy is None else (numpy.get_state()[1].tolist(), numpy.get_state()[2:])
        return {
            "the working directory": os.getcwd(),  # noqa: PTH109
            "open files": sorted(os.listdir("/proc/self/fd")),  # noqa: PTH208
            "signal handlers": [signal.getsignal(number) for number in sorted(signal.valid_signals())],
            "how exceptions are shown": (sys.excepthook, threading.excepthook, sys.gettrace(), sys.getprofile()),
            "Python's random numbers": random.getstate(),
            "torch's random numbers": torch.get_rng_state().tolist(),
            "NumPy's random numbers": drawn,
            "the standard streams": (sys.stdin, sys.stdout, sys.stderr),
        }


class _Arguments(list[str]):
    """``sys.argv`` that notes whether somebody looks."""

    was_read = False

    def __getitem__(self, at: Any) -> Any:
        self.was_read = True
        return super().__getitem__(at)

    def __iter__(self) -> Any:
        self.was_read = True
        return super().__iter__()

    def __len__(self) -> int:
        self.was_read = True
        return super().__len__()

    def __contains__(self, argument: object) -> bool:
        self.was_read = True
        return super().__contains__(argument)


class _Originals:
    """Functions of torch that the worker replaces later: no module may call or keep them before."""

    def __enter__(self) -> Self:
        self._called = ""
        self._originals = {place: getattr(sys.modules[place[0]], place[1]) for place in _REPLACED}
        self._stand_ins = {place: self._stand_in(place) for place in _REPLACED}
        for place, stand_in in self._stand_ins.items():
            setattr(sys.modules[place[0]], place[1], stand_in)
        return self

    def __exit__(self, *_: object) -> None:
        rules: Any = {}
        if "torch._dynamo.trace_rules" in sys.modules:
            rules = sys.modules["torch._dynamo.trace_rules"].get_torch_obj_rule_map()
        for place, original in self._originals.items():
            setattr(sys.modules[place[0]], place[1], original)
            # Dynamo has rules for functions by what they are when it is imported.
            if self._stand_ins[place] in rules:
                rules[original] = rules.pop(self._stand_ins[place])

    def use(self, names: Iterable[str]) -> str:
        """Say how modules call or keep a function that is replaced; empty if none does."""
        if self._called:
            return f"a module calls {self._called} while it is imported"
        kept = {id(one) for one in self._stand_ins.values()}
        for name in names:
            members = list(vars(sys.modules[name]).values()) if name in sys.modules else []
            if any(id(value) in kept for value in members):
                return f"{name} keeps a function of torch that is replaced for a run"
        return ""

    def _stand_in(self, place: tuple[str, str]) -> Callable[..., Any]:
        original = self._originals[place]

        @functools.wraps(original)
        def call(*arguments: Any, **keywords: Any) -> Any:
            self._called = ".".join(place)
            return original(*arguments, **keywords)

        return call
