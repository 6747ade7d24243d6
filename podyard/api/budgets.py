"""What a PodDisruptionBudget covers and says: shared by the eviction API and its controller. Pure.

Counterpart: component-helpers apps/poddisruptionbudget.
"""

from __future__ import annotations

from podyard.api import meta, selectors
from podyard.api.types import Pod, policy_v1

DISRUPTION_ALLOWED = "DisruptionAllowed"
SUFFICIENT = "SufficientPods"
INSUFFICIENT = "InsufficientPods"
SYNC_FAILED = "SyncFailed"


def selector_of(budget: policy_v1.PodDisruptionBudget) -> selectors.LabelSelector:
    """Whose pods it protects: without a selector nobody's; an empty one takes the whole namespace.

    A selector that can't be read selects nothing.
    """
    if not budget.spec.HasField("selector"):
        return selectors.NOTHING
    try:
        return selectors.from_message(budget.spec.selector)
    except selectors.SelectorError:
        return selectors.NOTHING


def covers(budget: policy_v1.PodDisruptionBudget, pod: Pod) -> bool:
    """Whether the budget protects this pod."""
    if budget.metadata.namespace != pod.metadata.namespace:
        return False
    return selector_of(budget).matches(pod.metadata.labels)


def set_allowed_condition(budget: policy_v1.PodDisruptionBudget, now_s: float) -> None:
    """Brings the condition DisruptionAllowed in line with the status; `budget` is changed."""
    status, reason = _allowed(budget)
    meta.set_condition(
        budget.status.conditions,
        DISRUPTION_ALLOWED,
        status,
        now_s,
        reason=reason,
        observed_generation=budget.status.observedGeneration,
    )


def is_condition_current(budget: policy_v1.PodDisruptionBudget) -> bool:
    """Whether `set_allowed_condition` would change nothing that counts."""
    found = meta.condition(budget.status.conditions, DISRUPTION_ALLOWED)
    if found is None or found.observedGeneration != budget.status.observedGeneration:
        return False
    return (found.status, found.reason) == _allowed(budget)


def _allowed(budget: policy_v1.PodDisruptionBudget) -> tuple[str, str]:
    return ("True", SUFFICIENT) if budget.status.disruptionsAllowed > 0 else ("False", INSUFFICIENT)
