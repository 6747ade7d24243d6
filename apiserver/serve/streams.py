"""What comes from a pod rather than from the store, through the kubelet of its node.

Its logs are read here; exec, attach and port-forward are found and dialled here, and carried by
`stream_rest` and `stream_rpc`.

The kubelet's own TLS server takes only this API server's client certificate; its certificate is
verified against the cluster's CA under the node's name.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import aiohttp

from apiserver.auth.user import RequestContext
from apiserver.registry import Registry
from podyard.api import errors, resources, validation_pod
from podyard.api.types import Node, Pod, core_v1
from podyard.base import clock
from podyard.base.upgrade import Upgraded, ask_upgrade, request_head

EXEC = "exec"
ATTACH = "attach"
PORT_FORWARD = "portForward"
CommandOptions = core_v1.PodExecOptions | core_v1.PodAttachOptions

_CONNECT_TIMEOUT_S = 5.0
_HEAD_TIMEOUT_S = 30.0
_DEFAULT_PORT = 10250


@dataclass(frozen=True, slots=True)
class Location:
    """Where a stream is asked for: a kubelet, and the path with its query."""

    node_name: str
    host: str
    port: int
    target: str

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}{self.target}"


class DialFailure(Exception):
    """A kubelet did not answer; the text is that of the connection."""


class PodStreams:
    """Reaches kubelets.

    Args:
        registry: finds the pod and its node.
        tls: with this server's kubelet client certificate; None in a simulation, where there
            is no kubelet to dial.
    """

    def __init__(self, registry: Registry, tls: ssl.SSLContext | None) -> None:
        self._registry = registry
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def read_logs(
        self, context: RequestContext, namespace: str, name: str, options: core_v1.PodLogOptions
    ) -> AsyncIterator[bytes]:
        """The log of a container, followed when the options say so.

        Raises:
            NotFound: no such pod.
            BadRequest: the container is not named, unknown, or has not started.
            Invalid: what the options ask for makes no sense.
        """
        causes = validation_pod.log_options(options)
        if causes:
            raise errors.Invalid.of("PodLogOptions", name, causes)
        pod = await self._pod(context, namespace, name)
        container = container_for(pod, options.container)
        if not pod.spec.nodeName:
            return
        url = await self._kubelet_url(context, pod.spec.nodeName)
        query = _log_query(options)
        path = f"{url}/containerLogs/{namespace}/{name}/{container}"
        async for chunk in self._get(path, query, pod.spec.nodeName):
            yield chunk

    async def locate_command(
        self, context: RequestContext, namespace: str, name: str, action: str, options: CommandOptions
    ) -> Location:
        """Where an exec or attach goes.

        Raises:
            NotFound: no such pod.
            BadRequest: the container is not named or unknown, or the pod is on no node.
        """
        pod = await self._pod(context, namespace, name)
        container = container_for(pod, options.container)
        path = f"/{action}/{namespace}/{name}/{container}"
        return await self._locate(context, pod, path, command_query(options))

    async def locate_ports(
        self, context: RequestContext, namespace: str, name: str, ports: Sequence[int]
    ) -> Location:
        """Where a port-forward goes; raises as `locate_command`."""
        pod = await self._pod(context, namespace, name)
        query = [("port", ",".join(str(port) for port in ports))] if ports else []
        return await self._locate(context, pod, f"/{PORT_FORWARD}/{namespace}/{name}", query)

    async def connect(self, location: Location, fields: Sequence[tuple[str, str]]) -> Upgraded:
        """Asks a kubelet for an upgrade.

        Args:
            fields: the headers that name the protocol.

        Raises:
            UpgradeRefused: the kubelet's answer.
            DialFailure: there was none.
        """
        if self._tls is None:
            raise DialFailure("this server reaches no kubelet")
        host = f"{location.host}:{location.port}"
        request = request_head("POST", location.target, host, [("User-Agent", "podyard"), *fields])
        try:
            return await ask_upgrade(
                location.host, location.port, request, tls=self._tls, server_hostname=location.node_name
            )
        except TimeoutError:
            raise DialFailure(f"dial tcp {host}: i/o timeout") from None
        except OSError as error:
            raise DialFailure(f"dial tcp {host}: {error.strerror or error}") from None

    async def _pod(self, context: RequestContext, namespace: str, name: str) -> Pod:
        item = await self._registry.get(context, resources.by_kind("v1", "Pod"), namespace, name)
        pod: Pod = item.message
        return pod

    async def _locate(
        self, context: RequestContext, pod: Pod, path: str, query: Sequence[tuple[str, str]]
    ) -> Location:
        node_name = pod.spec.nodeName
        if not node_name:
            raise errors.BadRequest(f"pod {pod.metadata.name} does not have a host assigned")
        url = urlsplit(await self._kubelet_url(context, node_name))
        target = quote(path) + (f"?{urlencode(query)}" if query else "")
        return Location(node_name, url.hostname or "", url.port or _DEFAULT_PORT, target)

    async def _kubelet_url(self, context: RequestContext, node_name: str) -> str:
        item = await self._registry.get(context, resources.by_kind("v1", "Node"), "", node_name)
        node: Node = item.message
        addresses = {address.type: address.address for address in node.status.addresses}
        host = addresses.get("InternalIP") or addresses.get("Hostname")
        if not host:
            raise errors.InternalError.of(f"node {node_name} has no address")
        port = node.status.daemonEndpoints.kubeletEndpoint.Port or _DEFAULT_PORT
        return f"https://{host}:{port}"

    async def _get(self, url: str, query: dict[str, str], node_name: str) -> AsyncIterator[bytes]:
        if self._tls is None:
            raise errors.Unavailable("this server reaches no kubelet")
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S)
            self._session = aiohttp.ClientSession(timeout=timeout)
        try:
            async with clock.real_timeout(_HEAD_TIMEOUT_S):
                response = await self._session.get(
                    url, params=query, ssl=self._tls, server_hostname=node_name
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.InternalError(f'Get "{url}": {error or "timeout"}') from None
        async with response:
            if response.status >= 400:
                raise _kubelet_error(response.status, (await response.text()).strip())
            try:
                async for chunk in response.content.iter_any():
                    yield chunk
            except aiohttp.ClientError:
                return  # the node went away in mid-stream: the log ends here, as upstream's does


def _kubelet_error(status: int, text: str) -> errors.ApiError:
    if status == 404:
        return errors.NotFound(text)
    if status == 400:
        return errors.BadRequest(text)
    return errors.InternalError(text)


def _log_query(options: core_v1.PodLogOptions) -> dict[str, str]:
    query: dict[str, str] = {}
    for name in ("follow", "previous", "timestamps"):
        if getattr(options, name):
            query[name] = "true"
    for name in ("sinceSeconds", "tailLines", "limitBytes"):
        if options.HasField(name):
            query[name] = str(getattr(options, name))
    if options.HasField("sinceTime"):
        query["sinceTime"] = f"{options.sinceTime.seconds}"
    return query


def command_query(options: CommandOptions) -> list[tuple[str, str]]:
    """The kubelet's query of an exec or attach.

    Source: pkg/registry/core/pod streamParams.
    """
    wanted = (
        ("input", options.stdin),
        ("output", options.stdout),
        ("error", options.stderr),
        ("tty", options.tty),
    )
    query = [(name, "1") for name, asked in wanted if asked]
    if isinstance(options, core_v1.PodExecOptions):
        query += [("command", part) for part in options.command]
    return query


def container_for(pod: Pod, wanted: str) -> str:
    """The container that a request means.

    Raises:
        BadRequest: several to choose from, or no such container.

    Source: pkg/registry/core/pod validateContainer.
    """
    spec: Any = pod.spec
    names = [container.name for container in spec.containers]
    inits = [container.name for container in spec.initContainers]
    ephemeral = [container.ephemeralContainerCommon.name for container in spec.ephemeralContainers]
    every = [*inits, *names, *ephemeral]
    if wanted:
        if wanted not in every:
            raise errors.BadRequest(f"container {wanted} is not valid for pod {pod.metadata.name}")
        return wanted
    if len(names) == 1:
        return str(names[0])
    raise errors.BadRequest(
        f"a container name must be specified for pod {pod.metadata.name}, choose one of: [{' '.join(every)}]"
    )
