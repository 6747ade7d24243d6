"""How a delete begins, and when an object that is being deleted goes.

A kind with graceful deletion first gets `deletionTimestamp` and its grace; whoever runs the object
(a kubelet) deletes it again with grace 0. An object with finalizers stays until they are gone.

Counterpart: apiserver pkg/registry/rest/delete.go, pkg/registry/generic/registry/store.go.
"""

from __future__ import annotations

import enum
from typing import Any

from podyard.api import meta
from podyard.api.types import ObjectMeta, meta_v1


class DeleteOutcome(enum.Enum):
    """What the registry does after a strategy looked at the object.

    NOW: the object goes at once, finalizers permitting.
    GRACEFUL: the object was changed and is to be stored; it goes where the kind's `delete_on_update`
        says so of the new state (grace 0, nothing holds it).
    PENDING: a graceful deletion is under way already; nothing changes.
    """

    NOW = "now"
    GRACEFUL = "graceful"
    PENDING = "pending"


def begin_graceful(
    metadata: ObjectMeta, options: meta_v1.DeleteOptions, now_s: float, *, grace_s: int
) -> DeleteOutcome:
    """Marks the object for deletion after `grace_s`, or shortens a deletion that is under way.

    Args:
        metadata: changed.
        options: only a request that itself names a grace may shorten one.
        grace_s: the grace that the kind's rule found for a first delete.
    """
    if meta.is_terminating(metadata):
        return _shorten(metadata, options)
    metadata.deletionTimestamp.CopyFrom(meta.time_of(now_s + grace_s))
    metadata.deletionGracePeriodSeconds = grace_s
    if metadata.generation > 0:
        metadata.generation += 1
    return DeleteOutcome.GRACEFUL


def _shorten(metadata: ObjectMeta, options: meta_v1.DeleteOptions) -> DeleteOutcome:
    before_s = metadata.deletionGracePeriodSeconds
    # Grace 0 is stored just before the object goes; a crash between the two ends here, so go on.
    if before_s == 0:
        return DeleteOutcome.NOW
    if not options.HasField("gracePeriodSeconds"):
        return DeleteOutcome.PENDING
    grace_s = 1 if options.gracePeriodSeconds < 0 else options.gracePeriodSeconds
    if grace_s >= before_s:
        return DeleteOutcome.PENDING
    metadata.deletionTimestamp.CopyFrom(meta.time_of(metadata.deletionTimestamp.seconds - before_s + grace_s))
    metadata.deletionGracePeriodSeconds = grace_s
    return DeleteOutcome.GRACEFUL


def mark_for_finalizers(metadata: ObjectMeta, now_s: float) -> bool:
    """Marks an object that must wait for its finalizers; grace counts as over.

    Returns:
        Whether anything changed.
    """
    if meta.is_terminating(metadata) and metadata.deletionGracePeriodSeconds == 0:
        return False
    if not meta.is_terminating(metadata):
        metadata.deletionTimestamp.CopyFrom(meta.time_of(now_s))
        if metadata.generation > 0:
            metadata.generation += 1
    metadata.deletionGracePeriodSeconds = 0
    return True


def should_delete_on_update(new: Any, old: Any) -> bool:
    """Whether an update takes away the last thing that an object being deleted waited for."""
    if new.metadata.finalizers or not meta.is_terminating(old.metadata):
        return False
    return bool(old.metadata.deletionGracePeriodSeconds == 0)
