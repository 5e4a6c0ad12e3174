"""The launcher beyond one machine: each run of a study at a time has a post on some node of a Ray cluster.

A post is an actor that Ray gives its GPU, or a whole node where there is none, for as long as the study runs. So all
runs of a device, the repetitions of a confirmation among them, are on one node and have it to themselves. On the node a
``ProcessLauncher`` does all the work (``node.py``): here is only who runs where, and what to do when a node is lost.

The only module that imports Ray, and only once a cluster is asked for.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .. import __version__
from ..errors import RunError, UsageError
from ..files.changes import Changes
from ..records.environment import Environment, device_differences
from ..records.outcome import Died
from ..records.run import Request
from .cluster_results import ClusterResults
from .node import Left, Post, Terms
from .port import Event, RunResult
from .process import new_folder, writing_to

LOCAL = "ray"
"""The address that stands for a cluster of this machine alone, which is started and ended with the study."""

_ASK_S = 120.0
_NOWHERE_S = 300.0
_LEASE_S = 300.0
_WAIT_S = 0.5
_LOOK_S = 0.1
_SILENT_S = 60.0
_CANCEL_S = 15.0
_PATIENT_S = 10.0
_ATTEMPTS = 2
_STATUS_HINT = "`ray status` on a node of the cluster says what it has, and what is taken"
_REPORT_HINT = "please report it, with what the log of that node's Ray worker says before this line"


class _LostError(Exception):
    """A node does not answer any more: what it had not told yet is not known."""


class _Held(NamedTuple):
    """A post, and since when this study has it, by ``time.monotonic``."""

    post: Any
    since_s: float


def connect(address: str) -> Any:
    """Connect this process to a cluster; give the package ``ray``.

    UsageError if Ray is not installed, or nobody answers at the address, or its versions differ.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Once the connection is lost, Ray would start a cluster of this machine and go on there.
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    if address == LOCAL:
        # Read when Ray is imported: loopback only, and a token, as whoever reaches a cluster may run code in it.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        if os.environ.setdefault("RAY_AUTH_MODE", "token") == "token" and "RAY_AUTH_TOKEN_PATH" not in os.environ:
            os.environ.setdefault("RAY_AUTH_TOKEN", uuid.uuid4().hex + uuid.uuid4().hex)
    try:
        import ray
    except ImportError:
        raise UsageError("--cluster needs Ray", hint='pip install "autotune-memory[ray]"') from None
    if ray.is_initialized():
        return ray
    settings: dict[str, Any] = (
        {"address": "local", "include_dashboard": False} if address == LOCAL else {"address": address}
    )
    try:
        ray.init(**settings, namespace="autotune", log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises what its many ways to fail raise
        raise UsageError(
            f"cannot connect to the Ray cluster {address!r}: {_first_line(error)}",
            hint="is it running, and has it the same Ray and Python versions? From a machine that is no node of it: "
            "--cluster ray://HOST:10001. With a token: RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH, as its nodes have",
        ) from error
    return ray


class RayLauncher:
    """See ``Launcher``: ``devices`` only tell the posts of a study apart, Ray chooses the GPUs.

    ``ray`` is what ``connect`` gave. ``num_posts`` runs may be at the same time. ``resource`` is one of Ray's that a
    node must have, such as ``accelerator_type:H100``; empty for any node.

    Raises:
        UsageError: the cluster has too little, or GPUs of several kinds, or a node has another Python or autotune.
    """

    def __init__(self, ray: Any, terms: Terms, *, root: Path, num_posts: int = 1, resource: str = "") -> None:
        self._ray = ray
        self._terms = ray.put(terms)  # an archive is large, and a node that has it once needs no second
        self._root = root
        self._kind: Environment | None = None
        self._resource = resource
        self._posts: dict[tuple[int, ...], _Held] = {}
        self._homes: dict[str, Any] = {}
        self.changes = Changes()
        self._lock = threading.Lock()
        nodes = self._checked(self._nodes())
        self._share = _share(nodes, terms.gpus, resource)
        room = _room(nodes, self._share)
        if room < num_posts:
            raise UsageError(
                f"the cluster has room for {room} runs at once with {_told_share(self._share)}, not for {num_posts}",
                hint=f"name fewer --devices, or start more nodes; {_STATUS_HINT}",
            )

    def keep_to(self, environment: Environment) -> None:
        """Hold all runs to the kind of device that a study was measured on before."""
        self._kind = environment

    def close(self) -> None:
        """Give the nodes back, and leave nothing on them."""
        for devices in list(self._posts):
            self._dismiss(devices)

    def run(
        self,
        request: Request,
        *,
        devices: tuple[int, ...],
        on_event: Callable[[Event], None],
        cancel: threading.Event,
        directory: Path | None = None,
    ) -> RunResult:
        """Measure the configurations of ``request``: see ``Launcher``.

        A run whose node is lost is run once more, on whichever node Ray gives, but for what had an outcome. RunError
        if that node is lost too: a setting that takes its nodes down must not go through all of them.
        """
        directory = new_folder(self._root, directory)
        if request.may_fork and not request.server:  # repetitions of a confirmation stay on one node
            self._give_way(devices)
        results = ClusterResults(request, on_event, self._check_kind)
        lost = None
        for _ in range(_ATTEMPTS):
            try:
                return results.conclude(self._run_once(results, devices, cancel, directory), directory)
            except _LostError as error:
                lost = error
            if cancel.is_set() or results.is_complete:
                return results.conclude(None, directory)
            if request.verifying.references:
                failure = Died("the node was lost that has the runs to compare this one with", phase="start")
                return RunResult(results.outcomes, None, None, directory, failure)
        raise RunError(
            f"the node of a run was lost, and then the one that it was run on again: {lost}",
            hint="where a setting takes nodes down, a lower --memory-limit keeps it away; `autotune resume` goes on",
        )

    def _run_once(
        self, results: ClusterResults, devices: tuple[int, ...], cancel: threading.Event, directory: Path
    ) -> Left | None:
        """Run what has no outcome yet; None if it was cancelled before it began."""
        post = self._post(devices, cancel)
        if post is None:
            return None
        request = results.rest()
        ends_in_s = None if request.ends_at is None else request.ends_at - time.monotonic()
        try:
            if any(self._homes.get(one) is not post for one in request.verifying.references):
                raise _LostError("its runs are gone with it")
            self._get(self._ask(post.begin, request, str(directory), ends_in_s), _SILENT_S)
            self._homes[str(directory)] = post
            left = self._follow(post, results, cancel)
        except BaseException:
            self._dismiss(devices)
            raise
        with self._lock:
            self.changes.add(left.changes)
        with writing_to(directory, what="write what a run left into"):
            for name, content in left.files.items():
                (directory / Path(name).name).write_bytes(content)
        return left

    def _follow(self, post: Any, results: ClusterResults, cancel: threading.Event) -> Left:
        """Poll until the run's last message; a node that says nothing for long is lost, whatever Ray makes of it."""
        is_cancelled = False
        while True:
            asked_s = time.monotonic()
            answer = self._ask(post.poll, _WAIT_S)
            while True:
                if not is_cancelled and cancel.is_set():
                    is_cancelled = True
                    self._ask(post.cancel)
                if self._has(answer):
                    break
                silent_s = time.monotonic() - asked_s
                if silent_s > (_CANCEL_S if is_cancelled else _SILENT_S):
                    raise _LostError(f"it has not answered for {silent_s:.0f} s")
            for message in self._get(answer, _SILENT_S):
                if isinstance(message, Left):
                    return message
                results.tell(message)

    def _give_way(self, devices: tuple[int, ...]) -> None:
        """Let a study that waits for a node have this one, once it was held for long.

        Between trials of a search only: repetitions of a confirmation compare only on one node. Ray does not tell
        whether anybody waits, so the node is asked for anew in any case, which takes seconds.
        """
        held = self._posts.get(devices)
        if held is not None and time.monotonic() - held.since_s > _LEASE_S:
            self._dismiss(devices)  # Ray's queue says who is next

    def _post(self, devices: tuple[int, ...], cancel: threading.Event) -> Any | None:
        """Return the post of devices, which is set up where there is none yet; None if it was cancelled meanwhile."""
        if devices in self._posts:
            return self._posts[devices].post
        # Ray tries nothing again by itself: what was measured twice would be told twice.
        actor = self._ray.remote(max_restarts=0, max_task_retries=0, max_concurrency=4, **self._share)(Post)
        post = self._ask(actor)
        self._posts[devices] = _Held(post, math.inf)
        try:
            answer = self._ask(post.open, self._terms)
            if not self._await(answer, cancel):
                self._dismiss(devices, at_once=True)
                return None
            problem = self._get(answer, _SILENT_S)
        except BaseException:
            self._dismiss(devices, at_once=True)
            raise
        if problem is not None:
            self._dismiss(devices, at_once=True)
            raise problem
        self._posts[devices] = _Held(post, time.monotonic())
        return post

    def _await(self, answer: Any, cancel: threading.Event) -> bool:
        """Wait in Ray's queue until a node is free, which others may have; False if it was cancelled before.

        RunError if no node that is up has what is asked for, and none comes for minutes.
        """
        wanted = _told_share(self._share)
        began_s = seen_s = looked_s = time.monotonic()
        said = False
        while not self._has(answer):
            now_s = time.monotonic()
            if cancel.is_set():
                return False
            if now_s - looked_s > _PATIENT_S:
                looked_s = now_s
                if _room(self._nodes(), self._share):
                    seen_s = now_s
                if now_s - seen_s > _NOWHERE_S:
                    raise RunError(
                        f"for {_NOWHERE_S:.0f} s the cluster has had no node with {wanted}", hint=_STATUS_HINT
                    )
            if now_s - began_s > _PATIENT_S and not said:
                said = True
                sys.stderr.write(f"autotune: waiting for a node with {wanted}; others have them now\n")
        return True

    def _nodes(self) -> list[dict[str, Any]]:
        """List the nodes that are up, as far as the cluster knows, and have the resource that was asked for."""
        nodes = self._ray.nodes()
        return [one for one in nodes if one["Alive"] and (not self._resource or self._resource in one["Resources"])]

    def _ask(self, what: Any, *values: Any) -> Any:
        """Ask something of Ray, which does not wait for the answer; RunError if there is no cluster any more."""
        if not self._ray.is_initialized():
            raise RunError(
                "the connection to the Ray cluster is lost",
                hint="is its head node up? Finished trials are stored, and `autotune resume STUDY` goes on with them",
            )
        try:
            return what.remote(*values)
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            raise _LostError(_first_line(error)) from error

    def _has(self, answer: Any) -> bool:
        """Return whether an answer has come, after a moment's wait for it."""
        try:
            return bool(self._ray.wait([answer], timeout=_LOOK_S)[0])
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            raise _LostError(_first_line(error)) from error

    def _get(self, answer: Any, timeout_s: float) -> Any:
        """Return a node's answer; RunError if autotune's own code failed there, which no other node would help."""
        try:
            return self._ray.get(answer, timeout=timeout_s)
        except self._ray.exceptions.RayTaskError as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            raise RunError(f"a node failed in autotune itself: {lines[-1].strip()}", hint=_REPORT_HINT) from error
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            raise _LostError(_first_line(error)) from error

    def _dismiss(self, devices: tuple[int, ...], *, at_once: bool = False) -> None:
        """End a post and, unless nothing was begun, wait until no process of a run of it is left."""
        held = self._posts.pop(devices, None)
        if held is None:
            return
        with contextlib.suppress(Exception):  # a node that is gone has nothing left to end
            if not at_once:
                self._ray.get(held.post.close.remote(), timeout=_CANCEL_S)
        with contextlib.suppress(Exception):
            self._ray.kill(held.post, no_restart=True)

    def _check_kind(self, environment: Environment | None) -> None:
        """Raise RunError if a run landed on another kind of device than those before it: figures would not compare."""
        if environment is None:
            return
        with self._lock:
            if self._kind is None:
                self._kind = environment
            before = self._kind
        differing = [
            f"{what} {now!r}, not {was!r}"
            for what, was, now in (*device_differences(before, environment), ("torch", before.torch, environment.torch))
            if now != was
        ]
        if differing:
            raise RunError(
                f"a run landed on {environment.hostname} with another {'; another '.join(differing)}",
                hint="a study is measured on nodes of one kind: --cluster-resource NAME keeps it to those that have it",
            )

    def _checked(self, nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Leave out nodes that are gone by now; UsageError if one has another autotune or Python than this."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        def ask() -> tuple[str, tuple[int, int]]:
            """Sent by value, as a node may have no autotune to load it from."""
            import sys

            try:
                from autotune import __version__ as version
            except ImportError:
                version = ""
            return version, (sys.version_info[0], sys.version_info[1])

        asking = self._ray.remote(num_cpus=0, max_retries=0)(ask)
        answers, left, gone = [], [], self._ray.exceptions
        for node in nodes:
            pinned = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            answers.append((node, self._ask(asking.options(scheduling_strategy=pinned))))
        for node, answer in answers:
            name = node["NodeManagerHostname"]
            try:
                version, python = self._ray.get(answer, timeout=_ASK_S)
            except (gone.TaskUnschedulableError, gone.NodeDiedError, gone.WorkerCrashedError):
                continue  # it takes the cluster up to half a minute to know that a node is gone
            except (self._ray.exceptions.RayError, ConnectionError) as error:
                raise UsageError(f"node {name!r} does not answer: {error}", hint=_STATUS_HINT) from error
            if python != sys.version_info[:2]:
                here = f"{sys.version_info[0]}.{sys.version_info[1]}"
                raise UsageError(
                    f"node {name!r} has Python {python[0]}.{python[1]}, this is {here}",
                    hint="start its Ray from an environment with the same Python version",
                )
            if version != __version__:
                raise UsageError(
                    f"node {name!r} has {f'autotune {version}' if version else 'no autotune'}, this is {__version__}",
                    hint=f'where its Ray is started from: pip install "autotune-memory[ray]=={__version__}"',
                )
            left.append(node)
        return left


def _share(nodes: list[dict[str, Any]], gpus: int, resource: str) -> dict[str, Any]:
    """Return the resources that a post asks Ray for; UsageError if there are GPUs of several kinds to choose from.

    They are its GPUs, or all processors of the largest node: so a run on CPU has the node to itself.
    """
    have = [node["Resources"] for node in nodes]
    named = {"resources": {resource: 0.001}} if resource else {}
    if not gpus:
        return {"num_cpus": max((one.get("CPU", 0) for one in have), default=0), **named}
    kinds = sorted(
        {name for one in have if one.get("GPU", 0) >= gpus for name in one if name.startswith("accelerator_type:")}
    )
    if len(kinds) > 1:
        raise UsageError(
            f"the cluster has several kinds of GPU: {', '.join(one.partition(':')[2] for one in kinds)}",
            hint=f"a study is measured on one kind: --cluster-resource {kinds[0]}",
        )
    return {"num_gpus": gpus, "num_cpus": 1, **named}


def _room(nodes: list[dict[str, Any]], share: Mapping[str, Any]) -> int:
    """Return how many posts the nodes hold at once, if nobody else has anything there."""
    what = "GPU" if "num_gpus" in share else "CPU"
    wanted = share.get("num_gpus", share["num_cpus"])
    return sum(int(node["Resources"].get(what, 0) // wanted) for node in nodes) if wanted else 0


def _told_share(share: Mapping[str, Any]) -> str:
    parts = [f"{share['num_gpus']} GPU" if "num_gpus" in share else f"{share['num_cpus']:g} CPUs"]
    return " and ".join([*parts, *share.get("resources", {})])


def _first_line(error: BaseException) -> str:
    """Return the first line of an error that has something to say; Ray's begin with what is the same in all."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
