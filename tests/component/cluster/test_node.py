"""A node container of our image: its guard, its cgroups, and a pod through CRI, also after a kill."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
from collections.abc import Iterator
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

SCRIPT = Path(__file__).with_name("cri_pod.py")
NAME = f"podyard-test-{os.getpid()}"
pytestmark = pytest.mark.slow


def node_only(definition: Container) -> Container:
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


async def bring_up() -> str:
    """A network, the registry's image under another name, and one worker; answers the worker's name."""
    engine = await Engine.connect()
    spec = ClusterSpec(NAME, nodes=1, etcd_members=0, apiservers=0, schedulers=0, controller_managers=0)
    placement = Placement(candidate_subnets(await engine.subnets())[0], await engine.default_mtu())
    material = StateDirectory(NAME).material(spec, placement, now_s=clock.real_now_s())
    [worker] = containers(spec, placement, material)
    await engine.create_network(NAME, placement)
    for volume in worker.volumes:
        await engine.create_volume(volume.name, worker.labels)
    await engine.create_container(node_only(worker), IMAGE)
    await engine.start(worker.name)
    await engine.close()
    return worker.name


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    client = docker.from_env()
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("state")))
    # A registry of the test's own, found by the name that nodes know through an alias.
    definition = registry_definition(host_port=0)
    registry = client.containers.create(
        IMAGE, list(definition.command), name=f"{NAME}-registry", labels={"podyard.test": "node"}
    )
    try:
        name = asyncio.run(bring_up())
        client.networks.get(NAME).connect(registry, aliases=[REGISTRY_NAME])
        asyncio.run(put(registry.name, definition.files))
        registry.start()
        yield name
    finally:
        registry.remove(force=True, v=True)
        label = {"label": f"podyard.cluster={NAME}"}
        for container in client.containers.list(all=True, filters=label):
            container.remove(force=True, v=True)
        for network in client.networks.list(filters=label):
            network.remove()
        for volume in client.volumes.list(filters=label):
            volume.remove(force=True)
        client.close()
        patch.undo()


async def put(name: str, files: tuple[File, ...]) -> None:
    engine = await Engine.connect()
    await engine.put_files(name, files)
    await engine.close()


def run_in(node: str, *command: str, stdin: bytes = b"") -> str:
    done = subprocess.run(
        ["docker", "exec", "-i", node, *command], input=stdin, capture_output=True, check=False, timeout=90
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def run_pod(node: str, name: str, *options: str) -> dict[str, object]:
    result: dict[str, object] = json.loads(
        run_in(node, "python", "-", name, *options, stdin=SCRIPT.read_bytes()).splitlines()[-1]
    )
    return result


def check_pod(seen: dict[str, object]) -> None:
    conditions = seen["conditions"]
    assert isinstance(conditions, dict)
    assert conditions["RuntimeReady"] is True
    assert conditions["NetworkReady"] is True
    assert "Welcome to nginx!" in str(seen["page"])
    assert str(seen["address"]).startswith("10.244.9.")
    assert seen["resolv"] == "nameserver 10.96.0.10\n"
    assert "GET / HTTP/1.1" in str(seen["log"])


def test_a_pod_runs_and_leaves_nothing(node: str) -> None:
    seen = run_pod(node, "one")
    check_pod(seen)
    assert seen["left"] == []


def test_what_has_no_route_is_refused_at_once(node: str) -> None:
    for address in ("10.244.200.1", "10.96.0.1"):
        curl = subprocess.run(
            ["docker", "exec", node, "curl", "-sS", "--max-time", "5", f"http://{address}/"],
            capture_output=True,
            check=False,
            timeout=30,
        )
        # 7: refused; 28 would be a packet that left and never came back.
        assert curl.returncode == 7, curl.stderr


def test_a_killed_node_comes_back_and_runs_pods(node: str) -> None:
    check_pod(run_pod(node, "kept", "keep"))
    client = docker.from_env()
    container = client.containers.get(node)
    container.kill("SIGKILL")
    container.wait(timeout=10)
    container.start()
    client.close()
    check_pod(run_pod(node, "two"))


def test_orphans_are_reaped(node: str) -> None:
    run_in(node, "sh", "-c", "for i in 1 2 3; do setsid sh -c 'sleep 0.1' & done; sleep 0.5")
    states = run_in(node, "sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null || true")
    zombies = [line for line in states.splitlines() if line.rpartition(")")[2].split()[:1] == ["Z"]]
    assert zombies == []
