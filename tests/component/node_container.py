"""A node container of our image without kubelet and proxy, for tests of what runs on it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest

from podyard.base import clock
from podyard.cluster.engine import Engine
from podyard.cluster.ports import candidate_subnets
from podyard.cluster.roles import Container, File, containers
from podyard.cluster.roles import registry as registry_definition
from podyard.cluster.spec import IMAGE, REGISTRY_NAME, ClusterSpec, Placement
from podyard.cluster.state import StateDirectory


@contextmanager
def node_container(name: str, state: Path) -> Iterator[str]:
    """A worker with a registry of its own, both of cluster `name`; removed at the end.

    Args:
        state: where the cluster's keys may be written.
    """
    client = docker.from_env()
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_DATA_HOME", str(state))
    # A registry of the test's own, found by the name that nodes know through an alias.
    definition = registry_definition(host_port=0)
    registry = client.containers.create(
        IMAGE, list(definition.command), name=f"{name}-registry", labels={"podyard.test": "node"}
    )
    try:
        worker = asyncio.run(_bring_up(name))
        client.networks.get(name).connect(registry, aliases=[REGISTRY_NAME])
        asyncio.run(_put(registry.name, definition.files))
        registry.start()
        yield worker
    finally:
        registry.remove(force=True, v=True)
        label = {"label": f"podyard.cluster={name}"}
        for container in client.containers.list(all=True, ignore_removed=True, filters=label):
            container.remove(force=True, v=True)
        for network in client.networks.list(filters=label):
            network.remove()
        for volume in client.volumes.list(filters=label):
            volume.remove(force=True)
        client.close()
        patch.undo()


def _node_only(definition: Container) -> Container:
    """The worker without kubelet and proxy: they would clean up what the test makes."""
    kept = []
    for file in definition.files:
        if file.path.endswith("init.json"):
            processes = [
                row
                for row in json.loads(file.content)["processes"]
                if row["name"] not in ("kubelet", "proxy")
            ]
            file = File(file.path, json.dumps({"processes": processes}).encode(), file.mode)
        kept.append(file)
    return dataclasses.replace(definition, files=tuple(kept))


async def _bring_up(name: str) -> str:
    """A network, the registry's image under another name, and one worker; answers the worker's name."""
    engine = await Engine.connect()
    spec = ClusterSpec(name, nodes=1, etcd_members=0, apiservers=0, schedulers=0, controller_managers=0)
    placement = Placement(candidate_subnets(await engine.subnets())[0], await engine.default_mtu())
    material = StateDirectory(name).material(spec, placement, now_s=clock.real_now_s())
    [worker] = containers(spec, placement, material)
    await engine.create_network(name, placement)
    for volume in worker.volumes:
        await engine.create_volume(volume.name, worker.labels)
    await engine.create_container(_node_only(worker), IMAGE)
    await engine.start(worker.name)
    await engine.close()
    return worker.name


async def _put(name: str, files: tuple[File, ...]) -> None:
    engine = await Engine.connect()
    await engine.put_files(name, files)
    await engine.close()
