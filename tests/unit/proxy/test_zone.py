"""Cluster DNS: names of Services, pods and addresses; forwarding; truncation."""

from __future__ import annotations

import asyncio

import dns.asyncquery
import dns.message
import dns.rcode
import dns.rdatatype
import pytest

from podyard.api.types import EndpointSlice, Service
from podyard.base.run import Background
from proxy.dns_server import DnsServer
from proxy.zone import Srv, build


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
    ],
    [endpoints("db", ("10.244.1.2", "db-0", True), ("10.244.1.3", "", True), ("10.244.1.4", "db-2", False))],
    "cluster.local",
)


@pytest.mark.parametrize(
    ("name", "kind", "exists", "records"),
    [
        ("web.shop.svc.cluster.local", "A", True, ("10.96.0.50",)),
        ("web.shop.svc.cluster.local", "AAAA", True, ()),
        ("_http._tcp.web.shop.svc.cluster.local", "SRV", True, (Srv(80, "web.shop.svc.cluster.local"),)),
        ("db.shop.svc.cluster.local", "A", True, ("10.244.1.2", "10.244.1.3")),
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
    assert not ZONE.pointer("10.244.1.9").exists


@pytest.fixture
async def ask():
    """Asks a server whose upstream knows one name and keeps silent about others."""

    class Upstream(asyncio.DatagramProtocol):
        def connection_made(self, transport):
            self.transport = transport

        def datagram_received(self, data, addr):
            query = dns.message.from_wire(data)
            if query.question[0].name.to_text() != "known.example.":
                return
            answer = dns.message.make_response(query)
            answer.answer.append(dns.rrset.from_text("known.example.", 60, "IN", "A", "192.0.2.7"))
            self.transport.sendto(answer.to_wire(), addr)

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Upstream, local_addr=("127.0.0.1", 0))
    many = build(
        [service("many", ip="None"), service("web")],
        [endpoints("many", *((f"10.244.2.{n}", "", True) for n in range(1, 101)))],
        "cluster.local",
    )
    server = DnsServer(lambda: many, transport.get_extra_info("sockname")[:2])
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


async def test_the_server_answers_for_the_zone(ask):
    for _ in range(2):  # the second answer comes from the cache
        answer = await ask("WEB.shop.svc.cluster.local")
        assert answer.answer[0][0].address == "10.96.0.50"
    missing = await ask("none.shop.svc.cluster.local")
    assert missing.rcode() == dns.rcode.NXDOMAIN
    assert missing.authority[0].rdtype == dns.rdatatype.SOA
    empty = await ask("web.shop.svc.cluster.local", "AAAA")
    assert (empty.rcode(), empty.answer) == (dns.rcode.NOERROR, [])
    pointer = await ask("50.0.96.10.in-addr.arpa", "PTR")
    assert pointer.answer[0][0].target.to_text() == "web.shop.svc.cluster.local."


async def test_other_names_are_forwarded(ask):
    answer = await ask("known.example")
    assert answer.answer[0][0].address == "192.0.2.7"


async def test_a_long_answer_is_cut_over_udp_and_whole_over_tcp(ask):
    short = await ask("many.shop.svc.cluster.local")
    assert short.flags & dns.flags.TC
    whole = await ask("many.shop.svc.cluster.local", tcp=True)
    assert len(whole.answer[0]) == 100


async def test_rubbish_does_no_harm(ask):
    server = DnsServer(lambda: ZONE, ("127.0.0.1", 9))
    assert server.answer(b"") == b""
    assert server.answer(b"\x12\x34rubbish")[:2] == b"\x12\x34"
    assert (await ask("web.shop.svc.cluster.local")).answer
