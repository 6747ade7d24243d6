"""Namespaces: the `kubernetes` finalizer in their spec, and a deletion in two steps.

Deleting a namespace marks it Terminating; the namespace controller empties it and then takes the
finalizer away through the `finalize` subresource, upon which the object goes.

Counterpart: kubernetes pkg/registry/core/namespace.
"""

from __future__ import annotations

from apiserver.rules.deletion import DeleteOutcome, should_delete_on_update
from podyard.api import meta
from podyard.api.types import Namespace, core_v1, meta_v1

FINALIZER = "kubernetes"
IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


def prepare_create(namespace: Namespace) -> None:
    """Active, with the finalizer."""
    namespace.status.CopyFrom(core_v1.NamespaceStatus(phase="Active"))
    if FINALIZER not in namespace.spec.finalizers:
        namespace.spec.finalizers.append(FINALIZER)


def prepare_update(new: Namespace, old: Namespace) -> None:
    """Finalizers and status have their own subresources."""
    new.spec.CopyFrom(old.spec)
    new.status.CopyFrom(old.status)


def prepare_status(new: Namespace, old: Namespace) -> None:
    """Only the status changes."""
    new.spec.CopyFrom(old.spec)


def prepare_finalize(new: Namespace, old: Namespace) -> None:
    """Only the finalizers change."""
    new.status.CopyFrom(old.status)


def delete(namespace: Namespace, options: meta_v1.DeleteOptions, now_s: float) -> DeleteOutcome:
    """First call: Terminating from now on. Once nothing holds it any more: gone."""
    if not meta.is_terminating(namespace.metadata):
        namespace.metadata.deletionTimestamp.CopyFrom(meta.time_of(now_s))
        namespace.status.phase = "Terminating"
        return DeleteOutcome.GRACEFUL
    return DeleteOutcome.PENDING if namespace.spec.finalizers else DeleteOutcome.NOW


def delete_on_update(new: Namespace, old: Namespace) -> bool:
    """Gone when the last finalizer of either kind is."""
    return not new.spec.finalizers and should_delete_on_update(new, old)
