"""HTTP upgrades at the level of bytes: asking for one, taking one over from a server, joining two.

After `101 Switching Protocols` a connection belongs to another protocol, and no HTTP library wants
it any more. The API server and the kubelet both stand in the middle of such connections.

Counterpart: apimachinery `util/proxy` (UpgradeAwareHandler).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from podyard.base import clock

# Upstream: streamingConnectionIdleTimeout.
IDLE_S = 4 * 3600.0
DIAL_S = 5.0
HEAD_S = 30.0
_CLOSE_S = 5.0
_FLUSH_LOOK_S = 0.02
_QUIET_S = 0.5
_READ_BYTES = 64 * 1024
_MAX_HEAD_BYTES = 64 * 1024
_MAX_BODY_BYTES = 1024 * 1024
_SWITCHING = 101
# As Go's net package keeps connections alive; a peer that vanished is found within three minutes.
_KEEPALIVE_S = 15
_KEEPALIVE_PROBES = 9

Fields = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Head:
    """The head of an answer; header names are in lower case, in their order, repeated ones too."""

    status: int
    fields: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str:
        """A header's first value; empty without one."""
        return next((value for key, value in self.fields if key == name), "")


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A connection after the upgrade."""

    head: Head
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class UpgradeRefused(Exception):
    """The other side answered with something else than an upgrade."""

    def __init__(self, head: Head, body: bytes) -> None:
        super().__init__(body.decode(errors="replace").strip())
        self.head = head
        self.body = body

    @property
    def text(self) -> str:
        """The body as text."""
        return str(self)


def request_head(method: str, target: str, host: str, fields: Iterable[tuple[str, str]]) -> bytes:
    """The bytes of a request without a body.

    Raises:
        ValueError: a value would break the head.
    """
    return _head(f"{method} {target} HTTP/1.1", [("Host", host), *fields, ("Content-Length", "0")])


def switching_head(fields: Iterable[tuple[str, str]]) -> bytes:
    """The bytes of `101 Switching Protocols`."""
    return _head(f"HTTP/1.1 {_SWITCHING} Switching Protocols", fields)


def _head(first: str, fields: Iterable[tuple[str, str]]) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in fields)]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a line break in a header")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


def parse_head(data: bytes) -> Head:
    """The head of an answer.

    Raises:
        ValueError: it is none.
    """
    first, *lines = data.decode("latin-1").rstrip("\r\n").split("\r\n")
    parts = first.split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
        raise ValueError(f"malformed HTTP response {first!r}")
    pairs = (line.partition(":") for line in lines)
    return Head(int(parts[1]), tuple((name.strip().lower(), value.strip()) for name, _, value in pairs))


async def ask_upgrade(
    host: str,
    port: int,
    request: bytes,
    *,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
) -> Upgraded:
    """Dials, asks, and answers the connection once it is upgraded.

    Raises:
        UpgradeRefused: the answer is another.
        OSError: nobody answers, or the answer is not HTTP (TimeoutError, ConnectionError, SSLError).
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_READ_BYTES, loop=loop)
    protocol = _Reading(reader)
    async with clock.real_timeout(DIAL_S):
        transport, _ = await loop.create_connection(
            lambda: protocol, host, port, ssl=tls, server_hostname=server_hostname
        )
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    keep_alive(writer)
    upgraded = False
    try:
        async with clock.real_timeout(HEAD_S):
            writer.write(request)
            await writer.drain()
            head = await _read_head(reader)
            if head.status != _SWITCHING:
                raise UpgradeRefused(head, await _read_body(reader, head))
        upgraded = True
        return Upgraded(head, reader, writer)
    finally:
        if not upgraded:
            writer.transport.abort()


async def _read_head(reader: asyncio.StreamReader) -> Head:
    try:
        return parse_head(await reader.readuntil(b"\r\n\r\n"))
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("EOF") from None
    except (ValueError, asyncio.LimitOverrunError) as error:
        raise ConnectionError(str(error)) from None


async def _read_body(reader: asyncio.StreamReader, head: Head) -> bytes:
    """The body of a refusal, whose framing is one of HTTP's three; more than a mebibyte is cut."""
    try:
        if head.get("transfer-encoding").lower() == "chunked":
            return await _read_chunks(reader)
        length = head.get("content-length")
        if length.isdigit():
            return await reader.readexactly(min(int(length), _MAX_BODY_BYTES))
        body = b""
        while len(body) < _MAX_BODY_BYTES and (part := await reader.read(_READ_BYTES)):
            body += part
        return body
    except asyncio.IncompleteReadError as error:
        return error.partial
    except (asyncio.LimitOverrunError, ValueError):
        return b""


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while len(body) < _MAX_BODY_BYTES:
        size = int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16)
        body += (await reader.readexactly(size + 2))[:-2]
        if size == 0:
            break
    return body


class _Reading(asyncio.StreamReaderProtocol):
    """Reads a connection; what came before a reset is still read, as a reset is an end like others.

    Who answers and closes while input is still on its way resets the connection.
    """

    def __init__(self, reader: asyncio.StreamReader, former: asyncio.BaseProtocol | None = None) -> None:
        super().__init__(reader)
        self._former = former

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(None)
        if self._former is not None:
            self._former.connection_lost(exc)


def take_over(
    transport: asyncio.Transport, former: asyncio.BaseProtocol
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Takes a connection out of a server's hands, after the whole head and before any later byte.

    Args:
        former: the server's protocol, which is told of the connection's end.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_READ_BYTES, loop=loop)
    protocol = _Reading(reader, former)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    keep_alive(writer)
    return reader, writer


def keep_alive(writer: asyncio.StreamWriter) -> None:
    """Lets the kernel find out that a peer has vanished without a word."""
    connection = writer.get_extra_info("socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", _KEEPALIVE_S), ("TCP_KEEPINTVL", _KEEPALIVE_S)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "TCP_KEEPCNT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)


async def flushed(transport: asyncio.BaseTransport | None) -> None:
    """Waits until all that was written is with the kernel, or the connection is gone.

    A reader may pause for hours before it takes the rest, and closing TLS would give it half a minute.
    Asked again and again, since asyncio tells nobody when the transport below TLS has run empty.
    """
    inner = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    for part in (transport, inner):
        if isinstance(part, asyncio.WriteTransport):
            while part.get_write_buffer_size() and not part.is_closing():
                await clock.real_sleep(_FLUSH_LOOK_S)


async def close(writer: asyncio.StreamWriter) -> None:
    """Closes a connection: what was written is still sent, for a little while."""
    writer.close()
    try:
        async with clock.real_timeout(_CLOSE_S):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        pass
    finally:
        writer.transport.abort()


class Idle:
    """A deadline that moves with the traffic."""

    def __init__(self, limit_s: float = IDLE_S) -> None:
        self._limit_s = limit_s
        self.scope = clock.real_timeout(limit_s)

    def touch(self) -> None:
        """Something came: the time begins anew."""
        if not self.scope.expired():
            self.scope.reschedule(asyncio.get_running_loop().time() + self._limit_s)


class Witness(Protocol):
    """Sees what is carried, and knows whether the server has said all."""

    def asked(self, data: bytes) -> None:
        """Bytes of the client."""

    def answered(self, data: bytes) -> None:
        """Bytes of the server."""

    def whole(self) -> bool:
        """Whether nothing is missing, should the server have ended now."""


async def splice(
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    *,
    idle_s: float = IDLE_S,
    witness: Witness | None = None,
) -> None:
    """Carries bytes both ways until either side ends, then closes both.

    Each direction holds one read at most, so a side that takes nothing stops the other.
    Cancellation: both are closed.

    Args:
        witness: of a conversation that ends stream by stream. When it says that the server's end was
            one, the client closes first, within `idle_s`: clients of SPDY throw away what they have
            not handed out when the connection ends (moby/spdystream).
    """
    idle = Idle(idle_s)
    ended = asyncio.Event()
    asked, answered = (witness.asked, witness.answered) if witness else (None, None)

    async def up() -> None:
        # A server that takes nothing more may still have an answer on its way.
        if await _carry(client[0], server[1], idle, asked):
            ended.set()

    async def down() -> None:
        await _carry(server[0], client[1], idle, answered)
        ended.set()

    try:
        async with idle.scope:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(up()), group.create_task(down())]
                await ended.wait()
                for task in tasks:
                    task.cancel()
            if witness is not None and witness.whole():
                await _drain(client[0])
        if not client[0].at_eof():
            await _linger(client[0])
    except TimeoutError:
        pass
    finally:
        await asyncio.gather(close(client[1]), close(server[1]))


async def _carry(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    idle: Idle,
    see: Callable[[bytes], None] | None,
) -> bool:
    """Carries one direction; true when what is read from has ended, false when what is written to is gone."""
    try:
        while data := await reader.read(_READ_BYTES):
            idle.touch()
            if see is not None:
                see(data)
            writer.write(data)
            await writer.drain()
        await flushed(writer.transport)
    except OSError:
        return not writer.is_closing()
    return True


async def _drain(reader: asyncio.StreamReader) -> None:
    """Reads to the end."""
    while await reader.read(_READ_BYTES):
        pass


async def _linger(reader: asyncio.StreamReader) -> None:
    """Lets a client that is still sending read the end first: closing under way would reset it."""
    try:
        async with clock.real_timeout(_CLOSE_S):
            while True:
                async with clock.real_timeout(_QUIET_S):
                    if not await reader.read(_READ_BYTES):
                        return
    except OSError:
        pass  # it has closed, it is quiet, or it never ends: TimeoutError is one of these
