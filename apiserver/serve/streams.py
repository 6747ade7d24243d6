"""What comes from a pod rather than from the store: its logs, through the kubelet of its node.

The kubelet's own TLS server takes only this API server's client certificate; its certificate is
verified against the cluster's CA under the node's name.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from apiserver.auth.user import RequestContext
from apiserver.registry import Registry
from podyard.api import errors, resources
from podyard.api.types import Node, Pod, core_v1
from podyard.base import clock

_CONNECT_TIMEOUT_S = 5.0
_HEAD_TIMEOUT_S = 30.0
_DEFAULT_PORT = 10250


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
        """
        item = await self._registry.get(context, resources.by_kind("v1", "Pod"), namespace, name)
        pod: Pod = item.message
        container = container_for(pod, options.container, "log")
        if not pod.spec.nodeName:
            return
        url = await self._kubelet_url(context, pod.spec.nodeName)
        query = _log_query(options)
        path = f"{url}/containerLogs/{namespace}/{name}/{container}"
        async for chunk in self._get(path, query, pod.spec.nodeName):
            yield chunk

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


def container_for(pod: Pod, wanted: str, action: str) -> str:
    """The container that a request means, by upstream's rules and texts.

    Raises:
        BadRequest: several to choose from, or no such container.
    """
    spec: Any = pod.spec
    names = [container.name for container in spec.containers]
    every = names + [c.name for c in spec.initContainers] + [c.name for c in spec.ephemeralContainers]
    if wanted:
        if wanted not in every:
            raise errors.BadRequest(f"container {wanted} is not valid for pod {pod.metadata.name}")
        return wanted
    if len(names) == 1:
        return str(names[0])
    default = pod.metadata.annotations.get("kubectl.kubernetes.io/default-container", "")
    if action != "log" and default in names:
        return str(default)
    text = (
        f"a container name must be specified for pod {pod.metadata.name}, choose one of: [{' '.join(names)}]"
    )
    inits = [container.name for container in spec.initContainers]
    if inits:
        text += f" or one of the init containers: [{' '.join(inits)}]"
    raise errors.BadRequest(text)
