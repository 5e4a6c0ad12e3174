"""Weights & Biases: a run for each trial and one for the study, in one group. Its own variables say where they go."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import wandb

from ...errors import UsageError
from .sending import Sent, TrackedRun, TrackedStudy

NEXT = "`wandb login`, or keep it here with WANDB_MODE=offline"
# Nothing of the machine or the user's repository goes along, and nobody waits for a server without end.
_SETTINGS: dict[str, Any] = {
    "console": "off",
    "disable_git": True,
    "save_code": False,
    "silent": True,
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_save_requirements": False,
    "host": "",
    "finish_timeout": 60,
    "finish_timeout_raises": True,
    "init_timeout": 60,
}


def send(study: TrackedStudy, *, folder: Path, bundle: Path | None) -> Sent:
    """See ``sending.send``. A run that is sent again has the same id, and replaces itself."""
    del folder  # WANDB_DIR says where
    project = os.environ.get("WANDB_PROJECT", "autotune")
    if os.environ.get("WANDB_MODE") == "disabled":
        raise UsageError("WANDB_MODE=disabled keeps nothing", hint="WANDB_MODE=offline keeps it here")
    for run in study.runs:
        _log(study, project, run)
    where = _log(study, project, study, bundle)
    return Sent(where, f"open {where}" if "://" in where else "wandb sync --sync-all", len(study.runs))


def _log(study: TrackedStudy, project: str, one: TrackedRun | TrackedStudy, bundle: Path | None = None) -> str:
    """Send one run; gives its address, or the folder that keeps it where nothing is sent now."""
    kind = "trial" if isinstance(one, TrackedRun) else "study"
    identity = hashlib.sha256(f"{study.identity}\0{kind}\0{one.name}".encode()).hexdigest()[:16]
    run = wandb.init(
        project=project,
        id=identity,
        name=one.name,
        group=study.name,
        job_type=kind,
        config=dict(one.params),
        resume="allow",
        reinit="finish_previous",
        settings=wandb.Settings(**_SETTINGS),
    )
    try:
        run.summary.update({**one.metrics, **one.tags})
        if bundle is not None:
            artifact = wandb.Artifact(f"bundle-{study.identity}", type="bundle")
            artifact.add_dir(str(bundle))
            run.log_artifact(artifact)
        return str(Path(run.dir).parents[1]) if run.offline else str(run.url)
    finally:
        run.finish(exit_code=int(isinstance(one, TrackedRun) and one.failed))
