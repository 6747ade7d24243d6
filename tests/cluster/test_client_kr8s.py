"""kr8s, called from plain code and from an event loop: objects, waits, logs, commands, forwarded ports."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import kr8s
import kr8s.asyncio
import pytest
import pytest_asyncio
from kr8s.asyncio import objects as loop_objects
from kr8s.objects import ConfigMap, Deployment, Node, Pod, Service

from podyard.api import resources
from tests.cluster.samples import server
from tests.cluster.scenario import deployment, service
from tests.cluster.sockets import left_behind
from tests.cluster.support import DEADLINE_S, Cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    # Each of its releases knows the versions of Kubernetes of its own time.
    pytest.mark.filterwarnings("ignore:Kubernetes version .* is not supported:UserWarning"),
    # A watch that is left leaves its connection to the collector.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def sockets() -> Iterator[None]:
    with left_behind():
        yield


@pytest.fixture(scope="module")
def api(kubeconfig: Path, place: str) -> Any:
    return kr8s.api(kubeconfig=str(kubeconfig), namespace=place)


@pytest_asyncio.fixture
async def loop_api(kubeconfig: Path, place: str) -> Any:
    return await kr8s.asyncio.api(kubeconfig=str(kubeconfig), namespace=place)


@pytest.fixture(scope="module")
def web(api: Any) -> Pod:
    """A running pod, waited for."""
    found = Pod(server("web"), api=api)
    found.create()
    found.wait("condition=Ready", timeout=DEADLINE_S)
    return found


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_what_there_is(api: Any, place: str, shared_cluster: Cluster) -> None:
    assert api.version()["gitVersion"].startswith("v1.36.")
    assert api.whoami() == "kubernetes-admin"
    found = {(entry["version"], entry["kind"]) for entry in api.api_resources()}
    assert found >= {(row.api_version, row.kind) for row in resources.RESOURCES}
    nodes = {node.name: node.unschedulable for node in api.get("nodes")}
    assert nodes == {f"{shared_cluster.name}-worker-{number}": False for number in (1, 2)}
    assert place in [namespace.name for namespace in api.get("namespaces")]


def test_every_kind_is_listed(api: Any) -> None:
    """By its kind, whose path the client takes from discovery."""
    for row in resources.RESOURCES:
        name = f"{row.kind}.{row.group}/{row.version}" if row.group else f"{row.kind}/{row.version}"
        for obj in api.get(name, namespace=kr8s.ALL):
            assert (obj.kind.lower(), obj.version) == (row.kind.lower(), row.api_version)
            assert obj.metadata.uid


def test_an_objects_life(api: Any) -> None:
    made = ConfigMap(config_map("life", a="1"), api=api)
    made.create()
    assert made.metadata.uid
    made.patch({"data": {"a": "2"}})
    made.patch([{"op": "add", "path": "/data/b", "value": "3"}], type="json")
    made.label({"first": "one", "key": "value"})
    made.annotate(note="kept")
    found = ConfigMap.get("life", api=api)
    assert found.data == {"a": "2", "b": "3"}
    assert (found.labels, found.annotations) == ({"first": "one", "key": "value"}, {"note": "kept"})
    found.remove_label("first")
    assert found.labels == {"key": "value"}
    with pytest.raises(kr8s.ServerError, match='configmaps "life" already exists'):
        ConfigMap(config_map("life"), api=api).create()
    child = ConfigMap(config_map("child"), api=api)
    child.create()
    child.set_owner(found)
    found.delete(propagation_policy="Foreground")
    child.wait("delete", timeout=DEADLINE_S)
    found.wait("delete", timeout=DEADLINE_S)
    assert not found.exists()
    with pytest.raises(kr8s.NotFoundError):
        ConfigMap.get("life", api=api)


def test_a_watch(api: Any) -> None:
    watched = ConfigMap(config_map("watched", a="1"), api=api)
    watched.create()
    seen = []
    for event, obj in api.watch("configmaps", field_selector="metadata.name=watched"):
        seen.append((event, obj.raw["data"]["a"]))
        if event == "ADDED":
            watched.patch({"data": {"a": "2"}})
        elif event == "MODIFIED":
            watched.delete()
        else:
            break
    assert seen == [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]


def test_a_deployment_is_ready_and_scaled(api: Any, shared_cluster: Cluster) -> None:
    found = Deployment(deployment("scaled"), api=api)
    found.create()
    found.wait("condition=Available", timeout=DEADLINE_S)
    shared_cluster.eventually(found.ready, "the Deployment is ready")
    assert len(found.pods()) == 3
    found.scale(1)
    assert found.replicas == 1
    shared_cluster.eventually(lambda: found.ready() and len(found.pods()) == 1, "one pod is left")
    found.delete()


def test_logs_and_commands(web: Pod) -> None:
    assert web.ready()
    lines = web.logs(follow=True)
    assert [next(lines) for _ in range(3)] == ["line 1", "line 2", "line 3"]
    assert list(web.logs(limit_bytes=6)) == ["line 1"]
    done = web.exec(["sh", "-c", "echo out; echo err >&2"])
    assert (done.stdout, done.stderr, done.returncode) == (b"out\n", b"err\n", 0)
    assert web.exec(["sh", "-c", "exit 3"], check=False).returncode == 3


def test_ports_are_forwarded(api: Any, web: Pod) -> None:
    found = Service(service("web"), api=api)
    found.create()
    assert found.ready()
    for target in (web, found):
        with target.portforward(remote_port=80, local_port="auto") as port:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
                assert answer.read() == b"hello\n"


def test_a_node_is_cordoned(api: Any, shared_cluster: Cluster) -> None:
    node = Node.get(f"{shared_cluster.name}-worker-1", api=api)
    node.cordon()
    try:
        assert node.unschedulable
    finally:
        node.uncordon()
    assert not node.unschedulable


async def test_the_same_on_a_loop(loop_api: Any) -> None:
    made = await loop_objects.ConfigMap(config_map("loop", a="1"), api=loop_api)
    await made.create()
    seen = []
    async for event, obj in loop_api.watch("configmaps", field_selector="metadata.name=loop"):
        seen.append((event, obj.raw["data"]["a"]))
        if event == "ADDED":
            await made.patch({"data": {"a": "2"}})
        elif event == "MODIFIED":
            await made.delete()
        else:
            break
    assert seen == [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]
    pod = await loop_objects.Pod(server("loop"), api=loop_api)
    await pod.create()
    await pod.wait("condition=Ready", timeout=DEADLINE_S)
    async for line in pod.logs(follow=True):
        assert line == "line 1"
        break
    done = await pod.exec(["sh", "-c", "echo out"])
    assert (done.stdout, done.returncode) == (b"out\n", 0)
    async with pod.portforward(remote_port=80, local_port="auto") as port, httpx.AsyncClient() as browser:
        assert (await browser.get(f"http://127.0.0.1:{port}/")).text == "hello\n"
    await pod.delete(grace_period=0)
    await pod.wait("delete", timeout=DEADLINE_S)
