"""The four ways to ask or tell a container something: exec, HTTP, TCP, gRPC.

Probes and lifecycle hooks share them. Addresses are tried from the node, as upstream's kubelet does.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from typing import Any, Protocol

import aiohttp
import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from kubelet.probes import Outcome, exec_outcome, http_outcome
from kubelet.runtime.base import Runtime, RuntimeFailure
from kubelet.runtime.hollow import HollowRuntime
from podyard.api.types import Container, IntOrString
from podyard.base import clock

_BODY_BYTES = 10 * 1024
_USER_AGENT = "kube-probe/1.36"


class Handlers(Protocol):
    """Carries out handlers: `NodeHandlers` on a node, `HollowHandlers` where containers are hollow."""

    async def run(
        self, handler: Any, container: Container, container_id: str, address: str, timeout_s: float
    ) -> Outcome:
        """One try; a time-out is a failure, never an exception.

        Args:
            handler: a ProbeHandler or LifecycleHandler.
            address: of the pod.
        """
        ...

    async def close(self) -> None: ...


class HollowHandlers:
    """Asks containers that have no address that could be reached: as their image's stage says."""

    def __init__(self, runtime: HollowRuntime) -> None:
        self._runtime = runtime

    async def run(
        self, handler: Any, container: Container, container_id: str, address: str, timeout_s: float
    ) -> Outcome:
        if "sleep" in handler.DESCRIPTOR.fields_by_name and handler.HasField("sleep"):
            await clock.sleep(min(float(handler.sleep.seconds), timeout_s))
        return Outcome(True) if self._runtime.answers(container_id) else Outcome(False, "connection refused")

    async def close(self) -> None:
        pass


class NodeHandlers:
    """Asks containers of this node."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def run(
        self, handler: Any, container: Container, container_id: str, address: str, timeout_s: float
    ) -> Outcome:
        try:
            async with clock.timeout(timeout_s):
                return await self._run(handler, container, container_id, address, timeout_s)
        except TimeoutError:
            return Outcome(False, _late_text(handler, container, address, timeout_s))

    async def _run(
        self, handler: Any, container: Container, container_id: str, address: str, timeout_s: float
    ) -> Outcome:
        if handler.HasField("exec"):
            return await self._exec(container_id, list(handler.exec.command), timeout_s)
        if handler.HasField("httpGet"):
            return await self._http(handler.httpGet, container, address)
        if handler.HasField("tcpSocket"):
            socket = handler.tcpSocket
            return await _tcp(socket.host or address, port_number(socket.port, container))
        if "grpc" in handler.DESCRIPTOR.fields_by_name and handler.HasField("grpc"):
            return await _grpc(address, handler.grpc.port, handler.grpc.service)
        if "sleep" in handler.DESCRIPTOR.fields_by_name and handler.HasField("sleep"):
            await clock.sleep(float(handler.sleep.seconds))
        return Outcome(True)

    async def _exec(self, container_id: str, command: list[str], timeout_s: float) -> Outcome:
        try:
            code, output = await self._runtime.exec(container_id, command, timeout_s)
        except RuntimeFailure as failure:
            return Outcome(False, failure.message)
        return exec_outcome(code, output)

    async def _http(self, action: Any, container: Container, address: str) -> Outcome:
        host, port = action.host or address, port_number(action.port, container)
        headers = {"User-Agent": _USER_AGENT, "Accept": "*/*"}
        for header in action.httpHeaders:
            headers[header.name] = header.value
        if self._session is None:
            # A connection for each try: a server that hangs must not pass on an old one.
            connector = aiohttp.TCPConnector(force_close=True, limit=0)
            self._session = aiohttp.ClientSession(connector=connector)
        url = _url(action, container, address)
        try:
            async with self._session.get(
                url, headers=headers, ssl=_UNVERIFIED, allow_redirects=False
            ) as answer:
                body = await answer.content.read(_BODY_BYTES)
                return http_outcome(answer.status, body.decode(errors="replace"))
        except aiohttp.ClientConnectorError as error:
            return Outcome(False, f'Get "{url}": {_dial_error(host, port, error.os_error)}')
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: no such host name can be
            return Outcome(False, f'Get "{url}": {error}')


def _late_text(handler: Any, container: Container, address: str, timeout_s: float) -> str:
    """What upstream says of a try that took too long."""
    if handler.HasField("exec"):
        command = " ".join(handler.exec.command)
        return f'command timed out: "{command}" timed out after {timeout_s:g}s'
    if handler.HasField("httpGet"):
        url = _url(handler.httpGet, container, address)
        return f'Get "{url}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
    if handler.HasField("tcpSocket"):
        socket = handler.tcpSocket
        return f"dial tcp {socket.host or address}:{port_number(socket.port, container)}: i/o timeout"
    return "context deadline exceeded"


def _url(action: Any, container: Container, address: str) -> str:
    scheme, host = (action.scheme or "HTTP").lower(), action.host or address
    path = action.path if action.path.startswith("/") else f"/{action.path}"
    return f"{scheme}://{host}:{port_number(action.port, container)}{path}"


def port_number(port: IntOrString, container: Container) -> int:
    """The number of a port, by name where it has one; 0 where there is none of that name."""
    if port.type == 0:
        return port.intVal
    if port.strVal.isdigit():
        return int(port.strVal)
    return next((entry.containerPort for entry in container.ports if entry.name == port.strVal), 0)


async def _tcp(host: str, port: int) -> Outcome:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        return Outcome(False, _dial_error(host, port, error))
    except ValueError as error:  # no such host name can be
        return Outcome(False, f"dial tcp: {error}")
    writer.close()
    return Outcome(True)


def _dial_error(host: str, port: int, error: OSError) -> str:
    """Why there is no connection, in upstream's words."""
    # The loop puts words of its own into strerror; the system's are those that clients know.
    why = os.strerror(error.errno).lower() if error.errno else str(error)
    return f"dial tcp {host}:{port}: connect: {why}"


async def _grpc(address: str, port: int, service: str) -> Outcome:
    async with grpc.aio.insecure_channel(f"{address}:{port}") as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try:
            answer: Any = await check(health_pb2.HealthCheckRequest(service=service))
        except grpc.aio.AioRpcError as error:
            return Outcome(False, f"rpc error: code = {error.code().name} desc = {error.details()}")
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return Outcome(True)
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    return Outcome(False, f'service unhealthy (responded with "{name}")')


# Probes speak to a pod by its address: there is no name that a certificate could show.
_UNVERIFIED = ssl.create_default_context()
_UNVERIFIED.check_hostname = False
_UNVERIFIED.verify_mode = ssl.CERT_NONE
