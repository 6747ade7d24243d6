"""Eviction as pure functions: a pod and its budget in, a spent budget or a refusal out."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.rules import eviction
from podyard.api import codec, errors
from podyard.api.types import Eviction, Pod, meta_v1, policy_v1

NOW_S = 1_000_000.0
REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


def budget(
    name: str = "web", *, generation: int = 1, spec: Any = None, **status: Any
) -> policy_v1.PodDisruptionBudget:
    value = {
        "metadata": {"name": name, "namespace": "default", "generation": generation},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **(spec or {})},
        "status": {"observedGeneration": 1, **status},
    }
    return codec.from_dict(value, policy_v1.PodDisruptionBudget)


def pod(phase: str = "Running", *, ready: bool = True, ending: bool = False) -> Pod:
    made = Pod(
        metadata={"name": "p", "namespace": "default", "labels": {"app": "web"}},
        status={"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    )
    if ending:
        made.metadata.deletionTimestamp.seconds = 1
    return made


@pytest.mark.parametrize(
    ("phase", "ending", "free", "over"),
    [
        ("Running", False, False, False),
        ("Unknown", False, False, False),
        ("Running", True, True, True),
        ("Pending", False, True, False),
        ("Succeeded", False, True, True),
        ("Failed", False, True, True),
    ],
)
def test_pods_that_serve_nobody_are_free(phase: str, ending: bool, free: bool, over: bool) -> None:
    assert eviction.is_free(pod(phase, ending=ending)) is free
    assert eviction.is_over(pod(phase, ending=ending)) is over


def test_one_budget_protects_a_pod() -> None:
    other = budget("other")
    other.spec.selector.matchLabels["app"] = "other"
    foreign = budget("foreign")
    foreign.metadata.namespace = "elsewhere"
    none = budget("none")
    none.spec.ClearField("selector")
    assert eviction.budget_of(pod(), [other, foreign, none]) is None
    found = eviction.budget_of(pod(), [other, budget(), foreign])
    assert found is not None
    assert found.metadata.name == "web"
    with pytest.raises(errors.ApiError) as several:
        eviction.budget_of(pod(), [budget(), budget("second")])
    assert (several.value.code, several.value.message) == (
        500,
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    )


@pytest.mark.parametrize(
    ("ready", "policy", "healthy", "desired", "free"),
    [
        (True, None, 3, 2, False),
        (True, "AlwaysAllow", 3, 2, False),
        (False, None, 2, 2, True),
        (False, None, 1, 2, False),
        (False, None, 0, 0, False),
        (False, "IfHealthyBudget", 1, 2, False),
        (False, "AlwaysAllow", 1, 2, True),
    ],
)
def test_what_an_unhealthy_pod_costs(
    ready: bool, policy: str | None, healthy: int, desired: int, free: bool
) -> None:
    spec = {} if policy is None else {"unhealthyPodEvictionPolicy": policy}
    protecting = budget(spec=spec, currentHealthy=healthy, desiredHealthy=desired)
    assert eviction.costs_nothing(pod(ready=ready), protecting) is free


def test_a_budget_is_spent() -> None:
    protecting = budget(disruptionsAllowed=2, disruptedPods={"q": "2026-01-01T00:00:00Z"})
    eviction.spend(protecting, "p", NOW_S)
    assert protecting.status.disruptionsAllowed == 1
    assert protecting.status.disruptedPods["p"].seconds == NOW_S
    assert set(protecting.status.disruptedPods) == {"p", "q"}
    assert not protecting.status.conditions
    eviction.spend(protecting, "r", NOW_S)
    (condition,) = protecting.status.conditions
    assert (condition.type, condition.status, condition.reason) == (
        "DisruptionAllowed",
        "False",
        "InsufficientPods",
    )
    with pytest.raises(errors.TooManyRequests):
        eviction.spend(protecting, "s", NOW_S)


FAILED = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "why"}


@pytest.mark.parametrize(
    ("protecting", "cause", "retry_after_s"),
    [
        (
            budget(generation=2, disruptionsAllowed=1),
            "The disruption budget web is still being processed by the server.",
            10,
        ),
        (
            budget(desiredHealthy=3, currentHealthy=2),
            "The disruption budget web needs 3 healthy pods and has 2 currently",
            0,
        ),
        (
            budget(conditions=[FAILED]),
            "The disruption budget web does not allow evicting pods currently because it failed sync: why",
            0,
        ),
    ],
)
def test_refusals(protecting: policy_v1.PodDisruptionBudget, cause: str, retry_after_s: int) -> None:
    with pytest.raises(errors.TooManyRequests) as refused:
        eviction.spend(protecting, "p", NOW_S)
    error = refused.value
    assert (error.message, error.retry_after_s) == (REFUSED, retry_after_s)
    assert [(item.reason, item.message) for item in error.causes] == [("DisruptionBudget", cause)]


@pytest.mark.parametrize(
    ("protecting", "detail"),
    [
        (budget(disruptionsAllowed=-1), "pdb disruptions allowed is negative"),
        (
            budget(
                disruptionsAllowed=1, disruptedPods={f"p{n}": "2026-01-01T00:00:00Z" for n in range(2001)}
            ),
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ),
    ],
)
def test_a_status_out_of_bounds(protecting: policy_v1.PodDisruptionBudget, detail: str) -> None:
    with pytest.raises(errors.Forbidden) as refused:
        eviction.spend(protecting, "p", NOW_S)
    assert refused.value.message == f'poddisruptionbudget.policy "web" is forbidden: {detail}'


@pytest.mark.parametrize(
    ("in_body", "in_request", "wanted"),
    [([], [], []), (["All"], [], ["All"]), ([], ["All"], ["All"]), (["All"], ["All"], ["All"])],
)
def test_a_dry_run_may_be_asked_for_in_two_places(
    in_body: list[str], in_request: list[str], wanted: list[str]
) -> None:
    asked = Eviction(deleteOptions={"dryRun": in_body, "gracePeriodSeconds": 3})
    made = eviction.delete_options(asked, meta_v1.CreateOptions(dryRun=in_request))
    assert (list(made.dryRun), made.gracePeriodSeconds) == (wanted, 3)


def test_two_places_that_disagree() -> None:
    asked = Eviction(deleteOptions={"dryRun": ["Some"]})
    with pytest.raises(errors.ApiError) as refused:
        eviction.delete_options(asked, meta_v1.CreateOptions(dryRun=["All"]))
    assert (refused.value.code, refused.value.message) == (
        500,
        "Non-matching dry-run options in request and content: [All] and [Some]",
    )


def test_a_pod_says_why_it_ends() -> None:
    marked = pod()
    eviction.mark(marked, NOW_S)
    condition = marked.status.conditions[1]
    assert (condition.type, condition.status, condition.reason, condition.message) == (
        "DisruptionTarget",
        "True",
        "EvictionByEvictionAPI",
        "Eviction API: evicting",
    )
