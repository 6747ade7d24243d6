"""A change that makes a refused pod schedulable is never missed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podyard.api.types import copy_of
from scheduler.decide import Chosen
from scheduler.framework import Event, PodChange
from scheduler.pods import facts_of, subject_of
from scheduler.profile import DEFAULT
from tests.unit.scheduler import worlds
from tests.unit.scheduler.builders import affinity, cluster, node, pod, result, term

PLUGINS = {plugin.name: plugin for plugin in DEFAULT}
WEB = {"app": "web"}


def woken(failed, subject, change, cache) -> bool:
    """Whether a change of a pod with a node wakes a pod that these plugins refused."""
    gone = change.new is None
    return any(
        (gone and Event.POD_GONE in PLUGINS[name].events)
        or (PLUGINS[name].helps is not None and PLUGINS[name].helps(subject_of(subject), change, cache))
        for name in failed
    )


@st.composite
def changes(draw, world):
    """(old, new): one pod comes, changes its labels, begins to end, or goes."""
    names = [entry.metadata.name for entry in world.nodes]
    kinds = ["come"] + (["labels", "end", "go"] if world.pods else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "come":
        return None, draw(worlds.placed("comes", st.sampled_from(names)))
    old = draw(st.sampled_from(list(world.pods)))
    if kind == "go":
        return old, None
    new = copy_of(old)
    if kind == "end":
        new.metadata.deletionTimestamp.seconds = 1
    else:
        new.metadata.labels.clear()
        new.metadata.labels.update(draw(worlds.labels))
    return old, new


@pytest.mark.slow
@worlds.PATIENT
@given(data=st.data(), world=worlds.worlds(), subject=worlds.incoming())
def test_no_change_of_a_pod_that_helps_is_missed(data, world, subject):
    cache = worlds.cache_of(world)
    refused = result(subject, cache)
    if isinstance(refused, Chosen):
        return
    old, new = data.draw(changes(world))
    change = PodChange(old and facts_of(old), new and facts_of(new))
    if new is None:
        cache.remove_pod(old.metadata.uid)
    else:
        cache.set_pod(new)
    if isinstance(result(subject, cache), Chosen):
        assert woken(refused.failed, subject, change, cache)


@pytest.mark.slow
@worlds.PATIENT
@given(data=st.data(), world=worlds.worlds(), subject=worlds.incoming())
def test_no_change_of_a_node_that_helps_is_missed(data, world, subject):
    cache = worlds.cache_of(world)
    refused = result(subject, cache)
    if isinstance(refused, Chosen):
        return
    name = data.draw(st.sampled_from([entry.metadata.name for entry in world.nodes] + ["more"]))
    if name != "more" and data.draw(st.booleans()):
        event = Event.NODE_GONE
        cache.remove_node(name)
    else:
        event = Event.NODE
        cache.set_node(data.draw(worlds.nodes(name)))
    if isinstance(result(subject, cache), Chosen):
        assert any(event in PLUGINS[failed].events for failed in refused.failed)


def test_pods_that_have_nothing_to_do_with_it_wake_nobody():
    apart = pod("new", labels=WEB, affinity={"podAntiAffinity": affinity([term(labels=WEB)])})
    there = pod("web", labels=WEB, nodeName="a")
    stranger = pod("db", labels={"app": "db"}, nodeName="a")
    cache = cluster(node("a"), pods=[there, stranger])
    failed = result(apart, cache).failed
    assert failed == {"InterPodAffinity"}
    assert not woken(failed, apart, PodChange(facts_of(stranger), None), cache)
    assert not woken(failed, apart, PodChange(None, facts_of(there)), cache)
    assert woken(failed, apart, PodChange(facts_of(there), None), cache)
    assert woken(failed, apart, PodChange(facts_of(there), facts_of(stranger)), cache)
