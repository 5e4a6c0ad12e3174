"""Deferral of what a script prints and logs inside its model: it breaks no graph, and is written after the graph ran.

Dynamo breaks a graph at ``print``, at ``warnings.warn`` and at a logger's methods. Dynamo has an option to put such
calls off to the end of a graph. That option takes no loggers. It also loses the calls in functions that Dynamo inlines,
and their keywords (torch 2.11 to 2.15). So calls are put off here. A call whose arguments cannot be put off breaks the
graph.
"""

from __future__ import annotations

import builtins
import functools
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_LEVELS = ("debug", "info", "warning", "error", "critical")
_FUNCTIONS = (warnings.warn, logging.log, *(getattr(logging, name) for name in _LEVELS))
# Of a logger; each as one that writes once too, as transformers and others add it. They return nothing.
_WRITING_METHODS = {*_LEVELS, "log", "warn", "fatal", "warning_advice"}


def put_off_messages() -> None:
    """Have Dynamo put off messages in this thread from now on; nothing where its classes are not those known here."""
    from torch._dynamo import config

    if hasattr(config, "reorderable_logging_functions") and _dynamo_puts_off():
        # Of this thread alone, as all of torch's settings are since 2.13. A script may have its own ``print``, such as
        # one that writes on the first rank only.
        functions = {*config.reorderable_logging_functions, *_FUNCTIONS, builtins.print}
        config.reorderable_logging_functions = functions


@functools.cache
def _dynamo_puts_off() -> bool:
    """Have Dynamo's classes put off messages in this process; return whether the classes are those known here."""
    from torch._dynamo.variables import ConstantVariable, misc

    function, logger = (getattr(misc, name, None) for name in ("DebuggingVariable", "LoggingLoggerVariable"))
    if function is None or logger is None:
        return False
    call_function, call_method = function.call_function, logger.call_method

    @functools.wraps(call_function)
    def called(own: Any, tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        done = _put_off(tx, own.value, args, kwargs)
        return call_function(own, tx, args, kwargs) if done is None else done

    @functools.wraps(call_method)
    def method_called(own: Any, tx: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        method = getattr(own.value, name, None)
        done = None
        if name == "isEnabledFor" and len(args) == 1 and isinstance(args[0], ConstantVariable):
            done = ConstantVariable.create(own.value.isEnabledFor(args[0].as_python_constant()))
        elif callable(method) and name.removesuffix("_once") in _WRITING_METHODS:
            done = _put_off(tx, method, args, kwargs)
        return call_method(own, tx, name, args, kwargs) if done is None else done

    function.call_function, logger.call_method = called, method_called
    return True


def _put_off(tx: Any, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Put a call off to the end of the frame that is being traced; None where that cannot be."""
    from torch._dynamo.variables import ConstantVariable

    if tx.export or not all(isinstance(value, ConstantVariable) for value in kwargs.values()):
        return None
    try:
        given = [_given(tx, value) for value in args]
    except _CannotBePutOffError:
        return None
    constants = {name: value.as_python_constant() for name, value in kwargs.items()}
    # Without a frame of its own: what is logged and warned of names the frame that calls.
    message = _variable()(functools.partial(function, **constants))
    # Dynamo writes down those of the outermost frame only.
    tx.output.root_tx.debug_locals.append((message, given))
    return ConstantVariable.create(None)


class _CannotBePutOffError(Exception):
    """An argument is nothing that Dynamo can hand to a later call."""


def _given(tx: Any, value: Any) -> Any:
    """Return an argument to hand over later: tensors without their history, which would change the graph."""
    from torch._dynamo.variables import ConstantVariable, TensorVariable
    from torch._dynamo.variables.misc import StringFormatVariable

    if isinstance(value, ConstantVariable):
        return value
    if isinstance(value, TensorVariable) and tx.output.current_tracer is tx.output.root_tracer:
        return value.call_method(tx, "detach", [], {})
    if isinstance(value, StringFormatVariable):
        args = [_given(tx, each) for each in value.sym_args]
        kwargs = {name: _given(tx, each) for name, each in value.sym_kwargs.items()}
        return StringFormatVariable(value.format_string, args, kwargs)
    raise _CannotBePutOffError


@functools.cache
def _variable() -> type[Any]:
    from torch._dynamo.variables.base import VariableTracker

    class Message(VariableTracker):
        def __init__(self, write: Callable[..., Any]) -> None:
            super().__init__()
            self.write = write

        def reconstruct(self, codegen: Any) -> None:
            name = codegen.tx.output.install_global("autotune_message", self.write)
            codegen.append_output(codegen.create_load_global(name, add=True))

    return Message
