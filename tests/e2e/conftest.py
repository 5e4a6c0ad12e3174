"""What tests of real processes share: discovery runs that several of them look at, and bundles to launch."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from autotune.export import export_bundle
from autotune.records import BatchControl, Configuration, StudySpec
from tests.fakes.study_record import ENVIRONMENT, FACTS, study_record

from .processes import SCRIPTS, WorkerRun, discover

Discover = Callable[..., WorkerRun]
MakeBundle = Callable[..., Path]


@pytest.fixture(scope="session")
def discovered(tmp_path_factory: pytest.TempPathFactory) -> Discover:
    """``discovered("script.py", *arguments)`` gives the script's discovery run, made once; from any thread."""
    runs: dict[tuple[str, ...], Future[WorkerRun]] = {}
    lock = threading.Lock()
    root = tmp_path_factory.mktemp("discovered")

    def get(script: str, *arguments: str) -> WorkerRun:
        key = (script, *arguments)
        with lock:
            is_first = key not in runs
            run = runs.setdefault(key, Future())
            folder = root / str(len(runs))
        if is_first:
            folder.mkdir()
            try:
                run.set_result(discover(SCRIPTS / script, *arguments, folder=folder))
            except BaseException as error:
                run.set_exception(error)
        return run.result()

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
            environment=dataclasses.replace(ENVIRONMENT, variables={}),
        )
        spec = StudySpec(script=str(script), working_directory=str(tmp_path))
        record = study_record(spec=spec, facts=facts, trials=(), repeats=())
        return export_bundle(record, tmp_path / name, configuration=configuration or Configuration())

    return make
