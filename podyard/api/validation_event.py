"""Validation of events: leniently through core/v1, strictly through events.k8s.io.

Both are checked in the stored form, so paths are those of core/v1, as upstream's are.

Counterpart: kubernetes pkg/apis/core/validation/events.go.
"""

from __future__ import annotations

from podyard.api import codec, event_conversion, meta, names
from podyard.api.errors import invalid, required
from podyard.api.types import Event, EventsV1Event
from podyard.api.validation_meta import (
    IMMUTABLE,
    Causes,
    each,
    go_struct,
    object_meta,
    object_meta_update,
)

MAX_NAME_CHARS = 128
MAX_NOTE_CHARS = 1024
_MISPLACED = "does not match event.namespace"


def event(obj: Event) -> Causes:
    """Any event: it stands in the namespace of what it is about; ones with `eventTime` are complete."""
    causes = _old_style(obj) if meta.is_zero_time(obj.eventTime) else _new_style(obj)
    namespace = obj.metadata.namespace
    return causes + each("namespace", namespace, names.dns_subdomain_problems(namespace))


def _old_style(obj: Event) -> Causes:
    about, namespace = obj.involvedObject.namespace, obj.metadata.namespace
    fits = namespace == about if about else namespace in ("", "default")
    return [] if fits else [invalid("involvedObject.namespace", about, _MISPLACED)]


def _new_style(obj: Event) -> Causes:
    causes: Causes = []
    about = obj.involvedObject.namespace
    if not about and obj.metadata.namespace not in ("default", "kube-system"):
        causes.append(invalid("involvedObject.namespace", about, _MISPLACED))
    controller = obj.reportingComponent
    if not controller:
        causes.append(required("reportingController"))
    causes += each("reportingController", controller, names.qualified_name_problems(controller))
    for name in ("reportingInstance", "action", "reason"):
        value = getattr(obj, name)
        if not value:
            causes.append(required(name))
        elif len(value.encode()) > MAX_NAME_CHARS:
            causes.append(invalid(name, "", f"can have at most {MAX_NAME_CHARS} characters"))
    if len(obj.message.encode()) > MAX_NOTE_CHARS:
        causes.append(invalid("message", "", f"can have at most {MAX_NOTE_CHARS} characters"))
    return causes


def event_v1(view: EventsV1Event) -> Causes:
    """A new event of events.k8s.io: none of the deprecated fields."""
    obj = event_conversion.from_events_v1(view)
    causes = event(obj)
    causes += object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)
    causes += _series(obj)
    if meta.is_zero_time(obj.eventTime):
        causes.append(required("eventTime"))
    if obj.type not in ("Normal", "Warning"):
        causes.append(invalid("type", "", f"has invalid value: {obj.type}"))
    unset = "needs to be unset"
    for name in ("firstTimestamp", "lastTimestamp"):
        if not meta.is_zero_time(getattr(obj, name)):
            causes.append(invalid(name, "", unset))
    if obj.count:
        causes.append(invalid("count", "", unset))
    if obj.source.component or obj.source.host:
        causes.append(invalid("source", "", unset))
    return causes


def _series(obj: Event) -> Causes:
    causes: Causes = []
    if obj.HasField("series"):
        if obj.series.count < 2:
            causes.append(invalid("series.count", "", "should be at least 2"))
        if meta.is_zero_time(obj.series.lastObservedTime):
            causes.append(required("series.lastObservedTime"))
    return causes


def event_update(new: Event, old: Event) -> Causes:
    """An update through core/v1: old clients may change anything."""
    return event(new)


def event_v1_update(new_view: EventsV1Event, old_view: EventsV1Event) -> Causes:
    """An update through events.k8s.io: only metadata and the series change."""
    new, old = event_conversion.from_events_v1(new_view), event_conversion.from_events_v1(old_view)
    causes = event(new) + object_meta_update(new.metadata, old.metadata)
    if codec.to_dict(new).get("series") != codec.to_dict(old).get("series"):
        causes += _series(new)
    fresh, stored = codec.to_dict(new), codec.to_dict(old)
    for name, key in _FIXED.items():
        if fresh.get(key) != stored.get(key):
            value = getattr(new, key)
            structured = isinstance(fresh.get(key), dict)
            causes.append(invalid(name, go_struct(value) if structured else fresh.get(key), IMMUTABLE))
    return causes


# Path in errors -> field of core/v1 Event.
_FIXED = {
    "involvedObject": "involvedObject",
    "reason": "reason",
    "message": "message",
    "source": "source",
    "firstTimestamp": "firstTimestamp",
    "lastTimestamp": "lastTimestamp",
    "count": "count",
    "type": "type",
    "eventTime": "eventTime",
    "action": "action",
    "related": "related",
    "reportingController": "reportingComponent",
    "reportingInstance": "reportingInstance",
}
