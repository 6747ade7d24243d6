"""The kubelet's own TLS server: logs and streams of its pods, and what it runs; for the API server alone.

TLS asks for a client certificate of the cluster's CA, and only the API server's name is let in: a
pod or another component gets 401 or 403, whatever it asks for.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from aiohttp import web

from kubelet.logs import LogOptions, read_log
from kubelet.podbuild import log_directory, log_path
from kubelet.runtime.base import EXITED, RUNNING, ObservedPod, Runtime, RuntimeContainer, RuntimeFailure
from kubelet.streams import (
    STREAM_PATHS,
    StreamRefused,
    StreamRequest,
    dial_runtime,
    join,
    refusal_of,
    stream_url,
)
from podyard.api import codec
from podyard.api.types import Pod
from podyard.base import clock
from podyard.base.upgrade import take_over

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ALLOWED_CLIENT = "kube-apiserver-kubelet-client"


class PodSource(Protocol):
    """What the server may ask of the kubelet."""

    @property
    def runtime(self) -> Runtime: ...

    def find(self, namespace: str, name: str) -> Pod | None: ...

    def all(self) -> list[Pod]: ...

    async def observe(self, uid: str) -> ObservedPod: ...

    def container_runs(self, uid: str, container_id: str) -> bool:
        """Whether a container ran when its pod was last looked at."""
        ...


class KubeletServer:
    """Serves on every address of the node."""

    def __init__(self, pods: PodSource, tls: ssl.SSLContext | None) -> None:
        self._pods = pods
        self._tls = tls
        application = web.Application(middlewares=[self._only_apiserver])
        application.router.add_get("/healthz", _healthz)
        application.router.add_get("/pods", self._list)
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._log)
        for path in STREAM_PATHS:
            for method in ("GET", "POST"):
                application.router.add_route(method, path, self._stream_of_pod)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=self._tls, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()

    @web.middleware
    async def _only_apiserver(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        peer = request.transport.get_extra_info("peercert") if request.transport else None
        names = [
            value for part in (peer or {}).get("subject", ()) for key, value in part if key == "commonName"
        ]
        if not names:
            return web.Response(status=401, text="Unauthorized")
        if names[0] != ALLOWED_CLIENT:
            return web.Response(status=403, text=f"Forbidden (user={names[0]})")
        return await handler(request)

    async def _list(self, _: web.Request) -> web.Response:
        items = b",".join(codec.encode_json(pod, "v1", "Pod") for pod in self._pods.all())
        body = b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[' + items + b"]}"
        return web.Response(body=body, content_type="application/json")

    async def _log(self, request: web.Request) -> web.StreamResponse:
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        container_name = request.match_info["container"]
        pod = self._pods.find(namespace, name)
        if pod is None:
            return web.Response(status=404, text=f'pod "{name}" not found in namespace "{namespace}"')
        try:
            options = _options_from(request)
            observed = await self._pods.observe(pod.metadata.uid)
        except ValueError as error:
            return web.Response(status=400, text=str(error))
        except RuntimeFailure as failure:
            return web.Response(status=500, text=failure.message)
        chosen = _choose(pod, observed, container_name, previous=request.query.get("previous") == "true")
        if isinstance(chosen, str):
            return web.Response(status=400, text=chosen)
        return await self._stream(request, pod, chosen, options)

    async def _stream_of_pod(self, request: web.Request) -> web.StreamResponse:
        query = [(name, value) for name, value in request.query.items()]
        action = request.path.split("/")[1]
        asked = StreamRequest(action, **request.match_info, query=query)
        pod = self._pods.find(asked.namespace, asked.pod)
        if pod is None:
            return web.Response(status=404, text="pod does not exist")
        try:
            observed = await self._pods.observe(pod.metadata.uid)
            url = await stream_url(self._pods.runtime, pod, observed, asked)
            if not any("upgrade" in value.lower() for value in request.headers.getall("Connection", ())):
                raise StreamRefused(400, "Upgrade request required")
            upgraded = await dial_runtime(url, request.method, list(request.headers.items()))
        except RuntimeFailure as failure:
            refused = refusal_of(failure)
            return web.Response(status=refused.status, text=refused.text)
        except StreamRefused as refused:
            return web.Response(status=refused.status, text=refused.text)
        transport = request.transport
        if transport is None:
            upgraded.writer.transport.abort()
            raise ConnectionResetError
        await join(take_over(transport, request.protocol), upgraded)
        # For the record only: the connection is closed, so that nothing of this is sent.
        return web.Response(status=101)

    async def _stream(
        self, request: web.Request, pod: Pod, container: RuntimeContainer, options: LogOptions
    ) -> web.StreamResponse:
        path = Path(log_directory(pod)) / log_path(container.name, container.attempt)
        uid = pod.metadata.uid

        def running() -> bool:
            return self._pods.container_runs(uid, container.id)

        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        async for data in read_log(path, options, running):
            await response.write(data)
        await response.write_eof()
        return response


async def _healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def _options_from(request: web.Request) -> LogOptions:
    query = request.query

    def number(name: str) -> int | None:
        return int(query[name]) if name in query else None

    since_s: float | None = None
    if "sinceSeconds" in query:
        # The runtime stamps its logs in real time.
        since_s = clock.real_now_s() - int(query["sinceSeconds"])
    elif "sinceTime" in query:
        since_s = float(query["sinceTime"])
    return LogOptions(
        follow=query.get("follow") == "true",
        timestamps=query.get("timestamps") == "true",
        tail_lines=number("tailLines"),
        since_s=since_s,
        limit_bytes=number("limitBytes"),
    )


def _choose(pod: Pod, observed: ObservedPod, name: str, *, previous: bool) -> RuntimeContainer | str:
    """The container whose log is meant, or why there is none (upstream's texts)."""
    made = observed.of(name)
    pod_name = pod.metadata.name
    if previous:
        dead = [container for container in made[1:] if container.state == EXITED]
        if made and made[0].state == EXITED and not dead and _waits(pod, name):
            dead = made[:1]
        if not dead:
            return f'previous terminated container "{name}" in pod "{pod_name}" not found'
        return dead[0]
    started = [container for container in made if container.state in (RUNNING, EXITED)]
    if started:
        return started[0]
    statuses = [*pod.status.initContainerStatuses, *pod.status.containerStatuses]
    waiting = next(
        (s.state.waiting.reason for s in statuses if s.name == name and s.state.HasField("waiting")), ""
    )
    if waiting in ("ErrImagePull", "ImagePullBackOff"):
        reason = {
            "ErrImagePull": "image can't be pulled",
            "ImagePullBackOff": "trying and failing to pull image",
        }
        return f'container "{name}" in pod "{pod_name}" is waiting to start: {reason[waiting]}'
    return f'container "{name}" in pod "{pod_name}" is waiting to start: {waiting or "ContainerCreating"}'


def _waits(pod: Pod, name: str) -> bool:
    return any(s.name == name and s.state.HasField("waiting") for s in pod.status.containerStatuses)
