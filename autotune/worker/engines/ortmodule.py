"""Engine ``ortmodule``: the roots run in ONNX Runtime, which finds and applies plans by its own Memory Optimizer.

A root is wrapped with ORTModule at its first training call, with fallback to PyTorch disabled. ORTModule reads level
and plans as it is made, from the environment and from a file in the form of ``mem_opt.json``, so each set of plans
takes a process of its own.
"""

from __future__ import annotations

import os
import re
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import nn

from ...records.choices import choice_settings
from ...records.configuration import Configuration
from ...records.outcome import Fallback, InvalidPlan, OutOfMemory
from ...records.plan import Plan, dump_mem_opt
from ..failure import failure_of
from ..plans.layers import Block
from .ortmodule_compat import import_ortmodule
from .ortmodule_plans import Builds, Opportunities, key_of
from .port import Engine, Problem

_BATCHES_ONLY = "--engine eager searches batch sizes only; --engine aot has plans of its own."
_LISTS_PLANS = "`autotune discover SCRIPT --engine ortmodule` lists the plans of a script."
# The line of a traceback that says what was raised.
_RAISED = re.compile(r"^\w+(?:\.\w+)*(?:Error|Exception): .+$", re.MULTILINE)


class Wrapped:
    """A root and the ORTModule around it, which holds it as long as the script's process lives.

    ``module``, an ORTModule, is None where it could not be made; the root then runs as the script wrote it, and
    ``failure`` says why. ``builds`` watches ONNX Runtime build its graphs; for ``own_seeds`` see ``Builds``.
    """

    def __init__(self, root: nn.Module, module: Any, failure: str = "", *, own_seeds: bool = False) -> None:
        self.root = root
        self.module = module
        self.failure = failure
        self._is_inside = False
        manager = None if module is None else module._torch_module._execution_manager(True)
        self.builds = None if manager is None else Builds(manager, own_seeds=own_seeds)

    def call(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the ORTModule in the place of the root."""
        # ORTModule calls the root to export it; one inside of a wrapper of the script's leads back here then.
        if self.module is None or self._is_inside:
            return self.root._call_impl(*arguments, **keywords)
        self._is_inside = True
        try:
            return self.module(*arguments, **keywords)
        except Exception as error:
            if self.opportunities is not None:
                raise
            if isinstance(failure_of(error, phase="forward", limit_bytes=None), OutOfMemory):
                raise
            # It could not be exported or built: the script goes on, and `problem` reports it.
            self.module, self.failure = None, f"ORTModule cannot run {type(self.root).__name__}: {_told(error)}"
            return self.root._call_impl(*arguments, **keywords)
        finally:
            self._is_inside = False

    @property
    def opportunities(self) -> Opportunities | None:
        """Return what the graph that runs is like; None where there is none."""
        return None if self.builds is None else self.builds.last


class OrtModuleEngine(Engine):
    """Runs roots in ONNX Runtime, with the current plans or level."""

    name = "ortmodule"

    def __init__(self) -> None:
        super().__init__()
        self.wrapped: list[Wrapped] = []
        self._config: str | None = None

    def use(self, configuration: Configuration) -> str | None:
        """Make a configuration current; not once a root was wrapped."""
        if self.wrapped:
            return "ORTModule builds its graphs anew for each set of plans"
        self.configuration = configuration
        self.active = configuration.engine == self.name
        return None

    def compile_root(self, root: nn.Module, *, block: Block | None = None) -> Callable[..., Any]:  # noqa: ARG002
        """Wrap a root with ORTModule; where that fails, give its own call, and `problem` reports it."""
        try:
            with _variables(self._settings()):
                ortmodule = import_ortmodule()
                # Else it prints its table of features at each start; ORTMODULE_LOG_LEVEL asks for it still.
                options = ortmodule.DebugOptions(log_level=ortmodule.LogLevel.ERROR)
                wrapped = Wrapped(root, ortmodule.ORTModule(root, options), own_seeds=self.proves)
        except Exception as error:
            wrapped = Wrapped(root, None, f"ORTModule cannot wrap {type(root).__name__}: {_told(error)}")
        self.wrapped.append(wrapped)
        return wrapped.call

    def _settings(self) -> dict[str, str]:
        """Return the environment variables that ORTModule reads as it is made."""
        settings = {
            "ORTMODULE_FALLBACK_POLICY": "FALLBACK_DISABLE",
            "ORTMODULE_MEMORY_OPT_LEVEL": str(self.configuration.level),
        }
        settings |= choice_settings(self.name, self.configuration.choices, os.environ)
        if self._wanted():
            settings["ORTMODULE_MEMORY_OPT_CONFIG"] = self._plans_file()
        return settings

    def _wanted(self) -> tuple[Plan, ...]:
        # Of a count of 0, ONNX Runtime 1.19 makes all but one occurrence.
        return tuple(plan for plan in self.configuration.plans if plan.strategy and plan.count)

    def _plans_file(self) -> str:
        """Write the current plans to a file; it is read at every build, so it stays as long as the engine does."""
        if self._config is None:
            number, self._config = tempfile.mkstemp(prefix="mem_opt-", suffix=".json")
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(dump_mem_opt(self._wanted()))
            weakref.finalize(self, _remove, self._config, os.getpid())
        return self._config

    # -- checking

    @property
    def num_compiled(self) -> int:
        """Return how many graphs ONNX Runtime has built."""
        return sum(wrapped.builds.number for wrapped in self.wrapped if wrapped.builds is not None)

    @property
    def is_compiled(self) -> bool:
        """Always: ONNX Runtime fuses operators, and in another order where its Memory Optimizer is on."""
        return True

    @property
    def opportunities(self) -> list[Opportunities]:
        """Return what the graphs that run are like."""
        return [wrapped.opportunities for wrapped in self.wrapped if wrapped.opportunities is not None]

    def problem(self) -> Problem | None:
        """Say why what ran is not the current configuration, or None; to be asked after a training step."""
        if not self.active:
            return None
        failure = self.refusal or next((wrapped.failure for wrapped in self.wrapped if wrapped.failure), "")
        if failure:
            return Fallback(failure, advice=_BATCHES_ONLY)
        if not self.opportunities:
            why = f" ({'; '.join(self.without_plans)})" if self.without_plans else ""
            return Fallback(f"no root ran in ONNX Runtime{why}", advice=_BATCHES_ONLY)
        level = self.configuration.level
        if level and self.configuration.plans:
            cause = f"ONNX Runtime reads plans at level 0 only, and level {level} was asked for with plans"
            return InvalidPlan(cause, advice=_LISTS_PLANS)
        if level and not any(found.applied for found in self.opportunities):
            return Fallback(f"ONNX Runtime found no layers to recompute at level {level}", advice=_LISTS_PLANS)
        return None if level else self._plan_problem()

    def occurrences(self) -> Counter[tuple[str, int]]:
        """Return how often ONNX Runtime found each cluster, by its id and the strategy that applies to it."""
        return sum((found.frequencies for found in self.opportunities), Counter())

    def _plan_problem(self) -> Problem | None:
        """Look up the plans, as ONNX Runtime passes over those that it does not know; then say which are not on."""
        wanted = {key_of(plan): plan for plan in self._wanted()}
        known = {key for found in self.opportunities for key in found.known}
        unknown = [key for key in wanted if key not in known]
        if unknown:
            has = ", ".join(sorted(map(_written, known))) or "none"
            cause = f"the script has no cluster {', '.join(map(_written, unknown))}; it has {has}"
            return InvalidPlan(cause, advice=_LISTS_PLANS)
        frequencies = self.occurrences()
        parts = [str(plan) for key, plan in wanted.items() if 0 < plan.count < frequencies[key]]
        if parts:
            cause = f"ONNX Runtime applies a plan to all occurrences, whatever its count: {' '.join(parts)}"
            return InvalidPlan(cause, advice="Give -1 as the count, or leave the plan out.")
        applied = {key for found in self.opportunities for key in found.applied}
        off = [str(plan) for key, plan in wanted.items() if key not in applied]
        if off:
            cause = f"ONNX Runtime did not apply {' '.join(off)}"
            return Fallback(cause, advice="Its other plans can be searched; together some exclude each other.")
        extra = applied - wanted.keys()
        if extra:
            cause = f"ONNX Runtime applied plans that were not asked for: {' '.join(map(_written, sorted(extra)))}"
            return Fallback(cause, advice="Is ORTMODULE_MEMORY_OPT_CONFIG set by the script itself?")
        return None


def _remove(path: str, process: int) -> None:
    # Not in a process that was forked from it.
    if os.getpid() == process:
        with suppress(OSError):
            Path(path).unlink()


def _written(key: tuple[str, int]) -> str:
    return f"{key[0]}:{key[1]}"


@contextmanager
def _variables(settings: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for as long as ORTModule reads them; the script's own are left as they were."""
    names = {*settings, "ORTMODULE_MEMORY_OPT_CONFIG"}
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


def _told(error: BaseException) -> str:
    """Return what went wrong: ORTModule's own exceptions hold a whole traceback, those behind them a sentence."""
    while error.__cause__ is not None:
        error = error.__cause__
    raised = _RAISED.findall(str(error))
    return (raised[-1] if raised else f"{type(error).__name__}: {error}").strip()[:500]
