"""Ports of nodes on the host: how they are written, whether they fit, and whether they are free."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from podyard.cluster import bringup, ports, preflight
from podyard.cluster.errors import PreflightError, SpecError
from podyard.cluster.plan import Observed, ObservedContainer
from podyard.cluster.publishing import describe, parse, require_nodes
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
    assert len(parse(["8080:1", "8080:1/udp", "0.0.0.0:8080:1"])) == 3
    assert parse(["none"]) == ()


def test_only_a_node_that_there_is_publishes() -> None:
    require_nodes(parse(["8080:80@2"]), 2)
    with pytest.raises(SpecError, match="a port of node 2 is to be published, and the cluster has 1 nodes"):
        require_nodes(parse(["8080:80@2"]), 1)
    with pytest.raises(SpecError) as refused:
        require_nodes(parse(["8080:80"]), 0)
    assert refused.value.hint == "give it nodes: --nodes 1"


def test_how_it_is_told() -> None:
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


@pytest.mark.parametrize(
    ("options", "noted"),
    [
        (WAS.node_options, 0),
        ((NodeOptions((("zone", "b"), ("more", "")), WAS.node_options[0].taints),), 0),
        ((NodeOptions((("zone", "a"),)),), 1),
        ((NodeOptions((), WAS.node_options[0].taints),), 1),
    ],
)
def test_what_stays_of_registered_nodes_is_said(state, options, noted) -> None:
    progress = Notes()
    bringup._check_wish(replace(WAS, node_options=options), OBSERVED, state, progress)
    assert len(progress.notes) == noted
    assert all(note.startswith("demo-worker-1: a node that is registered keeps") for note in progress.notes)
