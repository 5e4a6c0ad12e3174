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

from ...records.chosen import choice_settings
from ...records.configuration import Configuration
from ...records.outcome import OutOfMemory
from ...records.plan import Plan, dump_mem_opt
from ..failure import failure_of
from .ortmodule_compat import import_ortmodule
from .ortmodule_plans import Builds, Opportunities
from .port import Engine, Problem

_BATCHES_ONLY = "--engine eager searches batch sizes only; --engine aot has plans of its own."
_LISTS_PLANS = "`autotune discover SCRIPT --engine ortmodule` lists the plans of a script."
# The line of a traceback that says what was raised.
_RAISED = re.compile(r"^\w+(?:\.\w+)*(?:Error|Exception): .+$", re.MULTILINE)


class Wrapped:
    """A root and the ORTModule around it, which holds it as long as the script's process lives.

    ``module``, an ORTModule, is None where it could not be made; the root then runs as the script wrote it, and
    ``failure`` says why. ``builds`` watches ONNX Runtime build its graphs; with ``own_seeds`` each Dropout of theirs
    draws its masks by itself.
    """

    def __init__(self, root: nn.Module, module: Any, failure: str = "", *, own_seeds: bool = False) -> None:
        self.root = root
        self.module = module
        self.failure = failure
        self._is_inside = False
        manager = None if module is None else module._torch_module._execution_manager(True)
        self.builds = None if manager is None else Builds(manager, own_seeds=own_seeds)

    def call(self, *arguments: Any, **keywords: Any) -> Any:
        """In the place of the root's own call."""
        # ORTModule calls the root to export it; one inside of a wrapper of the script's leads back here then.
        if self.module is None or self._is_inside:
            return self.root._call_impl(*arguments, **keywords)
        self._is_inside = True
        try:
            return self.module(*arguments, **keywords)
        except Exception as error:
            if self.opportunities is not None or _is_out_of_memory(error):
                raise
            # It could not be exported or built: the script goes on, and `problem` reports it.
            self.module, self.failure = None, f"ORTModule cannot run {_name(self.root)}: {_told(error)}"
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

    def compile_root(self, root: nn.Module, *, block: str = "") -> Callable[..., Any]:  # noqa: ARG002
        """Wrap a root with ORTModule; where that fails, give its own call, and `problem` reports it."""
        try:
            with _variables(self._settings()):
                ortmodule = import_ortmodule()
                # Else it prints its table of features at each start; ORTMODULE_LOG_LEVEL asks for it still.
                options = ortmodule.DebugOptions(log_level=ortmodule.LogLevel.ERROR)
                wrapped = Wrapped(root, ortmodule.ORTModule(root, options), own_seeds=self.proves)
        except Exception as error:
            wrapped = Wrapped(root, None, f"ORTModule cannot wrap {_name(root)}: {_told(error)}")
        self.wrapped.append(wrapped)
        return wrapped.call

    def _settings(self) -> dict[str, str]:
        """The environment variables that ORTModule reads as it is made."""
        settings = {
            "ORTMODULE_FALLBACK_POLICY": "FALLBACK_DISABLE",
            "ORTMODULE_MEMORY_OPT_LEVEL": str(self.configuration.level),
        }
        settings |= choice_settings(self.name, self.configuration.choices, os.environ)
        if self._wanted():
            settings["ORTMODULE_MEMORY_OPT_CONFIG"] = self._plans_file()
        return settings

    def _wanted(self) -> tuple[Plan, ...]:
        """The plans that recompute something. A count of 0 is none: ONNX Runtime 1.19 makes all but one of it."""
        return tuple(plan for plan in self.configuration.plans if plan.strategy and plan.count)

    def _plans_file(self) -> str:
        """The current plans as a file; read again at every build, so it stays as long as the engine does."""
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

    def raised(self, error: BaseException) -> bool:
        """Never: what ORTModule cannot export runs as the script wrote it."""
        del error
        return False

    def problem(self) -> Problem | None:
        """Say why what ran is not the current configuration, or None; to be asked after a training step."""
        if not self.active:
            return None
        failure = self._refusal or next((wrapped.failure for wrapped in self.wrapped if wrapped.failure), "")
        if failure:
            return Problem("fallback", failure, _BATCHES_ONLY)
        ran = [wrapped.opportunities for wrapped in self.wrapped if wrapped.opportunities is not None]
        if not ran:
            foreign = f" ({'; '.join(self._foreign)})" if self._foreign else ""
            return Problem("fallback", f"no root ran in ONNX Runtime{foreign}", _BATCHES_ONLY)
        if self.configuration.level:
            return self._level_problem(ran)
        return self._plan_problem(ran)

    def occurrences(self) -> Counter[tuple[str, int]]:
        """Return how often ONNX Runtime found each cluster, by its id and the strategy that applies to it."""
        ran = [wrapped.opportunities for wrapped in self.wrapped if wrapped.opportunities is not None]
        return sum((found.frequencies for found in ran), Counter())

    def _level_problem(self, ran: list[Opportunities]) -> Problem | None:
        level = self.configuration.level
        if self.configuration.plans:
            cause = f"ONNX Runtime reads plans at level 0 only, and level {level} was asked for with plans"
            return Problem("invalid_plan", cause, _LISTS_PLANS)
        if not any(found.applied for found in ran):
            return Problem("fallback", f"ONNX Runtime found no layers to recompute at level {level}", _LISTS_PLANS)
        return None

    def _plan_problem(self, ran: list[Opportunities]) -> Problem | None:
        """ONNX Runtime passes over plans that it does not know, so they are looked up; then whether they are on."""
        wanted = self._wanted()
        known = {key for found in ran for key in found.known}
        unknown = [plan for plan in wanted if _key(plan) not in known]
        if unknown:
            asked = ", ".join(f"{plan.cluster_id}:{plan.strategy}" for plan in unknown)
            has = ", ".join(sorted(f"{cluster_id}:{strategy}" for cluster_id, strategy in known)) or "none"
            return Problem("invalid_plan", f"the script has no cluster {asked}; it has {has}", _LISTS_PLANS)
        frequencies = sum((found.frequencies for found in ran), Counter())
        parts = [plan for plan in wanted if 0 < plan.count < frequencies[_key(plan)]]
        if parts:
            cause = f"ONNX Runtime applies a plan to all occurrences, whatever its count: {' '.join(map(str, parts))}"
            return Problem("invalid_plan", cause, "Give -1 as the count, or leave the plan out.")
        applied = {key for found in ran for key in found.applied}
        off = [plan for plan in wanted if _key(plan) not in applied]
        if off:
            cause = f"ONNX Runtime did not apply {' '.join(map(str, off))}"
            return Problem("fallback", cause, "Its other plans can be searched; together some exclude each other.")
        extra = applied - {_key(plan) for plan in wanted}
        if extra:
            names = " ".join(f"{cluster_id}:{strategy}" for cluster_id, strategy in sorted(extra))
            cause = f"ONNX Runtime applied plans that were not asked for: {names}"
            return Problem("fallback", cause, "Is ORTMODULE_MEMORY_OPT_CONFIG set by the script itself?")
        return None


def _remove(path: str, process: int) -> None:
    # Not in a process that was forked from it.
    if os.getpid() == process:
        with suppress(OSError):
            Path(path).unlink()


def _key(plan: Plan) -> tuple[str, int]:
    return plan.cluster_id, plan.strategy


@contextmanager
def _variables(settings: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for as long as ORTModule reads them; the script's own are left as they were."""
    names = [*settings, "ORTMODULE_MEMORY_OPT_CONFIG"]
    before = {name: os.environ.get(name) for name in names}
    os.environ.pop("ORTMODULE_MEMORY_OPT_CONFIG", None)
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(failure_of(error, phase="forward", limit_bytes=None), OutOfMemory)


def _name(root: nn.Module) -> str:
    return type(root).__name__


def _told(error: BaseException) -> str:
    """Return what went wrong: ORTModule's own exceptions hold a whole traceback, those behind them a sentence."""
    while error.__cause__ is not None:
        error = error.__cause__
    raised = _RAISED.findall(str(error))
    return (raised[-1] if raised else f"{type(error).__name__}: {error}").strip()[:500]
