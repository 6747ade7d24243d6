"""Events go when nobody has told them again for an hour.

Upstream gives each a lease of its store. Here the watch cache is looked through instead: that leaves the
store nothing to keep, costs nothing where there are no events, and follows the cluster's clock.

Source: --event-ttl of kube-apiserver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from google.protobuf.message import DecodeError

from apiserver.store.base import RevisionMismatch, Store, StoreError
from apiserver.watchcache import WatchCache
from apiserver.watchcache_events import CachedObject
from podyard.api import codec, resources
from podyard.api.types import Event
from podyard.base import clock, ids, log

TTL_S = 3600.0
# How much longer than that one may stay, as a share of it.
_LATE = 1 / 12

_logger = log.get_logger("event-expiry")


class Told(NamedTuple):
    """When an event was told last, as of one revision of it; seconds of the cluster's clock."""

    revision: int
    at_s: float


def look(events: Iterable[CachedObject], before: Mapping[str, Told], now_s: float) -> dict[str, Told]:
    """When each event was told last, by key: pure.

    Args:
        before: the answer of the look before; what has not changed since is not read again.
    """
    found = {}
    for event in events:
        known = before.get(event.key)
        if known is None or known.revision != event.revision:
            # Whoever's clock is ahead, told it is by now.
            known = Told(event.revision, min(_told_s(event), now_s))
        found[event.key] = known
    return found


def _told_s(event: CachedObject) -> float:
    try:
        message = Event.FromString(codec.decode_envelope(event.value)[2])
    except (codec.EnvelopeError, DecodeError):
        return float("inf")  # as if told just now: who reads it is told why it cannot be
    times = (
        message.metadata.creationTimestamp,
        message.lastTimestamp,
        message.eventTime,
        message.series.lastObservedTime,
    )
    return float(max(time.seconds for time in times))


async def run(store: Store, cache: WatchCache, *, ttl_s: float = TTL_S) -> None:
    """Deletes expired events for ever.

    Args:
        ttl_s: how long an event stays after it was told last, by the cluster's clock.
    """
    table = resources.by_message(Event).storage_prefix
    told: dict[str, Told] = {}
    while True:
        await clock.sleep(ttl_s * _LATE * (1 + 0.05 * ids.jitter()))
        if not cache.ready:
            continue
        now_s = clock.now_s()
        told = look(cache.select(table).objects, told, now_s)
        try:
            for key, last in told.items():
                if last.at_s <= now_s - ttl_s:
                    with suppress(RevisionMismatch):  # told again, or gone
                        await store.delete(key, expected_revision=last.revision)
        except StoreError as error:  # the next look goes on
            _logger.warning("events could not be deleted", error=str(error))
