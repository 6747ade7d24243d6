"""Affinity between pods: upstream's documented examples, and the index against a plain recount."""

from __future__ import annotations

import pytest
from hypothesis import given

from podyard.api.types import Pod
from scheduler.decide import Chosen, Unschedulable
from scheduler.plugins.interpod import INTERPOD
from tests.unit.scheduler import plain, worlds
from tests.unit.scheduler.builders import (
    HOSTNAME,
    ZONE,
    affinity,
    cluster,
    filtered,
    namespace,
    node,
    pod,
    result,
    scored,
    term,
)

WEB = {"app": "web"}
CACHE = {"app": "cache"}


def apart(name: str = "p", key: str = HOSTNAME, **more) -> Pod:
    """One of a set of which no two may be in one place."""
    spec = {"affinity": {"podAntiAffinity": affinity([term(key, labels=WEB)])}}
    return pod(name, labels=WEB, **spec, **more)


def beside(labels, key: str = HOSTNAME, own=None, **more) -> Pod:
    return pod("new", labels=own, affinity={"podAffinity": affinity([term(key, labels=labels, **more)])})


def test_no_two_of_a_set_share_a_node_and_the_text_is_upstreams():
    cache = cluster(node("a"), node("b"), pods=[apart("one", nodeName="a")])
    assert result(apart("two"), cache).node == "b"
    cache.set_pod(apart("two", nodeName="b"))
    answer = result(apart("three"), cache)
    assert answer == Unschedulable(
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules. "
        "no new claims to deallocate, preemption: 0/2 nodes are available: "
        "2 No preemption victims found for incoming pod.",
        frozenset({"InterPodAffinity"}),
    )
    cache.remove_pod("one")
    assert result(apart("three"), cache).node == "a"


def test_who_is_there_keeps_others_out_too():
    cache = cluster(node("a"), pods=[apart("one", nodeName="a")])
    answer = result(pod("plain", labels=WEB), cache)
    assert "1 node(s) didn't satisfy existing pods anti-affinity rules." in answer.message
    assert isinstance(result(pod("other", labels=CACHE), cache), Chosen)


def test_a_zone_is_one_place():
    there = [node("a", zone="east"), node("b", zone="east"), node("c", zone="west"), node("d")]
    cache = cluster(*there, pods=[apart("one", ZONE, nodeName="a")])
    said = filtered(INTERPOD, apart("two", ZONE), cache)
    # A node without the label is in no place.
    assert [name for name, refusal in said.items() if refusal is None] == ["c", "d"]


def test_affinity_needs_the_other_pod_and_preemption_cannot_help():
    cache = cluster(node("a"), node("b"), pods=[pod("cache", labels=CACHE, nodeName="b")])
    assert result(beside(CACHE), cache).node == "b"
    answer = result(beside(CACHE), cluster(node("a")))
    assert answer.message == (
        "0/1 nodes are available: 1 node(s) didn't match pod affinity rules. "
        "no new claims to deallocate, preemption: 0/1 nodes are available: "
        "1 Preemption is not helpful for scheduling."
    )


def test_the_first_of_its_kind_may_go_anywhere_that_is_a_place():
    there = [node("a", zone="east"), node("b")]
    said = filtered(INTERPOD, beside(WEB, ZONE, own=WEB), cluster(*there))
    assert said["a"] is None
    assert said["b"].reasons == (plain.AFFINITY,)
    # Not so when there is one already, nor in the eyes of one that is of another kind.
    elsewhere = cluster(*there, node("c", zone="west"), pods=[pod("x", labels=WEB, nodeName="c")])
    assert [n for n, r in filtered(INTERPOD, beside(WEB, ZONE, own=WEB), elsewhere).items() if not r] == ["c"]
    assert all(filtered(INTERPOD, beside(WEB, ZONE, own=CACHE), cluster(*there)).values())


def test_one_pod_must_satisfy_all_required_terms():
    two = {"podAffinity": affinity([term(ZONE, labels=WEB), term(ZONE, labels={"tier": "a"})])}
    there = [node("a", zone="east"), node("b", zone="west")]
    halves = [pod("x", labels=WEB, nodeName="a"), pod("y", labels={"tier": "a"}, nodeName="a")]
    assert all(filtered(INTERPOD, pod("new", affinity=two), cluster(*there, pods=halves)).values())
    both = pod("z", labels=WEB | {"tier": "a"}, nodeName="b")
    said = filtered(INTERPOD, pod("new", affinity=two), cluster(*there, pods=[*halves, both]))
    assert [name for name, refusal in said.items() if refusal is None] == ["b"]


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, False),
        ({"namespaces": ["green"]}, True),
        ({"namespaceSelector": {}}, True),
        ({"namespaceSelector": {"matchLabels": {"env": "prod"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"env": "test"}}}, False),
        ({"namespaces": ["default"], "namespaceSelector": {"matchLabels": {"env": "prod"}}}, True),
    ],
)
def test_namespaces_are_the_pods_own_or_named_or_selected(more, found):
    there = pod("cache", labels=CACHE, nodeName="a", namespace="green")
    spaces = [namespace("default"), namespace("green", env="prod")]
    cache = cluster(node("a"), pods=[there], namespaces=spaces)
    assert isinstance(result(beside(CACHE, **more), cache), Chosen) == found
    # The same from the other side: its anti-affinity meets the pod that comes.
    held = pod(
        "held",
        namespace="default",
        nodeName="a",
        affinity={"podAntiAffinity": affinity([term(labels=CACHE, **more)])},
    )
    cache = cluster(node("a"), pods=[held], namespaces=spaces)
    comes = pod("new", labels=CACHE, namespace="green")
    assert isinstance(result(comes, cache), Unschedulable) == found


def test_preferences_weigh_from_both_sides():
    there = [node("a"), node("b"), node("c")]
    likes = pod("likes", nodeName="a", affinity={"podAffinity": affinity((), [(10, term(labels=WEB))])})
    hates = pod("hates", nodeName="b", affinity={"podAntiAffinity": affinity((), [(10, term(labels=WEB))])})
    assert scored(INTERPOD, pod("new", labels=WEB), cluster(*there, pods=[likes, hates])) == {
        "a": 100,
        "b": 0,
        "c": 50,
    }
    mine = {"podAffinity": affinity((), [(10, term(labels=CACHE))])}
    said = scored(
        INTERPOD, pod("new", affinity=mine), cluster(*there, pods=[pod("x", labels=CACHE, nodeName="c")])
    )
    assert said == {"a": 0, "b": 0, "c": 100}


def test_a_required_term_of_one_that_is_there_weighs_one():
    requires = pod("r", nodeName="a", affinity={"podAffinity": affinity([term(labels=WEB)])})
    prefers = pod("s", nodeName="b", affinity={"podAffinity": affinity((), [(2, term(labels=WEB))])})
    cache = cluster(node("a"), node("b"), node("c"), pods=[requires, prefers])
    assert scored(INTERPOD, pod("new", labels=WEB), cache) == {"a": 50, "b": 100, "c": 0}


def test_a_pod_that_nobody_speaks_of_costs_nothing_for_each_node():
    cache = cluster(node("a"), pods=[apart("one", nodeName="a")])
    other = pod("new", labels=CACHE)
    assert filtered(INTERPOD, other, cache) == {"a": None}
    assert scored(INTERPOD, other, cache) is None


def test_a_pod_counts_from_the_decision_on_and_while_it_ends():
    cache = cluster(node("a"), pods=[apart("one", nodeName="a", ending=True)])
    assert isinstance(result(apart("two"), cache), Unschedulable)


@pytest.mark.slow
@worlds.PATIENT
@given(world=worlds.worlds(), subject=worlds.incoming())
def test_the_answers_equal_a_plain_recount_over_all_pods(world, subject):
    cache = worlds.cache_of(world)
    said = filtered(INTERPOD, subject, cache)
    for entry in world.nodes:
        refusal = said[entry.metadata.name]
        expected = plain.affinity_refusal(subject, entry, world)
        assert (refusal.reasons[0] if refusal else None) == expected
    names = {entry.metadata.name for entry in world.nodes}
    scores = scored(INTERPOD, subject, cache) or dict.fromkeys(names, 0)
    assert scores == plain.affinity_scores(subject, world)
