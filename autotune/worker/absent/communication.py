"""Communication over NCCL on a GPU that is not there: the process is alone, and sends nothing."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .recorder import CannotFollowError

# torch's backend for its own tests, which sends nothing.
_SENDS_NOTHING = "fake"
_NCCL, _GLOO = "nccl", "gloo"
_NCCL_VERSION = (2, 27, 5)
_MOST_ON_MACHINE = 8
# Where torchrun has its run's name, and the name where there is none.
_RUN, _ALONE = "TORCHELASTIC_RUN_ID", "followed-alone"
# How processes meet, which one process alone has no need for.
_MEETING = frozenset({"init_method", "store", "rank", "world_size", "timeout"})


def send_nothing(processes: int) -> None:
    """Have torch's backend that sends nothing stand for NCCL, which a torch for CPUs is built without.

    Of several ``processes``, this is the first: it has torchrun's variables, and the others have what it has.
    """
    distributed: Any = torch.distributed
    if not distributed.is_available():
        return
    library = distributed.distributed_c10d
    get_backend, make_first = library.get_backend, library.init_process_group
    backends = _Backends(processes)
    if processes > 1:
        os.environ.update(_variables(processes))
        _refuse_data_parallel()

    @functools.wraps(make_first)
    def make_first_group(backend: Any = None, *arguments: Any, **keywords: Any) -> Any:
        backend = backend or f"cpu:{_GLOO},cuda:{_NCCL}"
        if processes > 1:
            from torch.testing._internal.distributed.fake_pg import FakeStore

            given = inspect.signature(make_first).bind(backend, *arguments, **keywords).arguments
            keywords = {name: value for name, value in given.items() if name not in _MEETING}
            arguments, keywords = (), {**keywords, "store": FakeStore(), "rank": 0, "world_size": processes}
            backend = keywords.pop("backend")
        return backends.passed_to(make_first)(backend, *arguments, **keywords)

    functions = {
        "init_process_group": make_first_group,
        "new_group": backends.passed_to(library.new_group),
        "get_backend": lambda *given, **named: backends.asked(get_backend(*given, **named)),
        "is_nccl_available": lambda: True,
        "broadcast_object_list": lambda *_, **__: None,
        # Before torch 2.13 two of them have other names only.
        **{
            name: _as_others_have(getattr(library, name), *names, get_backend)
            for name, names in _ALIKE.items()
            if hasattr(library, name)
        },
    }
    for name, function in functions.items():
        for holder in (distributed, library, distributed.device_mesh):
            if hasattr(holder, name):
                setattr(holder, name, function)
    # torch asks whether a group is one of NCCL's, by a class that a torch for CPUs lacks.
    if not hasattr(library, "ProcessGroupNCCL"):
        library.ProcessGroupNCCL = type("ProcessGroupNCCL", (), {})
    nccl: Any = torch.cuda.nccl
    nccl.version = lambda: _NCCL_VERSION
    _reduce_nothing()


def on_machine(processes: int) -> int:
    """Return how many of several processes, each with a GPU, are on the machine of the first."""
    return min(processes, _MOST_ON_MACHINE)


def is_launched() -> bool:
    """Return whether torchrun has started this process; one that is followed alone has its variables, too."""
    return os.environ.get(_RUN, _ALONE) != _ALONE


def _variables(processes: int) -> dict[str, str]:
    """Return what torchrun tells the first of so many processes, with up to eight on a machine."""
    local = on_machine(processes)
    return {
        **dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"), "0"),
        **dict.fromkeys(("WORLD_SIZE", "ROLE_WORLD_SIZE"), str(processes)),
        "LOCAL_WORLD_SIZE": str(local),
        "GROUP_WORLD_SIZE": str(-(-processes // local)),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29500",
        _RUN: _ALONE,
    }


class _Backends:
    """Knows which backend stands for which: one that sends nothing for NCCL, and among several for Gloo, too."""

    def __init__(self, processes: int) -> None:
        self._replaced = (_NCCL,) if processes == 1 else (_NCCL, _GLOO, "mpi")
        self._asked: dict[str, str] = {}

    def passed_to(self, make_group: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function that makes a group, so that it takes the backends that send nothing."""

        @functools.wraps(make_group)
        def make(*arguments: Any, **keywords: Any) -> Any:
            keywords.pop("pg_options", None)  # of NCCL
            named = {name: self._instead(value) if name == "backend" else value for name, value in keywords.items()}
            return make_group(*map(self._instead, arguments), **named)

        return make

    def asked(self, backend: str) -> str:
        """Return the backend that a script has asked for where it got this one."""
        return self._asked.get(backend, backend)

    def _instead(self, backend: Any) -> Any:
        if not isinstance(backend, str) or not any(name in backend.lower() for name in self._replaced):
            return backend
        import torch.testing._internal.distributed.fake_pg  # noqa: F401  # registers the backend

        name = functools.reduce(lambda text, one: text.replace(one, _SENDS_NOTHING), self._replaced, backend.lower())
        if ":" not in name:
            name = f"cuda:{name}" if backend.lower() == _NCCL else f"cpu:{name},cuda:{name}"
        self._asked[name] = backend
        return name


# What gets what, by the names of torch's arguments, where a function gathers or scatters. Functions that reduce or
# broadcast tensors change nothing, as all processes have the same.
_ALIKE: Mapping[str, tuple[str, str]] = {
    "all_gather": ("tensor_list", "tensor"),
    "all_gather_into_tensor": ("output_tensor", "input_tensor"),
    "all_gather_single": ("output_tensor", "input_tensor"),
    "gather": ("gather_list", "tensor"),
    "reduce_scatter": ("output", "input_list"),
    "reduce_scatter_tensor": ("output", "input"),
    "reduce_scatter_single": ("output", "input"),
    "scatter": ("tensor", "scatter_list"),
    "all_to_all": ("output_tensor_list", "input_tensor_list"),
    "all_to_all_single": ("output", "input"),
    "all_gather_object": ("object_list", "obj"),
    "gather_object": ("object_gather_list", "obj"),
    "scatter_object_list": ("scatter_object_output_list", "scatter_object_input_list"),
}


def _as_others_have(
    function: Callable[..., Any], to: str, from_: str, get_backend: Callable[..., str]
) -> Callable[..., Any]:
    """Have a function do what it does over NCCL where all processes have the same; other groups are torch's."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        named = signature.bind(*arguments, **keywords).arguments
        if _SENDS_NOTHING not in get_backend(named.get("group")):
            return function(*arguments, **keywords)
        given = named.get(from_)
        if given is not None and from_.endswith("list"):
            given = given[0]
        _hand_over(given, named.get(to))
        return _Done() if named.get("async_op") else None

    return call


def _hand_over(given: Any, result: Any) -> None:
    """Give a result what each process has sent, or a list of results; None where another process sends or gets."""
    if given is None or result is None:
        return
    if isinstance(result, torch.Tensor):
        _copy(given, result)
        return
    for place, each in enumerate(result):
        if isinstance(each, torch.Tensor) and isinstance(given, torch.Tensor):
            _copy(given, each)
        else:
            result[place] = given


def _copy(given: torch.Tensor, result: torch.Tensor) -> None:
    """Copy values where a result is as large, so many times as large, or a part."""
    ours, theirs = result.numel(), given.numel()
    # Nothing may be allocated. Where that cannot be, values are not known.
    with torch.no_grad(), contextlib.suppress(RuntimeError):
        if theirs and ours % theirs == 0:
            result.view(-1, theirs).copy_(given.view(1, theirs))
        elif ours and theirs % ours == 0:
            result.copy_(given.view(-1, *result.shape)[0])


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


def _refuse_data_parallel() -> None:
    """Refuse to follow one process that trains on several GPUs."""
    wrapper = importlib.import_module("torch.nn.parallel.data_parallel").DataParallel
    make = wrapper.__init__

    @functools.wraps(make)
    def make_for_one(self: Any, *arguments: Any, **keywords: Any) -> None:
        make(self, *arguments, **keywords)
        if len(getattr(self, "device_ids", ())) > 1:
            raise CannotFollowError(
                "DataParallel trains one process on several GPUs, and a process for each is followed"
            )

    wrapper.__init__ = make_for_one


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
