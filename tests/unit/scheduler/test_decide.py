"""Deciding: which nodes fit, which is best, and what is said when none does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podyard.api.types import Pod
from scheduler.cache import Cache
from scheduler.decide import Chosen, Unschedulable, decide, wanted_feasible
from scheduler.pods import subject_of
from scheduler.profile import DEFAULT
from tests.unit.scheduler.builders import assume, cluster, node, pod, result


def test_the_emptier_node_is_chosen():
    busy = pod("busy", cpu="3", memory="6Gi", nodeName="a")
    assert result(pod(), cluster(node("a"), node("b"), pods=[busy])) == Chosen("b", 2, 2)


def test_ties_are_decided_by_the_number_handed_in():
    cache = cluster(node("a"), node("b"))
    assert {result(pod(), cache, tie).node for tie in (0.0, 0.4, 0.5, 0.99)} == {"a", "b"}


def test_no_nodes_at_all():
    assert result(pod(), Cache()) == Unschedulable("no nodes available to schedule pods", frozenset())


@pytest.mark.parametrize(
    ("subject", "reason", "helpful"),
    [
        (pod(cpu="3"), "Insufficient cpu", True),
        (pod(cpu="5"), "Insufficient cpu", False),
        (pod(memory="9Gi"), "Insufficient memory", False),
        (pod(nodeSelector={"disk": "ssd"}), "node(s) didn't match Pod's node affinity/selector", False),
        (pod(nodeName="other"), "node(s) didn't match the requested node name", False),
    ],
)
def test_what_is_said_of_a_node_that_does_not_fit(subject, reason, helpful):
    cache = cluster(node("a"), pods=[pod("busy", cpu="2", nodeName="a")])
    answer = result(subject, cache)
    hint = (
        "No preemption victims found for incoming pod"
        if helpful
        else "Preemption is not helpful for scheduling"
    )
    assert answer.message == (
        f"0/1 nodes are available: 1 {reason}. "
        f"no new claims to deallocate, preemption: 0/1 nodes are available: 1 {hint}."
    )


def test_reasons_are_counted_and_sorted():
    nodes = [
        node("a", cpu="1"),
        node("b", taints=[{"key": "k", "effect": "NoSchedule"}]),
        node("c", cordon=True),
        node("d", cpu="1", pods="0"),
    ]
    answer = result(pod(cpu="2"), cluster(*nodes))
    assert answer.message.startswith(
        "0/4 nodes are available: 1 Too many pods, 1 node(s) had untolerated taint(s), "
        "1 node(s) were unschedulable, 2 Insufficient cpu. "
    )
    assert answer.failed == {"NodeResourcesFit", "TaintToleration", "NodeUnschedulable"}


def test_a_tolerated_taint_does_not_count_and_a_preference_only_weighs():
    hard = {"key": "k", "value": "v", "effect": "NoSchedule"}
    soft = {"key": "s", "effect": "PreferNoSchedule"}
    tolerant = pod(tolerations=[{"key": "k", "operator": "Exists"}])
    assert result(tolerant, cluster(node("a", taints=[hard]))).node == "a"
    assert result(pod(), cluster(node("a", taints=[soft]), node("b")), tie=0.0).node == "b"
    assert result(pod(), cluster(node("a", taints=[soft]))).node == "a"


def test_affinity_requires_and_prefers():
    zones = [node("a", labels={"zone": "x"}), node("b", labels={"zone": "y"})]
    expression = {"key": "zone", "operator": "In", "values": ["y"]}
    required = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [expression]}]
            }
        }
    }
    preferred = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 10, "preference": {"matchExpressions": [expression]}}
            ]
        }
    }
    assert result(pod(affinity=required), cluster(*zones)).node == "b"
    assert result(pod(affinity=preferred), cluster(*zones)).node == "b"


@pytest.mark.parametrize(
    ("count", "wanted"), [(5, 5), (99, 99), (100, 100), (1000, 420), (6000, 300), (10_000, 500)]
)
def test_only_part_of_a_large_cluster_is_looked_at(count, wanted):
    assert wanted_feasible(count) == wanted


def test_the_search_begins_where_it_is_told():
    cache = cluster(*(node(f"n{number:03}") for number in range(300)))
    answer = decide(subject_of(pod()), cache, DEFAULT, start=290, tie=0.0)
    assert answer.examined == answer.feasible == wanted_feasible(300)


@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    wants=st.lists(st.integers(1, 5), max_size=12),
    tie=st.floats(0, 0.999),
)
def test_no_node_is_ever_given_more_than_it_has(sizes, wants, tie):
    cache = cluster(*(node(f"n{number}", cpu=str(size)) for number, size in enumerate(sizes)))
    left = {f"n{number}": size for number, size in enumerate(sizes)}
    for number, want in enumerate(wants):
        subject = pod(f"p{number}", cpu=str(want))
        answer = result(subject, cache, tie)
        if isinstance(answer, Chosen):
            left[answer.node] -= want
            assert left[answer.node] >= 0
            assume(cache, subject, answer.node)
        else:
            assert all(size < want for size in left.values())


def test_an_assumed_pod_counts_until_it_is_forgotten():
    cache = cluster(node("a", cpu="2"))
    first = pod("first", cpu="2")
    assume(cache, first, "a")
    assert isinstance(result(pod("second", cpu="1"), cache), Unschedulable)
    cache.forget("first")
    assert isinstance(result(pod("second", cpu="1"), cache), Chosen)


def test_a_confirmed_pod_is_not_forgotten():
    cache = cluster(node("a", cpu="2"))
    bound = pod("first", cpu="2", nodeName="a")
    assume(cache, pod("first", cpu="2"), "a")
    cache.set_pod(bound)
    cache.forget("first")
    assert isinstance(result(pod("second", cpu="1"), cache), Unschedulable)
    cache.remove_pod("first")
    assert isinstance(result(pod("second", cpu="1"), cache), Chosen)


def test_pods_of_a_node_that_is_not_known_yet_count_when_it_comes():
    cache = cluster(pods=[pod("early", cpu="2", nodeName="a")])
    cache.set_node(node("a", cpu="2"))
    assert isinstance(result(pod(cpu="1"), cache), Unschedulable)


def port(number: int, address: str = "", protocol: str = "TCP") -> dict:
    return {"containerPort": number, "hostPort": number, "hostIP": address, "protocol": protocol}


def with_port(name: str, taken: dict, **spec) -> Pod:
    made = pod(name, **spec)
    made.spec.containers[0].ports.add(**taken)
    return made


@pytest.mark.parametrize(
    ("taken", "wanted", "fits"),
    [
        (port(80), port(80), False),
        (port(80), port(81), True),
        (port(80), port(80, protocol="UDP"), True),
        (port(80, "192.0.2.1"), port(80, "192.0.2.2"), True),
        (port(80, "192.0.2.1"), port(80, "192.0.2.1"), False),
        (port(80, "192.0.2.1"), port(80), False),
        (port(80), port(80, "192.0.2.1"), False),
    ],
)
def test_a_port_of_a_node_is_given_once(taken, wanted, fits):
    cache = cluster(node("a"), pods=[with_port("first", taken, nodeName="a")])
    found = result(with_port("second", wanted), cache)
    assert isinstance(found, Chosen) == fits
    if not fits:
        assert found.message.startswith(
            "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
        )
        cache.remove_pod("first")
        assert isinstance(result(with_port("second", wanted), cache), Chosen)


def test_a_port_counts_from_the_decision_on():
    cache = cluster(node("a"), node("b"))
    for name, where in (("one", "a"), ("two", "b")):
        assume(cache, with_port(name, port(80)), where)
    assert isinstance(result(with_port("three", port(80)), cache), Unschedulable)
    cache.forget("one")
    assert result(with_port("three", port(80)), cache).node == "a"
