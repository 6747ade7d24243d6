"""Controllers as the pure functions they are: what is there in, what is to be done out."""

from __future__ import annotations

import pytest

from controller_manager import (
    namespace,
    nodeipam,
    nodelifecycle,
    podgc,
    rootca,
    serviceaccount,
    tainteviction,
)
from controller_manager.table import controllers
from podyard.api import errors
from podyard.api.types import ConfigMap, Key, Lease, Namespace, Node, Pod, ServiceAccount
from podyard.control.actions import Delete, DeleteCollection, Emit, RequeueAfter, Update
from podyard.control.view import View

NOW_S = 1_000_000.0


class Lister:
    """Plain data as a lister."""

    def __init__(self, objects, seen_at_s=NOW_S, gone=None):
        self.objects = {Key(o.metadata.namespace, o.metadata.name): o for o in objects}
        self.seen = seen_at_s
        self.gone = gone or {}

    def get(self, key):
        return self.objects.get(key)

    def __iter__(self):
        return iter(self.objects[key] for key in sorted(self.objects))

    def by_index(self, name, value):
        return [o for key, o in sorted(self.objects.items()) if key.namespace == value]

    def seen_at_s(self, key):
        return self.seen if key in self.objects else None

    def gone_at_s(self, key):
        return self.gone.get(key)


def view(facts=None, **kinds) -> View:
    types = {
        "namespaces": Namespace,
        "nodes": Node,
        "pods": Pod,
        "accounts": ServiceAccount,
        "configs": ConfigMap,
        "leases": Lease,
    }
    listers = {
        kind: kinds[name] if isinstance(kinds.get(name), Lister) else Lister(kinds.get(name, ()))
        for name, kind in types.items()
    }
    made = View(listers, NOW_S)
    made.facts = facts
    return made


def node(name, *, cidr="", cordon=False, taints=(), **conditions) -> Node:
    return Node(
        metadata={"name": name},
        spec={"podCIDR": cidr, "unschedulable": cordon, "taints": list(taints)},
        status={"conditions": [{"type": kind, "status": status} for kind, status in conditions.items()]},
    )


def space(name, *, ending=False) -> Namespace:
    made = Namespace(metadata={"name": name}, spec={"finalizers": ["kubernetes"]})
    if ending:
        made.metadata.deletionTimestamp.seconds = 1
    return made


# Node IPAM.


def test_every_node_gets_a_range_of_its_own():
    nodes = [node("a", cidr="10.244.1.0/24"), node("b"), node("c")]
    actions = nodeipam.reconcile(view(nodes=nodes), Key("", ""), cluster_cidr="10.244.0.0/16")
    given = {action.obj.metadata.name: action.obj.spec.podCIDR for action in actions}
    assert given == {"b": "10.244.0.0/24", "c": "10.244.2.0/24"}
    assert all(list(action.obj.spec.podCIDRs) == [action.obj.spec.podCIDR] for action in actions)


def test_a_full_range_is_said_so():
    nodes = [node("a", cidr="10.0.0.0/24"), node("b")]
    (action,) = nodeipam.reconcile(view(nodes=nodes), Key("", ""), cluster_cidr="10.0.0.0/24")
    assert isinstance(action, Emit)
    assert action.reason == "CIDRNotAvailable"


# Condition taints.


def lifecycle(seen, key):
    actions = nodelifecycle.reconcile(seen, key, grace_s=50.0, known={key: node(key.name)})
    return [action for action in actions if not isinstance(action, RequeueAfter)]


@pytest.mark.parametrize(
    ("conditions", "keys"),
    [
        ({"Ready": "True"}, []),
        ({"Ready": "False"}, ["node.kubernetes.io/not-ready"]),
        ({"Ready": "Unknown"}, ["node.kubernetes.io/unreachable"]),
        ({"Ready": "True", "DiskPressure": "True"}, ["node.kubernetes.io/disk-pressure"]),
        (
            {"Ready": "True", "MemoryPressure": "True", "PIDPressure": "True"},
            ["node.kubernetes.io/memory-pressure", "node.kubernetes.io/pid-pressure"],
        ),
        ({"Ready": "True", "NetworkUnavailable": "True"}, ["node.kubernetes.io/network-unavailable"]),
    ],
)
def test_taints_follow_conditions(conditions, keys):
    actions = lifecycle(view(nodes=[node("a", **conditions)]), Key("", "a"))
    tainted = [taint for action in actions for taint in action.obj.spec.taints]
    assert [taint.key for taint in tainted] == keys
    assert {taint.effect for taint in tainted} <= {"NoSchedule"}
    assert all(taint.timeAdded.seconds == NOW_S for taint in tainted)


def test_a_ready_node_loses_its_taint_and_keeps_the_users():
    taints = [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
        {"key": "mine", "effect": "NoSchedule"},
    ]
    (action,) = lifecycle(view(nodes=[node("a", taints=taints, Ready="True")]), Key("", "a"))
    assert [(taint.key, taint.effect) for taint in action.obj.spec.taints] == [
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("mine", "NoSchedule"),
    ]


def test_a_cordoned_node_is_tainted_once():
    cordoned = node("a", cordon=True, Ready="True")
    (action,) = lifecycle(view(nodes=[cordoned]), Key("", "a"))
    assert [taint.key for taint in action.obj.spec.taints] == ["node.kubernetes.io/unschedulable"]
    assert lifecycle(view(nodes=[action.obj]), Key("", "a")) == []


def test_a_node_that_has_not_reported_keeps_the_taint_it_was_admitted_with():
    taints = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert lifecycle(view(nodes=[node("a", taints=taints)]), Key("", "a")) == []


# ServiceAccounts and root CAs.


def test_a_living_namespace_gets_account_and_ca():
    (account,) = serviceaccount.reconcile(view(namespaces=[space("team")]), Key("", "team"))
    assert (account.obj.metadata.namespace, account.obj.metadata.name) == ("team", "default")
    (config,) = rootca.reconcile(view(namespaces=[space("team")]), Key("", "team"), ca_pem="PEM")
    assert (config.obj.metadata.name, dict(config.obj.data)) == ("kube-root-ca.crt", {"ca.crt": "PEM"})


def test_an_ending_namespace_gets_neither():
    ending = view(namespaces=[space("team", ending=True)])
    assert serviceaccount.reconcile(ending, Key("", "team")) == []
    assert rootca.reconcile(ending, Key("", "team"), ca_pem="PEM") == []


def test_a_changed_ca_is_mended_and_a_right_one_left_alone():
    key = Key("", "team")
    wrong = ConfigMap(
        metadata={"name": "kube-root-ca.crt", "namespace": "team"}, data={"ca.crt": "old", "x": "y"}
    )
    (action,) = rootca.reconcile(view(namespaces=[space("team")], configs=[wrong]), key, ca_pem="PEM")
    assert dict(action.obj.data) == {"ca.crt": "PEM"}
    assert rootca.reconcile(view(namespaces=[space("team")], configs=[action.obj]), key, ca_pem="PEM") == []


# Namespaces.


def test_an_ending_namespace_is_emptied_and_then_let_go():
    pods = [Pod(metadata={"name": "p", "namespace": "team"})]
    full = view(namespaces=[space("team", ending=True)], facts={"pods": pods})
    actions = namespace.reconcile(full, Key("", "team"))
    assert DeleteCollection(Pod, "team") in actions
    assert any(isinstance(action, RequeueAfter) for action in actions)
    status = next(action for action in actions if isinstance(action, Update))
    assert status.subresource == "status"
    assert (
        status.obj.status.conditions[0].message
        == "Some resources are remaining: pods has 1 resource instances"
    )
    (done,) = namespace.reconcile(view(namespaces=[space("team", ending=True)], facts={}), Key("", "team"))
    assert (done.subresource, list(done.obj.spec.finalizers)) == ("finalize", [])


def test_what_is_ending_already_is_only_waited_for():
    ending = Pod(metadata={"name": "p", "namespace": "team"})
    ending.metadata.deletionTimestamp.seconds = 5
    actions = namespace.reconcile(
        view(namespaces=[space("team", ending=True)], facts={"pods": [ending]}), Key("", "team")
    )
    assert not any(isinstance(action, DeleteCollection) for action in actions)


def test_a_living_namespace_is_left_alone():
    assert namespace.reconcile(view(namespaces=[space("team")], facts={}), Key("", "team")) == []


# Pod garbage.


def pod(name, *, node="", phase="Running", ending=False, created=0) -> Pod:
    made = Pod(
        metadata={"name": name, "namespace": "default", "uid": name},
        spec={"nodeName": node},
        status={"phase": phase},
    )
    made.metadata.creationTimestamp.seconds = created
    if ending:
        made.metadata.deletionTimestamp.seconds = 1
    return made


def collected(**kinds) -> list[str]:
    return [a.key.name for a in podgc.reconcile(view(**kinds), Key("", "")) if isinstance(a, Delete)]


async def test_a_node_that_only_the_watch_has_lost_keeps_its_pods():
    class Api:
        async def get(self, kind, name):
            if name != "lagging":
                raise errors.NotFound.of("nodes", name)
            return node(name)

    pods = [pod("a", node="lagging"), pod("b", node="gone"), pod("c", node="here"), pod("d")]
    seen = view(pods=Lister(pods, seen_at_s=NOW_S - 400), nodes=[node("here")])
    seen.facts = await podgc.gather(Api(), seen, Key("", ""))
    assert seen.facts == {"lagging"}
    assert [action.key.name for action in podgc.reconcile(seen, Key("", ""))] == ["b"]


def test_orphans_go_after_the_quarantine():
    orphan = pod("orphan", node="gone")
    assert collected(pods=[orphan], nodes=Lister([], gone={Key("", "gone"): NOW_S - 39})) == []
    assert collected(pods=[orphan], nodes=Lister([], gone={Key("", "gone"): NOW_S - 40})) == ["orphan"]
    assert collected(pods=Lister([orphan], seen_at_s=NOW_S - 40)) == ["orphan"]
    assert collected(pods=Lister([orphan], seen_at_s=NOW_S - 400), nodes=[node("gone")]) == []


def test_unscheduled_pods_that_end_go_at_once():
    assert collected(pods=[pod("never-ran", ending=True), pod("waits")]) == ["never-ran"]


def test_the_oldest_of_too_many_ended_pods_go(monkeypatch):
    monkeypatch.setattr(podgc, "TERMINATED_THRESHOLD", 2)
    pods = [pod(f"p{number}", node="a", phase="Succeeded", created=10 - number) for number in range(4)]
    assert sorted(collected(pods=pods, nodes=[node("a")])) == ["p2", "p3"]


def test_every_controller_is_in_the_table():
    specs = controllers(cluster_cidr="10.244.0.0/16", ca_pem="PEM")
    names = [spec.name for spec in specs]
    assert len(set(names)) == len(names)
    assert all(callable(spec.reconcile) for spec in specs)


# Nodes that come and go.


def greeted(known, *nodes) -> list[tuple[str, str]]:
    actions = nodelifecycle.reconcile(view(nodes=nodes), Key("", "a"), grace_s=50.0, known=known)
    emitted = [action for action in actions if isinstance(action, Emit)]
    assert all(action.about.metadata.name == "a" for action in emitted)
    return [(action.reason, action.message) for action in emitted]


def test_a_node_is_greeted_once_and_dismissed_once():
    known = {}
    arrived = [("RegisteredNode", "Node a event: Registered Node a in Controller")]
    assert greeted(known, node("a", Ready="True")) == arrived
    assert greeted(known, node("a", Ready="True")) == []
    assert greeted(known) == [("RemovingNode", "Node a event: Removing Node a from Controller")]
    assert greeted(known) == []
    assert greeted(known, node("a")) == arrived
    assert len(known) == 1


# Evictions called off.

TAINT = {"key": "maintenance", "effect": "NoExecute", "timeAdded": {"seconds": int(NOW_S)}}
CALLED_OFF = ["Cancelling deletion of Pod default/p"]


def tolerant(seconds: int | None = 60) -> Pod:
    toleration = {"key": "maintenance", "operator": "Exists", "effect": "NoExecute"}
    made = pod("p", node="a")
    made.spec.tolerations.add(**toleration, **({} if seconds is None else {"tolerationSeconds": seconds}))
    return made


def told(sightings, *pods, taints=(TAINT,), nodes=None) -> list[str]:
    there = [node("a", taints=taints)] if nodes is None else nodes
    actions = tainteviction.reconcile(view(pods=pods, nodes=there), Key("default", "p"), sightings)
    return [action.message for action in actions if isinstance(action, Emit)]


@pytest.mark.parametrize(
    ("then", "taints", "expected"),
    [
        (tolerant(), (), CALLED_OFF),
        (tolerant(), ({**TAINT, "effect": "NoSchedule"},), CALLED_OFF),
        (tolerant(None), (TAINT,), CALLED_OFF),
        (tolerant(), (TAINT,), []),  # still to go
        (tolerant(0), (TAINT,), []),  # goes now
        (pod("p", node="a", ending=True), (), []),  # goes anyway
    ],
)
def test_an_eviction_that_lay_ahead_is_called_off_aloud_and_once(then, taints, expected):
    sightings = tainteviction.Sightings()
    assert told(sightings, tolerant()) == []
    assert told(sightings, then, taints=taints) == expected
    assert told(sightings, then, taints=taints) == []


def test_nothing_is_called_off_that_was_not_planned_for_this_very_pod():
    sightings = tainteviction.Sightings()
    assert told(sightings, tolerant(), taints=()) == []
    told(sightings, tolerant())
    other = tolerant()
    other.metadata.uid = "another"
    assert told(sightings, other, taints=()) == []
    told(sightings, tolerant())
    assert told(sightings) == []  # gone
    assert told(sightings, tolerant(), taints=()) == []
    told(sightings, tolerant())
    assert told(sightings, tolerant(), nodes=[]) == []
    assert told(sightings, tolerant(), taints=()) == CALLED_OFF
