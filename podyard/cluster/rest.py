"""The few REST reads that bring-up and `status` need, with the administrator's certificate.

The standard library's client in a thread: this asks a handful of times, and the API's own client would be the
largest import of the whole command.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podyard.cluster.errors import ClusterError
from podyard.cluster.health import failing
from podyard.cluster.spec import HostPorts

LOOK_AT_SERVER = "podyard status shows whether the API server runs, podyard logs apiserver what it says"
_NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Unreachable(ClusterError):
    """No usable answer from the API server yet; the text says why."""

    def __init__(self, message: str, *, hint: str = LOOK_AT_SERVER) -> None:
        super().__init__(message, hint=hint)


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node as the API has it."""

    name: str
    ready: bool
    reason: str


class RestProbe:
    """Asks one API server where this machine reaches it."""

    def __init__(self, ports: HostPorts, *, ca: Path, certificate: Path, key: Path) -> None:
        self._host, self._port = ports.host, ports.rest
        self._context = ssl.create_default_context(cafile=str(ca))
        self._context.load_cert_chain(certificate, key)

    async def readyz(self, *, timeout_s: float = 3.0) -> None:
        """Returns when /readyz says yes.

        Raises:
            Unreachable: it says no, or nothing.
        """
        status, body = await asyncio.to_thread(self._get, "/readyz?verbose", timeout_s)
        if status != http.client.OK:
            raise Unreachable(failing(body.decode(errors="replace")) or f"/readyz answers {status}")

    async def nodes(self, *, timeout_s: float = 5.0) -> list[NodeState]:
        """Every node with its Ready condition.

        Raises:
            Unreachable: no usable answer.
        """
        status, body = await asyncio.to_thread(self._get, "/api/v1/nodes", timeout_s)
        if status != http.client.OK:
            raise Unreachable(f"listing nodes answers {status}")
        try:
            return [_node_state(item) for item in json.loads(body)["items"]]
        except (ValueError, KeyError, TypeError) as error:
            raise Unreachable(f"the list of nodes cannot be read: {error!r}") from error

    async def heartbeats(self, *, timeout_s: float = 5.0) -> dict[str, str]:
        """Node -> when its kubelet last renewed its lease, by the kubelet's own clock.

        A node is Ready until its grace is over, whatever became of it: only a new heartbeat tells.

        Raises:
            Unreachable: no usable answer.
        """
        body = await self.get(_NODE_LEASES, timeout_s=timeout_s)
        try:
            rows = json.loads(body)["items"]
            return {row["metadata"]["name"]: str(row["spec"].get("renewTime", "")) for row in rows}
        except (ValueError, KeyError, TypeError) as error:
            raise Unreachable(f"the list of leases cannot be read: {error!r}") from error

    async def get(self, path: str, *, timeout_s: float = 30.0) -> bytes:
        """Whatever is at a path, as JSON.

        Raises:
            Unreachable: no usable answer.
        """
        status, body = await asyncio.to_thread(self._get, path, timeout_s)
        if status != http.client.OK:
            raise Unreachable(f"{path} answers {status}")
        return body

    async def delete_node(self, name: str, *, timeout_s: float = 5.0) -> None:
        """Removes a node's object; gone already is fine.

        Raises:
            Unreachable: no usable answer.
        """
        status, _ = await asyncio.to_thread(self._ask, "DELETE", f"/api/v1/nodes/{name}", timeout_s)
        if status not in (http.client.OK, http.client.NOT_FOUND):
            raise Unreachable(f"deleting the node {name} answers {status}")

    def _get(self, path: str, timeout_s: float) -> tuple[int, bytes]:
        return self._ask("GET", path, timeout_s)

    def _ask(self, method: str, path: str, timeout_s: float) -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=timeout_s, context=self._context
        )
        try:
            connection.request(method, path, headers={"Accept": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._complaint(error, timeout_s) from error
        finally:
            connection.close()

    def _complaint(self, error: OSError | http.client.HTTPException, timeout_s: float) -> Unreachable:
        """What a user reads: a server that starts refuses, resets or cuts, each worded by another library."""
        if isinstance(error, TimeoutError):
            return Unreachable(f"the API server does not answer within {timeout_s:g} s")
        if isinstance(error, ssl.SSLError) and not isinstance(
            error, ssl.SSLEOFError | ssl.SSLZeroReturnError
        ):
            return Unreachable(
                f"what answers at port {self._port} is not this cluster's API server",
                hint=f"see what has the port: ss -ltnp 'sport = :{self._port}'",
            )
        if isinstance(error, ConnectionError | ssl.SSLError | http.client.HTTPException):
            return Unreachable("the API server does not answer yet")
        return Unreachable(f"the API server cannot be reached: {error.strerror or error}")


def _node_state(item: Mapping[str, Any]) -> NodeState:
    conditions = (item.get("status") or {}).get("conditions") or []
    ready = next((condition for condition in conditions if condition.get("type") == "Ready"), None)
    name = item["metadata"]["name"]
    if ready is None:
        return NodeState(name, ready=False, reason="has not reported yet")
    reason = str(ready.get("message") or ready.get("reason") or "")
    return NodeState(name, ready=ready.get("status") == "True", reason=reason)
