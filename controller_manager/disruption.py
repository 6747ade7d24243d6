"""PodDisruptionBudgets: how many of their pods may be disrupted now, as the eviction API reads it.

Also takes back the condition DisruptionTarget from pods that were to go and did not.

Source: upstream's disruption controller.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from controller_manager.podstate import is_ready
from podyard.api import budgets, codec, meta, resources
from podyard.api.resources import Resource
from podyard.api.types import IntOrString, Key, LabelSelector, Pod, copy_of, policy_v1
from podyard.control.actions import Action, Actions, Emit, RequeueAfter, Update
from podyard.control.spec import ControllerSpec
from podyard.control.view import View

Budget = policy_v1.PodDisruptionBudget
# How long an evicted pod may take to be deleted before it counts again.
DELETION_TIMEOUT_S = 120.0
STALE_AFTER_S = 120.0
_TARGET = "DisruptionTarget"


class SyncError(Exception):
    """The budget can't be computed; the text is for its condition."""


def reconcile(view: View, key: Key) -> Actions:
    """Brings one budget's status up to date.

    Returns:
        Events, at most one status Update, and a RequeueAfter while an evicted pod is still there.
    """
    budget = view.get(Budget, key)
    if budget is None:
        return []
    selector = budgets.selector_of(budget)
    pods = [pod for pod in view.list(Pod, key.namespace) if selector.matches(pod.metadata.labels)]
    actions: list[Action] = []
    if not pods:
        actions.append(Emit(budget, "Normal", "NoPods", "No matching pods found"))
    try:
        expected, desired, unmanaged = _expectation(view, budget, pods)
    except SyncError as error:
        text = f"Failed to calculate the number of expected pods: {error}"
        actions.append(Emit(budget, "Warning", "CalculateExpectedPodCountFailed", text))
        return [*actions, *_fail_safe(budget, str(error), view.now_s)]
    if unmanaged:
        actions.append(Emit(budget, "Warning", "UnmanagedPods", _unmanaged_text(budget.spec.selector)))
    disrupted, late, recheck_at_s = _disrupted(budget, pods, view.now_s)
    for pod in late:
        # Upstream's quirk: the namespace stands where the name should.
        place = f"{key.namespace}/{key.namespace}"
        text = f"Pod was expected by PDB {place} to be deleted but it wasn't"
        actions.append(Emit(pod, "Warning", "NotDeleted", text))
    healthy = sum(
        1
        for pod in pods
        if is_ready(pod) and not meta.is_terminating(pod.metadata) and pod.metadata.name not in disrupted
    )
    wanted = copy_of(budget)
    _fill_status(wanted, expected=expected, desired=desired, healthy=healthy, disrupted=disrupted)
    if not budgets.is_condition_current(wanted):
        budgets.set_allowed_condition(wanted, view.now_s)
    if not codec.same(wanted.status, budget.status):
        actions.append(Update(wanted, subresource="status"))
    if recheck_at_s is not None:
        actions.append(RequeueAfter(max(recheck_at_s - view.now_s, 0.0)))
    return actions


def _fill_status(
    budget: Budget, *, expected: int, desired: int, healthy: int, disrupted: dict[str, Any]
) -> None:
    status = budget.status
    # While no pods are expected, none may go: the first ones must not be taken before they are counted.
    status.disruptionsAllowed = max(healthy - desired, 0) if expected > 0 else 0
    status.currentHealthy, status.desiredHealthy, status.expectedPods = healthy, desired, expected
    status.observedGeneration = budget.metadata.generation
    for name in list(status.disruptedPods):
        if name not in disrupted:
            del status.disruptedPods[name]


def _expectation(view: View, budget: Budget, pods: list[Pod]) -> tuple[int, int, list[str]]:
    """How many pods there should be, how many must be healthy, and pods that nobody scales."""
    spec = budget.spec
    if spec.HasField("maxUnavailable"):
        expected, unmanaged = _expected_scale(view, pods)
        return expected, max(expected - _share(spec.maxUnavailable, expected), 0), unmanaged
    if not spec.HasField("minAvailable"):
        return 0, 0, []
    if spec.minAvailable.type == 0:
        return len(pods), spec.minAvailable.intVal, []
    expected, unmanaged = _expected_scale(view, pods)
    return expected, _share(spec.minAvailable, expected), unmanaged


def _share(value: IntOrString, total: int) -> int:
    """A number, or a percentage of the total, rounded up."""
    if value.type == 0:
        return value.intVal
    return math.ceil(int(value.strVal[:-1]) * total / 100)


def _expected_scale(view: View, pods: list[Pod]) -> tuple[int, list[str]]:
    """The sum of what the pods' controllers are scaled to, and the names of pods without one."""
    scales: dict[str, int] = {}
    unmanaged: list[str] = []
    for pod in pods:
        reference = meta.controller_of(pod.metadata)
        if reference is None:
            unmanaged.append(pod.metadata.name)
        elif reference.uid not in scales:
            owner = _scaled_owner(view, reference, pod)
            scales[owner.metadata.uid] = owner.spec.replicas
    return sum(scales.values()), unmanaged


def _scaled_owner(view: View, reference: Any, pod: Pod) -> Any:
    """What decides how many pods like this one there are: the Deployment of a ReplicaSet, else the owner."""
    owner = _found(view, reference, pod.metadata.namespace)
    if owner is None:
        raise SyncError(f'found no controllers for pod "{pod.metadata.name}"')
    above = meta.controller_of(owner.metadata)
    if reference.kind != "ReplicaSet" or above is None or above.kind != "Deployment":
        return owner
    deployment = _found(view, above, pod.metadata.namespace)
    if deployment is None:
        raise SyncError(f'found no controllers for pod "{pod.metadata.name}"')
    return deployment


def _found(view: View, reference: Any, namespace: str) -> Any:
    row = resources.find_kind(reference.apiVersion, reference.kind)
    if row is None:
        return None
    if row not in _scaled():
        raise SyncError(f"{row.qualified} does not implement the scale subresource")
    owner: Any = view.get(row.message, Key(namespace, reference.name))
    return owner if owner is not None and owner.metadata.uid == reference.uid else None


def _scaled() -> tuple[Resource, ...]:
    return tuple(row for row in resources.RESOURCES if "scale" in row.subresources)


def _disrupted(
    budget: Budget, pods: Iterable[Pod], now_s: float
) -> tuple[dict[str, Any], list[Pod], float | None]:
    """Evicted pods whose deletion is awaited, those that stayed too long, and when to look again."""
    awaited: dict[str, Any] = {}
    late: list[Pod] = []
    recheck_at_s: float | None = None
    known = budget.status.disruptedPods
    for pod in pods:
        name = pod.metadata.name
        if meta.is_terminating(pod.metadata) or name not in known:
            continue
        due_s = known[name].seconds + DELETION_TIMEOUT_S
        if due_s < now_s:
            late.append(pod)
            continue
        awaited[name] = known[name]
        recheck_at_s = due_s if recheck_at_s is None else min(recheck_at_s, due_s)
    return awaited, late, recheck_at_s


def _fail_safe(budget: Budget, message: str, now_s: float) -> list[Action]:
    """What can't be computed allows nothing."""
    wanted = copy_of(budget)
    wanted.status.disruptionsAllowed = 0
    meta.set_condition(
        wanted.status.conditions,
        budgets.DISRUPTION_ALLOWED,
        "False",
        now_s,
        reason=budgets.SYNC_FAILED,
        message=message,
        observed_generation=wanted.status.observedGeneration,
    )
    return [] if codec.same(wanted.status, budget.status) else [Update(wanted, subresource="status")]


def _unmanaged_text(selector: LabelSelector) -> str:
    return (
        f"Pods selected by this PodDisruptionBudget (selector: {_go_text(selector)}) were found to be "
        "unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in "
        'undefined behavior. To account for these pods please set ".spec.minAvailable" field of the PDB to '
        "an integer value."
    )


def _go_text(selector: LabelSelector) -> str:
    """A selector as Go prints it."""
    labels = "".join(f"{key}: {selector.matchLabels[key]}," for key in sorted(selector.matchLabels))
    terms = "".join(
        f"LabelSelectorRequirement{{Key:{term.key},Operator:{term.operator},"
        f"Values:[{' '.join(term.values)}],}},"
        for term in selector.matchExpressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{terms}}},}}"
    )


def _budgets_of_pod(old: Any, new: Any, view: View) -> list[Key]:
    """Budgets that covered the pod, or cover it now."""
    pods = [pod for pod in (old, new) if pod is not None]
    return [
        Key(budget.metadata.namespace, budget.metadata.name)
        for budget in view.list(Budget, pods[0].metadata.namespace)
        if any(budgets.covers(budget, pod) for pod in pods)
    ]


def reconcile_stale(view: View, key: Key) -> Actions:
    """Takes DisruptionTarget back from a pod that lives on for two minutes after it was set.

    Never where a kubelet set it: there the pod's end may take any time.
    """
    pod = view.get(Pod, key)
    if pod is None or meta.is_terminating(pod.metadata) or pod.status.phase in ("Succeeded", "Failed"):
        return []
    condition = meta.condition(pod.status.conditions, _TARGET)
    if condition is None or condition.status != "True" or condition.reason == "TerminationByKubelet":
        return []
    left_s = condition.lastTransitionTime.seconds + STALE_AFTER_S - view.now_s
    if left_s > 0:
        return [RequeueAfter(left_s)]
    wanted = copy_of(pod)
    meta.set_condition(wanted.status.conditions, _TARGET, "False", view.now_s)
    return [Update(wanted, subresource="status", reason="stale DisruptionTarget condition")]


def controllers() -> tuple[ControllerSpec, ...]:
    """The budgets' controller, and the one that takes conditions back."""
    return (
        ControllerSpec(
            name="disruption",
            for_=Budget,
            maps={Pod: _budgets_of_pod},
            reads=tuple(row.message for row in _scaled()),
            reconcile=reconcile,
            reporter="controllermanager",
            workers=1,
        ),
        ControllerSpec(
            name="disruption-stale-pods",
            for_=Pod,
            reconcile=reconcile_stale,
            reporter="controllermanager",
            workers=1,
        ),
    )
