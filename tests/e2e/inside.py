"""The command line in this process, its runs forked from one server: what commands say and write, in little time.

How whole programs start, are interrupted and end is for ``run_autotune``. ``autotune launch`` becomes the script: here
the script gets a process of its own, forked from one that has imported torch, unless another interpreter is to run it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

from autotune.cli import local_launcher, main
from autotune.launch.port import RunResult
from autotune.launch.process import WORKER, ProcessLauncher
from autotune.records.run import Request

from .processes import (
    CACHES,
    WARM_LAUNCH,
    WARM_WORKER,
    Finished,
    run_command,
    run_warm,
    variables,
    warm_launcher,
)
from .warm_launch import REFUSED


def run_inside(*arguments: str | Path, folder: Path, environment: Mapping[str, str] | None = None) -> Finished:
    """``autotune arguments`` in ``folder``, with ``environment`` on top of what is set."""
    output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    status: Any = 0
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, variables(environment), clear=True),
        mock.patch.object(sys, "argv", ["autotune", *map(str, arguments)]),
        mock.patch.object(local_launcher, "ProcessLauncher", _Forking),
        mock.patch.object(os, "execve", _run_instead),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as ended:
            status = ended.code or 0
    return Finished(int(status), output.buffer.getvalue(), errors.buffer.getvalue().decode())


def _run_instead(path: str, command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Run in a process of its own what this process would have become, and end as that ended."""
    *interpreter, worker, directory = command
    done = None
    if (interpreter, worker) == ([sys.executable, "-P"], str(WORKER)):
        request = Path(directory, "request.json").read_bytes()  # the worker removes it
        done = run_warm(WARM_LAUNCH, worker, directory, folder=Path.cwd(), environment=environment)
        if done.status == REFUSED:
            Path(directory).mkdir()
            Path(directory, "request.json").write_bytes(request)
    if done is None or done.status == REFUSED:
        done = run_command(*command, folder=Path.cwd(), environment=environment)
    sys.stdout.buffer.write(done.output)
    sys.stderr.write(done.errors)
    raise SystemExit(done.status)


class _Forking(ProcessLauncher):
    """Its runs come out of the servers that all tests share, in a folder that all share."""

    def __init__(self, *, variables: Mapping[str, str], worker: Path = WORKER, **options: Any) -> None:
        # A bundle's path is among ONNX Runtime's, and every test has its own: each would have a server of its own.
        shared = {name: value for name, value in variables.items() if not name.startswith("ORTMODULE_")}
        super().__init__(**options, variables=shared, worker=WARM_WORKER if worker == WORKER else worker, caches=CACHES)
        self._servers = warm_launcher()._servers

    @functools.wraps(ProcessLauncher.run)
    def run(self, request: Request, **options: Any) -> RunResult:
        self._fork_refusal = ""  # what one script does is nothing to the next
        return super().run(dataclasses.replace(request, may_fork=self._worker == WARM_WORKER), **options)
