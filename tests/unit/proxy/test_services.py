"""Services on a node: which backends, which rules, and only what changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podyard.api.types import EndpointSlice, Node, Service
from proxy.model import Backend, Balanced, Desired, Network, desired, route_changes, stale_flows
from proxy.ruleset import Rules, changes, rules_of, whole

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
    assert made.inside == (Backend("10.0.0.1", 8080, local=True),)


def test_an_ending_endpoint_leaves_at_once_while_another_is_ready_and_stays_as_the_last_resort():
    ending = ("10.0.0.1", "n1", "ending")
    assert addresses(only(service(), endpoints(ending, ("10.0.0.2", "n2", "ready"))).inside) == ["10.0.0.2"]
    assert addresses(only(service(), endpoints(ending, ("10.0.0.3", "n2", "gone"))).inside) == ["10.0.0.1"]


@pytest.mark.parametrize(
    ("policy", "found"), [("Cluster", ["10.0.0.1", "10.0.0.2"]), ("Local", ["10.0.0.1"])]
)
def test_traffic_policies_choose_by_node(policy, found):
    slices = endpoints(("10.0.0.1", "n1", "ready"), ("10.0.0.2", "n2", "ready"))
    assert addresses(only(service(internalTrafficPolicy=policy), slices).inside) == found
    outer = only(service(kind="NodePort", node_port=30080, externalTrafficPolicy=policy), slices)
    assert addresses(outer.outside) == found
    assert outer.outside_local is (policy == "Local")


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
    found = tuple(Backend(address, 80, local=True) for address in backends)
    defaults = {
        "addresses": ("10.96.0.9",),
        "node_port": 0,
        "inside": found,
        "outside": found,
        "outside_local": False,
        "affinity_s": 0,
    }
    return Balanced(key=f"default/{name}:", protocol=protocol, port=80, **{**defaults, **fields})


def test_one_lookup_finds_the_service_and_its_chain_the_backend():
    made = rules(balanced(backends=("10.0.0.1", "10.0.0.2")))
    ((element, verdict),) = made.maps["service_ips"].items()
    assert element == "10.96.0.9 . tcp . 80"
    chain = made.chains[verdict.removeprefix("goto ")]
    assert chain[-1] == (
        "meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.0.0.1 . 80, 1 : 10.0.0.2 . 80 }"
    )
    assert set(made.maps["hairpins"]) == {"10.0.0.1 . 10.0.0.1", "10.0.0.2 . 10.0.0.2"}


def test_a_service_without_endpoints_refuses_and_one_with_others_elsewhere_is_silent():
    nobody = rules(balanced(backends=(), node_port=30000))
    assert set(nobody.maps["refused"]) == {"10.96.0.9 . tcp . 80"}
    assert set(nobody.maps["refused_node_ports"]) == {"tcp . 30000"}
    elsewhere = rules(balanced(inside=(), inside_elsewhere=True))
    assert elsewhere.maps["service_ips"] == {"10.96.0.9 . tcp . 80": "drop"}


def test_session_affinity_remembers_a_client_for_its_time():
    made = rules(balanced(backends=("10.0.0.1", "10.0.0.2"), affinity_s=60))
    assert set(made.affinity.values()) == {60}
    assert len(made.affinity) == 2
    assert whole(made, NETWORK).count("timeout 60s") == 2


def test_a_change_of_one_service_touches_nothing_of_the_others():
    before = rules(balanced("a"), balanced("b", addresses=("10.96.0.8",)))
    after = rules(balanced("a", backends=("10.0.0.7",)), balanced("b", addresses=("10.96.0.8",)))
    text = changes(before, after)
    other = before.maps["service_ips"]["10.96.0.8 . tcp . 80"].removeprefix("goto ")
    assert other not in text
    assert "10.96.0" not in text  # the map leads to the same chain as before
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
        assert not any(
            f"goto {name}" in value for entries in self.maps.values() for value in entries.values()
        )
        for other, entries in self.chains.items():
            assert other == name or not any(f"goto {name}" in rule.split(" ") for rule in entries)
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
        lambda number, inside, node_port, affinity_s, protocol: balanced(
            f"s{number}",
            backends=tuple(sorted(inside)),
            addresses=(f"10.96.1.{number}",),
            node_port=node_port and 30000 + number,
            affinity_s=affinity_s,
            protocol=protocol,
        ),
        st.integers(0, 3),
        hosts,
        st.sampled_from([0, 1]),
        st.sampled_from([0, 60]),
        st.sampled_from(["tcp", "udp"]),
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


def test_udp_flows_of_backends_that_went_are_forgotten():
    before = Desired((), "", (balanced(backends=("10.0.0.1", "10.0.0.2"), protocol="udp"),))
    after = Desired((), "", (balanced(backends=("10.0.0.2",), protocol="udp"),))
    assert stale_flows(before, after) == [("10.96.0.9", "10.0.0.1")]
    assert stale_flows(None, after) == []
    gone = Desired((), "", ())
    assert stale_flows(after, gone) == [("10.96.0.9", "10.0.0.2")]
    tcp = Desired((), "", (balanced(),))
    assert stale_flows(tcp, gone) == []


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
