"""The same load on an API server by REST and by gRPC: nodes, pods, one watcher, a list, a delete of all.

By REST it works against any server of the Kubernetes API, so that two servers may be compared in one
sitting; the typed twin needs Podyard's gRPC services.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import aiohttp

from podyard.api import codec
from podyard.api.types import Namespace, Node, Pod, ServiceAccount
from podyard.client.client import Client

T = TypeVar("T")

WRITERS = 32
NAMESPACE = "load"
PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
DEADLINE_S = 300.0
_MERGE = "application/merge-patch+json"
# A scheduler that nobody runs: its pods wait for ever.
NOBODY = "nobody"


def node_name(number: int) -> str:
    return f"load-node-{number:05}"


def node_value(number: int) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": node_name(number), "topology.kubernetes.io/zone": f"z{number % 3}"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name(number), "labels": labels}}


def node_status() -> dict[str, Any]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    room = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}
    ready |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}}


# What a controller would make, where none runs. Without a token's volume a pod is as small as it was sent.
ACCOUNT = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "default", "namespace": NAMESPACE},
    "automountServiceAccountToken": False,
}
NO_TAINTS = {"spec": {"taints": None}}


def pod_value(number: int, scheduler: str) -> dict[str, Any]:
    requests = {"cpu": "100m", "memory": "100Mi"}
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}}
    spec: dict[str, Any] = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    if scheduler:
        spec["schedulerName"] = scheduler
    metadata = {"name": f"load-{number:06}", "namespace": NAMESPACE, "labels": {"app": f"app-{number % 20}"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@dataclass(frozen=True, slots=True)
class Seen:
    """A change of a pod, as the watcher got it."""

    name: str
    bound: bool


class Wire(Protocol):
    """One way in. `pods_since` yields what came at once."""

    async def make_namespace(self) -> None: ...
    async def make_node(self, number: int) -> None: ...
    async def make_pod(self, number: int, scheduler: str) -> None: ...
    async def revision(self) -> str: ...
    def pods_since(self, revision: str) -> AsyncIterator[list[Seen]]: ...
    async def count_pods(self) -> int: ...
    async def delete_pods(self) -> None: ...
    async def delete_node(self, number: int) -> None: ...


class Rest:
    """JSON over HTTPS. `session` knows the server's address and who we are."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def _send(self, method: str, path: str, value: Any = None, kind: str = "application/json") -> Any:
        data = None if value is None else json.dumps(value).encode()
        async with self._session.request(method, path, data=data, headers={"Content-Type": kind}) as answer:
            body = await answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {body[:300]!r}")
            return json.loads(body)

    async def make_namespace(self) -> None:
        await self._send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await self._send("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", ACCOUNT)

    async def make_node(self, number: int) -> None:
        path = f"/api/v1/nodes/{node_name(number)}"
        await self._send("POST", "/api/v1/nodes", node_value(number))
        await self._send("PATCH", f"{path}/status", node_status(), _MERGE)
        await self._send("PATCH", path, NO_TAINTS, _MERGE)

    async def make_pod(self, number: int, scheduler: str) -> None:
        await self._send("POST", PODS_PATH, pod_value(number, scheduler))

    async def revision(self) -> str:
        return str((await self._send("GET", f"{PODS_PATH}?limit=1"))["metadata"]["resourceVersion"])

    async def pods_since(self, revision: str) -> AsyncIterator[list[Seen]]:
        path = f"{PODS_PATH}?watch=1&resourceVersion={revision}"
        async with self._session.get(path) as answer:
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                objects = [json.loads(line)["object"] for line in lines if line]
                yield [Seen(obj["metadata"]["name"], "nodeName" in obj["spec"]) for obj in objects]

    async def count_pods(self) -> int:
        return len((await self._send("GET", PODS_PATH))["items"])

    async def delete_pods(self) -> None:
        await self._send("DELETE", f"{PODS_PATH}?gracePeriodSeconds=0")

    async def delete_node(self, number: int) -> None:
        await self._send("DELETE", f"/api/v1/nodes/{node_name(number)}")


class Grpc:
    """The typed services, over one channel."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def make_namespace(self) -> None:
        await self._client.create(Namespace(metadata={"name": NAMESPACE}))
        await self._client.create(codec.from_dict(ACCOUNT, ServiceAccount))

    async def make_node(self, number: int) -> None:
        name = node_name(number)
        await self._client.create(codec.from_dict(node_value(number), Node))
        await self._client.patch(Node, name, body=node_status(), subresource="status")
        await self._client.patch(Node, name, body=NO_TAINTS)

    async def make_pod(self, number: int, scheduler: str) -> None:
        await self._client.create(codec.from_dict(pod_value(number, scheduler), Pod))

    async def revision(self) -> str:
        return (await self._client.list(Pod, NAMESPACE, limit=1)).resource_version

    async def pods_since(self, revision: str) -> AsyncIterator[list[Seen]]:
        async for batch in self._client.watch(Pod, NAMESPACE, resource_version=revision):
            pods = [event.object for event in batch.events if event.type != "BOOKMARK"]
            yield [Seen(pod.metadata.name, bool(pod.spec.nodeName)) for pod in pods]

    async def count_pods(self) -> int:
        return len((await self._client.list(Pod, NAMESPACE)).items)

    async def delete_pods(self) -> None:
        await self._client.delete_collection(Pod, NAMESPACE)

    async def delete_node(self, number: int) -> None:
        await self._client.delete(Node, node_name(number))


@dataclass
class Result:
    """What a run took.

    Attributes:
        created_s: of each creation, the seconds that it took.
        reached_s: of each pod, the seconds from its creation until the watcher saw it as wanted.
        wall_s: from the first creation until the last was seen.
    """

    created_s: list[float] = field(default_factory=list)
    reached_s: list[float] = field(default_factory=list)
    wall_s: float = 0.0
    list_s: float = 0.0
    delete_s: float = 0.0


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which a share of them lies."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


async def many(work: Callable[[T], Awaitable[object]], items: Iterable[T], *, writers: int = WRITERS) -> None:
    """The work for each item, by a few writers at once."""
    rest = iter(items)

    async def writer() -> None:
        for item in rest:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(writers):
            group.create_task(writer())


async def timed(work: Awaitable[object]) -> float:
    """Seconds that it took."""
    started_s = time.perf_counter()
    await work
    return time.perf_counter() - started_s


async def run_pods(wire: Wire, pods: int, *, bound: bool, before_delete: Callable[[], None]) -> Result:
    """Creates pods until a watcher has seen all of them, lists them, deletes them.

    Args:
        bound: whether they shall have a node, too; else no scheduler looks at them.
        before_delete: called when the last was seen, to read the servers' CPU.
    """
    result = Result()
    started: dict[str, float] = {}
    reached: dict[str, float] = {}
    revision = await wire.revision()

    async def watch() -> None:
        async for changes in wire.pods_since(revision):
            now_s = time.perf_counter()
            for change in changes:
                if change.bound or not bound:
                    reached.setdefault(change.name, now_s)
            if len(reached) >= pods:
                return
        raise RuntimeError("the watch ended")

    async def make(number: int) -> None:
        name = f"load-{number:06}"
        started[name] = time.perf_counter()
        await wire.make_pod(number, "" if bound else NOBODY)
        result.created_s.append(time.perf_counter() - started[name])

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        begun_s = time.perf_counter()
        group.create_task(watch())
        group.create_task(many(make, range(pods)))
    result.wall_s = time.perf_counter() - begun_s
    result.reached_s = [reached[name] - started[name] for name in started]
    before_delete()
    found = 0

    async def count() -> None:
        nonlocal found
        found = await wire.count_pods()

    result.list_s = await timed(count())
    assert found == pods, f"{found} of {pods} pods are listed"
    result.delete_s = await timed(wire.delete_pods())
    return result
