"""Settings measured by the product's own launcher, worker and meters, each in a fresh process; and finders asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from autotune.export.bundle import Bundle
from autotune.launch.port import Launcher, RunResult
from autotune.launch.requests import repetition_request, verify_request
from autotune.records.configuration import Configuration
from autotune.records.environment import Environment
from autotune.records.facts import AccumulationControl, BatchControl
from autotune.records.measuring import Measuring
from autotune.records.outcome import Measured, Outcome
from autotune.records.proof import widest
from autotune.records.run import Request, Verifying
from autotune.records.study import StudySpec
from autotune.tuning.budget import Interruption, RunCancel
from autotune.tuning.context import unused

from .record import AUTOTUNE, COMPUTED, NOTHING, Check, Found, Setting

HERE = Path(__file__).resolve().parent


class Measurer(Protocol):
    """What a sitting has measure; None is for what was interrupted, of which nothing is known."""

    def measure(self, setting: Setting, limit_bytes: int | None) -> tuple[Outcome, Environment | None, float] | None:
        """A setting once: its outcome, where it ran, and the seconds that it took."""
        ...

    def check(self, what: str, batch_size: int) -> Check | None:
        """Compare first steps with those of the script; those of the script with themselves for ``NOTHING``."""
        ...

    def find(
        self, peer: str, finder: str, first: int, most: int, train: Callable[[int], str | None]
    ) -> tuple[Found, str] | None:
        """What a library's finder comes to, and its version; ``train`` says how a batch size ended, or None."""
        ...


@dataclass(frozen=True)
class Workload:
    """A training script: how it is called beyond its batch size, and the argument that sets that."""

    name: str
    script: Path
    arguments: tuple[str, ...] = ()
    batch_option: str = "--batch-size"


class Runs:
    """See ``Measurer``.

    Args:
        workload: what is measured.
        launcher_with: makes a launcher of these environment variables beside those of this process.
        device: the GPU's index, None for the CPU.
        folder: where runs have their folders.
        measuring: when a run was measured enough.
        interruption: ends runs.
        ends_at: when they end in any case, by ``time.monotonic``.
        bundle: what ``AUTOTUNE`` is; None for no such.
        python: the interpreter in which libraries are asked.
    """

    def __init__(
        self,
        workload: Workload,
        launcher_with: Callable[[Mapping[str, str]], Launcher],
        *,
        device: int | None,
        folder: Path,
        measuring: Measuring,
        interruption: Interruption,
        ends_at: float,
        bundle: Bundle | None = None,
        python: str = sys.executable,
    ) -> None:
        self._workload = workload
        self._launcher_with = launcher_with
        self._device = device
        self._folder = folder
        self._measuring = measuring
        self._interruption = interruption
        self._ends_at = ends_at
        self._bundle = bundle
        self._python = python
        self._script_values: Path | None = None

    def measure(self, setting: Setting, limit_bytes: int | None) -> tuple[Outcome, Environment | None, float] | None:
        """See ``Measurer``."""
        spec, configuration = self._spec(setting), self._configuration(setting)
        request = repetition_request(
            spec, configuration, batch_control=self._control(setting), accumulation_control=self._accumulation(setting)
        )
        request = replace(request, measuring=self._measuring, memory_limit_bytes=limit_bytes)
        began = time.monotonic()
        result = self._run(request, setting)
        (outcome,) = result.outcomes
        if outcome is None or self._interruption.explains(outcome):
            return None
        return outcome, result.environment, time.monotonic() - began

    def check(self, what: str, batch_size: int) -> Check | None:
        """See ``Measurer``."""
        began = time.monotonic()
        if self._script_values is None:
            first = self._first_steps(Setting(NOTHING, batch_size), Verifying(is_reference=True))
            if first is None:
                return None
            if not first.compared:
                return Check(what, reason=f"the script: {_cause(first)}", seconds=time.monotonic() - began)
            self._script_values = first.directory
        result = self._first_steps(Setting(what, batch_size), Verifying(references=(str(self._script_values),)))
        if result is None:
            return None
        differences = widest(one.differences[0] for one in result.compared)
        reason = "" if result.compared else _cause(result)
        if what == NOTHING and any(one.differing for one in differences if one.group in COMPUTED):
            reason = "two runs of the script differ themselves"
        return Check(what, differences, reason, time.monotonic() - began)

    def find(
        self, peer: str, finder: str, first: int, most: int, train: Callable[[int], str | None]
    ) -> tuple[Found, str] | None:
        """See ``Measurer``."""
        command = (self._python, "-P", str(HERE / "finders.py"), finder, str(first), str(most))
        # It computes nothing, and a GPU's memory is the scripts'.
        variables = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=variables,
        ) as asking:
            assert asking.stdin is not None
            assert asking.stdout is not None
            try:
                for line in asking.stdout:
                    said = json.loads(line)
                    if "try" not in said:
                        return Found(peer, said.get("found"), said.get("failed", "")), said.get("version", "")
                    answer = train(said["try"])
                    if answer is None:
                        return None
                    asking.stdin.write(f"{answer}\n")
                    asking.stdin.flush()
            finally:
                asking.kill()
        return Found(peer, None, "the library's process ended without a word"), ""

    def close(self) -> None:
        """Remove the values that first steps were compared with."""
        for path in () if self._script_values is None else self._script_values.glob("values-*"):
            path.unlink(missing_ok=True)

    def _first_steps(self, setting: Setting, verifying: Verifying) -> RunResult | None:
        request = verify_request(
            self._spec(setting, "--equal-numerics"),
            self._configuration(setting),
            verifying,
            batch_control=self._control(setting),
            accumulation_control=self._accumulation(setting),
            limit_bytes=None,
        )
        result = self._run(request, setting)
        ended = result.compared or result.failure or result.outcomes[0]
        return result if ended else None

    def _run(self, request: Request, setting: Setting) -> RunResult:
        bundle = self._bundle_of(setting)
        name = f"{request.mode}-{setting}".replace(" ", "-").replace(":", "-")
        return self._launcher_with({} if bundle is None else bundle.environment).run(
            request,
            devices=() if self._device is None else (self._device,),
            on_event=lambda _: None,
            cancel=RunCancel(self._interruption.cancel, self._ends_at),
            directory=unused(self._folder / name),
        )

    def _spec(self, setting: Setting, *options: str) -> StudySpec:
        workload = self._workload
        sized = (workload.batch_option, "{batch_size}") if setting.batch_size else ()
        arguments = (*workload.arguments, *sized)
        if setting.what == NOTHING or self._bundle_of(setting):
            return StudySpec(str(workload.script), arguments=arguments)
        return StudySpec(str(HERE / "drive.py"), arguments=(*options, setting.what, str(workload.script), *arguments))

    def _configuration(self, setting: Setting) -> Configuration:
        bundle = self._bundle_of(setting)
        own = Configuration() if bundle is None else bundle.configuration
        return replace(own, batch_size=setting.batch_size or None)

    def _accumulation(self, setting: Setting) -> AccumulationControl | None:
        bundle = self._bundle_of(setting)
        return None if bundle is None else bundle.stack.accumulation_control

    def _bundle_of(self, setting: Setting) -> Bundle | None:
        return self._bundle if setting.what.startswith(AUTOTUNE) else None

    @staticmethod
    def _control(setting: Setting) -> BatchControl | None:
        return BatchControl("arguments") if setting.batch_size else None


def _cause(result: RunResult) -> str:
    outcome = result.outcomes[0] or result.failure
    return outcome.cause if outcome is not None and not isinstance(outcome, Measured) else "it came to no end"
