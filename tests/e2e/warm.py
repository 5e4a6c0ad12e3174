"""Scripts run in processes that are forked from one that has imported torch and its compiler, which takes seconds.

That is for what a test compares with (a script that nothing of ours touches), and for launches by ``run_inside``.
The server is this file; it gets a line of JSON for each script, and answers with its status.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

_IMPORTED = ("torch", "torch._dynamo", "numpy")


class WarmPython:
    """``python script.py arguments``, again and again; one at a time."""

    def __init__(self, variables: Mapping[str, str], *, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(
        self,
        script: Path,
        *arguments: str,
        folder: Path,
        output: Path,
        errors: Path,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Run a script in ``folder``, with its output in two files; gives its status, negative for a signal.

        ``environment`` replaces the server's.
        """
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        order = {
            "arguments": [str(script), *arguments],
            "folder": str(folder),
            "output": str(output),
            "errors": str(errors),
            "environment": dict(environment) if environment is not None else None,
        }
        with self._lock:
            self._server.stdin.write(json.dumps(order) + "\n")
            self._server.stdin.flush()
            if not select.select([self._server.stdout], [], [], self._deadline_s)[0]:
                self.close()
                raise TimeoutError(f"{script} has not ended after {self._deadline_s:.0f} s")
            return int(self._server.stdout.readline())

    def close(self) -> None:
        """End the server, and a script that runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._server.pid, signal.SIGKILL)
        self._server.communicate()


def serve() -> None:
    """Answer orders; returns in each forked process, which has become what was ordered but for the script itself."""
    for name in _IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            become(json.loads(line))
            return
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    os._exit(0)


def become(order: dict[str, Any]) -> None:
    """Be a process that is about to run a script."""
    for number, path in enumerate((os.devnull, order["output"], order["errors"])):
        descriptor = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(str(order["folder"]))
    if order["environment"] is not None:
        os.environ.clear()
        os.environ.update(order["environment"])
    importlib.invalidate_caches()
    sys.argv[:] = order["arguments"]
    sys.modules["torch"].default_generator.seed()
    sys.modules["numpy.random"].seed()


if __name__ == "__main__":
    serve()
    path = sys.argv[0]
    main = ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins, __loader__=SourceFileLoader("__main__", path))
    sys.modules["_warm"], sys.modules["__main__"] = sys.modules["__main__"], main
    sys.path[0] = str(Path(path).resolve().parent)
    exec(compile(Path(path).read_bytes(), path, "exec"), main.__dict__)
