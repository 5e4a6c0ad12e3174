"""The launcher of a study's runs on this machine, once it is known that they can be had here."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from ..files import Shelf
from ..launch import Launcher, ProcessLauncher
from ..machine import check_platform, check_worker_python, find_device, find_interpreter, read_gpus
from ..machine.interpreter import check_has, worker_of
from ..records import ENGINES, StudySpec
from .places import kept_files

__all__ = ["make_launcher"]


def make_launcher(spec: StudySpec, runs: Path, variables: Mapping[str, str] = MappingProxyType({})) -> Launcher:
    """The launcher of a study's runs; checks that this platform, devices and the interpreter will do.

    ``variables`` go into the runs' environment beside this process's own.
    """
    check_platform()
    if ENGINES[spec.engine].needs:
        needs = ENGINES[spec.engine].needs
        check_has(spec.python, *needs, hint=f"{spec.python} -m pip install {' '.join(needs)}")
    elif spec.python != find_interpreter(None):
        check_worker_python(spec.python)
    gpus = read_gpus()
    for device in spec.devices:
        find_device(device, gpus)
    shelf = Shelf(kept_files())
    for sentence in shelf.recover().sentences(Path.cwd()):
        sys.stderr.write(f"autotune: after a run that was killed: {sentence}\n")
    return ProcessLauncher(
        python=spec.python,
        root=runs,
        working_directory=Path(spec.working_directory),
        start_timeout_s=spec.start_timeout_s,
        trial_timeout_s=spec.trial_timeout_s,
        variables={**os.environ, **variables},
        shelf=None if spec.leaves_files else shelf,
        worker=worker_of(spec.engine),
    )
