"""Metadata over an object's life: what the server keeps from the stored object on an update.

Counterpart: apimachinery `api/validation` ValidateObjectMetaUpdate (its changes), rest.BeforeUpdate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from podyard.api import codec, meta
from podyard.api.types import Message, ObjectMeta


def carry_over(new: ObjectMeta, old: ObjectMeta) -> None:
    """Fills what the client left out and takes back what it may not change; `new` is changed."""
    new.uid = new.uid or old.uid
    if not meta.is_zero_time(old.creationTimestamp):
        new.creationTimestamp.CopyFrom(old.creationTimestamp)
    # A deletion can't be taken back, nor its grace cleared.
    if old.HasField("deletionTimestamp"):
        new.deletionTimestamp.CopyFrom(old.deletionTimestamp)
    if old.HasField("deletionGracePeriodSeconds") and not new.HasField("deletionGracePeriodSeconds"):
        new.deletionGracePeriodSeconds = old.deletionGracePeriodSeconds
    new.generation = old.generation
    new.selfLink = ""


def first_generation(obj: Any) -> None:
    """Kinds with a spec count its versions from 1."""
    obj.metadata.generation = 1


def count_generation(new: Any, old: Any, part: Callable[[Any], Message]) -> None:
    """One more when this part (the spec) changed."""
    new.metadata.generation = old.metadata.generation
    if not codec.same(part(new), part(old)):
        new.metadata.generation += 1


def counting(part: str) -> Callable[[Any, Any], None]:
    """A step that counts the versions of one field."""

    def count(new: Any, old: Any) -> None:
        new.metadata.generation = old.metadata.generation
        one, other = (obj.__class__() for obj in (new, old))
        for bare, obj in ((one, new), (other, old)):
            if isinstance(getattr(obj, part), Message):
                getattr(bare, part).CopyFrom(getattr(obj, part))
            else:
                getattr(bare, part).MergeFrom(getattr(obj, part))
        if not codec.same(one, other):
            new.metadata.generation += 1

    return count


def clear_status(obj: Any) -> None:
    """A new object has no status."""
    obj.ClearField("status")
    obj.status.SetInParent()


def keep_status(new: Any, old: Any) -> None:
    """The stored status stays."""
    new.status.CopyFrom(old.status)


def keep_spec(new: Any, old: Any) -> None:
    """An update of the status leaves the spec."""
    new.spec.CopyFrom(old.spec)


def count_body_generation(new: Any, old: Any) -> None:
    """One more when anything but metadata changed; labels count too (EndpointSlice)."""
    new.metadata.generation = old.metadata.generation
    bodies = []
    for obj in (new, old):
        body = codec.to_dict(obj)
        body["metadata"] = dict(obj.metadata.labels)
        bodies.append(body)
    if bodies[0] != bodies[1]:
        new.metadata.generation += 1
