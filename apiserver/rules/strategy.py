"""What the server does with an object of each kind before it is stored: one row per kind.

The registry's verbs call these hooks in upstream's order: defaults, admission, `prepare_*`,
`validate_*`. `strategy_of(row)` gives a kind's row; what a kind does not name is the general rule.
Functions are pure but for the object they are given to change, which is always the new one.

Counterpart: kubernetes pkg/registry/*/strategy.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from apiserver.rules import deletion, metadata, namespaces, nodes, pods, services, workloads
from apiserver.rules.deletion import DeleteOutcome
from podyard.api import validation
from podyard.api.resources import Resource
from podyard.api.types import (
    EndpointSlice,
    Message,
    Namespace,
    Node,
    Pod,
    PriorityClass,
    Service,
    StatusCause,
    apps_v1,
    meta_v1,
    policy_v1,
)

Causes = list[StatusCause]
Prepare = Callable[[Any], None]
PrepareUpdate = Callable[[Any, Any], None]
ValidateUpdate = Callable[[Any, Any], Causes]


def _nothing(obj: Any) -> None:
    """Nothing to prepare."""


def _nothing_new(new: Any, old: Any) -> None:
    """Nothing to carry over."""


def _at_once(obj: Any, options: meta_v1.DeleteOptions, now_s: float) -> DeleteOutcome:
    """Kinds without graceful deletion."""
    return DeleteOutcome.NOW


@dataclass(frozen=True, slots=True)
class Part:
    """An update through a subresource (`status`, `finalize`)."""

    prepare: PrepareUpdate
    validate: ValidateUpdate


@dataclass(frozen=True, slots=True)
class Strategy:
    """Hooks of one kind.

    Attributes:
        prepare_create: resets what clients may not set (status), begins the generation.
        prepare_update: keeps the stored status, counts the generation.
        parts: updates through subresources.
        delete: the first step of a deletion; may change the object.
        delete_on_update: whether an update lets an object that is being deleted go.
    """

    prepare_create: Prepare = _nothing
    prepare_update: PrepareUpdate = _nothing_new
    parts: Mapping[str, Part] = field(default_factory=dict)
    delete: Callable[[Any, meta_v1.DeleteOptions, float], DeleteOutcome] = _at_once
    delete_on_update: Callable[[Any, Any], bool] = deletion.should_delete_on_update


STRATEGIES: Mapping[type[Message], Strategy] = {
    apps_v1.Deployment: Strategy(
        prepare_create=workloads.prepare_create,
        prepare_update=workloads.prepare_deployment_update,
        parts={"status": Part(workloads.prepare_status, validation.deployment_status_update)},
    ),
    apps_v1.ReplicaSet: Strategy(
        prepare_create=workloads.prepare_create,
        prepare_update=workloads.prepare_update,
        parts={"status": Part(workloads.prepare_status, validation.replica_set_status_update)},
    ),
    EndpointSlice: Strategy(
        prepare_create=metadata.first_generation, prepare_update=metadata.count_body_generation
    ),
    Namespace: Strategy(
        prepare_create=namespaces.prepare_create,
        prepare_update=namespaces.prepare_update,
        parts={
            "status": Part(namespaces.prepare_status, validation.namespace_status_update),
            "finalize": Part(namespaces.prepare_finalize, validation.namespace_finalize_update),
        },
        delete=namespaces.delete,
        delete_on_update=namespaces.delete_on_update,
    ),
    Node: Strategy(
        prepare_update=nodes.prepare_update,
        parts={"status": Part(nodes.prepare_status, validation.node_update)},
    ),
    Pod: Strategy(
        prepare_create=pods.prepare_create,
        prepare_update=pods.prepare_update,
        parts={"status": Part(pods.prepare_status, validation.pod_status_update)},
        delete=pods.delete,
    ),
    policy_v1.PodDisruptionBudget: Strategy(
        prepare_create=workloads.prepare_create,
        prepare_update=workloads.prepare_update,
        parts={"status": Part(metadata.keep_spec, validation.pod_disruption_budget_status_update)},
    ),
    PriorityClass: Strategy(prepare_create=metadata.first_generation),
    Service: Strategy(
        prepare_create=services.prepare_create,
        prepare_update=services.prepare_update,
        parts={"status": Part(services.prepare_status, validation.service_status_update)},
    ),
}
_GENERAL = Strategy()


def strategy_of(row: Resource) -> Strategy:
    """The hooks of a kind."""
    return STRATEGIES.get(row.message, _GENERAL)


def prepare_create(row: Resource, obj: Any) -> None:
    """Step before validation of a create; `obj` is changed."""
    strategy_of(row).prepare_create(obj)


def validate_create(row: Resource, obj: Any) -> Causes:
    """Every error of a new object."""
    return row.validate(obj)


def prepare_update(row: Resource, new: Any, old: Any, subresource: str = "") -> None:
    """Step before validation of an update; `new` is changed."""
    strategy = strategy_of(row)
    metadata.carry_over(new.metadata, old.metadata)
    if subresource:
        strategy.parts[subresource].prepare(new, old)
    else:
        strategy.prepare_update(new, old)


def validate_update(row: Resource, new: Any, old: Any, subresource: str = "") -> Causes:
    """Every error of an update: of the object as it would be, and of what may not change."""
    if subresource:
        return strategy_of(row).parts[subresource].validate(new, old)
    return row.validate_update(new, old)
