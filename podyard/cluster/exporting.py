"""Copies what a cluster has said into a folder: for a bug report, or after a test that failed."""

from __future__ import annotations

import asyncio
import tarfile
import tempfile
from pathlib import Path

from podyard.cluster.bringup import probe
from podyard.cluster.engine import Engine, EngineError
from podyard.cluster.errors import ClusterError, no_cluster
from podyard.cluster.homes import require_home
from podyard.cluster.progress import Progress
from podyard.cluster.spec import Role
from podyard.cluster.state import StateDirectory
from podyard.cluster.wording import counted

_POD_LOGS = "/var/log/pods"
# File -> where the API server lists it.
_OBJECTS = {
    "nodes.json": "/api/v1/nodes",
    "pods.json": "/api/v1/pods",
    "events.json": "/api/v1/events",
    "services.json": "/api/v1/services",
    "endpointslices.json": "/apis/discovery.k8s.io/v1/endpointslices",
    "leases.json": "/apis/coordination.k8s.io/v1/leases",
    "replicasets.json": "/apis/apps/v1/replicasets",
    "deployments.json": "/apis/apps/v1/deployments",
}


async def export(engine: Engine, cluster: str, directory: Path, progress: Progress) -> None:
    """Writes each container's output, each node's pods' logs and the main objects.

    What can't be had (a server that is down, a node that is gone) is left out and said.

    Raises:
        NotFoundError: there is no such cluster.
        ClusterError: it lives on another engine.
    """
    await require_home(engine, StateDirectory(cluster))
    observed = await engine.observe(cluster)
    if not observed.containers:
        raise no_cluster(cluster)
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    # One step for all: each takes a moment.
    with progress.step(
        f"copying the logs of {counted(len(observed.containers), 'container')} and the objects"
    ):
        for name, container in sorted(observed.containers.items()):
            try:
                await asyncio.to_thread(_write_output, engine, name, directory / f"{name}.log")
                if container.role == Role.WORKER.value:
                    await _pod_logs(engine, name, directory / name)
            except EngineError as error:
                progress.note(f"{name}: {error}")
        await _objects(cluster, directory / "objects", progress)


def _write_output(engine: Engine, name: str, target: Path) -> None:
    with target.open("wb") as file:
        file.writelines(engine.logs(name, follow=False, tail=None))


async def _pod_logs(engine: Engine, node: str, directory: Path) -> None:
    with tempfile.TemporaryFile() as archive:
        if not await engine.copy_out(node, _POD_LOGS, archive):
            return
        archive.seek(0)
        await asyncio.to_thread(_extract, archive, directory)


def _extract(archive: object, directory: Path) -> None:
    with tarfile.open(fileobj=archive, mode="r") as tar:  # type: ignore[call-overload]
        tar.extractall(directory, filter="data")


async def _objects(cluster: str, directory: Path, progress: Progress) -> None:
    state = StateDirectory(cluster)
    placement = state.placement()
    if placement is None or not placement.ports:
        return
    try:
        ask = probe(state, next(iter(placement.ports.values())))
        await asyncio.to_thread(directory.mkdir, exist_ok=True)
        for name, path in _OBJECTS.items():
            await asyncio.to_thread((directory / name).write_bytes, await ask.get(path))
    except ClusterError as error:
        progress.note(f"the objects are left out: {error}")
