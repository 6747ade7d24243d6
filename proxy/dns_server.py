"""The DNS server of a node: answers for the cluster's zone, forwards everything else.

It listens on the cluster's DNS address, which each node holds on its loopback, so a pod's question
never leaves its node and no pod of DNS can be lost. What is not ours goes to the node's own
resolver; its answers are passed on unchanged.
"""

from __future__ import annotations

import asyncio
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import cast

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.reversename
import dns.rrset

from podyard.base import clock, ids, log, metrics
from podyard.base.run import Background
from proxy.zone import Answer, Srv, Zone

_LOGGER = log.get_logger("proxy.dns")
TTL_S = 5
_FORWARD_TIMEOUT_S = 3.0
_FORWARDS_AT_ONCE = 200
_CACHE_BOUND = 10_000
_MAX_UDP_BYTES = 1232
_TCP_IDLE_S = 10.0
_QUESTIONS = metrics.counter("podyard_dns_requests_total", "DNS questions by outcome", ("outcome",))


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
        self._cache: OrderedDict[bytes, bytes] = OrderedDict()
        self._forwards = asyncio.Semaphore(_FORWARDS_AT_ONCE)
        self.port = 0

    async def run(self, host: str, port: int, ready: asyncio.Event | None = None) -> None:
        """Serves UDP and TCP; ends by cancellation only. Port 0 takes a free one."""
        async with Background() as background:
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_datagram_endpoint(
                lambda: _Datagrams(self, background), local_addr=(host, port)
            )
            self.port = transport.get_extra_info("sockname")[1]
            server = await asyncio.start_server(self._serve_stream, host, self.port)
            try:
                if ready is not None:
                    ready.set()
                await asyncio.get_running_loop().create_future()
            finally:
                transport.close()
                server.close()

    def answer(self, wire: bytes) -> bytes | None:
        """The answer from the zone or the cache; None when the question must be forwarded.

        A message that is no question gets FORMERR, or nothing when even its id is missing.
        """
        zone = self._zone()
        if zone is not self._cached_zone:
            self._cached_zone = zone
            self._cache.clear()
        cached = self._cache.get(wire[2:])
        if cached is not None:
            _QUESTIONS.labels("cached").inc()
            return wire[:2] + cached
        try:
            query = dns.message.from_wire(wire)
        except dns.exception.DNSException:
            _QUESTIONS.labels("malformed").inc()
            return wire[:2] + b"\x80\x01" + b"\0" * 8 if len(wire) >= 2 else b""
        made = _respond(query, zone)
        if made is None:
            return None
        _QUESTIONS.labels("answered").inc()
        response = made.to_wire(max_size=65535)
        self._cache[wire[2:]] = response[2:]
        if len(self._cache) > _CACHE_BOUND:
            self._cache.popitem(last=False)
        return response

    async def forward(self, wire: bytes) -> bytes:
        """Asks the node's resolver; SERVFAIL when it does not answer."""
        _QUESTIONS.labels("forwarded").inc()
        try:
            async with self._forwards, clock.real_timeout(_FORWARD_TIMEOUT_S):
                return await _ask(self._upstream, wire)
        except (TimeoutError, OSError) as error:
            _LOGGER.debug("forwarding failed", error=repr(error))
            _QUESTIONS.labels("failed").inc()
            return wire[:2] + b"\x81\x82" + wire[4:6] + b"\0" * 6 + wire[12:]

    async def _serve_stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                async with clock.real_timeout(_TCP_IDLE_S):
                    size = struct.unpack(">H", await reader.readexactly(2))[0]
                    wire = await reader.readexactly(size)
                response = self.answer(wire)
                if response is None:
                    response = await self.forward(wire)
                writer.write(struct.pack(">H", len(response)) + response)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # the client is done
        finally:
            writer.close()


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
            self._background.start(self._forward(data, addr))
        elif response:
            self._send(response, data, addr)

    async def _forward(self, data: bytes, addr: tuple[str, int]) -> None:
        self._send(await self._server.forward(data), data, addr)

    def _send(self, response: bytes, query: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        if len(response) > _limit(query):
            # Truncated: the client asks again over TCP.
            response = (
                response[:2]
                + bytes((response[2] | 0x02, response[3]))
                + query[4:6]
                + b"\0" * 6
                + _question(query)
            )
        self._transport.sendto(response, addr)

    def error_received(self, exc: Exception) -> None:
        _LOGGER.debug("datagram refused", error=repr(exc))


def _limit(query: bytes) -> int:
    """How long an answer the client takes: 512 bytes unless it speaks EDNS."""
    return _MAX_UDP_BYTES if query[10:12] != b"\0\0" else 512


def _question(query: bytes) -> bytes:
    end = 12
    while end < len(query) and query[end]:
        end += query[end] + 1
    return query[12 : end + 5]


def _respond(query: dns.message.Message, zone: Zone) -> dns.message.Message | None:
    """The answer to a question of ours, None when it is not."""
    if len(query.question) != 1:
        response = dns.message.make_response(query)
        response.set_rcode(dns.rcode.FORMERR)
        return response
    question = query.question[0]
    name = question.name.to_text(omit_final_dot=True).lower()
    kind = dns.rdatatype.to_text(question.rdtype)
    if zone.covers(name):
        found = zone.lookup(name, kind)
    elif kind == "PTR" and name.endswith(".in-addr.arpa"):
        found = zone.pointer(dns.reversename.to_address(question.name))
        if not found.exists:
            return None
    else:
        return None
    response = dns.message.make_response(query)
    response.flags |= dns.flags.AA | dns.flags.RA
    _fill(response, question, found, kind, zone)
    return response


def _fill(
    response: dns.message.Message, question: dns.rrset.RRset, found: Answer, kind: str, zone: Zone
) -> None:
    owner = question.name
    if found.records:
        shown_kind = "CNAME" if found.cname else kind
        data = [_data(record, shown_kind) for record in found.records]
        response.answer.append(dns.rrset.from_text_list(owner, TTL_S, "IN", shown_kind, data))
        for record in found.records:
            if isinstance(record, Srv):
                targets = zone.lookup(record.target, "A").records
                if targets:
                    extra = dns.rrset.from_text_list(f"{record.target}.", TTL_S, "IN", "A", list(targets))
                    response.additional.append(extra)
        return
    if not found.exists:
        response.set_rcode(dns.rcode.NXDOMAIN)
    # How long nothing may be remembered: as long as something.
    soa = f"ns.dns.{zone.domain}. hostmaster.{zone.domain}. 1 7200 1800 86400 {TTL_S}"
    response.authority.append(dns.rrset.from_text(f"{zone.domain}.", TTL_S, "IN", "SOA", soa))


def _data(record: object, kind: str) -> str:
    if isinstance(record, Srv):
        return f"0 100 {record.port} {record.target}."
    if kind in ("CNAME", "PTR"):
        return f"{record}."
    return f'"{record}"' if kind == "TXT" else str(record)


async def _ask(upstream: tuple[str, int], wire: bytes) -> bytes:
    """One question to a resolver, by UDP; a truncated answer is passed on: the client knows what to do."""
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
