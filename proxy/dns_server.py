"""The DNS server of a node: answers for the cluster's zone, forwards everything else.

It listens on the cluster's DNS address, which each node holds on its loopback, so a pod's question
never leaves its node and no pod of DNS can be lost. What is not ours goes to the node's own
resolver, over UDP or TCP as it came; its answers are passed on unchanged.
"""

from __future__ import annotations

import asyncio
import struct
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode

from podyard.base import clock, ids, log, metrics
from podyard.base.run import Background
from proxy.dns_answers import PLAIN_UDP_BYTES, Response, cut, failure, respond, turned, turns, udp_limit
from proxy.zone import Zone

_LOGGER = log.get_logger("proxy.dns")
_FORWARD_TIMEOUT_S = 3.0
_FORWARDS_AT_ONCE = 200
_FORWARDS_BOUND = 1_000
_STREAMS_BOUND = 500
_CACHE_BOUND = 4_000
# Orders in which the same addresses are kept in the cache.
_TURNS_BOUND = 8
_TCP_IDLE_S = 10.0
_HEADER_BYTES = 12
_QUESTIONS = metrics.counter("podyard_dns_requests_total", "DNS questions by outcome", ("outcome",))


@dataclass(slots=True)
class _Cached:
    """Answers to one question without their ids, in the orders they are shown one after another."""

    limit: int
    orders: int
    first: int
    wires: list[bytes] = field(default_factory=list)
    shown: int = 0


class DnsServer:
    """Answers questions.

    Args:
        zone: the present zone; another one drops the cache.
        upstream: `host, port` of the resolver for everything else.
    """

    def __init__(self, zone: Callable[[], Zone], upstream: tuple[str, int]) -> None:
        self._zone = zone
        self._upstream = upstream
        self._cached_zone: Zone | None = None
        self._cache: OrderedDict[bytes, _Cached] = OrderedDict()
        self._forwards = asyncio.Semaphore(_FORWARDS_AT_ONCE)
        self._waiting = 0
        self._streams = 0
        self.port = 0

    async def run(self, host: str, port: int, ready: asyncio.Event | None = None) -> None:
        """Serves UDP and TCP; ends by cancellation only. Port 0 takes a free one."""
        async with Background() as background:
            loop = asyncio.get_running_loop()
            # TCP first: connections hold many of its ports, so one that is free there is free for UDP.
            server = await asyncio.start_server(self._serve_stream, host, port)
            try:
                self.port = server.sockets[0].getsockname()[1]
                transport, _ = await loop.create_datagram_endpoint(
                    lambda: _Datagrams(self, background), local_addr=(host, self.port)
                )
                try:
                    if ready is not None:
                        ready.set()
                    await loop.create_future()
                finally:
                    transport.close()
            finally:
                server.close()

    def answer(self, wire: bytes, *, stream: bool = False) -> bytes | None:
        """The answer from the zone or the cache; None when someone else must be asked.

        A message that is no question gets FORMERR, or nothing when not even its header is whole or it is an
        answer itself.

        Args:
            stream: it came over TCP, so its answer may be of any length.
        """
        zone = self._zone()
        if zone is not self._cached_zone:
            self._cached_zone = zone
            self._cache.clear()
        known = self._cache.get(wire[2:])
        if known is not None and len(known.wires) == known.orders:
            _QUESTIONS.labels("cached").inc()
            known.shown = (known.shown + 1) % known.orders
            return _fitting(wire[:2] + known.wires[known.shown], known.limit, stream=stream)
        if len(wire) < _HEADER_BYTES or wire[2] & 0x80:
            return b""
        try:
            query = dns.message.from_wire(wire)
            made = respond(query, zone)
        except dns.exception.DNSException:
            _QUESTIONS.labels("malformed").inc()
            return wire[:2] + b"\x80\x01" + b"\0" * 8
        if made is None or made.pending is not None:
            return None
        _QUESTIONS.labels("answered").inc()
        if known is None:
            known = self._remember(wire, query, made)
        message = turned(made.message, known.first + len(known.wires))
        response = _rendered(message)
        known.wires.append(response[2:])
        return _fitting(response, known.limit, stream=stream)

    def _remember(self, wire: bytes, query: dns.message.Message, made: Response) -> _Cached:
        orders = turns(made.message)
        known = _Cached(udp_limit(query), min(orders, _TURNS_BOUND), ids.choice_index(orders))
        if len(wire) > PLAIN_UDP_BYTES:
            return known  # no ordinary question: not worth its place
        self._cache[wire[2:]] = known
        if len(self._cache) > _CACHE_BOUND:
            self._cache.popitem(last=False)
        return known

    async def ask_elsewhere(self, wire: bytes, *, stream: bool = False) -> bytes:
        """The answer where `answer` has none: from the node's resolver, with what is ours."""
        query = dns.message.from_wire(wire)
        made = respond(query, self._zone())
        if made is None:
            response = await self.forward(wire, stream=stream)
        else:
            if made.pending is not None:
                rest = dns.message.make_query(made.pending, query.question[0].rdtype)
                await self._complete(made.message, rest)
            response = _rendered(made.message)
        return _fitting(response, udp_limit(query), stream=stream)

    async def _complete(self, message: dns.message.Message, rest: dns.message.Message) -> None:
        """Adds what the resolver knows of the name that ours is another name of."""
        try:
            found = dns.message.from_wire(await self.forward(rest.to_wire(), stream=False))
            if found.flags & dns.flags.TC:
                found = dns.message.from_wire(await self.forward(rest.to_wire(), stream=True))
        except dns.exception.DNSException as error:
            _LOGGER.debug("the resolver's answer is malformed", error=repr(error))
            message.set_rcode(dns.rcode.SERVFAIL)
            return
        message.answer.extend(found.answer)
        if found.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
            message.set_rcode(dns.rcode.SERVFAIL)

    async def forward(self, wire: bytes, *, stream: bool) -> bytes:
        """Asks the node's resolver as we were asked; SERVFAIL when it does not answer."""
        _QUESTIONS.labels("forwarded").inc()
        if self._waiting >= _FORWARDS_BOUND:
            _QUESTIONS.labels("failed").inc()
            return failure(wire)
        self._waiting += 1
        try:
            async with clock.real_timeout(_FORWARD_TIMEOUT_S), self._forwards:
                return await (_ask_stream if stream else _ask)(self._upstream, wire)
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            _LOGGER.debug("forwarding failed", error=repr(error))
            _QUESTIONS.labels("failed").inc()
            return failure(wire)
        finally:
            self._waiting -= 1

    async def _serve_stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._streams += 1
        try:
            while self._streams <= _STREAMS_BOUND:
                async with clock.real_timeout(_TCP_IDLE_S):
                    size = struct.unpack(">H", await reader.readexactly(2))[0]
                    wire = await reader.readexactly(size)
                response = self.answer(wire, stream=True)
                if response is None:
                    response = await self.ask_elsewhere(wire, stream=True)
                if not response:
                    return
                async with clock.real_timeout(_TCP_IDLE_S):
                    writer.write(struct.pack(">H", len(response)) + response)
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # the client is done
        finally:
            self._streams -= 1
            writer.close()


def _rendered(message: dns.message.Message) -> bytes:
    # The order is ours to choose; the library would shuffle.
    return message.to_wire(max_size=65535, prefer_truncation=True, want_shuffle=False)


def _fitting(response: bytes, limit: int, *, stream: bool) -> bytes:
    return response if stream or len(response) <= limit else cut(response, limit)


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer, background: Background) -> None:
        self._server = server
        self._background = background
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        response = self._server.answer(data)
        if response is None:
            self._background.start(self._ask_elsewhere(data, addr))
        elif response:
            self._send(response, addr)

    async def _ask_elsewhere(self, data: bytes, addr: tuple[str, int]) -> None:
        self._send(await self._server.ask_elsewhere(data), addr)

    def _send(self, response: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        self._transport.sendto(response, addr)

    def error_received(self, exc: Exception) -> None:
        _LOGGER.debug("datagram refused", error=repr(exc))


async def _ask(upstream: tuple[str, int], wire: bytes) -> bytes:
    """One question to a resolver, by UDP; a cut answer is passed on: the client then asks over TCP."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    class Once(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
            if data[:2] == sent[:2] and not answer.done():
                answer.set_result(data)

        def error_received(self, exc: Exception) -> None:
            if not answer.done():
                answer.set_exception(exc)

    # A fresh id on a fresh port: nobody else's answer may pass for this one.
    sent = struct.pack(">H", ids.choice_index(65536)) + wire[2:]
    transport, _ = await loop.create_datagram_endpoint(Once, remote_addr=upstream)
    try:
        transport.sendto(sent)
        return wire[:2] + (await answer)[2:]
    finally:
        transport.close()


async def _ask_stream(upstream: tuple[str, int], wire: bytes) -> bytes:
    """One question to a resolver, by TCP."""
    reader, writer = await asyncio.open_connection(*upstream)
    try:
        writer.write(struct.pack(">H", len(wire)) + wire)
        await writer.drain()
        size = struct.unpack(">H", await reader.readexactly(2))[0]
        return wire[:2] + (await reader.readexactly(size))[2:]
    finally:
        writer.close()
