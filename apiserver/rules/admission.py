"""Built-in admission plugins, in upstream's order: each may change a new object, or refuse it.

Plugins are pure functions of the request and of a view on what the cluster has; the registry calls
`admit` before the strategy prepares the object.

Counterpart: kubernetes plugin/pkg/admission.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from apiserver.rules import classes, serviceaccounts
from apiserver.rules.namespaces import IMMORTAL
from podyard.api import errors
from podyard.api.errors import Forbidden
from podyard.api.resources import Resource
from podyard.api.types import (
    Message,
    Namespace,
    Node,
    Pod,
    PriorityClass,
    ServiceAccount,
    core_v1,
    networking_v1,
    node_v1,
    storage_v1,
)

CREATE = "CREATE"
UPDATE = "UPDATE"
DELETE = "DELETE"

TOLERATION_S = 300
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
PREEMPT = "PreemptLowerPriority"


class ClusterView(Protocol):
    """What plugins may look up; answers come from the watch cache, or the store where that is behind."""

    def namespace(self, name: str) -> Namespace | None:
        """The namespace; None when it does not exist."""

    def service_account(self, namespace: str, name: str) -> ServiceAccount | None:
        """The account; None when it does not exist."""

    def priority_class(self, name: str) -> PriorityClass | None:
        """The class; None when it does not exist."""

    def default_priority_classes(self) -> list[PriorityClass]:
        """Classes marked as the global default."""

    def runtime_class(self, name: str) -> node_v1.RuntimeClass | None:
        """The class; None when it does not exist."""

    def all_of(self, kind: type[Message]) -> list[Any]:
        """Every object of a cluster-scoped kind."""


class NotYet(Forbidden):
    """A refusal that may pass by itself within moments: what is missing is being made."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """One request for admission.

    Attributes:
        operation: CREATE, UPDATE or DELETE.
        obj: the new object, changed by plugins; None for a delete.
        old: the stored object, read-only; None for a create.
        name_suffix: a random part for the name of what a plugin adds.
    """

    operation: str
    row: Resource
    namespace: str
    name: str
    subresource: str = ""
    obj: Any = None
    old: Any = None
    dry_run: bool = False
    name_suffix: str = ""

    def is_for(self, kind: type[Message], *operations: str) -> bool:
        """Whether the request is about this kind itself (no subresource)."""
        return self.row.message is kind and not self.subresource and self.operation in operations

    def forbidden(self, detail: str, kind: type[Forbidden] = Forbidden) -> Forbidden:
        """A refusal in the plugin's words."""
        name = self.name or (self.obj.metadata.generateName if self.obj is not None else "")
        return kind.of(self.row.plural, name, detail, self.row.group)


@dataclass(frozen=True, slots=True)
class Defaults:
    """Settings of plugins.

    Attributes:
        not_ready_toleration_s, unreachable_toleration_s: what new pods get.
    """

    not_ready_toleration_s: int = TOLERATION_S
    unreachable_toleration_s: int = TOLERATION_S


Plugin = Callable[[Attributes, ClusterView, Defaults], None]


def admit(attributes: Attributes, view: ClusterView, defaults: Defaults = Defaults()) -> None:
    """Runs every plugin.

    Raises:
        ApiError: the first refusal.
    """
    for _, plugin in PLUGINS:
        plugin(attributes, view, defaults)


def namespace_lifecycle(attributes: Attributes, view: ClusterView, defaults: Defaults) -> None:
    """No deletion of the system's namespaces; nothing new in namespaces that are missing or going."""
    if attributes.row.message is Namespace:
        if attributes.operation == DELETE and attributes.name in IMMORTAL:
            raise attributes.forbidden("this namespace may not be deleted")
        return
    if not attributes.row.namespaced or attributes.operation == DELETE:
        return
    namespace = view.namespace(attributes.namespace)
    if namespace is None:
        raise errors.NotFound.of("namespaces", attributes.namespace)
    if attributes.operation == CREATE and namespace.status.phase == "Terminating":
        raise Forbidden.namespace_terminating(
            attributes.row.plural, attributes.name, attributes.namespace, attributes.row.group
        )


def service_account(attributes: Attributes, view: ClusterView, defaults: Defaults) -> None:
    """Pods run as `default` unless they name an account, which must exist; they get its token.

    Source: plugin/pkg/admission/serviceaccount.
    """
    if not attributes.is_for(Pod, CREATE):
        return
    spec, namespace = attributes.obj.spec, attributes.namespace
    name = spec.serviceAccountName or serviceaccounts.DEFAULT
    account = view.service_account(namespace, name)
    if account is None:
        detail = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        # A controller makes the default account of a new namespace.
        raise attributes.forbidden(detail, NotYet if name == serviceaccounts.DEFAULT else Forbidden)
    serviceaccounts.use_account(spec, account, attributes.name_suffix)


def taint_nodes_by_condition(attributes: Attributes, view: ClusterView, defaults: Defaults) -> None:
    """A new node takes no pods until it is ready."""
    if not attributes.is_for(Node, CREATE):
        return
    taints = attributes.obj.spec.taints
    if not any(taint.key == NOT_READY and taint.effect == "NoSchedule" for taint in taints):
        taints.add(key=NOT_READY, effect="NoSchedule")


def priority(attributes: Attributes, view: ClusterView, defaults: Defaults) -> None:
    """A pod's priority is its class's; there is one default class at most."""
    if attributes.is_for(PriorityClass, CREATE, UPDATE):
        _check_only_default(attributes, view)
    elif attributes.is_for(Pod, CREATE):
        _resolve_priority(attributes, view)
    elif attributes.is_for(Pod, UPDATE):
        new, old = attributes.obj.spec, attributes.old.spec
        for name in ("priority", "preemptionPolicy"):
            if old.HasField(name) and not new.HasField(name):
                setattr(new, name, getattr(old, name))


def _check_only_default(attributes: Attributes, view: ClusterView) -> None:
    if not attributes.obj.globalDefault:
        return
    for other in view.default_priority_classes():
        if other.metadata.name != attributes.obj.metadata.name:
            raise attributes.forbidden(
                f"PriorityClass {other.metadata.name} is already marked as default. "
                "Only one default can exist"
            )


def _resolve_priority(attributes: Attributes, view: ClusterView) -> None:
    spec = attributes.obj.spec
    value, policy = 0, PREEMPT
    if spec.priorityClassName:
        found = view.priority_class(spec.priorityClassName)
        if found is None:
            raise attributes.forbidden(f"no PriorityClass with name {spec.priorityClassName} was found")
        value, policy = found.value, found.preemptionPolicy
    else:
        candidates = view.default_priority_classes()
        if candidates:
            lowest = min(candidates, key=lambda item: (item.value, item.metadata.name))
            spec.priorityClassName = lowest.metadata.name
            value, policy = lowest.value, lowest.preemptionPolicy
    if spec.HasField("priority") and spec.priority != value:
        raise attributes.forbidden(
            f"the integer value of priority ({spec.priority}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
    spec.priority = value
    if not policy:
        return
    if spec.HasField("preemptionPolicy") and spec.preemptionPolicy != policy:
        raise attributes.forbidden(
            f"the string value of PreemptionPolicy ({spec.preemptionPolicy}) must not be provided in "
            f"pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        )
    spec.preemptionPolicy = policy


def default_toleration_seconds(attributes: Attributes, view: ClusterView, defaults: Defaults) -> None:
    """Pods bear a lost node for a while before they are evicted."""
    if not attributes.is_for(Pod, CREATE, UPDATE):
        return
    tolerations = attributes.obj.spec.tolerations
    for key, seconds in (
        (NOT_READY, defaults.not_ready_toleration_s),
        (UNREACHABLE, defaults.unreachable_toleration_s),
    ):
        tolerated = any(item.key in ("", key) and item.effect in ("", "NoExecute") for item in tolerations)
        if not tolerated:
            tolerations.add(key=key, operator="Exists", effect="NoExecute", tolerationSeconds=seconds)


def default_storage_class(attributes: Attributes, view: ClusterView, defaults: Defaults) -> None:
    """A claim that names no class gets the default one, if there is one."""
    claim = attributes.obj
    if attributes.is_for(core_v1.PersistentVolumeClaim, CREATE) and classes.wants_storage_class(claim):
        name = classes.default_class(view.all_of(storage_v1.StorageClass), classes.DEFAULT_STORAGE)
        if name:
            claim.spec.storageClassName = name


def default_ingress_class(attributes: Attributes, view: ClusterView, defaults: Defaults) -> None:
    """An ingress that names no class gets the default one, if there is one."""
    ingress = attributes.obj
    if attributes.is_for(networking_v1.Ingress, CREATE) and classes.wants_ingress_class(ingress):
        name = classes.default_class(view.all_of(networking_v1.IngressClass), classes.DEFAULT_INGRESS)
        if name:
            ingress.spec.ingressClassName = name


def runtime_class(attributes: Attributes, view: ClusterView, defaults: Defaults) -> None:
    """A pod's runtime class must exist, and says what it costs and where it runs."""
    if not attributes.is_for(Pod, CREATE):
        return
    spec = attributes.obj.spec
    found = None
    if spec.HasField("runtimeClassName"):
        found = view.runtime_class(spec.runtimeClassName)
        if found is None:
            detail = f'pod rejected: RuntimeClass "{spec.runtimeClassName}" not found'
            raise attributes.forbidden(detail)
    try:
        classes.use_runtime_class(spec, found)
    except classes.Rejected as error:
        raise attributes.forbidden(str(error)) from None


# Upstream's order; names as in `admission_plugins`.
PLUGINS: tuple[tuple[str, Plugin], ...] = (
    ("NamespaceLifecycle", namespace_lifecycle),
    ("ServiceAccount", service_account),
    ("TaintNodesByCondition", taint_nodes_by_condition),
    ("Priority", priority),
    ("DefaultTolerationSeconds", default_toleration_seconds),
    ("DefaultStorageClass", default_storage_class),
    ("RuntimeClass", runtime_class),
    ("DefaultIngressClass", default_ingress_class),
)
