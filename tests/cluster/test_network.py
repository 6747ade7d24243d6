"""The network as pods and nodes see it: addresses, Services, node ports, policies, and what may not leave."""

from __future__ import annotations

import ipaddress
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from podyard.cluster.spec import IMAGE
from tests.cluster.live import Live, eventually
from tests.cluster.networked import HTTP, UDP, WEB, Net, answering, docker_subnet, service
from tests.cluster.support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

REFUSED, SILENT = {"curl: (7)"}, {"curl: (28)"}


@pytest.fixture(scope="module")
def net(shared_cluster: Cluster) -> Iterator[Net]:
    """Pods `a` and `c` on the first node, `b` on the second; `a` and `b` stand behind most Services."""
    shared_cluster.podyard("up")
    live = Live(shared_cluster.name, shared_cluster.data)
    live.podyard("push", IMAGE)
    net = Net(live, f"network-{uuid.uuid4().hex[:6]}")
    live.kubectl("create", "namespace", net.namespace)
    try:
        eventually(lambda: "default" in net.kubectl("get", "serviceaccounts"))
        first, second = net.nodes
        net.apply(
            answering("a", first, IMAGE, labels={"app": "web"}),
            answering("b", second, IMAGE, labels={"app": "web"}, web=8081, talk=5001),
            answering("c", first, IMAGE),
        )
        net.running("a", "b", "c")
        yield net
    finally:
        live.kubectl("delete", "namespace", net.namespace, "--timeout=90s", timeout_s=120)


def test_pods_services_and_node_ports_are_reached_from_everywhere(net: Net) -> None:
    first, second = net.nodes
    b, c = net.address("b"), net.address("c")
    assert net.asks("c", f"{b}:8081") == {f"b {c}"}
    assert net.asks("b", f"{c}:{WEB}") == {f"c {b}"}

    outside = str(list(ipaddress.ip_network(docker_subnet(net.live.name)).hosts())[-1])
    net.apply(service("web", {"app": "web"}, HTTP, type="NodePort", externalIPs=[outside]))
    eventually(lambda: net.endpoints("web"), lambda seen: seen == {"a", "b"})
    # A named port is another number in each pod: each number has its slice.
    slices = net.get("endpointslices", "-l", "kubernetes.io/service-name=web")["items"]
    assert sorted(item["ports"][0]["port"] for item in slices) == [WEB, 8081]
    address, port = net.cluster_ip("web"), net.node_port("web")
    net.programmed(f"{outside} . tcp . 80", "goto ext_")
    for place in (first, second, "c", "b"):
        targets = [f"{address}:80", f"{outside}:80"]
        targets += [f"{net.node_address(node)}:{port}" for node in (first, second)]
        for target in targets:
            eventually(
                lambda place=place, target=target: net.names(place, target, times=10),
                lambda seen: seen == {"a", "b"},
                what=f"{place} asks {target}:",
            )
    # By the Service's own address a pod's source is kept, from outside it is the node's.
    assert f"b {c}" in net.asks("c", f"{address}:80", times=16)
    assert f"b {net.node_address(first)}" in net.asks(first, f"{net.node_address(first)}:{port}", times=16)
    # On a port that the Service does not have, its address refuses.
    for place in ("c", first):
        assert net.asks(place, f"{address}:81") == REFUSED


def test_a_pod_reaches_itself_by_its_service(net: Net) -> None:
    net.apply(service("self", {"pod": "a"}, HTTP, UDP))
    address = net.cluster_ip("self")
    net.programmed(f"{address} . tcp . 80", "goto")
    net.programmed(f"{address} . udp . 53", "goto")
    [said] = net.asks("a", f"{address}:80")
    name, _, source = said.partition(" ")
    assert name == "a"
    assert source != net.address("a"), "else the answer would not find its way"
    assert net.talks("a", f"{address}:53").startswith("a ")


def affinity(net: Net, node: str) -> dict[str, set[str]]:
    """Affinity set -> clients in it."""
    found: dict[str, set[str]] = {}
    for row in net.table(node):
        made = row.get("set", {})
        if made.get("name", "").startswith("aff_"):
            found[made["name"]] = {element["elem"]["val"] for element in made.get("elem", ())}
    return found


@pytest.fixture
def no_memory(net: Net) -> None:
    """No Service that remembers its clients, as a test that failed would have left."""
    net.kubectl("delete", "service", "sticky", "still", "--ignore-not-found")
    for node in net.nodes:
        eventually(lambda node=node: affinity(net, node), lambda sets: not sets)


def table_handle(net: Net, node: str) -> int:
    return next(int(row["table"]["handle"]) for row in net.table(node) if "table" in row)


AGAIN_UNTIL_BOTH = """
import json, sys, time, urllib.request
seen, end = [], time.monotonic() + 60
while len(set(seen)) < 2 and time.monotonic() < end:
    with urllib.request.urlopen(f"http://{sys.argv[1]}", timeout=5) as answer:
        seen.append(answer.read().decode().split(" ")[0])
    time.sleep(1.2)
print(json.dumps(seen))
"""


def test_a_client_stays_with_its_backend_for_its_time(net: Net, no_memory: None) -> None:
    first = net.nodes[0]

    def sticky(seconds: int) -> dict[str, Any]:
        config = {"clientIP": {"timeoutSeconds": seconds}}
        spec = {"sessionAffinity": "ClientIP", "sessionAffinityConfig": config, "type": "NodePort"}
        return service("sticky", {"app": "web"}, HTTP, **spec)

    net.apply(sticky(600))
    address, port = net.cluster_ip("sticky"), net.node_port("sticky")
    net.programmed(f"{address} . tcp . 80", "goto")
    eventually(lambda: len(affinity(net, first)), lambda count: count == 2, what="sets of backends:")
    [mine] = net.names("c", f"{address}:80", times=12)
    # By the node port it is the same client of the same Service.
    assert net.names("c", f"{net.node_address(first)}:{port}", times=12) == {mine}
    client = net.address("c")
    [kept] = [name for name, clients in affinity(net, first).items() if client in clients]

    # A new process writes all rules anew, and forgets nobody.
    before = table_handle(net, first)
    assert net.live.kill(first, "proxy")
    eventually(lambda: table_handle(net, first), lambda handle: handle != before, what="the same table:")
    assert client in affinity(net, first)[kept]
    assert net.names("c", f"{address}:80", times=12) == {mine}

    # Another time is another memory; once it is over, any backend may be chosen.
    net.apply(sticky(1))
    eventually(lambda: set(affinity(net, first)), lambda names: len(names) == 2 and kept not in names)
    assert set(net.python("c", AGAIN_UNTIL_BOTH, f"{address}:80")) == {"a", "b"}
    net.kubectl("delete", "service", "sticky")
    eventually(lambda: affinity(net, first), lambda sets: not sets)


def test_local_policies_stay_on_the_node_and_keep_sources(net: Net) -> None:
    first, second = net.nodes
    net.apply(
        service("near", {"app": "web"}, HTTP, internalTrafficPolicy="Local"),
        service("only-b", {"pod": "b"}, HTTP, internalTrafficPolicy="Local"),
        service("outside", {"pod": "b"}, HTTP, type="NodePort", externalTrafficPolicy="Local"),
    )
    near, only_b = net.cluster_ip("near"), net.cluster_ip("only-b")
    for address in (near, net.cluster_ip("outside")):
        net.programmed(f"{address} . tcp . 80", "goto")
    for place, mine in (("c", "a"), (first, "a"), ("b", "b"), (second, "b")):
        assert net.names(place, f"{near}:80", times=12) == {mine}
    # Where there is none, silence: nobody may take it for an end of the Service.
    eventually(lambda: net.verdicts(first).get(f"{only_b} . tcp . 80"), lambda seen: seen == "drop")
    eventually(lambda: net.verdicts(second).get(f"{only_b} . tcp . 80", "").startswith("goto"))
    assert net.asks("c", f"{only_b}:80") == SILENT
    assert net.names("b", f"{only_b}:80") == {"b"}

    port = net.node_port("outside")
    here, there = (f"{net.node_address(node)}:{port}" for node in (first, second))
    assert net.asks(first, there) == {f"b {net.node_address(first)}"}
    assert net.asks(second, here) == SILENT
    # Whoever asks on the node itself is as if he had come by a balancer.
    assert net.names(first, here) == net.names("c", here) == net.names(second, there) == {"b"}
    assert net.names(first, f"{net.cluster_ip('outside')}:80") == {"b"}


def test_a_balancers_address_is_for_its_sources_only(net: Net) -> None:
    first, second = net.nodes
    address = str(list(ipaddress.ip_network(docker_subnet(net.live.name)).hosts())[-2])
    allowed = f"{net.node_address(second)}/32"
    net.apply(
        service("balanced", {"app": "web"}, HTTP, type="LoadBalancer", loadBalancerSourceRanges=[allowed])
    )
    status = {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}
    net.kubectl("patch", "service", "balanced", "--subresource=status", "-p", json.dumps(status))
    net.programmed(f"{address} . tcp . 80", "goto fw_", name="guarded")
    net.programmed(f"{address} . tcp . 80", "goto ext_")
    assert net.names(second, f"{address}:80") <= {"a", "b"}
    for place in (first, "c", "b"):
        assert net.asks(place, f"{address}:80") == SILENT
    # The limit is the balancer's alone.
    assert net.names("c", f"{net.cluster_ip('balanced')}:80") <= {"a", "b"}


def test_a_service_without_endpoints_refuses_at_once(net: Net) -> None:
    first, second = net.nodes
    net.apply(service("nobody", {"pod": "nobody"}, HTTP, UDP, type="NodePort"))
    address, port = net.cluster_ip("nobody"), net.node_port("nobody")
    net.programmed(f"{address} . tcp . 80", name="refused")
    net.programmed(f"tcp . {port}", name="refused_node_ports")
    for place in (first, "c", "b"):
        for target in (f"{address}:80", *(f"{net.node_address(node)}:{port}" for node in (first, second))):
            assert (place, target, net.asks(place, target)) == (place, target, REFUSED)
    # What a UDP socket makes of ICMP's port unreachable.
    assert net.talks("c", f"{address}:53") == "ConnectionRefusedError"


def test_a_udp_client_that_keeps_its_socket_follows_the_endpoints(net: Net) -> None:
    second = net.nodes[1]
    net.apply(service("talk", {"talk": "yes"}, UDP, type="NodePort"))
    by_address = f"{net.cluster_ip('talk')}:53"
    by_port = f"{net.node_address(second)}:{net.node_port('talk')}"
    # The second client's flow is on the other node; both keep one socket all the time.
    clients = (("c", by_address), ("b", by_port))

    def answers(expected: str) -> None:
        for client, target in clients:
            eventually(
                lambda client=client, target=target: net.talks(client, target).split(" ")[0],
                lambda said: said == expected,
                what=f"{client} is answered by",
            )

    answers("ConnectionRefusedError")
    for pod, other in (("a", "b"), ("b", "a"), ("a", "b")):
        net.label(pod, "talk=yes")
        net.label(other, "talk-")
        answers(pod)
    net.label("a", "talk-")
    answers("ConnectionRefusedError")


def test_an_ending_pod_serves_until_another_is_ready(net: Net) -> None:
    first = net.nodes[0]
    net.apply(
        answering("ending", first, IMAGE, labels={"last": "yes"}, terminationGracePeriodSeconds=120),
        service("last", {"last": "yes"}, HTTP),
    )
    net.running("ending")
    address = net.cluster_ip("last")
    net.kubectl("delete", "pod", "ending", "--wait=false")
    eventually(lambda: net.endpoints("last", "terminating"), lambda seen: seen == {"ending"})
    assert net.endpoints("last", "serving") == {"ending"}
    assert net.endpoints("last", "ready") == set()
    assert net.names("b", f"{address}:80", times=3) == {"ending"}
    net.label("a", "last=yes")
    eventually(lambda: net.names("b", f"{address}:80", times=8), lambda seen: seen == {"a"})
    net.label("a", "last-")
    eventually(lambda: net.names("b", f"{address}:80", times=3), lambda seen: seen == {"ending"})
    net.asks("c", f"{net.address('ending')}:{WEB}/end")
    net.kubectl("wait", "--for=delete", "pod/ending", "--timeout=60s")
    net.programmed(f"{address} . tcp . 80", name="refused")


def handles(net: Net, node: str) -> dict[str, list[Any]]:
    """Chain, map or set -> the handles of it and its rules, and its elements."""
    found: dict[str, list[Any]] = {}
    for row in net.table(node):
        for kind in ("chain", "map", "set"):
            if kind in row:
                found[f"{kind} {row[kind]['name']}"] = [row[kind]["handle"]]
        if "rule" in row:
            found[f"chain {row['rule']['chain']}"].append(row["rule"]["handle"])
    return found


def test_a_change_of_one_service_leaves_the_rules_of_the_others_alone(net: Net, no_memory: None) -> None:
    node = net.nodes[0]
    still = {"sessionAffinity": "ClientIP", "type": "NodePort"}
    net.apply(service("still", {"app": "web"}, HTTP, **still), service("moves", {"moves": "yes"}, HTTP))
    element = f"{net.cluster_ip('moves')} . tcp . 80"
    net.label("a", "moves=yes")
    net.programmed(f"{net.cluster_ip('still')} . tcp . 80", "goto")
    net.programmed(element, "goto")
    # Both of its backends, so that nothing of it is still to come.
    eventually(lambda: len(affinity(net, node)), lambda count: count == 2, what="sets of backends:")
    before, table = handles(net, node), table_handle(net, node)
    moving = "chain " + net.verdicts(node)[element].removeprefix("goto ")
    net.label("b", "moves=yes")
    after = eventually(lambda: handles(net, node), lambda seen: seen[moving] != before[moving])
    assert {name for name in after if after[name] != before.get(name)} == {moving}
    assert before.keys() == after.keys()
    # Gone and there again: its own chain only.
    for pod in ("a", "b"):
        net.label(pod, "moves-")
    gone = eventually(lambda: handles(net, node), lambda seen: moving not in seen)
    assert gone == {name: rows for name, rows in before.items() if name != moving}
    assert table_handle(net, node) == table


COUNT = """
uplink=$(ip -o route get $0 | sed 's/.* dev \\([^ ]*\\).*/\\1/')
nft -f - <<END
table inet watched
delete table inet watched
table inet watched {
  counter left { }
  chain out {
    type filter hook postrouting priority 300;
    oifname "$uplink" ip daddr 10.96.0.0/16 counter name left
    oifname "$uplink" ip daddr 10.244.0.0/16 ip daddr != { $1 } counter name left
  }
}
END
"""
SEND = """
import json, socket, sys
seen = []
for address in sys.argv[1:]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
        try:
            udp.sendto(b"?", (address, 9))
        except OSError:
            pass
        tcp.settimeout(0.1)
        try:
            tcp.connect((address, 80))
            seen.append("connected")
        except OSError as error:
            seen.append(type(error).__name__)
print(json.dumps(seen))
"""


def test_nothing_for_an_unknown_pod_or_service_leaves_a_node(net: Net) -> None:
    first, second = net.nodes
    ranges = {node: net.live.get("node", node)["spec"]["podCIDR"] for node in net.nodes}
    # Unused: of a Service, outside every node's range, and of the pods of either node.
    unknown = ["10.96.200.7", "10.244.200.7"]
    unknown += [str(ipaddress.ip_network(cidr)[250]) for cidr in ranges.values()]
    for node in net.nodes:
        assert "unreachable 10.244.0.0/16" in net.live.shell(node, "ip route")
        assert "10.96.0.0/16" in net.live.shell(node, "nft list table ip podyard_guard")
        others = ", ".join(cidr for name, cidr in ranges.items() if name != node)
        net.live.shell(node, COUNT, net.node_address(second if node == first else first), others)

    def left(node: str) -> int:
        listed = json.loads(
            net.live.in_container(node, "nft", "-j", "list", "counters", "table", "inet", "watched")
        )
        return next(int(row["counter"]["packets"]) for row in listed["nftables"] if "counter" in row)

    try:
        for round in ("with the rules", "without the proxy's"):
            for place in (first, second, "c", "b"):
                seen = net.python(place, SEND, *unknown)
                # How it is told is no matter: the kernel limits how many ICMP messages it sends.
                assert "connected" not in seen
            assert {node: left(node) for node in net.nodes} == dict.fromkeys(net.nodes, 0), round
            for node in net.nodes:
                net.live.in_container(node, "nft", "delete", "table", "ip", "podyard", code=None)
    finally:
        for node in net.nodes:
            net.live.in_container(node, "nft", "delete", "table", "inet", "watched")
            # A new process writes its rules at once.
            net.live.kill(node, "proxy")
    net.programmed("10.96.0.1 . tcp . 443", "goto")
