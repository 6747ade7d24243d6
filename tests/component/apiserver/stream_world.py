"""A served pod whose kubelet and runtime are a fake's, for tests of streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from apiserver.auth.authz import Attributes, Decision
from apiserver.store.memory import MemoryStore
from podyard.api import codec
from podyard.api.types import Node as NodeObject
from podyard.api.types import Pod
from tests.component.apiserver.served import Certificates, Served, serve
from tests.component.apiserver.streaming import Node, kubelet_client, streaming_node

DEADLINE_S = 30.0
V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"
BASE64 = "v4.base64.channel.k8s.io"
OLD = "channel.k8s.io"
EXEC = "/api/v1/namespaces/default/pods/web/exec"
FORWARD = "/api/v1/namespaces/default/pods/web/portforward"


class Readers:
    """Lets everything but `create` on exec."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.strict = False

    def authorize(self, attributes: Attributes) -> Decision:
        if attributes.subresource in ("exec", "attach", "portforward"):
            self.asked.append((attributes.verb, attributes.subresource))
            return Decision(not self.strict or attributes.verb != "create")
        return Decision(True)


@dataclass
class World:
    """A served pod `web` with a container `main` on a node of ours."""

    served: Served
    node: Node
    authorizer: Readers

    async def opened(self) -> None:
        """The runtime has its connection."""
        async with asyncio.timeout(DEADLINE_S):
            while not self.node.runtime.open:  # noqa: ASYNC110 - a state of the fake
                await asyncio.sleep(0.01)

    async def quiet(self, *, stuck: bool = False) -> None:
        """Nothing of any stream is left: no task that carries one, no connection to the runtime.

        Args:
            stuck: the runtime waits for a process that takes no input, and so does not see the end.
        """
        async with asyncio.timeout(DEADLINE_S):
            while carrying():  # noqa: ASYNC110 - a state of the product
                await asyncio.sleep(0.01)
            if stuck:
                self.node.runtime.cut()
            while self.node.runtime.open:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def carrying() -> list[asyncio.Task[Any]]:
    """Tasks of a stream that still run."""
    names = ("splice", "run_command", "serve_command", "listen", "carry", "keep_alive", "forward")
    return [
        task
        for task in asyncio.all_tasks()
        if any(getattr(task.get_coro(), "__qualname__", "").rpartition(".")[2] == name for name in names)
    ]


@asynccontextmanager
async def streaming_world(certificates: Certificates) -> AsyncIterator[World]:
    authorizer = Readers()
    async with (
        streaming_node(certificates) as node,
        serve(
            MemoryStore(), certificates, authorizer=authorizer, kubelet_tls=kubelet_client(certificates)
        ) as served,
    ):
        machine = NodeObject(
            metadata={"name": "node-1"},
            status={
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": node.port}},
            },
        )
        await create(served, "nodes", "v1", "Node", machine)
        await update_status(served, machine)
        for name, containers, placed in (
            ("web", ["main"], "node-1"),
            ("two", ["one", "other"], "node-1"),
            ("new", ["main"], ""),
        ):
            pod = Pod(
                metadata={"name": name, "namespace": "default"},
                spec={
                    "nodeName": placed,
                    "containers": [{"name": container, "image": "busybox"} for container in containers],
                },
            )
            made = await create(served, "namespaces/default/pods", "v1", "Pod", pod)
            pod.metadata.uid = made["metadata"]["uid"]
            if placed:
                node.pods.pods["default", name] = pod
        yield World(served, node, authorizer)


async def create(served: Served, path: str, version: str, kind: str, obj: Any) -> Any:
    body = codec.encode_json(obj, version, kind)
    headers = {"Content-Type": "application/json"}
    async with served.session.post(f"/api/v1/{path}", data=body, headers=headers) as answer:
        assert answer.status == 201, await answer.text()
        return await answer.json()


async def update_status(served: Served, node: NodeObject) -> None:
    body = codec.encode_json(node, "v1", "Node")
    headers = {"Content-Type": "application/json"}
    async with served.session.put("/api/v1/nodes/node-1/status", data=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
