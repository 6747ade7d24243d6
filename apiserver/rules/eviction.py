"""Eviction: may this pod go now, and what does its budget have to say? Pure.

Counterpart: kubernetes pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from apiserver.rules.pods import TERMINAL_PHASES
from podyard.api import budgets, errors, meta
from podyard.api.types import Pod, StatusCause, copy_of, meta_v1, policy_v1

Budget = policy_v1.PodDisruptionBudget
# Source: MaxDisruptedPodSize.
MAX_DISRUPTED_PODS = 2000
DISRUPTION_TARGET = "DisruptionTarget"
_CAUSE = "DisruptionBudget"
_VIOLATED = "Cannot evict pod as it would violate the pod's disruption budget."
_RESOURCE, _GROUP = "poddisruptionbudget", "policy"
# Where the budget's status is behind, a moment helps; where it is exhausted, nobody knows what does.
_BEHIND_RETRY_S = 10


def delete_options(eviction: policy_v1.Eviction, options: meta_v1.CreateOptions) -> meta_v1.DeleteOptions:
    """How the pod is to be deleted; a dry run may be asked for in either place.

    Raises:
        ApiError: both places name one, and not the same (upstream's quirk: a 500 without reason).
    """
    wanted = copy_of(eviction.deleteOptions)
    if not wanted.dryRun:
        wanted.dryRun.extend(options.dryRun)
    elif options.dryRun and list(options.dryRun) != list(wanted.dryRun):
        shown = [f"[{' '.join(values)}]" for values in (options.dryRun, wanted.dryRun)]
        raise errors.ApiError(
            f"Non-matching dry-run options in request and content: {shown[0]} and {shown[1]}", code=500
        )
    return wanted


def is_free(pod: Pod) -> bool:
    """Whether no budget need be asked: the pod serves nobody yet, or not any more."""
    return pod.status.phase in (*TERMINAL_PHASES, "Pending") or meta.is_terminating(pod.metadata)


def is_over(pod: Pod) -> bool:
    """Whether the pod can never be ready again, so that its version does not matter."""
    return pod.status.phase in TERMINAL_PHASES or meta.is_terminating(pod.metadata)


def budget_of(pod: Pod, candidates: Iterable[Budget]) -> Budget | None:
    """The one budget that protects the pod; None when there is none.

    Raises:
        ApiError: there are several.
    """
    found = [budget for budget in candidates if budgets.covers(budget, pod)]
    if len(found) > 1:
        text = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        raise errors.ApiError(text, code=500)
    return found[0] if found else None


def costs_nothing(pod: Pod, budget: Budget) -> bool:
    """Whether an unhealthy pod may go without a share of its budget."""
    if meta.is_condition_true(pod.status.conditions, "Ready"):
        return False
    if budget.spec.unhealthyPodEvictionPolicy == "AlwaysAllow":
        return True
    status = budget.status
    return bool(status.currentHealthy >= status.desiredHealthy > 0)


def spend(budget: Budget, pod_name: str, now_s: float) -> None:
    """Takes one disruption from the budget and notes for whom; `budget` is changed.

    Raises:
        TooManyRequests: none is left, or its status is of an older spec.
        Forbidden: the status is out of bounds.
    """
    status, name = budget.status, budget.metadata.name
    if status.observedGeneration < budget.metadata.generation:
        raise still_processed(name)
    if status.disruptionsAllowed < 0:
        raise errors.Forbidden.of(_RESOURCE, name, "pdb disruptions allowed is negative", _GROUP)
    if len(status.disruptedPods) > MAX_DISRUPTED_PODS:
        detail = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise errors.Forbidden.of(_RESOURCE, name, detail, _GROUP)
    if status.disruptionsAllowed == 0:
        raise _refusal(_exhausted_text(budget))
    status.disruptionsAllowed -= 1
    if status.disruptionsAllowed == 0:
        budgets.set_allowed_condition(budget, now_s)
    # The controller does not count the pod as healthy any more, even before it sees it go.
    status.disruptedPods[pod_name].CopyFrom(meta.time_of(now_s))


def still_processed(budget_name: str) -> errors.TooManyRequests:
    """The refusal while the budget's state is not known well enough."""
    text = f"The disruption budget {budget_name} is still being processed by the server."
    return _refusal(text, _BEHIND_RETRY_S)


def _exhausted_text(budget: Budget) -> str:
    name, status = budget.metadata.name, budget.status
    condition = meta.condition(status.conditions, budgets.DISRUPTION_ALLOWED)
    if condition is not None and (condition.status, condition.reason) == ("False", budgets.SYNC_FAILED):
        return (
            f"The disruption budget {name} does not allow evicting pods currently because it failed sync: "
            f"{condition.message}"
        )
    return (
        f"The disruption budget {name} needs {status.desiredHealthy} healthy pods and has "
        f"{status.currentHealthy} currently"
    )


def _refusal(text: str, retry_after_s: int = 0) -> errors.TooManyRequests:
    cause = StatusCause(reason=_CAUSE, message=text)
    return errors.TooManyRequests(_VIOLATED, causes=[cause], retry_after_s=retry_after_s)


def mark(pod: Pod, now_s: float) -> None:
    """Says on the pod why it is about to end; `pod` is changed."""
    meta.set_condition(
        pod.status.conditions,
        DISRUPTION_TARGET,
        "True",
        now_s,
        reason="EvictionByEvictionAPI",
        message="Eviction API: evicting",
    )
