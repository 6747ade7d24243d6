"""Cluster DNS as programs in pods use it: what their own resolvers make of it, and what a DNS client sees."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from podyard.cluster.spec import IMAGE
from tests.cluster.live import Live, docker, eventually
from tests.cluster.networked import HTTP, PYTHON, UDP, Net, answering, service
from tests.cluster.support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MANY = 60
NEVER = {"exec": {"command": ["false"]}, "periodSeconds": 60}
WAIT = "trap 'exit 0' TERM; while :; do sleep 0.2; done"


def idle(name: str, node: str, **spec: Any) -> dict[str, Any]:
    """A busybox that waits for commands."""
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", WAIT]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [container], **spec},
    }


def many_endpoints() -> dict[str, Any]:
    """More addresses than an answer of 512 bytes can have; nobody is there."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "many-1", "labels": {"kubernetes.io/service-name": "many"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        "endpoints": [{"addresses": [f"10.244.250.{number}"]} for number in range(1, MANY + 1)],
    }


@pytest.fixture(scope="module")
def net(shared_cluster: Cluster) -> Iterator[Net]:
    """Pods `a` and `b` with names of their own, `c` that is never ready, and two with other resolvers."""
    shared_cluster.podyard("up")
    live = Live(shared_cluster.name, shared_cluster.data)
    live.podyard("push", IMAGE)
    net = Net(live, f"names-{uuid.uuid4().hex[:6]}")
    live.kubectl("create", "namespace", net.namespace)
    try:
        eventually(lambda: "default" in net.kubectl("get", "serviceaccounts"))
        first, second = net.nodes
        headless = {"clusterIP": "None"}
        net.apply(
            service("web", {"app": "web"}, HTTP, UDP),
            service("db", {"app": "web"}, HTTP, **headless),
            service("db-all", {"app": "web"}, HTTP, **headless, publishNotReadyAddresses=True),
            service("nobody", {"app": "nobody"}, HTTP, **headless),
            service("many", None, {"name": "http", "port": 80}, **headless),
            service("far", None, type="ExternalName", externalName=f"{live.name}-etcd-1"),
            service("near", None, type="ExternalName", externalName=f"web.{net.namespace}.svc.cluster.local"),
            service(
                "resolver",
                {"pod": "a"},
                {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": "names"},
            ),
            many_endpoints(),
        )
        own = {"nameservers": [net.cluster_ip("resolver")], "searches": ["elsewhere.test"]}
        options = [{"name": "ndots", "value": "2"}, {"name": "edns0"}]
        net.apply(
            answering("a", first, IMAGE, labels={"app": "web"}, hostname="host-a", subdomain="db"),
            answering("b", second, IMAGE, labels={"app": "web"}, web=8081),
            answering("c", first, IMAGE, labels={"app": "web"}, readinessProbe=NEVER),
            idle("own", second, dnsPolicy="None", dnsConfig={**own, "options": options}),
            idle("default", first, dnsPolicy="Default", dnsConfig={"options": options}),
        )
        net.running("a", "b", "own", "default")
        net.running("c", condition="ContainersReady=false")
        eventually(lambda: net.get("pod", "c")["status"]["phase"], lambda phase: phase == "Running")
        net.pods["c"] = net.get("pod", "c")
        eventually(lambda: net.endpoints("db-all"), lambda seen: seen == {"a", "b", "c"})
        # Each node's proxy knows it a moment later.
        net.programmed(f"{net.cluster_ip('resolver')} . udp . 53", "goto")
        known = sorted(net.address(pod) for pod in "abc")
        for pod in "ab":
            eventually(
                lambda pod=pod: ask(net, pod, ("db-all", "A", "udp"))[0]["records"],
                lambda seen: seen == known,
                what=f"the node of {pod} knows",
            )
        yield net
    finally:
        live.kubectl("delete", "namespace", net.namespace, "--timeout=90s", timeout_s=120)


# A DNS client on what the pod's own resolv.conf says, without its search list.
ASK = """
import json, sys
import dns.flags, dns.message, dns.query, dns.rcode, dns.resolver
server = dns.resolver.Resolver().nameservers[0]
said = []
for name, kind, how in json.loads(sys.argv[1]):
    question = dns.message.make_query(name, kind)
    answer = (dns.query.tcp if how == "tcp" else dns.query.udp)(question, server, timeout=10)
    records = sorted(record.to_text() for entry in answer.answer for record in entry)
    said.append({
        "code": dns.rcode.to_text(answer.rcode()),
        "records": records,
        "more": sorted(record.to_text() for entry in answer.additional for record in entry),
        "authority": [entry.to_text().split()[3] for entry in answer.authority],
        "cut": bool(answer.flags & dns.flags.TC),
    })
print(json.dumps(said))
"""
# What the C library makes of names, as every ordinary program in the pod does.
LIBRARY = """
import json, socket, sys
said = {}
for name in sys.argv[1:]:
    try:
        found = socket.getaddrinfo(name, 80, socket.AF_INET, socket.SOCK_STREAM)
        said[name] = sorted(entry[4][0] for entry in found)
    except socket.gaierror as error:
        said[name] = [type(error).__name__]
print(json.dumps(said))
"""


def ask(net: Net, pod: str, *questions: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Answers to (name, kind, udp or tcp); names without their end get the namespace's."""
    tail = f".{net.namespace}.svc.cluster.local."
    whole = [(name if name.endswith(".") else name + tail, kind, how) for name, kind, how in questions]
    found: list[dict[str, Any]] = net.python(pod, ASK, json.dumps(whole))
    return found


def test_services_and_their_pods_have_names(net: Net) -> None:
    a, b, c = (net.address(pod) for pod in "abc")
    web, tail = net.cluster_ip("web"), f"{net.namespace}.svc.cluster.local."
    dashed = {address: address.replace(".", "-") for address in (a, b, c)}
    asked: list[tuple[tuple[str, str, str], list[str]]] = [
        (("web", "A", "udp"), [web]),
        (("WEB", "A", "tcp"), [web]),
        (("db", "A", "udp"), sorted([a, b])),
        (("db-all", "A", "udp"), sorted([a, b, c])),
        (("host-a.db", "A", "udp"), [a]),
        ((f"{dashed[b]}.db", "A", "udp"), [b]),
        ((f"{dashed[c]}.db-all", "A", "udp"), [c]),
        ((f"{dashed[a]}.{net.namespace}.pod.cluster.local.", "A", "udp"), [a]),
        (("_http._tcp.web", "SRV", "udp"), [f"0 100 80 web.{tail}"]),
        (("_talk._udp.web", "SRV", "udp"), [f"0 100 53 web.{tail}"]),
        (("web", "SRV", "udp"), [f"0 100 53 web.{tail}", f"0 100 80 web.{tail}"]),
        (
            ("_http._tcp.db", "SRV", "tcp"),
            sorted([f"0 50 8080 host-a.db.{tail}", f"0 50 8081 {dashed[b]}.db.{tail}"]),
        ),
        ((reverse(web), "PTR", "udp"), [f"web.{tail}"]),
        (("dns-version.cluster.local.", "TXT", "udp"), ['"1.1.0"']),
        (("near", "CNAME", "udp"), [f"web.{tail}"]),
        (("near", "A", "udp"), sorted([f"web.{tail}", web])),
    ]
    said = ask(net, "b", *(question for question, _ in asked))
    for (question, records), answer in zip(asked, said, strict=True):
        if question[:2] == ("web", "SRV"):
            records = [record.replace("0 100", "0 50") for record in records]
        assert (question, answer["code"], answer["records"]) == (question, "NOERROR", records)
    [shared] = ask(net, "b", ("_http._tcp.db", "SRV", "udp"))
    assert shared["more"] == sorted([a, b])
    [pointers] = ask(net, "c", (reverse(a), "PTR", "udp"))
    assert f"host-a.db.{tail}" in pointers["records"]


def reverse(address: str) -> str:
    return ".".join(reversed(address.split("."))) + ".in-addr.arpa."


def test_what_is_not_there_and_what_has_nothing_of_a_kind(net: Net) -> None:
    c = net.address("c").replace(".", "-")
    absent = [
        ("none", "A", "udp"),
        ("nobody", "A", "udp"),
        (f"{c}.db", "A", "udp"),
        ("_no._tcp.web", "SRV", "udp"),
    ]
    absent += [("a.b.c.d.web", "A", "udp"), (reverse("10.244.250.250"), "PTR", "udp")]
    empty = [
        ("web", "AAAA", "udp"),
        ("web", "TXT", "udp"),
        ("_tcp.web", "A", "udp"),
        ("cluster.local.", "A", "udp"),
    ]
    said = ask(net, "b", *absent, *empty)
    codes = [(question, answer["code"]) for question, answer in zip([*absent, *empty], said, strict=True)]
    assert codes == [(entry, "NXDOMAIN") for entry in absent] + [(entry, "NOERROR") for entry in empty]
    assert all(answer["records"] == [] and answer["authority"] == ["SOA"] for answer in said)


def test_long_answers_are_cut_over_udp_and_whole_over_tcp(net: Net) -> None:
    short, whole = ask(net, "b", ("many", "A", "udp"), ("many", "A", "tcp"))
    assert short["cut"]
    assert 20 < len(short["records"]) < MANY
    assert not whole["cut"]
    assert len(whole["records"]) == MANY
    # An ordinary program asks again over TCP by itself.
    assert len(net.python("b", LIBRARY, "many")["many"]) == MANY


def test_ordinary_programs_find_names_by_the_search_path(net: Net) -> None:
    web, tail = net.cluster_ip("web"), f"{net.namespace}.svc.cluster.local"
    kubernetes = ["10.96.0.1"]
    expected = {
        "web": [web],
        f"web.{net.namespace}": [web],
        f"Web.{net.namespace}.SVC": [web],
        f"web.{tail}.": [web],
        "kubernetes.default": kubernetes,
        "kubernetes.default.svc": kubernetes,
        "host-a.db": [net.address("a")],
        "near": [web],
        "none": ["gaierror"],
    }
    assert net.python("b", LIBRARY, *expected) == expected
    assert net.inside("a", "hostname", "-f").strip() == f"host-a.db.{tail}"
    written = net.inside("b", "cat", "/etc/resolv.conf").splitlines()
    assert "nameserver 10.96.0.10" in written
    assert any(line.startswith(f"search {tail} svc.cluster.local cluster.local") for line in written)
    assert "options ndots:5" in written


def test_other_names_come_from_the_nodes_resolver(net: Net) -> None:
    """The engine's own names: nothing of it leaves the machine."""
    etcd = f"{net.live.name}-etcd-1"
    shown = docker("inspect", etcd, "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")
    address = shown.strip()
    assert net.python("b", LIBRARY, f"{etcd}.")[f"{etcd}."] == [address]
    for how in ("udp", "tcp"):
        forwarded, far, only = ask(net, "b", (f"{etcd}.", "A", how), ("far", "A", how), ("far", "CNAME", how))
        assert (forwarded["code"], forwarded["records"]) == ("NOERROR", [address])
        assert far["records"] == sorted([f"{etcd}.", address])
        assert only["records"] == [f"{etcd}."]
    assert net.python("b", LIBRARY, f"far.{net.namespace}.svc.cluster.local.") == {
        f"far.{net.namespace}.svc.cluster.local.": [address]
    }


def test_pods_may_have_other_resolvers(net: Net) -> None:
    own = net.inside("own", "cat", "/etc/resolv.conf").splitlines()
    assert own == [
        "search elsewhere.test",
        f"nameserver {net.cluster_ip('resolver')}",
        "options ndots:2 edns0",
    ]
    assert "192.0.2.53" in net.inside("own", "nslookup", "probe")
    assert "192.0.2.53" in net.inside("own", "nslookup", "probe.elsewhere.test")
    assert net.inside("own", "nslookup", f"web.{net.namespace}.svc.cluster.local.", code=1)
    # The node's own search list, and not the cluster's.
    default = net.inside("default", "cat", "/etc/resolv.conf")
    assert "cluster.local" not in default
    assert "options ndots:2 edns0" in default
    etcd = f"{net.live.name}-etcd-1"
    assert "Address" in net.inside("default", "nslookup", f"{etcd}.")


# Asks until answers have failed to come and have come again; prints a line once it has begun, then all codes.
KEEP_ASKING = """
import json, sys, time
import dns.exception, dns.message, dns.query, dns.rcode
codes, since, end = set(), None, time.monotonic() + 60
while since != 20 and time.monotonic() < end:
    question = dns.message.make_query(sys.argv[1], "A")
    try:
        answer = dns.query.udp(question, "10.96.0.10", timeout=0.5)
    except (dns.exception.Timeout, OSError):
        since = 0
        continue
    if not codes:
        print("begun", flush=True)
    codes.add((dns.rcode.to_text(answer.rcode()), len(answer.answer)))
    since = since if since is None else since + 1
print(json.dumps([since, sorted(codes)]))
"""


def test_a_proxy_that_starts_again_never_denies_a_name(net: Net) -> None:
    node = net.nodes[0]
    task = net.command("a", PYTHON, "-c", KEEP_ASKING, f"web.{net.namespace}.svc.cluster.local.")
    with subprocess.Popen(["docker", "exec", node, *task], stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        assert asking.stdout.readline() == "begun\n"
        assert net.live.kill(node, "proxy")
        out, _ = asking.communicate(timeout=90)
    # It was away, came back, and in between said nothing wrong.
    assert json.loads(out) == [20, [["NOERROR", 1]]]
