"""What tests of real processes share: discovery runs that several of them look at, and bundles to launch."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import importlib.metadata
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.export.bundle import export_bundle
from autotune.records.configuration import Configuration
from autotune.records.facts import BatchControl
from autotune.records.study import StudySpec
from tests.fakes.study_record import ENVIRONMENT, FACTS, study_record

from .processes import SCRIPTS, Finished, WorkerRun, discover, run_warm

Once = Callable[..., Any]
Discover = Callable[..., WorkerRun]
Plain = Callable[..., Finished]
MakeBundle = Callable[..., Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """``once(make, *key)`` gives what ``make(folder)`` gave the first of the processes that run tests to ask for it."""
    root = tmp_path_factory.getbasetemp()
    root = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "once"

    def get(make: Callable[[Path], Any], *key: str) -> Any:
        folder = root / hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        result = folder / "result"
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                result.write_bytes(pickle.dumps(make(Path(tempfile.mkdtemp(dir=folder)))))
            return pickle.loads(result.read_bytes())

    return get


@pytest.fixture(scope="session")
def discovered(once: Once) -> Discover:
    """``discovered("script.py", *arguments)`` gives the script's discovery run, made once."""

    def get(script: str, *arguments: str) -> WorkerRun:
        run = lambda folder: discover(SCRIPTS / script, *arguments, folder=folder, may_fork=True)  # noqa: E731
        return once(run, "discovered", script, *arguments)

    return get


@pytest.fixture(scope="session")
def plain(once: Once) -> Plain:
    """``plain("script.py", *arguments)`` gives the run of a script that nothing of ours touches, made once."""

    def get(script: str, *arguments: str) -> Finished:
        run = lambda folder: run_warm(SCRIPTS / script, *arguments, folder=folder)  # noqa: E731
        return once(run, "plain", script, *arguments)

    return get


@pytest.fixture
def make_bundle(tmp_path: Path) -> MakeBundle:
    """Writes a bundle as a study of a script would: ``make_bundle(script, configuration)``."""

    def make(
        script: Path,
        configuration: Configuration | None = None,
        *,
        control: BatchControl | None = None,
        name: str = "bundle",
    ) -> Path:
        facts = dataclasses.replace(
            FACTS,
            script_sha256=hashlib.sha256(script.read_bytes()).hexdigest(),
            batch_control=control or BatchControl("loaders", (0,)),
            environment=dataclasses.replace(ENVIRONMENT, variables={}, torch=importlib.metadata.version("torch")),
        )
        spec = StudySpec(script=str(script), working_directory=str(tmp_path))
        record = study_record(spec=spec, facts=facts, trials=(), repeats=())
        return export_bundle(record, tmp_path / name, configuration=configuration or Configuration())

    return make
