"""Ports of nodes on the host: how they are written, whether they fit, and whether they are free."""

from __future__ import annotations

import re
import socket
from dataclasses import replace

import pytest
import yaml

from podyard.cluster import bringup, clusterfile, ports, preflight
from podyard.cluster.clusterfile import API_VERSION, KIND
from podyard.cluster.errors import PreflightError, SpecError
from podyard.cluster.plan import Observed, ObservedContainer
from podyard.cluster.publishing import address_of, describe, parse, require_nodes
from podyard.cluster.settings import Settings
from podyard.cluster.spec import ClusterSpec, NodeOptions, NodeTaint, Placement, Port, Publication
from podyard.cluster.state import StateDirectory
from tests.unit.cluster.notes import Notes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8080:30080", Publication(1, Port(30080, 8080))),
        ("0.0.0.0:53:30053/udp@12", Publication(12, Port(30053, 53, "udp", "0.0.0.0"))),
        ("[::1]:8080:80/tcp", Publication(1, Port(80, 8080, "tcp", "::1"))),
    ],
)
def test_what_is_written(text: str, expected: Publication) -> None:
    assert parse([text]) == (expected,)


@pytest.mark.parametrize(
    "text", ["", "8080", "8080:", "a:80:80", "8080:80/sctp", "8080:80@0", "0:80", "8080:65536", "8080:80@x"]
)
def test_what_is_not_of_the_form_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse([text])
    assert "[ADDRESS:]HOSTPORT:PORT[/udp][@NODE]" in refused.value.hint


def test_a_place_is_given_once_and_none_takes_all_away() -> None:
    with pytest.raises(SpecError, match=r"two ports are to be published at 127\.0\.0\.1:8080/tcp"):
        parse(["8080:1", "8080:2@2"])
    assert len(parse(["8080:1", "8080:1/udp", "[::]:8080:1", "10.0.0.5:8080:1", "0.0.0.0:8081:1"])) == 5
    assert parse(["none"]) == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0.0.0.0:8080:1", "8080:2"),
        ("8080:1", "0.0.0.0:8080:2@2"),
        ("[::]:8080:1", "[::1]:8080:2"),
        ("[fd00::0:5]:8080:1", "[FD00:0::5]:8080:2"),
        ("[::ffff:127.0.0.1]:8080:1", "8080:2"),
    ],
)
def test_places_that_overlap_are_refused_both_ways_to_say_them(one: str, other: str) -> None:
    for words in ([one, other], [other, one]):
        with pytest.raises(SpecError, match="two ports are to be published at"):
            parse(words)
    first, second = (parse([text])[0].port for text in (one, other))
    rows = [
        {"containerPort": port.inside, "hostPort": port.outside, "listenAddress": port.address}
        for port in (first, second)
    ]
    text = yaml.safe_dump({"apiVersion": API_VERSION, "kind": KIND, "publish": rows})
    with pytest.raises(SpecError, match=r"publish\[1\]\.hostPort: Duplicate value"):
        clusterfile.parse(text, where="lab.yaml", read=lambda _: b"")


@pytest.mark.parametrize("address", ["999.1.1.1", "1.2.3.04", "[::1::]", "[12345::]", "[1.2.3.4.5]"])
def test_what_is_no_address_is_refused_both_ways_to_say_it(address: str) -> None:
    with pytest.raises(SpecError, match="is no address"):
        parse([f"{address}:80:80"])
    row = {"containerPort": 1, "hostPort": 2, "listenAddress": address.strip("[]")}
    text = yaml.safe_dump({"apiVersion": API_VERSION, "kind": KIND, "publish": [row]})
    with pytest.raises(SpecError, match="must be a valid IP address"):
        clusterfile.parse(text, where="lab.yaml", read=lambda _: b"")


def test_an_address_is_kept_in_one_way_to_write_it() -> None:
    assert parse(["[FD00:0:0::05]:80:80"])[0].port.address == "fd00::5"
    assert address_of("fe80::1%eth0") is None


def test_an_ipv6_port_is_free_where_only_ipv4_has_it() -> None:
    with socket.socket() as holder:
        holder.bind(("0.0.0.0", 0))
        holder.listen()
        number = holder.getsockname()[1]
        # A kernel without IPv6 says that, and not that it is in use.
        assert ports.taken(Port(80, number, address="::")) != "Address already in use"
    assert not re.fullmatch(r"Unknown error.*", ports.taken(Port(80, number, address="no.such.host.invalid")))


def test_only_a_node_that_there_is_publishes() -> None:
    require_nodes(parse(["8080:80@2"]), 2)
    with pytest.raises(SpecError, match="a port of node 2 is to be published, and the cluster has 1 node"):
        require_nodes(parse(["8080:80@2"]), 1)
    with pytest.raises(SpecError) as refused:
        require_nodes(parse(["8080:80"]), 0)
    assert refused.value.hint == "give it nodes: --nodes 1"


def test_how_it_is_told() -> None:
    assert parse(["8080:30080@worker-2"]) == parse(["8080:30080@2"])
    (one,) = parse(["[::1]:8080:30080/udp@2"])
    assert describe("demo", one) == "[::1]:8080/udp leads to port 30080 of demo-worker-2"


@pytest.mark.parametrize(("protocol", "kind"), [("tcp", socket.SOCK_STREAM), ("udp", socket.SOCK_DGRAM)])
def test_whether_a_port_is_taken(protocol: str, kind: int) -> None:
    with socket.socket(type=kind) as holder:
        holder.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            holder.listen()
        number = holder.getsockname()[1]
        assert ports.taken(Port(80, number, protocol)) == "Address already in use"
    assert ports.taken(Port(80, number, protocol)) == ""
    # An address that is not this host's: 192.0.2.0/24 is nobody's.
    assert ports.taken(Port(80, number, protocol, "192.0.2.1")) == "Cannot assign requested address"


class FakeEngine:
    """A local engine whose running node has these ports."""

    host = "127.0.0.1"

    def __init__(self, *published: Port) -> None:
        self._published = frozenset(published)

    async def published(self, _: str) -> frozenset[Port]:
        return self._published


async def test_a_taken_port_is_a_problem_unless_the_cluster_itself_has_it() -> None:
    worker = ObservedContainer("demo-worker-1", "worker", "running", "", "")
    observed = Observed(containers={worker.name: worker})
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = Port(30080, holder.getsockname()[1])
        spec = ClusterSpec("demo", nodes=1, publish=(Publication(1, port),))
        for held in (port, replace(port, inside=80)):
            assert await bringup._taken_ports(FakeEngine(held), spec, observed) == []  # type: ignore[arg-type]
        problems = await bringup._taken_ports(FakeEngine(), spec, observed)  # type: ignore[arg-type]
        with pytest.raises(PreflightError, match=f"{port} cannot be published: Address already in use"):
            preflight.require(problems)


@pytest.fixture
def state(tmp_path, monkeypatch) -> StateDirectory:
    """Of a cluster with three etcd members, two schedulers and a tainted node."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    one = StateDirectory("demo")
    one.save_placement(WAS, Placement("172.28.0.0/22", 1500))
    return one


WAS = ClusterSpec(
    "demo",
    nodes=2,
    schedulers=2,
    node_options=(NodeOptions((("zone", "a"),), (NodeTaint("a", "NoSchedule"),)),),
)
ROWS = [(name, name.rsplit("-", 1)[0]) for name in ("etcd-1", "scheduler-1", "scheduler-2", "worker-1")]
OBSERVED = Observed(
    containers={
        f"demo-{name}": ObservedContainer(f"demo-{name}", role, "running", "", "") for name, role in ROWS
    }
)


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"etcd_members": 1}, "the cluster has 3 etcd members, and their number cannot change"),
        ({"schedulers": 1}, "the cluster has 2 containers of the role scheduler and `up` takes none away"),
    ],
)
def test_what_a_cluster_that_is_there_cannot_become(state, change, refused) -> None:
    wish = Settings.of(WAS).applied(ClusterSpec("demo"))
    bringup._check_wish(wish, OBSERVED, state, Notes())
    # A cluster that is to be made may be anything; so may one of which nothing is left but its file.
    bringup._check_wish(replace(wish, **change), Observed(), state, Notes())
    with pytest.raises(SpecError, match=refused):
        bringup._check_wish(replace(wish, **change), OBSERVED, state, Notes())


ETCD_DATA = frozenset({"demo-etcd-1-data", "demo-worker-1-containerd"})


@pytest.mark.parametrize("there", [OBSERVED, Observed(volumes=ETCD_DATA)])
@pytest.mark.parametrize("content", [None, "name: demo\n"])
def test_without_what_was_told_the_engine_says_how_many_etcd_members_there_are(state, there, content) -> None:
    """Three new members beside the data of one would be another, empty cluster."""
    (state.path / "cluster.yaml").unlink()
    if content is not None:
        (state.path / "cluster.yaml").write_text(content, encoding="utf-8")
    wish = Settings.of(WAS).applied(ClusterSpec("demo"))
    with pytest.raises(SpecError, match="the cluster has 1 etcd member,") as refused:
        bringup._check_wish(wish, there, state, Notes())
    assert "controlPlane: {etcd: 1}" in refused.value.hint
    bringup._check_wish(replace(wish, etcd_members=1), there, state, Notes())


def test_an_up_that_was_interrupted_goes_on_with_as_many_etcd_members_as_were_told(state) -> None:
    wish = Settings.of(WAS).applied(ClusterSpec("demo"))
    bringup._check_wish(wish, Observed(volumes=ETCD_DATA), state, Notes())
    more = Observed(volumes=frozenset(f"demo-etcd-{index}-data" for index in range(1, 6)))
    with pytest.raises(SpecError, match="the cluster has 5 etcd members"):
        bringup._check_wish(wish, more, state, Notes())


@pytest.mark.parametrize(
    ("options", "noted"),
    [
        (WAS.node_options, 0),
        ((NodeOptions((("zone", "b"),), WAS.node_options[0].taints),), 1),
        ((NodeOptions((("zone", "a"), ("more", "")), WAS.node_options[0].taints),), 1),
        (
            (NodeOptions((("zone", "a"), ("topology.kubernetes.io/zone", "b")), WAS.node_options[0].taints),),
            0,
        ),
        ((NodeOptions((("zone", "a"),)),), 1),
        ((NodeOptions((), WAS.node_options[0].taints),), 1),
    ],
)
def test_what_stays_of_registered_nodes_is_said(state, options, noted) -> None:
    progress = Notes()
    bringup._check_wish(replace(WAS, node_options=options), OBSERVED, state, progress)
    assert len(progress.notes) == noted
    assert all(note.startswith("demo-worker-1: a node that is registered keeps") for note in progress.notes)
