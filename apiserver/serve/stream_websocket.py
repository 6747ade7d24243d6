"""Exec and attach over WebSocket: the channel protocols, and their translation.

A message is a channel's number and bytes: 0 stdin, 1 stdout, 2 stderr, 3 the status, 4 the terminal's
size; in v5 255 and a channel's number end that channel. In the base64 protocols a message is text:
a digit and the bytes in base64.

Counterpart: apiserver `util/wsstream`, `util/proxy` (StreamTranslatorHandler).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import orjson
from aiohttp import WSMsgType, web

from apiserver.serve.stream_command import (
    ERROR,
    RESIZE,
    STDIN,
    Gone,
    Input,
    InputEnd,
    Resize,
    Said,
    Wanted,
    run_command,
)
from apiserver.serve.streams import DialFailure
from podyard.api import codec, errors
from podyard.api.types import Status
from podyard.base import clock
from podyard.base.run import Background
from podyard.base.upgrade import IDLE_S, Upgraded, UpgradeRefused, flushed

CHANNEL_PROTOCOLS = (
    "",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "v5.channel.k8s.io",
)
# Source: golang.org/x/net/websocket DefaultMaxPayloadBytes.
MAX_MESSAGE_BYTES = 32 * 1024 * 1024
_CLOSE_SIGNAL = 255
# kubectl gives up after a minute without a pong; while a command takes no input none of its pings is read.
_PONG_S = 20.0


def is_websocket(request: web.Request) -> bool:
    """Whether a request asks for a WebSocket."""
    return request.headers.get("Upgrade", "").lower() == "websocket" and wants_upgrade(request)


def wants_upgrade(request: web.Request) -> bool:
    """Whether a request asks for another protocol."""
    return any("upgrade" in value.lower() for value in request.headers.getall("Connection", ()))


def offered_protocols(request: web.Request) -> list[str]:
    """The subprotocols that a client offers, in its order."""
    values = request.headers.getall("Sec-WebSocket-Protocol", ())
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def choose_protocol(offered: Sequence[str], served: Sequence[str]) -> str | None:
    """The first that both sides know; without an offer the protocol without a name. None: there is none."""
    if not offered:
        return "" if "" in served else None
    return next((name for name in offered if name in served), None)


class Channels:
    """A WebSocket whose messages belong to channels.

    Args:
        protocol: one of CHANNEL_PROTOCOLS.
    """

    def __init__(self, request: web.Request, protocol: str) -> None:
        self._request = request
        self._text = "base64." in protocol
        self._ends_channels = protocol.startswith("v5.")
        self.writes_status = protocol.startswith(("v4.", "v5."))
        self.socket = web.WebSocketResponse(
            protocols=(protocol,) if protocol else (),
            compress=False,
            max_msg_size=MAX_MESSAGE_BYTES,
            # The client answers a close after all that came before it: it may be reading for long.
            timeout=IDLE_S,
        )

    async def open(self) -> None:
        """Upgrades.

        Raises:
            BadRequest: the request is no proper WebSocket handshake.
        """
        if not self.socket.can_prepare(self._request):
            raise errors.BadRequest("Upgrade request required")
        await self.socket.prepare(self._request)

    async def send(self, channel: int, data: bytes) -> None:
        """Sends a message; returns when there is room for the next.

        Raises:
            ConnectionError: the client has left.
        """
        if self._text:
            await self.socket.send_str(f"{channel}{base64.b64encode(data).decode()}")
        else:
            await self.socket.send_bytes(bytes((channel,)) + data)

    async def messages(self) -> AsyncIterator[tuple[int, bytes | None]]:
        """Channel and bytes, None for a channel's end; stops when the client has left."""
        async for message in self.socket:
            if message.type == WSMsgType.BINARY:
                data = message.data
            elif message.type == WSMsgType.TEXT and self._text:
                data = _from_base64(message.data)
            elif message.type == WSMsgType.TEXT:
                data = message.data.encode()
            else:
                return
            if not data:
                continue
            if self._ends_channels and data[0] == _CLOSE_SIGNAL:
                if len(data) > 1:
                    yield data[1], None
                continue
            yield data[0], data[1:]

    async def keep_alive(self) -> None:
        """Tells the client now and then that the connection lives, read or not; ends by cancellation."""
        try:
            while True:
                await clock.real_sleep(_PONG_S)
                await self.socket.pong()
        except ConnectionError:
            pass

    async def close(self) -> None:
        """Says good-bye once all is sent, and waits until the client has read it."""
        await flushed(self._request.transport)
        await self.socket.close()


def _from_base64(text: str) -> bytes:
    if not text or not text[0].isdigit():
        return b""
    try:
        return bytes((int(text[0]),)) + base64.b64decode(text[1:])
    except (binascii.Error, ValueError):
        return b""


async def serve_command(
    request: web.Request, protocol: str, wanted: Wanted, connect: Callable[[], Awaitable[Upgraded]]
) -> web.StreamResponse:
    """Serves one exec or attach.

    As upstream, the client's connection is upgraded first, and a kubelet's refusal is the status.

    Args:
        connect: dials the kubelet; raises UpgradeRefused or a failure whose text is told.
    """
    channels = Channels(request, protocol)
    await channels.open()
    async with Background() as background:
        background.start(channels.keep_alive())
        try:
            # So that the client knows that it is connected.
            await channels.send(wanted.first_writable, b"")
            await _tell(channels, await _run(channels, wanted, connect))
            await channels.close()
        except ConnectionError:
            pass  # the client has left
    return channels.socket


async def _run(channels: Channels, wanted: Wanted, connect: Callable[[], Awaitable[Upgraded]]) -> Status:
    try:
        upgraded = await connect()
    except UpgradeRefused as refused:
        return errors.InternalError.of(f"unable to upgrade connection: {refused.text}").to_status()
    except DialFailure as failure:
        return errors.InternalError.of(f"error sending request: {failure}").to_status()
    return await run_command(upgraded, wanted, _said(channels), channels.send)


async def _said(channels: Channels) -> AsyncIterator[Said]:
    async for channel, data in channels.messages():
        if channel == STDIN:
            yield InputEnd() if data is None else Input(data)
        elif channel == RESIZE and data:
            size = _size(data)
            if size is not None:
                yield size
    yield Gone()


def _size(data: bytes) -> Resize | None:
    try:
        found = orjson.loads(data)
        return Resize(int(found["Width"]), int(found["Height"]))
    except (ValueError, KeyError, TypeError):
        return None


async def _tell(channels: Channels, status: Status) -> None:
    if channels.writes_status:
        status.metadata.SetInParent()
        await channels.send(ERROR, codec.encode_json(status, "", ""))
    elif status.status != "Success":
        # The first protocol has no status: only the text of a failure.
        await channels.send(ERROR, status.message.encode())
