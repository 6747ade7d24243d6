"""Empties a namespace that is being deleted, then lets it go.

Nothing can be created in it any more (NamespaceLifecycle admission), so what one consistent look
finds is all that is left. Source: upstream's namespaced resources deleter.
"""

from __future__ import annotations

from typing import Any

from podyard.api import codec, meta, resources
from podyard.api.resources import Resource
from podyard.api.types import Key, Namespace, copy_of
from podyard.control.actions import Action, Actions, DeleteCollection, RequeueAfter, Update
from podyard.control.spec import ControllerSpec
from podyard.control.view import View

FINALIZER = "kubernetes"
# While pods end gracefully there is nothing to do but wait.
_LOOK_AGAIN_S = 1.0


def contents() -> tuple[Resource, ...]:
    """Every kind that lives in namespaces and can be deleted, each storage once."""
    return tuple(
        row for row in resources.RESOURCES if row.namespaced and row.storage is None and "delete" in row.verbs
    )


async def gather(client: Any, view: View, key: Key) -> dict[str, list[Any]]:
    """What is left in a namespace that is being deleted: plural -> objects."""
    namespace = view.get(Namespace, key)
    if namespace is None or not namespace.metadata.HasField("deletionTimestamp"):
        return {}
    left: dict[str, list[Any]] = {}
    for row in contents():
        items = (await client.list(row.message, key.name, limit=500)).items
        if items:
            left[row.qualified] = items
    return left


def reconcile(view: View, key: Key) -> Actions:
    """One step of a namespace's end.

    Returns:
        Deletes while something is there, then the Update that removes the finalizer.
    """
    namespace = view.get(Namespace, key)
    if namespace is None or not namespace.metadata.HasField("deletionTimestamp"):
        return []
    if FINALIZER not in namespace.spec.finalizers:
        return []
    left: dict[str, list[Any]] = view.facts
    if not left:
        done = copy_of(namespace)
        kept = [name for name in namespace.spec.finalizers if name != FINALIZER]
        del done.spec.finalizers[:]
        done.spec.finalizers.extend(kept)
        return [Update(done, subresource="finalize")]
    actions: list[Action] = []
    for row in contents():
        items = left.get(row.qualified, [])
        if any(not item.metadata.HasField("deletionTimestamp") for item in items):
            actions.append(DeleteCollection(row.message, key.name))
    status = _status(namespace, left, view.now_s)
    if status is not None:
        actions.append(Update(status, subresource="status"))
    return [*actions, RequeueAfter(_LOOK_AGAIN_S)]


def _status(namespace: Namespace, left: dict[str, list[Any]], now_s: float) -> Namespace | None:
    counts = ", ".join(f"{name} has {len(items)} resource instances" for name, items in sorted(left.items()))
    finalizers: dict[str, int] = {}
    for items in left.values():
        for item in items:
            for finalizer in item.metadata.finalizers:
                finalizers[finalizer] = finalizers.get(finalizer, 0) + 1
    wanted = copy_of(namespace)
    remaining = f"Some resources are remaining: {counts}"
    meta.set_condition(
        wanted.status.conditions,
        "NamespaceContentRemaining",
        "True",
        now_s,
        reason="SomeResourcesRemain",
        message=remaining,
    )
    if finalizers:
        listed = ", ".join(
            f"{name} in {count} resource instances" for name, count in sorted(finalizers.items())
        )
        text = f"Some content in the namespace has finalizers remaining: {listed}"
        meta.set_condition(
            wanted.status.conditions,
            "NamespaceFinalizersRemaining",
            "True",
            now_s,
            reason="SomeFinalizersRemain",
            message=text,
        )
    return None if codec.same(wanted.status, namespace.status) else wanted


NAMESPACE = ControllerSpec(name="namespace", for_=Namespace, reconcile=reconcile, gather=gather, workers=4)
