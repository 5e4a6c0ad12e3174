"""Communication over NCCL on a GPU that is not there: the process is alone, and sends nothing."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

# torch's backend for its own tests, which sends nothing.
_SENDS_NOTHING = "fake"
_NCCL = "nccl"
_NCCL_VERSION = (2, 27, 5)


def send_nothing() -> None:
    """Have torch's backend that sends nothing stand for NCCL, which a torch for CPUs is built without."""
    distributed: Any = torch.distributed
    if not distributed.is_available():
        return
    library = distributed.distributed_c10d
    get_backend, make_first = library.get_backend, library.init_process_group

    @functools.wraps(make_first)
    def make_first_group(backend: Any = None, *arguments: Any, **keywords: Any) -> Any:
        return _without_nccl(make_first)(backend or f"cpu:gloo,cuda:{_NCCL}", *arguments, **keywords)

    functions = {
        "init_process_group": make_first_group,
        "new_group": _without_nccl(library.new_group),
        "get_backend": lambda *given, **named: _named(get_backend(*given, **named)),
        "is_nccl_available": lambda: True,
        **{name: _done_alone(getattr(library, name), *names) for name, names in _ALONE.items()},
    }
    for name, function in functions.items():
        for holder in (distributed, library, distributed.device_mesh):
            if hasattr(holder, name):
                setattr(holder, name, function)
    nccl: Any = torch.cuda.nccl
    nccl.version = lambda: _NCCL_VERSION
    _reduce_nothing()


def _without_nccl(make_group: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make_group)
    def make(*arguments: Any, **keywords: Any) -> Any:
        keywords.pop("pg_options", None)  # of NCCL
        named = {name: _without(value) if name == "backend" else value for name, value in keywords.items()}
        return make_group(*map(_without, arguments), **named)

    return make


def _without(backend: Any) -> Any:
    if not isinstance(backend, str) or _NCCL not in backend.lower():
        return backend
    import torch.testing._internal.distributed.fake_pg  # noqa: F401  # registers the backend

    name = backend.lower().replace(_NCCL, _SENDS_NOTHING)
    return name if ":" in name else f"cuda:{name}"


def _named(backend: str) -> str:
    return _NCCL if backend == f"cuda:{_SENDS_NOTHING}" else backend.replace(_SENDS_NOTHING, _NCCL)


# What gets what, by the names of torch's arguments, where a function gathers or scatters in a group of one process.
# Functions that reduce or broadcast tensors change nothing there.
_ALONE: Mapping[str, tuple[str, str]] = {
    "all_gather": ("tensor_list", "tensor"),
    "all_gather_into_tensor": ("output_tensor", "input_tensor"),
    "gather": ("gather_list", "tensor"),
    "reduce_scatter": ("output", "input_list"),
    "reduce_scatter_tensor": ("output", "input"),
    "scatter": ("tensor", "scatter_list"),
    "all_to_all": ("output_tensor_list", "input_tensor_list"),
    "all_to_all_single": ("output", "input"),
    "all_gather_object": ("object_list", "obj"),
    "gather_object": ("object_gather_list", "obj"),
    "scatter_object_list": ("scatter_object_output_list", "scatter_object_input_list"),
    "broadcast_object_list": ("object_list", "object_list"),
}


def _done_alone(function: Callable[..., Any], to: str, from_: str) -> Callable[..., Any]:
    """Have a function do what it does in a group of one over NCCL; other groups are torch's."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        named = signature.bind(*arguments, **keywords).arguments
        group = named.get("group")
        if _NCCL not in torch.distributed.get_backend(group) or torch.distributed.get_world_size(group) > 1:
            return function(*arguments, **keywords)
        result, given = named[to], named[from_]
        if from_.endswith("list"):
            given = given[0]
        if not to.endswith("list"):
            _copy(result, given)
        elif isinstance(result[0], torch.Tensor) and isinstance(given, torch.Tensor):
            _copy(result[0], given)
        else:
            result[0] = given
        return _Done() if named.get("async_op") else None

    return call


def _copy(result: torch.Tensor, given: torch.Tensor) -> None:
    with torch.no_grad():
        result.copy_(given.view(result.shape))


class _Done:
    """Stands for communication that has ended."""

    def wait(self, timeout: Any = None) -> bool:
        """Return that it has ended."""
        del timeout
        return True

    def is_completed(self) -> bool:
        """Return that it has ended."""
        return True

    is_success = is_completed


class _LogsNothing:
    def __getattr__(self, name: str) -> Any:
        del name
        return lambda *_, **__: None


def _future(tensor: torch.Tensor) -> Any:
    future: Any = torch.futures.Future()
    future.set_result(tensor)
    return future


def _reduce_nothing() -> None:
    """Have DistributedDataParallel keep its buckets, and take each as it is for the sum over all processes."""
    distributed: Any = importlib.import_module("torch.nn.parallel.distributed")
    wrapper = distributed.DistributedDataParallel
    make, register = wrapper.__init__, wrapper.register_comm_hook

    @functools.wraps(make)
    def make_alone(self: Any, *arguments: Any, **keywords: Any) -> None:
        make(self, *arguments, **keywords)
        # A function with annotations would have to name torch's class for a bucket.
        register(self, None, lambda _, bucket: _future(bucket.buffer()))
        # torch's own logs the time of each step, by a timer that a torch for CPUs lacks.
        self._times_steps, self.logger = self.logger, _LogsNothing()

    wrapper.__init__ = make_alone
    wrapper.register_comm_hook = lambda *_, **__: None
    # It compares tensors that were sent.
    distributed._verify_param_shape_across_processes = lambda *_, **__: True
