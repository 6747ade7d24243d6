"""Exec, attach and port-forward over REST: which of the protocols a client speaks, and who serves it.

A client that asks for SPDY gets the kubelet's connection as it is; a WebSocket is translated, save
the one in which kubectl tunnels port-forward's SPDY. Errors before the upgrade are Statuses.

Counterpart: pkg/registry/core/pod/rest, apimachinery `util/proxy` (UpgradeAwareHandler), apiserver
`util/proxy` (translating and tunneling handlers).
"""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import WSMsgType, web

from apiserver.auth.authz import Attributes, Authorizer, require
from apiserver.auth.user import RequestContext
from apiserver.serve import stream_command, stream_ports
from apiserver.serve.params import options_from
from apiserver.serve.paths import ResourcePath
from apiserver.serve.stream_command import Wanted
from apiserver.serve.stream_websocket import (
    CHANNEL_PROTOCOLS,
    MAX_MESSAGE_BYTES,
    Channels,
    choose_protocol,
    is_websocket,
    offered_protocols,
    serve_command,
    wants_upgrade,
)
from apiserver.serve.streams import ATTACH, EXEC, CommandOptions, DialFailure, Location, PodStreams
from podyard.api import errors
from podyard.api.types import core_v1
from podyard.base import upgrade
from podyard.base.run import Background
from podyard.base.spdy_follow import Follower
from podyard.base.upgrade import IDLE_S, Idle, Upgraded, UpgradeRefused, flushed, splice, take_over

SUBRESOURCES = frozenset({"exec", "attach", "portforward"})
_VERSION = "X-Stream-Protocol-Version"
_READ_BYTES = 32 * 1024


class StreamHandlers:
    """Answers requests for a pod's streams, after the authorizer has allowed the request's own verb.

    Args:
        streams: finds and dials kubelets.
        authorizer: asked for `create` where the request's verb is another.
    """

    def __init__(self, streams: PodStreams, authorizer: Authorizer) -> None:
        self._streams = streams
        self._authorizer = authorizer

    async def handle(
        self, request: web.Request, context: RequestContext, path: ResourcePath
    ) -> web.StreamResponse:
        """Serves one stream to its end.

        Raises:
            ApiError: the answer is this Status; nothing has been upgraded.
        """
        if request.method != "POST":
            # A WebSocket begins with GET, which must not let readers in.
            # Source: gate AuthorizePodWebsocketUpgradeCreatePermission.
            row = path.row
            names = (path.subresource, path.namespace, path.name)
            require(
                self._authorizer,
                Attributes(context.user, "create", row.group, row.version, row.plural, *names),
            )
        if path.subresource == "portforward":
            return await self._ports(request, context, path)
        return await self._command(request, context, path)

    async def _command(
        self, request: web.Request, context: RequestContext, path: ResourcePath
    ) -> web.StreamResponse:
        action = EXEC if path.subresource == "exec" else ATTACH
        options: CommandOptions
        if action == EXEC:
            options = options_from(core_v1.PodExecOptions, request.query, request.query.getall)
        else:
            options = options_from(core_v1.PodAttachOptions, request.query)
        location = await self._streams.locate_command(context, path.namespace, path.name, action, options)
        if not is_websocket(request):
            return await self._pass_through(request, location, Follower())
        protocol = choose_protocol(offered_protocols(request), CHANNEL_PROTOCOLS)
        if protocol is None:
            return web.Response(status=403)

        async def connect() -> Upgraded:
            return await self._streams.connect(location, stream_command.UPGRADE_FIELDS)

        return await serve_command(request, protocol, Wanted.of(options), connect)

    async def _ports(
        self, request: web.Request, context: RequestContext, path: ResourcePath
    ) -> web.StreamResponse:
        options = options_from(core_v1.PodPortForwardOptions, request.query, request.query.getall)
        ports = list(options.ports)
        location = await self._streams.locate_ports(context, path.namespace, path.name, ports)
        if not is_websocket(request):
            # Without a witness: a client whose pod is gone has to learn it by the connection's end.
            return await self._pass_through(request, location, None)
        offered = offered_protocols(request)
        tunneled = [name for name in offered if name.startswith(stream_ports.TUNNEL_PREFIX)]
        if tunneled:
            return await self._tunnel(request, location, tunneled)
        protocol = choose_protocol(offered, stream_ports.CHANNEL_PROTOCOLS)
        if protocol is None:
            return web.Response(status=403)
        _check_ports(ports)
        upgraded = await self._connected(location, stream_ports.UPGRADE_FIELDS)
        if isinstance(upgraded, web.Response):
            return upgraded
        channels = Channels(request, protocol)
        try:
            await channels.open()
            async with Background() as background:
                background.start(channels.keep_alive())
                await stream_ports.serve_channels(channels, upgraded, ports)
                await channels.close()
        finally:
            upgraded.writer.transport.abort()
        return channels.socket

    async def _pass_through(
        self, request: web.Request, location: Location, witness: upgrade.Witness | None
    ) -> web.StreamResponse:
        if not wants_upgrade(request):
            raise errors.BadRequest("Upgrade request required")
        fields = [("Connection", "Upgrade"), ("Upgrade", request.headers.get("Upgrade", ""))]
        fields += [(_VERSION, value) for value in request.headers.getall(_VERSION, ())]
        upgraded = await self._connected(location, fields)
        if isinstance(upgraded, web.Response):
            return upgraded
        transport = request.transport
        if transport is None:
            upgraded.writer.transport.abort()
            raise ConnectionResetError
        client = take_over(transport, request.protocol)
        try:
            client[1].write(upgrade.switching_head(_shown(upgraded)))
            await splice(client, (upgraded.reader, upgraded.writer), witness=witness)
        finally:
            upgraded.writer.transport.abort()
        # For the record only: the connection is closed, so that nothing of this is sent.
        return web.Response(status=101)

    async def _tunnel(
        self, request: web.Request, location: Location, offered: Sequence[str]
    ) -> web.StreamResponse:
        """Carries SPDY in binary messages."""
        fields = [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")]
        fields += [(_VERSION, name.removeprefix(stream_ports.TUNNEL_PREFIX)) for name in offered]
        upgraded = await self._connected(location, fields)
        if isinstance(upgraded, web.Response):
            return upgraded
        protocol = stream_ports.TUNNEL_PREFIX + upgraded.head.get(_VERSION.lower())
        socket = web.WebSocketResponse(
            protocols=(protocol,), compress=False, max_msg_size=MAX_MESSAGE_BYTES, timeout=IDLE_S
        )
        try:
            if not socket.can_prepare(request):
                raise errors.BadRequest("Upgrade request required")
            await socket.prepare(request)
            await _carry_tunnel(request, socket, upgraded)
        finally:
            upgraded.writer.transport.abort()
        return socket

    async def _connected(
        self, location: Location, fields: Sequence[tuple[str, str]]
    ) -> Upgraded | web.Response:
        """The kubelet's connection, or its refusal as it is."""
        try:
            return await self._streams.connect(location, fields)
        except DialFailure as failure:
            raise errors.ApiError(f"error dialing backend: {failure}") from None
        except UpgradeRefused as refused:
            if refused.head.status < 400:
                text = f"invalid upgrade response: status code {refused.head.status}"
                raise errors.ApiError(text) from None
            content_type = refused.head.get("content-type") or "text/plain"
            headers = {"Content-Type": content_type}
            return web.Response(status=refused.head.status, body=refused.body, headers=headers)


def _check_ports(ports: Sequence[int]) -> None:
    """Source: kubelet portforward NewV4Options."""
    if not ports:
        raise errors.BadRequest('query parameter "port" is required')
    for port in ports:
        if not 0 < port < 65536:
            raise errors.BadRequest(f"port {port} must be > 0 and <= 65535")


def _shown(upgraded: Upgraded) -> list[tuple[str, str]]:
    """The kubelet's headers for the client."""
    return [(name.title(), value) for name, value in upgraded.head.fields if name not in ("date", "server")]


async def _carry_tunnel(request: web.Request, socket: web.WebSocketResponse, upgraded: Upgraded) -> None:
    idle = Idle()
    reader, writer = upgraded.reader, upgraded.writer

    async def listen() -> None:
        try:
            async for message in socket:
                if message.type != WSMsgType.BINARY:
                    break
                idle.touch()
                writer.write(message.data)
                await writer.drain()
        except OSError:
            return  # the kubelet takes nothing more: what it has said is still on its way
        writer.transport.abort()

    try:
        async with idle.scope, Background() as background:
            background.start(listen())
            try:
                while data := await reader.read(_READ_BYTES):
                    idle.touch()
                    await socket.send_bytes(data)
                await flushed(request.transport)
                await socket.close()
            except ConnectionError:
                pass
    except TimeoutError:
        await socket.close()
