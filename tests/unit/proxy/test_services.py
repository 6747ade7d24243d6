"""Services on a node: which backends, which rules, and only what changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podyard.api.types import EndpointSlice, Node, Service
from proxy.model import Backend, Balanced, Desired, Network, desired, route_changes
from proxy.ruleset import Rules, changes, memory_of, rules_of, whole

NETWORK = Network()


def service(name="web", *, ip="10.96.0.50", kind="ClusterIP", node_port=0, **spec) -> Service:
    port = {"name": "http", "port": 80, "protocol": "TCP", "nodePort": node_port}
    return Service(
        metadata={"name": name, "namespace": "default"},
        spec={"clusterIP": ip, "type": kind, "ports": [port], **spec},
    )


def endpoints(*entries: tuple[str, str, str], name="web") -> EndpointSlice:
    """(address, node, state): ready, unready, ending (still serving) or gone (ending, not serving)."""
    made = EndpointSlice(
        metadata={
            "name": f"{name}-x",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": name},
        },
        addressType="IPv4",
        ports=[{"name": "http", "port": 8080, "protocol": "TCP"}],
    )
    for address, node, state in entries:
        conditions = {
            "ready": state == "ready",
            "serving": state in ("ready", "ending"),
            "terminating": state in ("ending", "gone"),
        }
        made.endpoints.add(addresses=[address], nodeName=node, conditions=conditions)
    return made


def only(subject: Service, *slices: EndpointSlice) -> Balanced:
    (made,) = desired([], "n1", [subject], slices).services
    return made


def addresses(backends) -> list[str]:
    return [backend.address for backend in backends]


def test_ready_endpoints_are_used():
    made = only(service(), endpoints(("10.0.0.1", "n1", "ready"), ("10.0.0.2", "n2", "unready")))
    assert made.everywhere == (Backend("10.0.0.1", 8080, local=True),)


def test_conditions_that_are_not_there_mean_ready_and_serving():
    made = endpoints(("10.0.0.1", "n1", "ready"))
    made.endpoints[0].ClearField("conditions")
    assert addresses(only(service(), made).everywhere) == ["10.0.0.1"]
    assert only(service(), made).serving == {"10.0.0.1"}


def test_an_ending_endpoint_leaves_at_once_while_another_is_ready_and_stays_as_the_last_resort():
    ending = ("10.0.0.1", "n1", "ending")
    made = only(service(), endpoints(ending, ("10.0.0.2", "n2", "ready")))
    assert addresses(made.everywhere) == ["10.0.0.2"]
    # Of this node's own, it is the last that there is.
    assert addresses(made.here) == ["10.0.0.1"]
    made = only(service(), endpoints(ending, ("10.0.0.3", "n2", "gone")))
    assert addresses(made.everywhere) == ["10.0.0.1"]
    assert made.serving == {"10.0.0.1"}


def test_each_port_has_the_number_that_each_slice_gives_it():
    other = endpoints(("10.0.0.2", "n2", "ready"))
    other.ports[0].port = 9090
    made = only(service(), endpoints(("10.0.0.1", "n1", "ready")), other)
    assert [(b.address, b.port) for b in made.everywhere] == [("10.0.0.1", 8080), ("10.0.0.2", 9090)]


def test_addresses_from_outside_are_told_apart():
    subject = service(kind="LoadBalancer", node_port=30080, externalIPs=["192.0.2.1"])
    subject.status.loadBalancer.ingress.add(ip="192.0.2.2", ipMode="VIP")
    subject.status.loadBalancer.ingress.add(ip="192.0.2.3", ipMode="Proxy")
    subject.status.loadBalancer.ingress.add(hostname="balancer.example.org")
    made = only(subject)
    assert (made.address, made.external) == ("10.96.0.50", ("192.0.2.1", "192.0.2.2"))


def test_sources_of_a_balancer_are_limited():
    def limited(*ranges: str, address: str = "172.1.0.1", kind: str = "LoadBalancer") -> tuple:
        subject = service(kind=kind, node_port=30080, loadBalancerSourceRanges=ranges)
        subject.status.loadBalancer.ingress.add(ip="192.0.2.2", ipMode="VIP")
        own = node("n1", "10.244.0.0/24", address)
        (made,) = desired([own], "n1", [subject]).services
        return made.guarded, made.sources

    assert limited() == ((), ())
    assert limited("10.0.0.0/8", "2001:db8::/32", "10.1.0.0/16 ") == (("192.0.2.2",), ("10.0.0.0/8",))
    # A node that may, may from the balancer's address as well.
    assert limited("172.1.0.0/24")[1] == ("172.1.0.0/24", "192.0.2.2/32")
    assert limited("172.1.0.0/24", address="")[1] == ("172.1.0.0/24",)
    assert limited("0.0.0.0/0", "10.0.0.0/8") == limited("2001:db8::/32") == ((), ())
    assert limited("10.0.0.0/8", kind="NodePort") == ((), ())


def hinted(*entries: tuple[str, list[str], list[str]]) -> EndpointSlice:
    """(address, nodes, zones)."""
    made = endpoints(*((address, "n2", "ready") for address, _, _ in entries))
    for endpoint, (_, nodes, zones) in zip(made.endpoints, entries, strict=True):
        for name in nodes:
            endpoint.hints.forNodes.add(name=name)
        for name in zones:
            endpoint.hints.forZones.add(name=name)
    return made


@pytest.mark.parametrize(
    ("hints", "found"),
    [
        ([([], ["z1"]), ([], ["z2"])], [0]),
        ([([], ["z2"]), ([], ["z2"])], [0, 1]),  # none for this zone
        ([([], ["z1"]), ([], [])], [0, 1]),  # one knows of no zone
        ([(["n1"], ["z2"]), (["n2"], ["z1"])], [0]),  # the node before the zone
        ([(["n3"], ["z2"]), (["n2"], ["z1"])], [1]),
        ([([], ["z1", "z2"]), ([], ["z1"])], [0, 1]),
    ],
)
def test_hints_keep_connections_near_where_all_have_them(hints, found):
    own = node("n1", "", "")
    own.metadata.labels["topology.kubernetes.io/zone"] = "z1"
    entries = [(f"10.0.0.{number}", *names) for number, names in enumerate(hints)]
    (made,) = desired([own], "n1", [service()], [hinted(*entries)]).services
    assert addresses(made.everywhere) == [f"10.0.0.{number}" for number in found]


def test_hints_of_endpoints_that_are_not_ready_do_not_count():
    made = hinted(("10.0.0.1", ["n1"], []), ("10.0.0.2", ["n2"], []))
    made.endpoints[0].conditions.ready = False
    assert addresses(only(service(), made).everywhere) == ["10.0.0.2"]


def test_what_another_proxy_serves_is_left_to_it():
    subject = service()
    subject.metadata.labels["service.kubernetes.io/service-proxy-name"] = "other"
    assert desired([], "n1", [subject]).services == ()


def test_headless_external_and_the_dns_service_are_not_balanced():
    subjects = [
        service(ip="None"),
        service(kind="ExternalName", ip="", externalName="example.org"),
        service(ip=NETWORK.dns),
    ]
    assert desired([], "n1", subjects, []).services == ()


def rules(*services: Balanced) -> Rules:
    return rules_of(Desired((), "10.244.1.0/24", services), NETWORK)


def balanced(name="a", *, backends=("10.0.0.1",), protocol="tcp", **fields) -> Balanced:
    """One whose every backend, unless `here` says otherwise, is on this node."""
    found = tuple(Backend(address, 80, local=True) for address in backends)
    defaults = {
        "address": "10.96.0.9",
        "external": (),
        "node_port": 0,
        "everywhere": found,
        "here": found,
        "inside_local": False,
        "outside_local": False,
        "affinity_s": 0,
        "serving": frozenset(backends),
    }
    return Balanced(key=f"default/{name}:", protocol=protocol, port=80, **{**defaults, **fields})


def path(made: Rules, element: str, name: str = "service_ips") -> list[str]:
    """The rules that a connection to an element meets, in order, chains that they go to included."""
    found: list[str] = []
    verdicts = [made.maps[name][element]]
    while verdicts:
        verdict = verdicts.pop(0)
        if not verdict.startswith("goto "):
            found.append(verdict)
            continue
        for rule in made.chains[verdict.removeprefix("goto ")]:
            head, _, chain = rule.rpartition("goto ")
            if chain.startswith(("svc_", "loc_")):
                found.append(f"{head}goto {chain[:3]}")
                verdicts.append(f"goto {chain}")
            else:
                found.append(rule)
    return found


MARK = "meta mark set meta mark or 0x4000"
TO_FIRST = "meta l4proto tcp dnat to 10.0.0.1:80"


def test_one_lookup_finds_the_service_and_its_chain_the_backend():
    made = rules(balanced(backends=("10.0.0.1", "10.0.0.2")))
    assert set(made.maps["service_ips"]) == {"10.96.0.9 . tcp . 80"}
    assert path(made, "10.96.0.9 . tcp . 80") == [
        f"ip daddr 10.96.0.9 ip saddr != 10.244.0.0/16 {MARK}",
        "meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.0.0.1 . 80, 1 : 10.0.0.2 . 80 }",
    ]
    assert set(made.maps["hairpins"]) == {"10.0.0.1 . 10.0.0.1", "10.0.0.2 . 10.0.0.2"}


def test_from_outside_everyone_is_masqueraded_unless_the_policy_is_local():
    subject = balanced(external=("192.0.2.1",), node_port=30000)
    made = rules(subject)
    for element, name in (("192.0.2.1 . tcp . 80", "service_ips"), ("tcp . 30000", "node_ports")):
        assert path(made, element, name)[:2] == [MARK, "goto svc"]
        assert path(made, element, name)[-1] == TO_FIRST


@pytest.mark.parametrize(("here", "last"), [((), "drop"), (("10.0.0.1",), TO_FIRST)])
def test_the_local_policy_outside_keeps_sources_and_lets_this_node_go_anywhere(here, last):
    local = tuple(Backend(address, 80, local=True) for address in here)
    subject = balanced(external=("192.0.2.1",), node_port=30000, outside_local=True, here=local)
    made = rules(subject)
    for element, name in (("192.0.2.1 . tcp . 80", "service_ips"), ("tcp . 30000", "node_ports")):
        found = path(made, element, name)
        assert found[:3] == [
            "ip saddr 10.244.0.0/16 goto svc",
            f"fib saddr type local {MARK}",
            "fib saddr type local goto svc",
        ]
        assert found[3] == ("drop" if last == "drop" else "goto loc")
        assert found[-1] == TO_FIRST
    # The policy is for connections from outside only.
    assert path(made, "10.96.0.9 . tcp . 80")[-1] == TO_FIRST


def test_a_service_without_endpoints_refuses_and_one_with_others_elsewhere_is_silent():
    nobody = rules(balanced(backends=(), node_port=30000, external=("192.0.2.1",)))
    assert set(nobody.maps["refused"]) == {"10.96.0.9 . tcp . 80", "192.0.2.1 . tcp . 80"}
    assert set(nobody.maps["refused_node_ports"]) == {"tcp . 30000"}
    assert nobody.maps["service_ips"] == nobody.maps["node_ports"] == {}
    elsewhere = rules(balanced(here=(), inside_local=True))
    assert elsewhere.maps["service_ips"] == {"10.96.0.9 . tcp . 80": "drop"}


def test_only_named_sources_use_a_balancers_address():
    limits = {"guarded": ("192.0.2.1",), "sources": ("10.0.0.0/8", "192.0.2.1/32")}
    made = rules(balanced(external=("192.0.2.1", "192.0.2.7"), node_port=30000, **limits))
    assert path(made, "192.0.2.1 . tcp . 80", "guarded") == ["ip saddr != { 10.0.0.0/8, 192.0.2.1/32 } drop"]
    assert set(made.maps["guarded"]) == {"192.0.2.1 . tcp . 80"}


def test_the_address_of_a_service_refuses_on_its_other_ports():
    assert set(rules(balanced(), balanced("b", backends=())).maps["cluster_ips"]) == {"10.96.0.9"}


def test_session_affinity_remembers_a_client_for_its_time():
    made = rules(balanced(backends=("10.0.0.1", "10.0.0.2"), affinity_s=60))
    assert set(made.affinity.values()) == {60}
    assert len(made.affinity) == 2
    assert whole(made, NETWORK).count("timeout 60s") == 2


def sticky(made: Rules) -> dict[str, str]:
    """Backend -> the set of those that stay with it."""
    return {made.chains[name][1].rpartition(" ")[2]: name for name in made.affinity}


def test_a_client_stays_with_its_backend_whichever_others_come_and_go():
    before = sticky(rules(balanced(backends=("10.0.0.1", "10.0.0.2", "10.0.0.3"), affinity_s=60)))
    after = sticky(rules(balanced(backends=("10.0.0.0", "10.0.0.2", "10.0.0.3"), affinity_s=60)))
    assert len(set(before.values())) == 3
    for backend in ("10.0.0.2:80", "10.0.0.3:80"):
        assert after[backend] == before[backend]
    assert after["10.0.0.0:80"] not in before.values()
    # By whichever address the client came, it is the same client.
    both = rules(balanced(affinity_s=60, node_port=30000, outside_local=True))
    assert len(both.affinity) == 1


def test_a_new_process_keeps_who_stays_where():
    made = rules(balanced(affinity_s=60))
    [name] = made.affinity
    listing = {
        "nftables": [
            {"metainfo": {}},
            {"set": {"name": "refused", "elem": ["10.96.0.7"]}},
            {"set": {"name": name, "elem": [{"elem": {"val": "10.244.1.2", "timeout": 60, "expires": 41}}]}},
            {"set": {"name": "aff_gone", "elem": [{"elem": {"val": "10.244.1.3", "expires": 9}}]}},
            {"set": {"name": "aff_empty"}},
        ]
    }
    text = whole(made, NETWORK, memory_of(listing))
    assert text.splitlines()[-1] == (
        f"add element ip podyard {name} {{ 10.244.1.2 timeout 60s expires 41s }}"
    )
    assert memory_of({}) == {}


def test_a_change_of_one_service_touches_nothing_of_the_others():
    before = rules(balanced("a"), balanced("b", address="10.96.0.8"))
    after = rules(balanced("a", backends=("10.0.0.7",)), balanced("b", address="10.96.0.8"))
    text = changes(before, after)
    other = before.maps["service_ips"]["10.96.0.8 . tcp . 80"].removeprefix("goto ")
    assert other not in text
    # The maps lead to the same chain as before.
    assert {line.split()[4] for line in text.splitlines() if " element " in line} == {"hairpins"}
    assert changes(after, after) == ""


class Kernel:
    """Applies transactions as nft would, and refuses what nft refuses."""

    def __init__(self):
        self.chains, self.maps, self.sets = {}, {}, set()

    def apply(self, text):
        for line in text.splitlines():
            verb, kind, _, _, name, *rest = line.split(" ", 5)
            body = rest[0] if rest else ""
            getattr(self, f"{verb}_{kind}")(name, body)

    def add_set(self, name, body):
        assert name not in self.sets
        self.sets.add(name)

    def delete_set(self, name, body):
        assert not any(f"@{name}" in rule for rules in self.chains.values() for rule in rules)
        self.sets.remove(name)

    def add_chain(self, name, body):
        assert name not in self.chains
        self.chains[name] = []

    def flush_chain(self, name, body):
        self.chains[name] = []

    def delete_chain(self, name, body):
        assert not self.chains[name]
        verdicts = [value for entries in self.maps.values() for value in entries.values()]
        rules = [rule for entries in self.chains.values() for rule in entries]
        assert not any(f"goto {name}" in text for text in (*verdicts, *rules))
        del self.chains[name]

    def add_rule(self, name, body):
        self.chains[name].append(body)

    def _elements(self, body):
        for item in body.strip("{} ").split(", "):
            key, _, value = item.partition(" : ")
            yield key, value

    def add_element(self, name, body):
        for key, value in self._elements(body):
            assert key not in self.maps.setdefault(name, {})
            if value.startswith("goto "):
                assert value.removeprefix("goto ") in self.chains
            self.maps[name][key] = value

    def delete_element(self, name, body):
        for key, _ in self._elements(body):
            del self.maps[name][key]


hosts = st.lists(st.sampled_from([f"10.0.0.{n}" for n in range(4)]), unique=True, max_size=3)
some_services = st.lists(
    st.builds(
        lambda number, inside, node_port, affinity_s, protocol, external, here, local: balanced(
            f"s{number}",
            backends=tuple(sorted(inside)),
            address=f"10.96.1.{number}",
            external=external and (f"192.0.2.{number}",),
            node_port=node_port and 30000 + number,
            here=tuple(Backend(address, 80, local=True) for address in sorted(inside)[:here]),
            inside_local=local,
            outside_local=local,
            guarded=external and (f"192.0.2.{number}",),
            sources=external and ("10.0.0.0/8",),
            affinity_s=affinity_s,
            protocol=protocol,
        ),
        st.integers(0, 3),
        hosts,
        st.sampled_from([0, 1]),
        st.sampled_from([0, 60]),
        st.sampled_from(["tcp", "udp"]),
        st.sampled_from([(), True]),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=4,
    unique_by=lambda item: item.key,
)


@given(st.lists(some_services, min_size=1, max_size=6))
def test_any_history_of_changes_leads_to_the_same_table_as_a_fresh_start(steps):
    kernel, present = Kernel(), Rules(maps={name: {} for name in rules().maps})
    for services in steps:
        wanted = rules(*services)
        kernel.apply(changes(present, wanted))
        present = wanted
    assert {name: tuple(entries) for name, entries in kernel.chains.items()} == present.chains
    assert {n: e for n, e in kernel.maps.items() if e} == {n: dict(e) for n, e in present.maps.items() if e}
    assert kernel.sets == set(present.affinity)


def node(name, cidr, address) -> Node:
    made = Node(metadata={"name": name}, spec={"podCIDR": cidr})
    if address:
        made.status.addresses.add(type="InternalIP", address=address)
    return made


def test_routes_lead_to_the_other_nodes():
    nodes = [
        node("n1", "10.244.0.0/24", "172.1.0.1"),
        node("n2", "10.244.1.0/24", "172.1.0.2"),
        node("n3", "", ""),
    ]
    wanted = desired(nodes, "n1")
    assert wanted.routes == (("10.244.1.0/24", "172.1.0.2"),)
    assert wanted.own_range == "10.244.0.0/24"
    made = route_changes(wanted, {"10.244.1.0/24": "172.1.0.9", "10.244.7.0/24": "172.1.0.7"})
    assert made.replace == (("10.244.1.0/24", "172.1.0.2"),)
    assert made.remove == ("10.244.7.0/24",)
    assert route_changes(wanted, dict(wanted.routes)).replace == ()
