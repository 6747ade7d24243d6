"""Port-forward on a kubelet: connections to ports of a pod, each as two streams over SPDY.

Clients that speak SPDY themselves (kubectl, directly or in a WebSocket) are passed through as bytes;
this is for the others: the old WebSocket protocol with two channels a port, and gRPC.

Counterpart: kubelet `pkg/kubelet/cri/streaming/portforward`, client-go `tools/portforward`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from apiserver.serve.stream_websocket import Channels
from podyard.base import upgrade
from podyard.base.run import Background
from podyard.base.spdy import CANCEL, REFUSED_STREAM, ProtocolError
from podyard.base.spdy_connection import SpdyConnection
from podyard.base.spdy_session import Ended, Opened, Received, Replied, WasReset
from podyard.base.upgrade import Idle, Upgraded

PROTOCOL = "portforward.k8s.io"
UPGRADE_FIELDS = (
    ("Connection", "Upgrade"),
    ("Upgrade", "SPDY/3.1"),
    ("X-Stream-Protocol-Version", PROTOCOL),
)
# What SPDY clients put before their protocol when they speak it in WebSocket messages.
TUNNEL_PREFIX = "SPDY/3.1+"
_MAX_ERROR_BYTES = 64 * 1024
CHANNEL_PROTOCOLS = ("", "v4.channel.k8s.io", "v4.base64.channel.k8s.io")


@dataclass(frozen=True, slots=True)
class PortData:
    """Bytes from the pod on a connection."""

    connection: int
    data: bytes


@dataclass(frozen=True, slots=True)
class PortError:
    """Why a connection failed, in the runtime's words."""

    connection: int
    text: str


@dataclass(frozen=True, slots=True)
class PortEnd:
    """The pod's side of a connection has closed."""

    connection: int


FromPod = PortData | PortError | PortEnd


@dataclass(slots=True)
class _Pair:
    """The streams of one connection, and what the error stream has brought."""

    connection: int
    error_id: int
    data_id: int
    accepted: asyncio.Event
    error: bytes = b""
    ended: bool = False


class PortForwarder:
    """Several connections to a pod over one connection to its kubelet. Numbers are the caller's."""

    def __init__(self, upgraded: Upgraded) -> None:
        self._writer = upgraded.writer
        self._spdy = SpdyConnection(upgraded.reader, upgraded.writer, client=True)
        self._pairs: dict[int, _Pair] = {}
        self._by_stream: dict[int, _Pair] = {}

    async def open(self, connection: int, port: int) -> None:
        """Begins a connection to a port.

        Raises:
            ValueError: the number is in use.
            ConnectionError: the kubelet is gone.
        """
        if connection in self._pairs:
            raise ValueError(f"connection {connection} is open already")
        headers = {"port": str(port), "requestid": str(connection)}
        error_id = await self._spdy.open({"streamtype": "error", **headers}, fin=True)
        data_id = await self._spdy.open({"streamtype": "data", **headers})
        pair = _Pair(connection, error_id, data_id, asyncio.Event())
        self._pairs[connection] = self._by_stream[error_id] = self._by_stream[data_id] = pair

    async def send(self, connection: int, data: bytes, *, last: bool = False) -> None:
        """Sends to the pod, with `last` its end; on a connection that has ended nothing happens."""
        pair = self._pairs.get(connection)
        if pair is None:
            return
        await pair.accepted.wait()
        await self._spdy.send(pair.data_id, data, fin=last)

    async def received(self) -> AsyncGenerator[FromPod, None]:
        """What comes from the pod, until the kubelet's connection ends."""
        try:
            async for event in self._spdy.events():
                if isinstance(event, Opened):
                    await self._spdy.reset(event.stream_id, REFUSED_STREAM)
                    continue
                pair = self._by_stream.get(getattr(event, "stream_id", 0))
                if pair is None:
                    continue
                match event:
                    case Replied(stream_id) if stream_id == pair.data_id:
                        pair.accepted.set()
                    case Received(stream_id, data) if stream_id == pair.data_id:
                        yield PortData(pair.connection, data)
                    case Received(_, data):
                        pair.error = (pair.error + data)[:_MAX_ERROR_BYTES]
                    case Ended(stream_id) | WasReset(stream_id):
                        for item in await self._on_end(pair, stream_id):
                            yield item
        except ProtocolError:
            return
        finally:
            for pair in self._pairs.values():
                pair.accepted.set()

    async def _on_end(self, pair: _Pair, stream_id: int) -> list[FromPod]:
        """One of the two streams ended; the connection is over when both are or an error is known."""
        self._by_stream.pop(stream_id, None)
        pair.accepted.set()
        if stream_id == pair.error_id and pair.error:
            await self._spdy.reset(pair.data_id, CANCEL)
            self._forget(pair)
            return [PortError(pair.connection, pair.error.decode(errors="replace"))]
        if stream_id == pair.data_id:
            pair.ended = True
        if pair.ended and pair.error_id not in self._by_stream:
            self._forget(pair)
            return [PortEnd(pair.connection)]
        return []

    def _forget(self, pair: _Pair) -> None:
        self._by_stream.pop(pair.data_id, None)
        self._by_stream.pop(pair.error_id, None)
        self._pairs.pop(pair.connection, None)

    def abort(self) -> None:
        """Ends every connection at once."""
        self._writer.transport.abort()

    async def close(self) -> None:
        await upgrade.close(self._writer)


async def forward(
    forwarder: PortForwarder,
    listen: Callable[[Idle], Awaitable[None]],
    show: Callable[[FromPod], Awaitable[bool]],
) -> None:
    """Carries both directions until either ends, or four idle hours have passed.

    Args:
        listen: carries what the client says; its end is the client's.
        show: sends the client what came; false ends all. A ConnectionError means that it has left.
    """
    idle = Idle()

    async def carry() -> None:
        try:
            await listen(idle)
        except OSError:
            return  # the kubelet takes nothing more: what it has said is still on its way
        forwarder.abort()

    try:
        async with idle.scope, Background() as background:
            background.start(carry())
            try:
                async with aclosing(forwarder.received()) as received:
                    async for item in received:
                        idle.touch()
                        if not await show(item):
                            break
            except ConnectionError:
                pass
    except TimeoutError:
        pass
    finally:
        await forwarder.close()


async def serve_channels(channels: Channels, upgraded: Upgraded, ports: list[int]) -> None:
    """Serves the old WebSocket protocol: channel 2i is the i-th port's data, 2i + 1 its error text.

    Each port has one connection, opened at once; both channels begin with the port's number in two
    bytes, the low one first.
    """
    forwarder = PortForwarder(upgraded)
    left = set(range(len(ports)))

    async def listen(idle: Idle) -> None:
        async for channel, data in channels.messages():
            idle.touch()
            if channel % 2 == 0:
                await forwarder.send(channel // 2, data or b"", last=data is None)

    async def show(item: FromPod) -> bool:
        match item:
            case PortData(index, data):
                await channels.send(2 * index, data)
            case PortError(index, text):
                await channels.send(2 * index + 1, text.encode())
                left.discard(index)
            case PortEnd(index):
                left.discard(index)
        return bool(left)

    try:
        for index, port in enumerate(ports):
            for channel in (2 * index, 2 * index + 1):
                await channels.send(channel, port.to_bytes(2, "little"))
            await forwarder.open(index, port)
    except ConnectionError:
        await forwarder.close()
        return
    await forward(forwarder, listen, show)
