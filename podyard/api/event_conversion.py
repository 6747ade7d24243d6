"""core/v1 Event <-> events.k8s.io/v1 Event: one stored object, two views.

Events are stored as core/v1; the newer group renames fields and keeps the old ones as
`deprecated*`. Both directions lose nothing.

Counterpart: kubernetes pkg/apis/events/v1 conversion.
"""

from __future__ import annotations

from podyard.api.types import Event, EventsV1Event


def to_events_v1(event: Event) -> EventsV1Event:
    """The events.k8s.io/v1 view of a stored event."""
    view = EventsV1Event(
        reportingController=event.reportingComponent,
        reportingInstance=event.reportingInstance,
        action=event.action,
        reason=event.reason,
        note=event.message,
        type=event.type,
    )
    view.metadata.CopyFrom(event.metadata)
    view.regarding.CopyFrom(event.involvedObject)
    view.deprecatedSource.CopyFrom(event.source)
    view.deprecatedFirstTimestamp.CopyFrom(event.firstTimestamp)
    view.deprecatedLastTimestamp.CopyFrom(event.lastTimestamp)
    view.deprecatedCount = event.count
    view.eventTime.CopyFrom(event.eventTime)
    if event.HasField("related"):
        view.related.CopyFrom(event.related)
    if event.HasField("series"):
        view.series.count = event.series.count
        view.series.lastObservedTime.CopyFrom(event.series.lastObservedTime)
    return view


def from_events_v1(view: EventsV1Event) -> Event:
    """The stored form of an events.k8s.io/v1 event."""
    event = Event(
        reportingComponent=view.reportingController,
        reportingInstance=view.reportingInstance,
        action=view.action,
        reason=view.reason,
        message=view.note,
        type=view.type,
        count=view.deprecatedCount,
    )
    event.metadata.CopyFrom(view.metadata)
    event.involvedObject.CopyFrom(view.regarding)
    event.source.CopyFrom(view.deprecatedSource)
    event.firstTimestamp.CopyFrom(view.deprecatedFirstTimestamp)
    event.lastTimestamp.CopyFrom(view.deprecatedLastTimestamp)
    event.eventTime.CopyFrom(view.eventTime)
    if view.HasField("related"):
        event.related.CopyFrom(view.related)
    if view.HasField("series"):
        event.series.count = view.series.count
        event.series.lastObservedTime.CopyFrom(view.series.lastObservedTime)
    return event
