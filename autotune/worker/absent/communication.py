"""Communication over NCCL on a GPU that is not there: the process is alone, and sends nothing."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch

# torch's backend for its own tests, which sends nothing.
_SENDS_NOTHING = "fake"
_NCCL = "nccl"


def send_nothing() -> None:
    """Have torch's backend that sends nothing stand for NCCL, which a torch for CPUs is built without."""
    distributed: Any = torch.distributed
    if not distributed.is_available():
        return
    library = distributed.distributed_c10d
    for name in ("init_process_group", "new_group"):
        _patch(distributed, library, name, _without_nccl(getattr(library, name)))
    get_backend = library.get_backend
    _patch(distributed, library, "get_backend", lambda *given, **named: _named(get_backend(*given, **named)))
    _patch(distributed, library, "is_nccl_available", lambda: True)
    _reduce_nothing()


def _patch(package: Any, module: Any, name: str, function: Any) -> None:
    for holder in (package, module):
        setattr(holder, name, function)


def _without_nccl(make_group: Any) -> Any:
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


class _LogsNothing:
    def __getattr__(self, name: str) -> Any:
        del name
        return lambda *_, **__: None


def _done(tensor: torch.Tensor) -> Any:
    future: Any = torch.futures.Future()
    future.set_result(tensor)
    return future


def _reduce_nothing() -> None:
    """Have DistributedDataParallel keep its buckets, and take each as it is for the sum over all processes."""
    distributed: Any = importlib.import_module("torch.nn.parallel.distributed")
    wrapper = distributed.DistributedDataParallel
    make = wrapper.__init__

    @functools.wraps(make)
    def make_alone(self: Any, *arguments: Any, **keywords: Any) -> None:
        make(self, *arguments, **keywords)
        # A function with annotations would have to name torch's class for a bucket.
        register(self, None, lambda _, bucket: _done(bucket.buffer()))
        # torch's own logs the time of each step, by a timer that a torch for CPUs lacks.
        self._times_steps, self.logger = self.logger, _LogsNothing()

    register = wrapper.register_comm_hook
    wrapper.__init__ = make_alone
    wrapper.register_comm_hook = lambda *_: None
    # It compares tensors that were sent.
    distributed._verify_param_shape_across_processes = lambda *_: True
