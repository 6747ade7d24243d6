"""Owner references: what nobody owns any more goes; what is deleted in the foreground waits for its own.

One controller for all kinds; its keys name the kind, too. As a *dependent*, an object goes when every
owner it names is gone; as an *owner* that is being deleted, it waits for its dependents
(`foregroundDeletion`) or lets go of them first (`orphan`). That an owner is absent is never
concluded from a cache alone: the API is asked.

Source: upstream's garbage collector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from podyard.api import errors, resources
from podyard.api.quoting import go_quote
from podyard.api.resources import Resource
from podyard.api.types import Key, Message
from podyard.control.actions import Action, Actions, Delete, Emit, Patch
from podyard.control.spec import ControllerSpec
from podyard.control.view import View

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
# Upstream: concurrent-gc-syncs.
WORKERS = 20
_INDEX = "owners"
_UIDS = "uids"
_STRATEGIC = "application/strategic-merge-patch+json"


def collected() -> tuple[Resource, ...]:
    """Kinds that take part: all that can be deleted, each storage once; events have no owners."""
    return tuple(
        row
        for row in resources.RESOURCES
        if row.storage is None and "delete" in row.verbs and row.plural != "events"
    )


def owners_index(obj: Any) -> tuple[str, ...]:
    return tuple(reference.uid for reference in obj.metadata.ownerReferences)


def uid_index(obj: Any) -> tuple[str, ...]:
    return (obj.metadata.uid,)


def _owner_row(reference: Any) -> Resource | None:
    return resources.find_kind(reference.apiVersion, reference.kind)


def _owner_key(row: Resource, reference: Any, namespace: str) -> Key:
    return Key(namespace if row.namespaced else "", reference.name)


def key_for(row: Resource, key: Key) -> Key:
    """The controller's key for an object: `pods default` and the name."""
    return Key(f"{row.qualified} {key.namespace}", key.name)


def _named(key: Key, rows: Mapping[str, Resource]) -> tuple[Resource, Key]:
    """Kind and key of the object that a controller's key names."""
    kind, _, namespace = key.namespace.partition(" ")
    return rows[kind], Key(namespace, key.name)


async def gather(client: Any, view: View, key: Key, row: Resource) -> dict[str, bool]:
    """Owner uid -> whether it exists, of owners that the cache does not have."""
    obj: Any = view.get(row.message, key)
    found: dict[str, bool] = {}
    for reference in obj.metadata.ownerReferences if obj is not None else ():
        owner_row = _owner_row(reference)
        if owner_row is None:
            found[reference.uid] = True  # of a kind that is not served here: not ours to judge
            continue
        if owner_row.namespaced and not row.namespaced:
            continue  # there is no namespace to ask about: such an object is not judged
        owner_key = _owner_key(owner_row, reference, key.namespace)
        cached: Any = view.get(owner_row.storage_row.message, owner_key)
        if cached is not None and cached.metadata.uid == reference.uid:
            continue
        try:
            live = await client.get(owner_row.message, owner_key.name, owner_key.namespace)
            found[reference.uid] = live.metadata.uid == reference.uid
        except errors.NotFound:
            found[reference.uid] = False
    return found


def reconcile(view: View, key: Key, row: Resource, rows: Iterable[Resource]) -> Actions:
    """One object, as owner and as dependent.

    Returns:
        Deletes or patches of its dependents and of itself; nothing for most objects.
    """
    obj: Any = view.get(row.message, key)
    if obj is None:
        return []
    actions: list[Action] = []
    if obj.metadata.HasField("deletionTimestamp"):
        if FOREGROUND in obj.metadata.finalizers:
            actions += _wait_for_dependents(view, row, key, obj, rows)
        elif ORPHAN in obj.metadata.finalizers:
            actions += _let_go(view, row, key, obj, rows)
        return actions
    if obj.metadata.ownerReferences:
        actions += _as_dependent(view, row, key, obj, rows)
    return actions


def _dependents(view: View, uid: str, rows: Iterable[Resource]) -> list[tuple[Resource, Any]]:
    return [(row, obj) for row in rows for obj in view.by_index(row.message, _INDEX, uid)]


def _wait_for_dependents(
    view: View, row: Resource, key: Key, obj: Any, rows: Iterable[Resource]
) -> list[Action]:
    """The finalizer goes when nothing blocks; what happens to a dependent is decided by its own key."""
    uid = obj.metadata.uid
    if any(uid in _blocked(other) for _, other in _dependents(view, uid, rows)):
        return []
    return [_without_finalizer(row, key, obj, FOREGROUND)]


def _blocked(obj: Any) -> set[str]:
    """Owners that wait for this object."""
    return {reference.uid for reference in obj.metadata.ownerReferences if reference.blockOwnerDeletion}


def _waits(obj: Any) -> bool:
    """Is deleted in the foreground."""
    return obj.metadata.HasField("deletionTimestamp") and FOREGROUND in obj.metadata.finalizers


def _let_go(view: View, row: Resource, key: Key, obj: Any, rows: Iterable[Resource]) -> list[Action]:
    dependents = _dependents(view, obj.metadata.uid, rows)
    if not dependents:
        return [_without_finalizer(row, key, obj, ORPHAN)]
    return [_without_owners(other_row, other, [obj.metadata.uid]) for other_row, other in dependents]


def _as_dependent(view: View, row: Resource, key: Key, obj: Any, rows: Iterable[Resource]) -> list[Action]:
    live: dict[str, bool] = view.facts or {}
    solid: list[str] = []
    gone: list[str] = []
    waiting: list[str] = []
    events: list[Action] = []
    for reference in obj.metadata.ownerReferences:
        owner_row = _owner_row(reference)
        owner: Any = None
        if owner_row is not None:
            if owner_row.namespaced and not row.namespaced:
                # Nobody can tell whether that owner is there: such an object is never collected.
                return _misplaced(view, obj, rows)
            owner = view.get(owner_row.storage_row.message, _owner_key(owner_row, reference, key.namespace))
        if owner is None or owner.metadata.uid != reference.uid:
            (solid if live.get(reference.uid, True) else gone).append(reference.uid)
            events = events or _misplaced(view, obj, rows)
        elif _waits(owner):
            waiting.append(reference.uid)
        else:
            solid.append(reference.uid)
    if solid:
        return [_without_owners(row, obj, gone + waiting), *events] if gone or waiting else events
    dependents = _dependents(view, obj.metadata.uid, rows) if waiting else []
    if dependents:
        if _blocked(obj) and any(_waits(other) for _, other in dependents):
            # Perhaps its owner and its dependent are one: nobody may wait for it, else all do for ever.
            return [_unblocked(row, obj), *events]
        return [_delete(row, obj, "Foreground"), *events]
    policy = {ORPHAN: "Orphan", FOREGROUND: "Foreground"}
    chosen = next((policy[name] for name in obj.metadata.finalizers if name in policy), "Background")
    return [_delete(row, obj, chosen), *events]


def _misplaced(view: View, obj: Any, rows: Iterable[Resource]) -> list[Action]:
    """Says of each owner that it is in another namespace."""
    rows = tuple(rows)
    space = obj.metadata.namespace
    events: list[Action] = []
    for reference in obj.metadata.ownerReferences:
        named: list[Any] = [
            owner for row in rows for owner in view.by_index(row.message, _UIDS, reference.uid)
        ]
        if all(owner.metadata.namespace in ("", space) for owner in named):
            continue
        text = (
            f"ownerRef [{reference.apiVersion}/{reference.kind}, namespace: {space}, "
            f"name: {reference.name}, uid: {reference.uid}] does not exist in namespace {go_quote(space)}"
        )
        events.append(Emit(obj, "Warning", "OwnerRefInvalidNamespace", text))
    return events


def _key_of(obj: Any) -> Key:
    return Key(obj.metadata.namespace, obj.metadata.name)


def _delete(row: Resource, obj: Any, propagation: str) -> Delete:
    return Delete(
        row.message,
        _key_of(obj),
        obj.metadata.uid,
        propagation=propagation,
        reason=f"collecting {row.plural} {_key_of(obj)}",
    )


def _without_finalizer(row: Resource, key: Key, obj: Any, name: str) -> Patch:
    kept = [finalizer for finalizer in obj.metadata.finalizers if finalizer != name]
    # The revision guards against a finalizer that someone added meanwhile.
    metadata = {"uid": obj.metadata.uid, "resourceVersion": obj.metadata.resourceVersion, "finalizers": kept}
    return Patch(row.message, key, {"metadata": metadata})


def _without_owners(row: Resource, obj: Any, uids: list[str]) -> Patch:
    references = [{"$patch": "delete", "uid": uid} for uid in uids]
    body = {"metadata": {"uid": obj.metadata.uid, "ownerReferences": references}}
    return Patch(row.message, _key_of(obj), body, patch_type=_STRATEGIC)


def _unblocked(row: Resource, obj: Any) -> Patch:
    references = [{"uid": uid, "blockOwnerDeletion": False} for uid in sorted(_blocked(obj))]
    body = {"metadata": {"uid": obj.metadata.uid, "ownerReferences": references}}
    return Patch(row.message, _key_of(obj), body, patch_type=_STRATEGIC)


def _keys(old: Any, new: Any, view: View, rows: Mapping[type[Message], Resource]) -> list[Key]:
    """Which objects a change concerns: the changed one, its dependents, its owners."""
    obj = new if new is not None else old
    row = rows[type(obj)]
    found: list[Key] = []
    if new is not None and (new.metadata.ownerReferences or new.metadata.HasField("deletionTimestamp")):
        found.append(key_for(row, _key_of(new)))
    if new is None or _begins_foreground(old, new):
        dependents = _dependents(view, obj.metadata.uid, rows.values())
        found += [key_for(other, _key_of(dependent)) for other, dependent in dependents]
    for reference in old.metadata.ownerReferences if old is not None else ():
        if not _holds_less(reference.uid, old, new):
            continue
        owner_row = _owner_row(reference)
        if owner_row is not None and owner_row.storage_row.message in rows:
            owner_key = _owner_key(owner_row, reference, obj.metadata.namespace)
            found.append(key_for(owner_row.storage_row, owner_key))
    return found


def _holds_less(uid: str, old: Any, new: Any) -> bool:
    """Whether a dependent went, let go of an owner or blocks it no more: the owner may wait for that."""
    if new is None or uid not in owners_index(new):
        return True
    return uid in _blocked(old) and uid not in _blocked(new)


def _begins_foreground(old: Any, new: Any) -> bool:
    return _waits(new) and (old is None or not old.metadata.HasField("deletionTimestamp"))


def controller() -> ControllerSpec:
    """The one for all kinds that take part."""
    rows = collected()
    by_name = {row.qualified: row for row in rows}
    by_message: dict[type[Message], Resource] = {row.message: row for row in rows}

    async def gather_named(client: Any, view: View, key: Key) -> dict[str, bool]:
        row, named = _named(key, by_name)
        return await gather(client, view, named, row)

    def reconcile_named(view: View, key: Key) -> Actions:
        row, named = _named(key, by_name)
        return reconcile(view, named, row, rows)

    def keys(old: Any, new: Any, view: View) -> list[Key]:
        return _keys(old, new, view, by_message)

    return ControllerSpec(
        name="garbage-collector",
        for_=rows[0].message,
        own_keys=False,
        maps=dict.fromkeys(by_message, keys),
        indexes={kind: {_INDEX: owners_index, _UIDS: uid_index} for kind in by_message},
        gather=gather_named,
        reconcile=reconcile_named,
        reporter="garbage-collector-controller",
        workers=WORKERS,
    )
