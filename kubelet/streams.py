"""Exec, attach and port-forward on a node: from the API server's request to the runtime's own server.

The runtime answers CRI's Exec, Attach and PortForward with a URL on the node's loopback, which takes
the same upgrades as the kubelet does. So the kubelet decides whether and where, and then carries bytes.
The runtime ends what is idle for four hours.

Counterpart: pkg/kubelet/server, pkg/kubelet/kubelet_pods.go (GetExec, GetAttach, GetPortForward).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kubelet.podspec import find_container, full_name
from kubelet.runtime.base import RUNNING, ObservedPod, Runtime, RuntimeFailure, StreamOptions
from podyard.api.types import Pod
from podyard.base.upgrade import (
    Upgraded,
    UpgradeRefused,
    ask_upgrade,
    request_head,
    splice,
    switching_head,
)

EXEC = "exec"
ATTACH = "attach"
PORT_FORWARD = "portForward"
STREAM_PATHS = (
    f"/{EXEC}/{{namespace}}/{{pod}}/{{container}}",
    f"/{EXEC}/{{namespace}}/{{pod}}/{{uid}}/{{container}}",
    f"/{ATTACH}/{{namespace}}/{{pod}}/{{container}}",
    f"/{ATTACH}/{{namespace}}/{{pod}}/{{uid}}/{{container}}",
    f"/{PORT_FORWARD}/{{namespace}}/{{pod}}",
    f"/{PORT_FORWARD}/{{namespace}}/{{pod}}/{{uid}}",
)
# The headers of an upgrade; the others concern this hop alone.
_PASSED_ON = frozenset(
    {
        "connection",
        "upgrade",
        "x-stream-protocol-version",
        "sec-websocket-accept",
        "sec-websocket-key",
        "sec-websocket-protocol",
        "sec-websocket-version",
    }
)


class StreamRefused(Exception):
    """A request that is answered with this code and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """What a path and its query ask for.

    Attributes:
        action: exec, attach or portForward.
        uid: empty when any pod of the name will do.
    """

    action: str
    namespace: str
    pod: str
    container: str = ""
    uid: str = ""
    query: Sequence[tuple[str, str]] = field(default_factory=tuple)

    def values(self, name: str) -> list[str]:
        """All values of a query parameter."""
        return [value for key, value in self.query if key == name]

    def flag(self, name: str) -> bool:
        return self.values(name)[:1] == ["1"]


def options_of(request: StreamRequest) -> StreamOptions:
    """The streams that a request names.

    Raises:
        StreamRefused: none at all.

    Source: pkg/kubelet/cri/streaming/remotecommand NewOptions.
    """
    tty = request.flag("tty")
    options = StreamOptions(
        stdin=request.flag("input"),
        stdout=request.flag("output"),
        # A terminal has one output.
        stderr=request.flag("error") and not tty,
        tty=tty,
    )
    if not (options.stdin or options.stdout or options.stderr):
        raise StreamRefused(400, "you must specify at least 1 of stdin, stdout, stderr")
    return options


def ports_of(request: StreamRequest) -> list[int]:
    """The ports that a request names; none where the streams will.

    Raises:
        StreamRefused: something is no port.

    Source: pkg/kubelet/cri/streaming/portforward NewV4Options.
    """
    ports = []
    for text in (part for value in request.values("port") for part in value.split(",")):
        if not text.isdecimal() or not 0 < int(text) < 65536:
            raise StreamRefused(400, f"unable to parse {text!r} as a port")
        ports.append(int(text))
    return ports


async def stream_url(runtime: Runtime, pod: Pod, observed: ObservedPod, request: StreamRequest) -> str:
    """Where the runtime serves what a request asks for.

    Raises:
        StreamRefused: the pod has no such container, or nothing runs.
        RuntimeFailure: the runtime refused.
    """
    if request.uid and request.uid != pod.metadata.uid:
        raise StreamRefused(404, "pod not found")
    if request.action == PORT_FORWARD:
        ports = ports_of(request)
        sandbox = observed.sandbox
        if sandbox is None or not sandbox.ready:
            raise StreamRefused(500, f'pod not found ("{full_name(pod)}")')
        return await runtime.forward_url(sandbox.id, ports)
    options = options_of(request)
    newest = observed.of(request.container)[:1]
    if not newest or newest[0].state != RUNNING:
        if request.action == EXEC:
            raise StreamRefused(500, f'container not found ("{request.container}")')
        raise StreamRefused(500, f"container {request.container} not found in pod {full_name(pod)}")
    if request.action == EXEC:
        return await runtime.exec_url(newest[0].id, request.values("command"), options)
    # Whether there is a terminal was settled when the container was made.
    spec = find_container(pod, request.container)
    tty = spec is not None and spec.tty
    options = StreamOptions(options.stdin, options.stdout, options.stderr and not tty, tty)
    return await runtime.attach_url(newest[0].id, options)


def refusal_of(failure: RuntimeFailure) -> StreamRefused:
    """A runtime's failure as an answer.

    Source: pkg/kubelet/cri/streaming WriteError.
    """
    status = {"NOT_FOUND": 404, "RESOURCE_EXHAUSTED": 429}.get(failure.code, 500)
    code = "".join(word.capitalize() for word in failure.code.split("_"))
    return StreamRefused(status, f"rpc error: code = {code} desc = {failure.message}")


async def dial_runtime(url: str, method: str, headers: Sequence[tuple[str, str]]) -> Upgraded:
    """Asks the runtime's server for the upgrade that the API server asked of us.

    Raises:
        StreamRefused: the runtime's answer, or why there is none.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    fields = [(name, value) for name, value in headers if name.lower() in _PASSED_ON]
    try:
        return await ask_upgrade(host, port, request_head(method, target, parts.netloc, fields))
    except UpgradeRefused as refused:
        raise StreamRefused(refused.head.status, refused.text) from None
    except OSError as error:
        text = str(error) or "i/o timeout"
        raise StreamRefused(500, f"error dialing backend: dial tcp {parts.netloc}: {text}") from None


async def join(
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    upgraded: Upgraded,
) -> None:
    """Tells the client of the upgrade and carries bytes until either side ends."""
    fields = [(name.title(), value) for name, value in upgraded.head.fields if name in _PASSED_ON]
    try:
        client[1].write(switching_head(fields))
        await splice(client, (upgraded.reader, upgraded.writer))
    finally:
        upgraded.writer.transport.abort()
