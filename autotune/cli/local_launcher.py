"""The launcher of a study's runs on this machine, once it is known that they can be had here, and Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..files.backup_directory import BackupDirectory
from ..launch.port import Launcher
from ..launch.process import ProcessLauncher
from ..machine.devices import find_device
from ..machine.host import check_platform
from ..machine.interpreter import check_has, check_worker_python, find_interpreter, worker_of
from ..machine.meters.nvidia import read_gpus
from ..records.engines import ENGINES
from ..records.study import StudySpec
from ..tuning.budget import Interruption
from .places import kept_files, prepare_state_folder, runs_of


def make_launcher(spec: StudySpec, runs: Path, variables: Mapping[str, str] | None = None) -> Launcher:
    """Make the launcher of a study's runs, which get ``variables``, once platform, devices and interpreter will do."""
    check_platform()
    if needs := ENGINES[spec.engine].needs:
        check_has(spec.python, *needs, hint=f"{spec.python} -m pip install {' '.join(needs)}")
    elif spec.python != find_interpreter(None):
        check_worker_python(spec.python)
    gpus = read_gpus()
    for device in spec.devices:
        find_device(device, gpus)
    backups = BackupDirectory(kept_files())
    for sentence in backups.recover().sentences(Path.cwd()):
        sys.stderr.write(f"autotune: after a run that was killed: {sentence}\n")
    return ProcessLauncher(
        python=spec.python,
        root=runs,
        working_directory=Path(spec.working_directory),
        start_timeout_s=spec.start_timeout_s,
        trial_timeout_s=spec.trial_deadline_s,
        variables={**os.environ, **(variables or {})},
        backups=None if spec.leaves_files else backups,
        worker=worker_of(spec.engine),
    )


def prepare_one_run(command: str, spec: StudySpec, variables: Mapping[str, str] | None = None) -> tuple[Launcher, Path]:
    """Give the launcher of a command that makes one run at a time, and the folder of its runs, which is made."""
    runs = runs_of(command)
    launcher = make_launcher(spec, runs, variables)
    prepare_state_folder()
    return launcher, runs


@contextlib.contextmanager
def interruption() -> Iterator[Interruption]:
    """Ctrl-C once: start nothing new, tell what is known. Twice: stop now. SIGTERM counts as twice."""
    state = Interruption()

    def handle(number: int, _: object) -> None:
        is_last = number == signal.SIGTERM or state.finish.is_set()
        state.finish.set()
        if is_last:
            state.cancel.set()
            message = "stopping"
        else:
            message = "finishing what runs, then telling what is known; Ctrl-C again stops now"
        if state.say is not None:
            state.say(f"autotune: {message}")
            return
        # Not through sys.stderr, which may be in the middle of a write that this handler interrupted.
        with contextlib.suppress(OSError):  # whoever read it is gone: `tee` meets the same Ctrl-C
            os.write(2, f"\nautotune: {message}\n".encode())

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield state
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
