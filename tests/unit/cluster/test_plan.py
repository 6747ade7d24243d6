"""The plan reaches what is wanted from any state that an interrupted `up`, a crash or a user can leave."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podyard.base.pki import KeyPair, SigningKey
from podyard.cluster.errors import SpecError
from podyard.cluster.identities import Authority, Material, entries
from podyard.cluster.plan import (
    Connect,
    CreateContainer,
    CreateNetwork,
    CreateVolume,
    Observed,
    ObservedContainer,
    ObservedNetwork,
    RemoveContainer,
    RemoveNetwork,
    StartContainer,
    Step,
    UnpauseContainer,
    as_if_on,
    free_subnets,
    on_another_image,
    phases,
    plan,
    resolve_nodes,
)
from podyard.cluster.roles import Container, containers, registry
from podyard.cluster.spec import ClusterSpec, HostPorts, Placement, Role

IMAGE = "sha256:new"
SUBNET = "172.28.0.0/22"
PLACEMENT = Placement(SUBNET, 1400, {"demo-apiserver-1": HostPorts(26443, 26444, 26445)})
REGISTRY = registry(host_port=26446)


def material(spec: ClusterSpec) -> Material:
    """Stand-ins: these tests look at no certificate."""
    pairs = {name: KeyPair(name.encode(), b"key of " + name.encode()) for name in entries(spec, PLACEMENT)}
    authorities = {authority: KeyPair(authority.encode(), b"secret") for authority in Authority}
    return Material(authorities, pairs, SigningKey(b"private", b"public"))


@cache
def wanted(nodes: int = 2) -> tuple[ClusterSpec, tuple[Container, ...]]:
    spec = ClusterSpec("demo", nodes=nodes)
    return spec, tuple(containers(spec, PLACEMENT, material(spec)))


def make_plan(observed: Observed, nodes: int = 2) -> list[Step]:
    spec, definitions = wanted(nodes)
    return plan(spec, definitions, observed, subnet=SUBNET, image_id=IMAGE, registry=REGISTRY)


def carry_out(observed: Observed, steps: list[Step]) -> Observed:
    """What an engine would have after the steps; refuses what an engine refuses."""
    network, volumes = observed.network, set(observed.volumes)
    found = dict(observed.containers)
    if observed.registry is not None:
        found[REGISTRY.name] = observed.registry
    for step in steps:
        match step:
            case RemoveContainer(name):
                del found[name]
            case RemoveNetwork(name):
                # An engine refuses while containers other than the registry, which is detached first, are
                # on it.
                assert not [
                    row for row in found.values() if name in row.addresses and row.name != REGISTRY.name
                ]
                network = None
                if REGISTRY.name in found:
                    found[REGISTRY.name] = dataclasses.replace(found[REGISTRY.name], addresses={})
            case CreateNetwork(name):
                assert network is None
                network = ObservedNetwork(name, SUBNET)
            case CreateVolume(volume):
                volumes.add(volume.name)
            case CreateContainer(container):
                assert container.name not in found
                assert network is not None
                assert volumes >= {volume.name for volume in container.volumes} or container is REGISTRY
                addresses = {container.cluster: container.address} if container.cluster else {}
                found[container.name] = ObservedContainer(
                    container.name, container.role.value, "created", IMAGE, container.definition, addresses
                )
            case Connect(name, attached, address):
                assert network is not None
                row = found[name]
                found[name] = dataclasses.replace(row, addresses={**row.addresses, attached: address})
            case StartContainer(name):
                assert found[name].state != "paused"
                found[name] = dataclasses.replace(found[name], state="running")
            case UnpauseContainer(name):
                assert found[name].state == "paused"
                found[name] = dataclasses.replace(found[name], state="running")
    return Observed(network, found, frozenset(volumes), found.pop(REGISTRY.name, None))


def test_nothing_there_makes_everything_and_a_second_plan_is_empty() -> None:
    after = carry_out(Observed(), make_plan(Observed()))
    assert {row.state for row in after.containers.values()} == {"running"}
    assert sorted(after.containers) == sorted(container.name for container in wanted()[1])
    assert make_plan(after) == []


def test_one_more_node_touches_only_that_node() -> None:
    after = carry_out(Observed(), make_plan(Observed()))
    steps = make_plan(after, nodes=3)
    assert {type(step) for step in steps} == {CreateVolume, CreateContainer, StartContainer}
    created = [step.container.name for step in steps if isinstance(step, CreateContainer)]
    assert created == ["demo-worker-3"]
    assert [step.name for step in steps if isinstance(step, StartContainer)] == ["demo-worker-3"]


def test_a_killed_container_is_started_not_replaced() -> None:
    after = carry_out(Observed(), make_plan(Observed()))
    killed = dataclasses.replace(after.containers["demo-etcd-2"], state="exited")
    observed = dataclasses.replace(after, containers={**after.containers, "demo-etcd-2": killed})
    assert make_plan(observed) == [StartContainer("demo-etcd-2")]


def test_a_container_that_was_never_started_may_lack_its_files_and_is_made_anew() -> None:
    after = carry_out(Observed(), make_plan(Observed()))
    torn = dataclasses.replace(after.containers["demo-etcd-2"], state="created")
    observed = dataclasses.replace(after, containers={**after.containers, "demo-etcd-2": torn})
    assert [type(step) for step in make_plan(observed)] == [RemoveContainer, CreateContainer, StartContainer]


def test_a_new_image_replaces_containers_and_keeps_volumes() -> None:
    after = carry_out(Observed(), make_plan(Observed()))
    old = {name: dataclasses.replace(row, image_id="sha256:old") for name, row in after.containers.items()}
    steps = make_plan(dataclasses.replace(after, containers=old))
    assert {type(step) for step in steps} == {RemoveContainer, CreateContainer, StartContainer}
    assert len([step for step in steps if isinstance(step, RemoveContainer)]) == len(old)


def test_what_lives_can_be_kept_on_its_older_image() -> None:
    after = carry_out(Observed(), make_plan(Observed()))
    old = {name: dataclasses.replace(row, image_id="sha256:old") for name, row in after.containers.items()}
    old["demo-worker-1"] = dataclasses.replace(old["demo-worker-1"], state="paused")
    old["demo-worker-2"] = dataclasses.replace(old["demo-worker-2"], state="exited")
    observed = dataclasses.replace(after, containers=old)
    assert on_another_image(observed, IMAGE) == sorted(old.keys() - {"demo-worker-2"})
    # What has died is started anew anyway, and then from the image that is there.
    steps = make_plan(as_if_on(observed, IMAGE))
    assert [step.name for step in steps if isinstance(step, RemoveContainer)] == ["demo-worker-2"]
    assert UnpauseContainer("demo-worker-1") in steps
    assert on_another_image(after, IMAGE) == []
    assert as_if_on(after, IMAGE) == after


def test_the_registry_in_use_is_not_replaced_for_an_image() -> None:
    after = carry_out(Observed(), make_plan(Observed()))
    assert after.registry is not None
    old = dataclasses.replace(after.registry, image_id="sha256:old")
    assert make_plan(dataclasses.replace(after, registry=old)) == []
    stopped = dataclasses.replace(old, state="exited")
    steps = make_plan(dataclasses.replace(after, registry=stopped))
    assert steps[0] == RemoveContainer(REGISTRY.name, "the image changed")
    assert carry_out(dataclasses.replace(after, registry=stopped), steps).registry is not None


def titles(steps: list[Step]) -> list[str]:
    return [title for title, _ in phases(steps)]


def test_each_phase_is_told_by_how_many_and_one_is_one() -> None:
    full = titles(make_plan(Observed()))
    assert full == [
        "creating the network",
        "creating 10 volumes",
        "creating 1 container",
        "connecting 1 container",
        "starting 1 container",
        "creating 8 containers",
        "starting 8 containers",
    ]
    after = carry_out(Observed(), make_plan(Observed()))
    lost = {name: row for name, row in after.containers.items() if name != "demo-worker-2"}
    assert titles(make_plan(dataclasses.replace(after, containers=lost))) == [
        "creating 1 container",
        "starting 1 container",
    ]


def test_few_containers_that_are_replaced_are_named() -> None:
    after = carry_out(Observed(), make_plan(Observed()))
    for changed, title in (
        (["demo-worker-1"], "replacing 1 container (demo-worker-1)"),
        (["demo-apiserver-1", "demo-worker-1"], "replacing 2 containers (demo-apiserver-1, demo-worker-1)"),
        (sorted(after.containers), f"replacing {len(after.containers)} containers"),
    ):
        rows = {
            name: dataclasses.replace(row, definition="other") if name in changed else row
            for name, row in after.containers.items()
        }
        assert titles(make_plan(dataclasses.replace(after, containers=rows)))[0] == title


STATES = st.sampled_from(["created", "running", "paused", "exited", "dead"])


@st.composite
def disturbed(draw: st.DrawFn) -> Observed:
    """A full cluster after anything may have happened to each part of it."""
    full = carry_out(Observed(), make_plan(Observed()))
    network = draw(st.sampled_from([full.network, None, ObservedNetwork("demo", "172.28.8.0/22")]))
    kept = {}
    for name, row in full.containers.items():
        if draw(st.integers(0, 4)) == 0:
            continue
        kept[name] = dataclasses.replace(
            row,
            state=draw(STATES),
            image_id=draw(st.sampled_from([IMAGE, IMAGE, "sha256:old"])),
            definition=draw(st.sampled_from([row.definition, row.definition, "other"])),
            addresses=row.addresses if network and draw(st.booleans()) else {},
        )
    assert full.registry is not None
    registry_row = dataclasses.replace(
        full.registry,
        state=draw(st.sampled_from(["created", "running", "paused", "exited"])),
        image_id=draw(st.sampled_from([IMAGE, "sha256:old"])),
        addresses=full.registry.addresses if network and draw(st.booleans()) else {},
    )
    volumes = frozenset(name for name in sorted(full.volumes) if draw(st.integers(0, 3)))
    return Observed(network, kept, volumes, draw(st.sampled_from([registry_row, None])))


@given(disturbed())
def test_any_state_ends_complete_in_one_plan(observed: Observed) -> None:
    after = carry_out(observed, make_plan(observed))
    assert make_plan(after) == []
    assert {row.state for row in after.containers.values()} == {"running"}
    assert all("demo" in row.addresses for row in [*after.containers.values(), after.registry] if row)
    assert after.network == ObservedNetwork("demo", SUBNET)


def test_nodes_default_to_what_is_there() -> None:
    rows = {
        f"demo-worker-{index}": ObservedContainer(f"demo-worker-{index}", "worker", "exited", "", "")
        for index in (1, 2, 3)
    }
    observed = Observed(containers=rows)
    assert resolve_nodes(None, observed, meant=None, default=2) == 3
    assert resolve_nodes(None, Observed(), meant=None, default=2) == 2
    assert resolve_nodes(5, observed, meant=3, default=2) == 5
    # An interrupted `up --nodes 4` goes on to four, an interrupted first one to what it was asked for.
    assert resolve_nodes(None, observed, meant=4, default=2) == 4
    assert resolve_nodes(None, Observed(), meant=1, default=2) == 1
    assert resolve_nodes(None, observed, meant=1, default=2) == 3
    with pytest.raises(SpecError, match="3 nodes and `up` takes none away") as refused:
        resolve_nodes(2, observed, meant=None, default=2)
    assert refused.value.hint == "podyard node remove worker-3 does, the last one first"


def test_subnets_that_overlap_are_left_out() -> None:
    pool = ["172.28.0.0/22", "172.28.4.0/22", "172.28.8.0/22"]
    assert free_subnets(pool, ["172.28.0.0/16"]) == []
    assert free_subnets(pool, ["172.28.5.0/24", "10.0.0.0/8"]) == ["172.28.0.0/22", "172.28.8.0/22"]


@pytest.mark.parametrize("name", ["", "Demo", "1st", "a_b", "-a", "a-", "a" * 33, "bridge", "host"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(SpecError):
        ClusterSpec(name)


def test_addresses_of_a_full_cluster_are_different_and_none_is_the_engines() -> None:
    from ipaddress import IPv4Address, IPv4Network

    spec = ClusterSpec(nodes=500, etcd_members=9, apiservers=9, schedulers=9, controller_managers=9)
    addresses = [PLACEMENT.address(role, index) for role in Role for index in range(1, spec.count(role) + 1)]
    assert len(set(addresses)) == len(addresses)
    assert PLACEMENT.gateway not in addresses
    engine = IPv4Network(PLACEMENT.engine_range)
    assert all(IPv4Address(a) in IPv4Network(SUBNET) and IPv4Address(a) not in engine for a in addresses)
