"""Disruption budgets as pure functions: pods and their owners in, the budget's status out."""

from __future__ import annotations

from typing import Any

import pytest

from controller_manager import disruption
from podyard.api import budgets, codec, resources
from podyard.api.types import Key, Pod, apps_v1, policy_v1
from podyard.control.actions import Emit, RequeueAfter, Update
from podyard.control.view import View
from tests.unit.controllers.test_controllers import Lister

NOW_S = 1_000_000.0
KEY = Key("default", "web")
SELECTOR = {"matchLabels": {"app": "web"}}


def budget(**spec: Any) -> policy_v1.PodDisruptionBudget:
    made = codec.from_dict({"spec": {"selector": SELECTOR, **spec}}, policy_v1.PodDisruptionBudget)
    made.metadata.name, made.metadata.namespace, made.metadata.generation = "web", "default", 1
    return made


def owned(name: str, kind: str = "ReplicaSet", owner: str = "rs") -> Pod:
    reference = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": owner,
        "uid": f"{owner}-uid",
        "controller": True,
    }
    return Pod(
        metadata={
            "name": name,
            "namespace": "default",
            "labels": {"app": "web"},
            "ownerReferences": [reference] if owner else [],
        },
        status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    )


def replica_set(replicas: int, deployment: str = "") -> apps_v1.ReplicaSet:
    reference = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": deployment,
        "uid": "d",
        "controller": True,
    }
    return apps_v1.ReplicaSet(
        metadata={
            "name": "rs",
            "namespace": "default",
            "uid": "rs-uid",
            "ownerReferences": [reference] if deployment else [],
        },
        spec={"replicas": replicas},
    )


def view(*objects: Any, now_s: float = NOW_S) -> View:
    kinds = {Pod, policy_v1.PodDisruptionBudget}
    kinds |= {row.message for row in resources.RESOURCES if "scale" in row.subresources}
    listers = {kind: Lister([obj for obj in objects if type(obj) is kind]) for kind in kinds}
    return View(listers, now_s)


def status_of(*objects: Any) -> policy_v1.PodDisruptionBudgetStatus:
    """The status that one reconcile writes."""
    updates = [a for a in disruption.reconcile(view(*objects), KEY) if isinstance(a, Update)]
    assert len(updates) == 1
    assert updates[0].subresource == "status"
    written: Any = updates[0].obj
    # What was written is found settled by the next look.
    again = view(*(written if obj is objects[0] else obj for obj in objects))
    assert not [a for a in disruption.reconcile(again, KEY) if isinstance(a, Update)]
    found: policy_v1.PodDisruptionBudgetStatus = written.status
    return found


def counts(status: Any) -> tuple[int, int, int, int]:
    return status.expectedPods, status.currentHealthy, status.desiredHealthy, status.disruptionsAllowed


PODS = [owned(f"p{number}") for number in range(4)]


@pytest.mark.parametrize(
    ("spec", "pods", "scale", "wanted"),
    [
        # expected, healthy, desired, allowed
        ({"minAvailable": 3}, 4, 4, (4, 4, 3, 1)),
        ({"minAvailable": 3}, 2, 4, (2, 2, 3, 0)),
        ({"minAvailable": "50%"}, 4, 4, (4, 4, 2, 2)),
        # Rounded up.
        ({"minAvailable": "51%"}, 4, 4, (4, 4, 3, 1)),
        ({"maxUnavailable": 1}, 4, 4, (4, 4, 3, 1)),
        ({"maxUnavailable": 9}, 4, 4, (4, 4, 0, 4)),
        # What should be counts, not what is there.
        ({"maxUnavailable": 1}, 2, 4, (4, 2, 3, 0)),
        ({"maxUnavailable": "30%"}, 4, 4, (4, 4, 2, 2)),
        ({"maxUnavailable": "0%"}, 4, 4, (4, 4, 4, 0)),
        ({"minAvailable": 0}, 0, 0, (0, 0, 0, 0)),
        ({}, 3, 3, (0, 3, 0, 0)),
    ],
)  # fmt: skip
def test_counts(spec: dict[str, Any], pods: int, scale: int, wanted: tuple[int, ...]) -> None:
    status = status_of(budget(**spec), replica_set(scale), *PODS[:pods])
    assert counts(status) == wanted
    assert status.observedGeneration == 1
    (condition,) = status.conditions
    assert (condition.type, condition.status, condition.reason, condition.observedGeneration) == (
        "DisruptionAllowed",
        "True" if wanted[3] else "False",
        "SufficientPods" if wanted[3] else "InsufficientPods",
        1,
    )


def test_pods_that_are_not_healthy_do_not_count() -> None:
    pods = [owned(f"p{number}") for number in range(4)]
    pods[0].status.conditions[0].status = "False"
    pods[1].metadata.deletionTimestamp.seconds = 1
    assert counts(status_of(budget(minAvailable=1), *pods)) == (4, 2, 1, 1)


def test_the_scale_of_a_deployments_set_is_the_deployments() -> None:
    deployment = apps_v1.Deployment(
        metadata={"name": "web", "namespace": "default", "uid": "d"}, spec={"replicas": 6}
    )
    found = status_of(budget(maxUnavailable="50%"), replica_set(2, "web"), deployment, *PODS)
    assert counts(found) == (6, 4, 3, 1)


def test_the_scale_of_a_stateful_set() -> None:
    owner = apps_v1.StatefulSet(
        metadata={"name": "rs", "namespace": "default", "uid": "rs-uid"}, spec={"replicas": 5}
    )
    pods = [owned(f"p{number}", kind="StatefulSet") for number in range(4)]
    assert counts(status_of(budget(maxUnavailable=2), owner, *pods)) == (5, 4, 3, 1)


def test_an_empty_selector_takes_all_and_none_takes_nobody() -> None:
    everyone, nobody = budget(minAvailable=1), budget(minAvailable=1)
    everyone.spec.selector.Clear()
    everyone.spec.selector.SetInParent()
    nobody.spec.ClearField("selector")
    assert counts(status_of(everyone, *PODS)) == (4, 4, 1, 3)
    assert counts(status_of(nobody, *PODS)) == (0, 0, 1, 0)
    assert budgets.covers(everyone, PODS[0])
    assert not budgets.covers(nobody, PODS[0])


def test_no_pods_is_told() -> None:
    actions = disruption.reconcile(view(budget(minAvailable=1)), KEY)
    assert [(a.type, a.reason, a.message) for a in actions if isinstance(a, Emit)] == [
        ("Normal", "NoPods", "No matching pods found")
    ]


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        (owned("p"), 'found no controllers for pod "p"'),
        (owned("p", kind="Odd"), 'found no controllers for pod "p"'),
        (owned("p", kind="DaemonSet"), "daemonsets.apps does not implement the scale subresource"),
    ],
)
def test_what_cannot_be_computed_allows_nothing(pod: Pod, message: str) -> None:
    before = budget(maxUnavailable=1)
    before.status.disruptionsAllowed = 3
    actions = disruption.reconcile(view(before, pod), KEY)
    events = [a for a in actions if isinstance(a, Emit)]
    assert [(e.reason, e.message) for e in events] == [
        ("CalculateExpectedPodCountFailed", f"Failed to calculate the number of expected pods: {message}")
    ]
    status = status_of(before, pod)
    assert status.disruptionsAllowed == 0
    (condition,) = status.conditions
    assert (condition.status, condition.reason, condition.message) == ("False", "SyncFailed", message)


def test_unmanaged_pods_are_named_and_the_rest_is_counted() -> None:
    alone = owned("alone", owner="")
    objects = (budget(maxUnavailable=1), replica_set(4), *PODS, alone)
    assert counts(status_of(*objects)) == (4, 5, 3, 2)
    (event,) = [a for a in disruption.reconcile(view(*objects), KEY) if isinstance(a, Emit)]
    assert (event.type, event.reason) == ("Warning", "UnmanagedPods")
    assert event.message.startswith(
        "Pods selected by this PodDisruptionBudget (selector: &LabelSelector{MatchLabels:map[string]string"
        "{app: web,},MatchExpressions:[]LabelSelectorRequirement{},}) were found to be unmanaged. "
    )


def test_an_evicted_pod_is_awaited_for_two_minutes() -> None:
    spent = budget(minAvailable=1)
    spent.status.disruptedPods["p0"].seconds = int(NOW_S)
    spent.status.disruptedPods["gone"].seconds = int(NOW_S)
    status = status_of(spent, *PODS)
    assert counts(status) == (4, 3, 1, 2)
    assert list(status.disruptedPods) == ["p0"]
    settled = budget(minAvailable=1)
    settled.status.CopyFrom(status)
    (wait,) = disruption.reconcile(view(settled, *PODS, now_s=NOW_S + 20), KEY)
    assert wait == RequeueAfter(100.0)
    actions = disruption.reconcile(view(settled, *PODS, now_s=NOW_S + 121), KEY)
    (event,) = [a for a in actions if isinstance(a, Emit)]
    assert (event.about.metadata.name, event.type, event.reason) == ("p0", "Warning", "NotDeleted")  # type: ignore[attr-defined]
    (update,) = [a for a in actions if isinstance(a, Update)]
    assert counts(update.obj.status) == (4, 4, 1, 3)  # type: ignore[attr-defined]
    assert not update.obj.status.disruptedPods  # type: ignore[attr-defined]


def test_a_pod_that_stays_loses_its_mark() -> None:
    marked = owned("p")
    marked.status.conditions.add(
        type="DisruptionTarget",
        status="True",
        reason="EvictionByEvictionAPI",
        lastTransitionTime={"seconds": int(NOW_S)},
    )
    key = Key("default", "p")
    assert disruption.reconcile_stale(view(marked, now_s=NOW_S + 50), key) == [RequeueAfter(70.0)]
    (update,) = disruption.reconcile_stale(view(marked, now_s=NOW_S + 120), key)
    assert isinstance(update, Update)
    condition = update.obj.status.conditions[1]  # type: ignore[attr-defined]
    assert (condition.status, condition.reason) == ("False", "")
    for change in ("kubelet", "ending", "over"):
        other = Pod()
        other.CopyFrom(marked)
        if change == "kubelet":
            other.status.conditions[1].reason = "TerminationByKubelet"
        elif change == "ending":
            other.metadata.deletionTimestamp.seconds = 1
        else:
            other.status.phase = "Failed"
        assert disruption.reconcile_stale(view(other, now_s=NOW_S + 500), key) == []


def test_a_pod_wakes_the_budgets_that_cover_it() -> None:
    (spec, _) = disruption.controllers()
    seen = view(budget(minAvailable=1))
    other = owned("q")
    other.metadata.labels["app"] = "other"
    keys = spec.maps[Pod]
    assert keys(None, PODS[0], seen) == [KEY]
    assert keys(PODS[0], None, seen) == [KEY]
    # Leaving the selection counts, too.
    assert keys(PODS[0], other, seen) == [KEY]
    assert keys(None, other, seen) == []
