"""The deleting verbs of every row.

A delete begins as the kind's rule says (at once, graceful), then waits for finalizers; what a
propagation policy asks for are finalizers that the garbage collector takes away.

Counterpart: apiserver registry/generic/registry/store.go Delete, registry/rest/delete.go.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from apiserver.registry_objects import ApiObject, Item
from apiserver.registry_reading import ListResult, Reader
from apiserver.registry_writing import Admit, Outcome, Writer
from apiserver.rules import admission, deletion, strategy
from apiserver.rules.deletion import DeleteOutcome
from podyard.api import errors
from podyard.api.resources import Resource
from podyard.api.types import Status, StatusCause, StatusDetails, copy_of, meta_v1
from podyard.base import clock

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_POLICIES = {"Orphan": ORPHAN, "Foreground": FOREGROUND, "Background": ""}
_COLLECTION_WORKERS = 10


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """The answer to a delete.

    Attributes:
        object: what lives on, or the last state of a kind that shows it; else None.
        status: Success, for an object that is gone.
    """

    object: Item | None
    status: Status


class Deleter:
    """Deletes of all rows."""

    def __init__(self, writer: Writer, reader: Reader, admit: Admit) -> None:
        self._writer = writer
        self._reader = reader
        self._admit = admit

    async def delete(
        self, row: Resource, namespace: str, name: str, options: meta_v1.DeleteOptions
    ) -> DeleteResult:
        """Deletes one object, or begins to.

        Raises:
            ApiError: NotFound, Conflict of a precondition, refused, invalid options.
        """
        check_delete_options(options)

        def decide(state: ApiObject | None) -> Outcome:
            if state is None:
                raise errors.NotFound.of(row.plural, name, row.group)
            return self._decide(row, state, options)

        written = await self._writer.write(
            row, row.key(namespace, name), decide, dry_run=bool(options.dryRun)
        )
        item = written.object.view(row)
        metadata = item.message.metadata
        details = StatusDetails(name=name, group=row.group, kind=row.plural, uid=metadata.uid)
        status = Status(status="Success", details=details)
        status.metadata.SetInParent()
        shown = not written.removed or row.shows_deleted
        return DeleteResult(item if shown else None, status)

    async def delete_collection(
        self,
        row: Resource,
        namespace: str,
        options: meta_v1.DeleteOptions,
        list_options: meta_v1.ListOptions,
    ) -> ListResult:
        """Deletes everything that a list finds, a few at a time; returns the list.

        Raises:
            MethodNotAllowed: for all namespaces at once.
        """
        if row.namespaced and not namespace:
            raise errors.MethodNotAllowed.route()
        check_delete_options(options)
        listed = await self._reader.list(row, namespace, list_options)
        limit = asyncio.Semaphore(_COLLECTION_WORKERS)

        async def one(item: Item) -> None:
            async with limit:
                try:
                    await self.delete(row, item.namespace, item.name, options)
                except errors.NotFound:
                    pass

        async with asyncio.TaskGroup() as group:
            for item in listed.items:
                group.create_task(one(item))
        return listed

    def _decide(self, row: Resource, state: ApiObject, options: meta_v1.DeleteOptions) -> Outcome:
        new: Any = copy_of(state.view(row).message)
        metadata = new.metadata
        self._admit(
            admission.Attributes(
                admission.DELETE,
                row,
                metadata.namespace,
                metadata.name,
                old=state.view(row).message,
                dry_run=bool(options.dryRun),
            )
        )
        check_preconditions(row.plural, row.group, metadata, options)
        kind, now_s = strategy.strategy_of(row), clock.now_s()
        begun = kind.delete(new, options, now_s)
        if begun is DeleteOutcome.PENDING:
            return Outcome()
        finalizers = finalizers_for(list(metadata.finalizers), options)
        changed = finalizers != list(metadata.finalizers)
        if changed:
            del metadata.finalizers[:]
            metadata.finalizers.extend(finalizers)
        if begun is DeleteOutcome.GRACEFUL:
            # Stored first also when it goes at once: watchers see the deletion mark before the end.
            goes = kind.delete_on_update(new, new)
            return Outcome(new, remove=goes, message_first=goes)
        if finalizers:
            marked = deletion.mark_for_finalizers(metadata, now_s)
            return Outcome(new if marked or changed else None)
        return Outcome(remove=True)


def check_delete_options(options: meta_v1.DeleteOptions) -> None:
    """Refuses options that contradict each other.

    Raises:
        Invalid: with all causes.
    """
    causes: list[StatusCause] = []
    policy = options.propagationPolicy
    if options.HasField("orphanDependents") and options.HasField("propagationPolicy"):
        detail = "orphanDependents and deletionPropagation cannot be both set"
        causes.append(errors.invalid("propagationPolicy", policy, detail))
    if options.HasField("propagationPolicy") and policy not in _POLICIES:
        causes.append(errors.not_supported("propagationPolicy", policy, [*_POLICIES, "nil"]))
    if any(value != "All" for value in options.dryRun):
        causes.append(errors.not_supported("dryRun", list(options.dryRun), ["All"]))
    if causes:
        raise errors.Invalid.of("DeleteOptions", "", causes, "meta.k8s.io")


def finalizers_for(finalizers: list[str], options: meta_v1.DeleteOptions) -> list[str]:
    """The finalizers after a delete with these options: what its propagation policy means.

    Without a policy the object's own finalizers say; dependents are deleted in the background when
    nothing does. Source: deletionFinalizersForGarbageCollection.
    """
    if options.HasField("orphanDependents"):
        wanted = ORPHAN if options.orphanDependents else ""
    elif options.HasField("propagationPolicy"):
        wanted = _POLICIES[options.propagationPolicy]
    elif ORPHAN in finalizers:
        wanted = ORPHAN
    else:
        wanted = FOREGROUND if FOREGROUND in finalizers else ""
    kept = [finalizer for finalizer in finalizers if finalizer not in (ORPHAN, FOREGROUND)]
    # Where nothing changes, the order stays too.
    if set(finalizers) == {*kept, *([wanted] if wanted else [])}:
        return finalizers
    return [*kept, wanted] if wanted else kept


def check_preconditions(resource: str, group: str, metadata: Any, options: meta_v1.DeleteOptions) -> None:
    """A delete is of the very object, at the very version, that it names.

    Raises:
        Conflict: it is another.
    """
    wanted = options.preconditions
    if wanted.HasField("uid") and wanted.uid != metadata.uid:
        raise errors.Conflict.of(
            resource,
            metadata.name,
            f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({metadata.uid}). "
            "The object might have been deleted and then recreated",
            group,
        )
    if wanted.HasField("resourceVersion") and wanted.resourceVersion != metadata.resourceVersion:
        raise errors.Conflict.of(
            resource,
            metadata.name,
            f"the ResourceVersion in the precondition ({wanted.resourceVersion}) does not match the "
            f"ResourceVersion in record ({metadata.resourceVersion}). The object might have been modified",
            group,
        )
