"""Cluster DNS: names of Services, pods and addresses; aliases; forwarding; answers that do not fit."""

from __future__ import annotations

import asyncio
import struct

import dns.asyncquery
import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from podyard.api.types import EndpointSlice, Service
from podyard.base.run import Background
from proxy.dns_server import DnsServer
from proxy.model import Network
from proxy.zone import Srv, Zone, build


def service(name, *, ip="10.96.0.50", **spec) -> Service:
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    return Service(
        metadata={"name": name, "namespace": "shop"}, spec={"clusterIP": ip, "ports": ports, **spec}
    )


def endpoints(name, *entries) -> EndpointSlice:
    made = EndpointSlice(
        metadata={"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": name}},
        addressType="IPv4",
        ports=[{"name": "http", "port": 8080, "protocol": "TCP"}],
    )
    for address, hostname, ready in entries:
        entry = made.endpoints.add(addresses=[address], conditions={"ready": ready})
        if hostname:
            entry.hostname = hostname
    return made


ZONE = build(
    [
        service("web"),
        service("db", ip="None"),
        service("far", ip="", type="ExternalName", externalName="www.example.org"),
        service("number", ip="", type="ExternalName", externalName="192.0.2.1"),
        service("nobody", ip="None"),
    ],
    [
        endpoints(
            "db", ("10.244.1.2", "db-0", True), ("10.244.1.3", "", True), ("10.244.1.4", "db-2", False)
        ),
        endpoints("web", ("10.244.1.5", "", True), ("10.244.1.6", "named", True)),
    ],
    "cluster.local",
    Network(),
)
WEB, DB = "web.shop.svc.cluster.local", "db.shop.svc.cluster.local"


@pytest.mark.parametrize(
    ("name", "kind", "exists", "records"),
    [
        ("web.shop.svc.cluster.local", "A", True, ("10.96.0.50",)),
        ("web.shop.svc.cluster.local", "AAAA", True, ()),
        ("_http._tcp.web.shop.svc.cluster.local", "SRV", True, (Srv(80, "web.shop.svc.cluster.local"),)),
        (WEB, "SRV", True, (Srv(80, WEB),)),
        ("db.shop.svc.cluster.local", "A", True, ("10.244.1.2", "10.244.1.3")),
        (f"_http._tcp.{DB}", "SRV", True, (Srv(8080, f"db-0.{DB}"), Srv(8080, f"10-244-1-3.{DB}"))),
        (f"_http._udp.{DB}", "SRV", False, ()),
        (f"_tcp.{DB}", "SRV", True, ()),
        (f"db-0.{DB}", "SRV", True, (Srv(8080, f"db-0.{DB}"),)),
        # The specification: a headless Service without ready endpoints does not exist.
        ("nobody.shop.svc.cluster.local", "A", False, ()),
        # Endpoints of a Service with an address have names, too; its own stays its address.
        (f"10-244-1-5.{WEB}", "A", True, ("10.244.1.5",)),
        (f"named.{WEB}", "A", True, ("10.244.1.6",)),
        ("number.shop.svc.cluster.local", "A", False, ()),
        ("svc.cluster.local", "A", True, ()),
        ("pod.cluster.local", "A", True, ()),
        ("cluster.local", "A", True, ()),
        ("db-0.db.shop.svc.cluster.local", "A", True, ("10.244.1.2",)),
        ("10-244-1-3.db.shop.svc.cluster.local", "A", True, ("10.244.1.3",)),
        ("db-2.db.shop.svc.cluster.local", "A", False, ()),
        ("10-244-9-9.shop.pod.cluster.local", "A", True, ("10.244.9.9",)),
        ("999-1-1-1.shop.pod.cluster.local", "A", False, ()),
        ("shop.svc.cluster.local", "A", True, ()),
        ("nothing.shop.svc.cluster.local", "A", False, ()),
        ("dns-version.cluster.local", "TXT", True, ("1.1.0",)),
    ],
)
def test_names(name, kind, exists, records):
    found = ZONE.lookup(name, kind)
    assert (found.exists, found.records) == (exists, records)


def test_an_external_name_is_another_name():
    found = ZONE.lookup("far.shop.svc.cluster.local", "A")
    assert found.cname
    assert found.records == ("www.example.org",)


def test_addresses_have_names():
    assert ZONE.pointer("10.96.0.50").records == ("web.shop.svc.cluster.local",)
    assert ZONE.pointer("10.244.1.2").records == ("db-0.db.shop.svc.cluster.local",)
    assert ZONE.pointer("10.244.1.5").records == (f"10-244-1-5.{WEB}",)
    assert not ZONE.pointer("10.244.1.9").exists


class Upstream(asyncio.DatagramProtocol):
    """A resolver that knows a few names; over UDP it says of `long.example.` only that it is long."""

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        answer = self.answer(data, stream=False)
        if answer is not None:
            self.transport.sendto(answer, addr)

    async def serve(self, reader, writer):
        size = struct.unpack(">H", await reader.readexactly(2))[0]
        answer = self.answer(await reader.readexactly(size), stream=True)
        if answer is not None:
            writer.write(struct.pack(">H", len(answer)) + answer)
            await writer.drain()
        writer.close()

    def answer(self, wire, *, stream):
        query = dns.message.from_wire(wire)
        name = query.question[0].name.to_text()
        answer = dns.message.make_response(query)
        if name == "known.example.":
            answer.answer.append(dns.rrset.from_text(name, 60, "IN", "A", "192.0.2.7"))
        elif name == "long.example." and stream:
            addresses = [f"192.0.2.{number}" for number in range(1, 201)]
            answer.answer.append(dns.rrset.from_text_list(name, 60, "IN", "A", addresses))
        elif name == "long.example.":
            answer.flags |= dns.flags.TC
        elif name == "broken.example.":
            answer.set_rcode(dns.rcode.SERVFAIL)
        elif name == "absent.example.":
            answer.set_rcode(dns.rcode.NXDOMAIN)
        else:
            return None
        return answer.to_wire()


def alias(name, target) -> Service:
    return service(name, ip="", type="ExternalName", externalName=target)


MANY = build(
    [
        service("many", ip="None"),
        service("few", ip="None"),
        service("web"),
        alias("known", "Known.Example."),
        alias("long", "long.example"),
        alias("broken", "broken.example"),
        alias("absent", "absent.example"),
        alias("inner", "web.shop.svc.cluster.local"),
        alias("outer", "inner.shop.svc.cluster.local"),
        alias("round", "and-round.shop.svc.cluster.local"),
        alias("and-round", "round.shop.svc.cluster.local"),
        alias("nowhere", "none.shop.svc.cluster.local"),
    ],
    [
        endpoints("many", *((f"10.244.2.{n}", "", True) for n in range(1, 101))),
        endpoints("few", *((f"10.244.3.{n}", "", True) for n in range(1, 5))),
    ],
    "cluster.local",
    Network(),
)


@pytest.fixture
async def ask():
    """Asks a server over `MANY`, whose upstream is the one above."""
    loop = asyncio.get_running_loop()
    upstream = Upstream()
    streams = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    address = streams.sockets[0].getsockname()[:2]
    transport, _ = await loop.create_datagram_endpoint(lambda: upstream, local_addr=address)
    server = DnsServer(lambda: MANY, address)
    ready = asyncio.Event()

    async def question(name, kind="A", *, tcp=False, **options):
        query = dns.message.make_query(name, kind, **options)
        over = dns.asyncquery.tcp if tcp else dns.asyncquery.udp
        return await over(query, "127.0.0.1", port=server.port, timeout=5)

    async with Background() as background:
        background.start(server.run("127.0.0.1", 0, ready))
        await ready.wait()
        yield question
    transport.close()
    streams.close()


async def test_the_server_answers_for_the_zone(ask):
    for _ in range(2):  # the second answer comes from the cache
        answer = await ask("WEB.shop.svc.cluster.local")
        assert answer.answer[0][0].address == "10.96.0.50"
        assert answer.answer[0].name.to_text() == "WEB.shop.svc.cluster.local."
        assert answer.flags & dns.flags.AA
    missing = await ask("none.shop.svc.cluster.local")
    assert missing.rcode() == dns.rcode.NXDOMAIN
    assert missing.authority[0].rdtype == dns.rdatatype.SOA
    empty = await ask("web.shop.svc.cluster.local", "AAAA")
    assert (empty.rcode(), empty.answer) == (dns.rcode.NOERROR, [])
    assert empty.authority[0].rdtype == dns.rdatatype.SOA
    pointer = await ask("50.0.96.10.in-addr.arpa", "PTR")
    assert pointer.answer[0][0].target.to_text() == "web.shop.svc.cluster.local."


async def test_shares_of_srv_records_and_their_addresses(ask):
    [only] = (await ask("_http._tcp.web.shop.svc.cluster.local", "SRV")).answer
    assert [(r.priority, r.weight, r.port) for r in only] == [(0, 100, 80)]
    answer = await ask("_http._tcp.few.shop.svc.cluster.local", "SRV")
    assert {(r.weight, r.port) for r in answer.answer[0]} == {(25, 8080)}
    hosts = {entry.name.to_text(): entry[0].address for entry in answer.additional}
    assert hosts == {f"10-244-3-{n}.few.shop.svc.cluster.local.": f"10.244.3.{n}" for n in range(1, 5)}
    crowd = await ask("_http._tcp.many.shop.svc.cluster.local", "SRV", tcp=True)
    assert {r.weight for r in crowd.answer[0]} == {1}


async def test_every_address_comes_first_at_times(ask):
    seen = [await ask("few.shop.svc.cluster.local") for _ in range(8)]
    assert all(
        {r.address for r in answer.answer[0]} == set(MANY.addresses["few.shop.svc.cluster.local"])
        for answer in seen
    )
    firsts = [answer.answer[0][0].address for answer in seen]
    assert len(set(firsts[:4])) == len(set(firsts[4:])) == 4


async def test_other_names_are_forwarded_over_udp_and_tcp_as_they_came(ask):
    for tcp in (False, True):
        answer = await ask("known.example", tcp=tcp)
        assert answer.answer[0][0].address == "192.0.2.7"
    assert (await ask("long.example")).flags & dns.flags.TC
    assert len((await ask("long.example", tcp=True)).answer[0]) == 200
    assert (await ask("absent.example")).rcode() == dns.rcode.NXDOMAIN


async def test_reverse_names_of_our_own_ranges_are_never_forwarded(ask):
    for address in ("9.9.244.10", "9.9.96.10"):
        answer = await ask(f"{address}.in-addr.arpa", "PTR")
        assert answer.rcode() == dns.rcode.NXDOMAIN
        assert answer.authority[0].rdtype == dns.rdatatype.SOA


async def test_an_external_name_comes_with_what_it_stands_for(ask):
    def shown(message):
        return [(entry.name.to_text().split(".")[0], entry[0].to_text()) for entry in message.answer]

    for tcp in (False, True):
        answer = await ask("known.shop.svc.cluster.local", tcp=tcp)
        assert shown(answer) == [("known", "known.example."), ("known", "192.0.2.7")]
    only = await ask("known.shop.svc.cluster.local", "CNAME")
    assert shown(only) == [("known", "known.example.")]
    inner = await ask("outer.shop.svc.cluster.local")
    assert shown(inner) == [
        ("outer", "inner.shop.svc.cluster.local."),
        ("inner", "web.shop.svc.cluster.local."),
        ("web", "10.96.0.50"),
    ]
    whole = await ask("long.shop.svc.cluster.local", tcp=True)
    assert len(whole.answer[1]) == 200
    absent = await ask("absent.shop.svc.cluster.local")
    assert (absent.rcode(), shown(absent)) == (dns.rcode.NOERROR, [("absent", "absent.example.")])
    broken = await ask("broken.shop.svc.cluster.local")
    assert (broken.rcode(), len(broken.answer)) == (dns.rcode.SERVFAIL, 1)
    assert (await ask("round.shop.svc.cluster.local")).rcode() == dns.rcode.SERVFAIL
    nowhere = await ask("nowhere.shop.svc.cluster.local")
    assert (nowhere.rcode(), len(nowhere.answer)) == (dns.rcode.NXDOMAIN, 1)


@pytest.mark.parametrize(
    ("options", "records"),
    [({}, 29), ({"use_edns": 0, "payload": 600}, 34), ({"use_edns": 0, "payload": 4096}, 100)],
)
async def test_as_much_of_a_long_answer_as_the_client_takes_over_udp_and_all_over_tcp(ask, options, records):
    name = "many.shop.svc.cluster.local"
    short = await ask(name, **options)
    assert len(short.answer[0]) == records
    assert bool(short.flags & dns.flags.TC) is (records < 100)
    assert bool(short.opt) is bool(options)
    whole = await ask(name, tcp=True, **options)
    assert (len(whole.answer[0]), whole.flags & dns.flags.TC) == (100, 0)


async def test_before_the_names_are_known_none_is_absent():
    server = DnsServer(lambda: Zone("cluster.local", complete=False), ("127.0.0.1", 9))
    query = dns.message.make_query("web.shop.svc.cluster.local", "A")
    assert dns.message.from_wire(server.answer(query.to_wire())).rcode() == dns.rcode.SERVFAIL
    other = dns.message.make_query("known.example", "A")
    assert server.answer(other.to_wire()) is None


async def test_a_silent_resolver_is_a_failure_that_every_client_can_read():
    server = DnsServer(lambda: ZONE, ("127.0.0.1", 9))
    for options in ({}, {"use_edns": 0, "payload": 1232}):
        query = dns.message.make_query("known.example", "A", **options)
        for stream in (False, True):
            answer = dns.message.from_wire(await server.ask_elsewhere(query.to_wire(), stream=stream))
            assert (answer.rcode(), answer.id, answer.question) == (
                dns.rcode.SERVFAIL,
                query.id,
                query.question,
            )


@pytest.mark.parametrize(
    "name",
    ["x.in-addr.arpa", "1.in-addr.arpa", "in-addr.arpa", "999.1.1.1.in-addr.arpa", "a.1.2.3.4.in-addr.arpa"],
)
async def test_reverse_names_that_are_no_address_are_someone_elses(name):
    server = DnsServer(lambda: ZONE, ("127.0.0.1", 9))
    assert server.answer(dns.message.make_query(name, "PTR").to_wire()) is None


async def test_rubbish_does_no_harm(ask):
    server = DnsServer(lambda: ZONE, ("127.0.0.1", 9))
    assert server.answer(b"") == b""
    assert server.answer(b"\x12\x34rubbish") == b""
    assert server.answer(b"\x12\x34" + b"\0" * 3 + b"rubbish and more")[:4] == b"\x12\x34\x80\x01"
    # An answer is no question: two servers would never come to an end.
    query = dns.message.make_query("web.shop.svc.cluster.local", "A")
    assert server.answer(dns.message.make_response(query).to_wire()) == b""
    query.set_opcode(dns.opcode.STATUS)
    assert dns.message.from_wire(server.answer(query.to_wire())).rcode() == dns.rcode.NOTIMP
    assert (await ask("web.shop.svc.cluster.local")).answer
