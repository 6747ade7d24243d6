"""Spreading over topologies: upstream's documented examples, and the index against a plain recount."""

from __future__ import annotations

import pytest
from hypothesis import given

from podyard.api.types import Pod
from scheduler.decide import Chosen, Unschedulable
from scheduler.plugins.spread import SPREAD
from tests.unit.scheduler import plain, worlds
from tests.unit.scheduler.builders import (
    HOSTNAME,
    ZONE,
    assume,
    cluster,
    filtered,
    node,
    pod,
    replica_set,
    result,
    scored,
    service,
)

FOO = {"foo": "bar"}


def constraint(key: str = ZONE, *, skew: int = 1, hard: bool = True, labels=None, **more):
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": FOO if labels is None else labels},
        **more,
    }


def spread(name: str, *constraints, labels=FOO, **more) -> Pod:
    return pod(name, labels=labels, topologySpreadConstraints=list(constraints), **more)


def four(**more):
    """The documentation's cluster: two zones with two nodes each; three pods, two of them in one zone."""
    there = [node(name, zone=zone) for name, zone in (("n1", "A"), ("n2", "A"), ("n3", "B"), ("n4", "B"))]
    on = {"p1": "n1", "p2": "n2", "p3": "n3"}
    return cluster(*there, pods=[pod(name, labels=FOO, nodeName=where) for name, where in on.items()], **more)


def allowed(subject, cache) -> list[str]:
    return [name for name, refusal in filtered(SPREAD, subject, cache).items() if refusal is None]


def test_one_constraint_sends_the_pod_to_the_emptier_zone():
    assert allowed(spread("new", constraint()), four()) == ["n3", "n4"]


def test_two_constraints_must_hold_together():
    both = spread("new", constraint(), constraint(HOSTNAME))
    assert allowed(both, four()) == ["n4"]


def test_constraints_that_conflict_leave_nothing_and_the_text_is_upstreams():
    there = [node("n1", zone="A"), node("n2", zone="A"), node("n3", zone="B")]
    on = {"p1": "n1", "p2": "n1", "p3": "n2", "p4": "n3", "p5": "n3"}
    pods = [pod(name, labels=FOO, nodeName=where) for name, where in on.items()]
    answer = result(spread("new", constraint(), constraint(HOSTNAME)), cluster(*there, pods=pods))
    assert answer == Unschedulable(
        "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints. "
        "no new claims to deallocate, preemption: 0/3 nodes are available: "
        "3 No preemption victims found for incoming pod.",
        frozenset({"PodTopologySpread"}),
    )


def test_a_node_without_the_label_is_never_allowed_and_preemption_cannot_help():
    answer = result(spread("new", constraint()), cluster(node("a")))
    assert answer.message == (
        "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints "
        "(missing required label). no new claims to deallocate, preemption: 0/1 nodes are available: "
        "1 Preemption is not helpful for scheduling."
    )


def test_node_affinity_narrows_the_domains_unless_it_is_to_be_ignored():
    zone_c = [node("n5", zone="C", labels={"old": "yes"})]
    cache = four()
    for entry in zone_c:
        cache.set_node(entry)
    # Zone C is empty, but the pod must not go there: it does not count.
    chooser = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]}]
            }
        }
    }
    assert allowed(spread("new", constraint(), affinity=chooser), cache) == ["n3", "n4", "n5"]
    assert result(spread("new", constraint(), affinity=chooser), cache).node in ("n3", "n4")
    ignoring = spread("new", constraint(nodeAffinityPolicy="Ignore"), affinity=chooser)
    assert allowed(ignoring, cache) == ["n5"]


def test_tainted_nodes_count_unless_taints_are_to_be_honored():
    cache = four()
    cache.set_node(node("n5", zone="C", taints=[{"key": "k", "effect": "NoSchedule"}]))
    assert allowed(spread("new", constraint()), cache) == ["n5"]
    assert allowed(spread("new", constraint(nodeTaintsPolicy="Honor")), cache) == ["n3", "n4", "n5"]


@pytest.mark.parametrize(("least", "places"), [(None, ["n3", "n4"]), (2, ["n3", "n4"]), (3, [])])
def test_with_fewer_domains_than_asked_for_the_emptiest_counts_as_empty(least, places):
    more = {} if least is None else {"minDomains": least}
    assert allowed(spread("new", constraint(**more)), four()) == places


def test_match_label_keys_tell_revisions_apart():
    keyed = constraint(matchLabelKeys=["rev"])
    assert allowed(spread("new", keyed, labels=FOO | {"rev": "2"}), four()) == ["n1", "n2", "n3", "n4"]


@pytest.mark.parametrize("how", ["ending", "namespace", "labels"])
def test_who_does_not_count(how):
    more = {"ending": {"ending": True}, "namespace": {"namespace": "other"}, "labels": {}}[how]
    labels = {} if how == "labels" else FOO
    pods = [pod(f"p{number}", labels=labels, nodeName="a", **more) for number in range(3)]
    cache = cluster(node("a", zone="A"), node("b", zone="B"), pods=pods)
    assert allowed(spread("new", constraint()), cache) == ["a", "b"]


def test_a_soft_constraint_only_prefers():
    cache = cluster(node("a"), node("b"), pods=[pod("p1", labels=FOO, nodeName="a")])
    subject = spread("new", constraint(HOSTNAME, hard=False))
    assert allowed(subject, cache) == ["a", "b"]
    assert scored(SPREAD, subject, cache) == {"a": 0, "b": 100}


def test_nodes_without_the_keys_of_soft_constraints_score_nothing():
    cache = cluster(node("a", zone="A"), node("b"), pods=[pod("p1", labels=FOO, nodeName="a")])
    assert scored(SPREAD, spread("new", constraint(hard=False)), cache) == {"a": 100, "b": 0}


def placed_by_default(cache, count: int, **more) -> list[str]:
    """Nodes that the pods of one ReplicaSet get, one after another."""
    found = []
    for number in range(count):
        subject = pod(f"web-{number}", labels=FOO, **more)
        answer = result(subject, cache)
        found.append(answer.node)
        assume(cache, subject, answer.node)
    return found


def test_replicas_are_spread_over_nodes_without_being_asked():
    """Best-effort pods weigh equally little anywhere: only spreading tells the nodes apart."""
    cache = cluster(*(node(name, cpu="64", memory="256Gi") for name in "abc"))
    cache.owners.set_owner(replica_set("web", FOO))
    assert sorted(placed_by_default(cache, 3, owner="web")) == ["a", "b", "c"]


def test_a_service_spreads_pods_that_have_no_owner():
    cache = cluster(*(node(name) for name in "abc"), pods=[pod("x", labels=FOO, nodeName="a")])
    assert scored(SPREAD, pod("new", labels=FOO), cache) is None
    cache.owners.set_service(service("web", FOO))
    assert scored(SPREAD, pod("new", labels=FOO), cache) == {"a": 50, "b": 100, "c": 100}
    cache.owners.remove_service(service("web", FOO))
    assert scored(SPREAD, pod("new", labels=FOO), cache) is None


def test_by_default_zones_matter_and_nodes_without_one_are_scored_all_the_same():
    there = [node("a", zone="A"), node("b", zone="A"), node("c", zone="B"), node("d")]
    cache = cluster(*there, pods=[pod(f"x{n}", labels=FOO, nodeName="a") for n in range(3)])
    cache.owners.set_owner(replica_set("web", FOO))
    said = scored(SPREAD, pod("new", labels=FOO, owner="web"), cache)
    assert said["d"] > said["c"] > said["b"] > said["a"]


def test_default_selectors_follow_services_and_owners():
    cache = cluster(node("a"), node("b"), pods=[pod("x", labels=FOO | {"v": "1"}, nodeName="a")])
    old, new = pod("o", labels=FOO | {"v": "1"}, owner="set"), pod("n", labels=FOO | {"v": "2"}, owner="set")
    assert scored(SPREAD, old, cache) is None
    cache.owners.set_service(service("none", {}))
    cache.owners.set_service(service("other", {"foo": "baz"}))
    cache.owners.set_owner(replica_set("set", FOO))
    assert scored(SPREAD, old, cache)["a"] < 100
    # The Service's labels and the owner's must both hold.
    cache.owners.set_service(service("second", {"v": "2"}))
    assert scored(SPREAD, new, cache) == {"a": 100, "b": 100}
    assert scored(SPREAD, old, cache)["a"] < 100
    cache.owners.remove_owner(replica_set("set", FOO))
    assert scored(SPREAD, old, cache) is None


def test_a_pod_with_constraints_of_its_own_has_no_others():
    cache = cluster(node("a"), node("b"), pods=[pod("x", labels=FOO, nodeName="a")])
    cache.owners.set_owner(replica_set("web", FOO))
    own = spread("new", constraint(HOSTNAME, labels={"else": "x"}), owner="web")
    assert scored(SPREAD, own, cache) is None
    assert isinstance(result(own, cache), Chosen)


@pytest.mark.slow
@worlds.PATIENT
@given(world=worlds.worlds(), subject=worlds.incoming(with_affinity=False))
def test_the_answers_equal_a_plain_recount_over_all_pods(world, subject):
    cache = worlds.cache_of(world)
    said = filtered(SPREAD, subject, cache)
    for entry in world.nodes:
        refusal = said[entry.metadata.name]
        expected = plain.spread_refusal(subject, entry, world)
        assert (refusal.reasons[0] if refusal else None) == expected
    fitting = [entry for entry in world.nodes if said[entry.metadata.name] is None]
    scores = scored(SPREAD, subject, cache, {entry.metadata.name for entry in fitting})
    if scores is not None and subject.spec.topologySpreadConstraints:
        assert scores == plain.spread_scores(subject, world, fitting)
