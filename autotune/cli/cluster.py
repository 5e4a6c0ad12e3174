"""The launcher of a study: on this machine, or on a cluster where one is named."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from ..errors import UsageError
from ..launch.port import Launcher
from ..machine.host import check_platform
from ..machine.interpreter import find_interpreter
from ..records.environment import Environment
from ..records.study import StudySpec


@contextlib.contextmanager
def launcher_of(
    spec: StudySpec,
    runs: Path,
    address: str | None,
    *,
    files: Literal["send", "shared"] | None = None,
    resource: str = "",
) -> Iterator[Launcher]:
    """Make the launcher of a study's runs; UsageError if this machine, or the Ray cluster at ``address``, will not do.

    ``files`` says how the script's folder comes to a node, and ``resource`` names what a node must have. Each run asks
    for the GPUs that the spec names, or for those of its processes if the cluster has any.
    """
    if address is None:
        for name, value in {"--cluster-files": files, "--cluster-resource": resource}.items():
            if value not in (None, ""):
                raise UsageError(f"{name} goes with --cluster", hint="name the cluster as well, as in --cluster ray")
        from .local_launcher import make_launcher

        yield make_launcher(spec, runs)
        return
    check_platform()
    from ..launch.archive import pack
    from ..launch.node import Terms
    from ..launch.ray import LOCAL, RayLauncher, connect

    # A cluster of this machine alone sees the folder as it is.
    files = files or ("shared" if address == LOCAL else "send")
    folder = Path(spec.working_directory)
    if files == "send" and not Path(spec.script).is_relative_to(folder):
        raise UsageError(
            f"the script {spec.script!r} is not in the folder {str(folder)!r}, which is sent to the cluster's nodes",
            hint="run from the folder that contains it; or, if all nodes have both under the same paths, give "
            "--cluster-files shared",
        )
    archive = pack(folder) if files == "send" else None
    ray = connect(address)
    try:
        gpus = spec.gpus_per_run
        if gpus is None:
            gpus = spec.gpus_of_run if ray.cluster_resources().get("GPU", 0) >= 1 else 0
        terms = Terms(
            python="" if spec.python == find_interpreter(None) else spec.python,
            working_directory=str(folder),
            archive=archive,
            gpus=gpus,
            start_timeout_s=spec.start_timeout_s,
            trial_timeout_s=spec.trial_deadline_s,
            leaves_files=spec.leaves_files,
        )
        launcher = RayLauncher(ray, terms, root=runs, num_posts=len(spec.devices_of_runs), resource=resource)
        with contextlib.closing(launcher):
            yield launcher
    finally:
        ray.shutdown()


def check_gpus(spec: StudySpec, address: str | None) -> None:
    """Raise UsageError for a number of GPUs that no run would have: on this machine, of GPUs that are not named."""
    if address is None and spec.gpus_per_run is not None and not (spec.devices and spec.gpus_per_run):
        raise UsageError(
            f"--gpus-per-run {spec.gpus_per_run} goes with --cluster, or with --devices that are named",
            hint="leave it out: the script chooses its GPUs",
        )


def keep_to_kind(launcher: Launcher, measured_on: Environment) -> None:
    """Hold a cluster's runs to the kind of device that the study was begun on."""
    from ..launch.ray import RayLauncher

    if isinstance(launcher, RayLauncher):
        launcher.keep_to(measured_on)
