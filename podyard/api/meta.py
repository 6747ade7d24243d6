"""Small rules over ObjectMeta, times, conditions and owner references that every component needs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from podyard.api import times
from podyard.api.types import Message, MicroTime, ObjectMeta, OwnerReference, Time


def time_of(seconds: float) -> Time:
    """A Time, cut to whole seconds as upstream's JSON does."""
    return Time(seconds=math.floor(seconds), nanos=0)


def is_zero_time(moment: Time | MicroTime) -> bool:
    """Whether no time is set."""
    return not (moment.HasField("seconds") or moment.HasField("nanos"))


def seconds_of(moment: Time | MicroTime) -> float | None:
    """Seconds since the epoch; None when no time is set."""
    return None if is_zero_time(moment) else moment.seconds + moment.nanos / 1e9


def age_text(created: Time | MicroTime, now_s: float) -> str:
    """An age for people, `<unknown>` when there is no time."""
    seconds = seconds_of(created)
    return "<unknown>" if seconds is None else times.age_text(now_s - seconds)


def is_terminating(metadata: ObjectMeta) -> bool:
    """Whether the object is being deleted."""
    return metadata.HasField("deletionTimestamp")


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    """The owner that manages this object; None when nobody does."""
    return next((owner for owner in metadata.ownerReferences if owner.controller), None)


def owner_reference(owner: Message, api_version: str, kind: str) -> OwnerReference:
    """A controlling owner reference to an object."""
    metadata = owner.metadata  # type: ignore[attr-defined]
    return OwnerReference(
        apiVersion=api_version,
        kind=kind,
        name=metadata.name,
        uid=metadata.uid,
        controller=True,
        blockOwnerDeletion=True,
    )


def condition(conditions: Iterable[Any], kind: str) -> Any | None:
    """The condition of this type; None when there is none."""
    return next((found for found in conditions if found.type == kind), None)


def is_condition_true(conditions: Iterable[Any], kind: str) -> bool:
    """Whether the condition of this type has status True."""
    found = condition(conditions, kind)
    return found is not None and found.status == "True"


def set_condition(
    conditions: Any,
    kind: str,
    status: str,
    now_s: float,
    *,
    reason: str = "",
    message: str = "",
    observed_generation: int | None = None,
) -> bool:
    """Sets a condition in a repeated field; the transition time moves only when the status changes.

    Args:
        observed_generation: for conditions that have it; None leaves it.

    Returns:
        Whether anything changed.
    """
    found = condition(conditions, kind)
    if found is None:
        found = conditions.add(type=kind)
    elif (found.status, found.reason, found.message) == (status, reason, message) and (
        observed_generation is None or found.observedGeneration == observed_generation
    ):
        return False
    if observed_generation is not None:
        found.observedGeneration = observed_generation
    if found.status != status:
        found.lastTransitionTime.CopyFrom(time_of(now_s))
    found.status, found.reason, found.message = status, reason, message
    return True
