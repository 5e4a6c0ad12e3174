"""Ray clusters of several nodes on this machine: loopback and a token, as whoever reaches one runs code in it."""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.launch.node import Terms
from autotune.launch.ray import RayLauncher, connect
from tests.fakes.waiting import DEADLINE_S
from tests.fakes.worker_side import write_worker


def protect() -> None:
    """Before Ray is imported: nobody else gets in."""
    os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}
    os.environ.setdefault("RAY_AUTH_TOKEN", uuid.uuid4().hex + uuid.uuid4().hex)


class RayCluster:
    """Nodes of one processor each, to which this process is connected."""

    def __init__(self, *, num_nodes: int = 1) -> None:
        protect()
        from ray.cluster_utils import Cluster

        self._cluster = Cluster()
        # The head has no room for runs, so that each of the others may be killed.
        self._cluster.add_node(num_cpus=0, object_store_memory=100 * 2**20, include_dashboard=False)
        self.nodes = [self.add() for _ in range(num_nodes)]
        self.address: str = self._cluster.address
        self.ray = connect(self.address)
        self._cluster.wait_for_nodes(timeout=DEADLINE_S)

    def add(self, *, num_cpus: int = 1, num_gpus: int = 0, **resources: float) -> Any:
        """One more node, which has these resources beside its processors; its GPUs are Ray's word only."""
        settings = {"object_store_memory": 100 * 2**20, "include_dashboard": False}
        return self._cluster.add_node(num_cpus=num_cpus, num_gpus=num_gpus, resources=resources, **settings)

    def kill(self, node: Any) -> None:
        """Have a node vanish, without a word."""
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        """End all of it."""
        self.ray.shutdown()
        self._cluster.shutdown()

    def launcher(
        self, folder: Path, script: str, *, num_posts: int = 1, resource: str = "", **terms: Any
    ) -> RayLauncher:
        """A launcher whose worker is ``script``: see ``worker_side``."""
        known = Terms(
            python="",
            working_directory=str(folder),
            archive=None,
            gpus=0,
            start_timeout_s=DEADLINE_S,
            trial_timeout_s=DEADLINE_S,
            leaves_files=True,
            options={"worker": write_worker(folder, script), "grace_s": 0.5},
        )
        return RayLauncher(
            self.ray, replace(known, **terms), root=folder / "runs", num_posts=num_posts, resource=resource
        )
