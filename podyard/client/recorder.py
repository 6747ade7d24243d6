"""Events about objects: aggregated, rate-limited, sent in the background.

An event that repeats becomes a higher `count` on the first one (upstream's correlator); a flood
about one object is cut off by a token bucket (25 at once, one more every 300 s). Events are
best-effort: when the server cannot be reached they are tried again for a while, then dropped.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any

from podyard.api import errors, resources, times
from podyard.api.errors import ApiError
from podyard.api.types import Event, Message
from podyard.base import clock, ids, log
from podyard.base.backoff import Backoff
from podyard.client.client import STRATEGIC_PATCH, Client

_LOGGER = log.get_logger("events")
_QUEUE_BOUND = 1000
_CACHE_BOUND = 4096
_BURST = 25.0
_REFILL_PER_S = 1 / 300
_TRIES = 12
_BACKOFF = Backoff(base_s=0.2, cap_s=10.0)
_MESSAGE_BYTES = 1024
_NAME_CHARACTERS = 253


@dataclass(slots=True)
class _Known:
    name: str
    namespace: str
    count: int
    first_s: int


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at_s: float


class Recorder:
    """Records events as one component.

    Args:
        client: writes.
        component: as upstream's source component, such as "kubelet".
        host: node name for per-node components.
    """

    def __init__(self, client: Client, component: str, host: str = "") -> None:
        self._client = client
        self._component = component
        self._host = host
        self._queue: deque[tuple[tuple[Any, ...], Event]] = deque()
        self._wake = asyncio.Event()
        self._known: OrderedDict[tuple[Any, ...], _Known] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()

    def event(
        self,
        about: Message,
        type_: str,
        reason: str,
        message: str,
        *,
        field_path: str = "",
        component: str = "",
    ) -> None:
        """Records an event; returns at once.

        Args:
            about: the object, with its uid.
            type_: Normal or Warning.
            field_path: such as `spec.containers{web}`.
            component: the source, where it is not this recorder's own.
        """
        component = component or self._component
        row = resources.by_message(type(about))
        metadata: Any = about.metadata  # type: ignore[attr-defined]
        reference = {
            "kind": row.kind,
            "apiVersion": row.api_version,
            "namespace": metadata.namespace,
            "name": metadata.name,
            "uid": metadata.uid,
            "resourceVersion": metadata.resourceVersion,
            "fieldPath": field_path,
        }
        now_s = clock.now_s()
        if not self._allowed((metadata.uid or metadata.name, component), now_s):
            return
        namespace = metadata.namespace or "default"
        seconds = int(now_s)
        event = Event(
            metadata={"name": _name(metadata.name, now_s), "namespace": namespace},
            involvedObject=reference,
            reason=reason,
            message=message.encode()[:_MESSAGE_BYTES].decode(errors="ignore"),
            source={"component": component, "host": self._host},
            firstTimestamp={"seconds": seconds},
            lastTimestamp={"seconds": seconds},
            count=1,
            type=type_,
            reportingComponent=component,
            reportingInstance=self._host,
        )
        key = (
            component,
            row.kind,
            metadata.uid,
            metadata.name,
            namespace,
            field_path,
            type_,
            reason,
            message,
        )
        if len(self._queue) >= _QUEUE_BOUND:
            self._queue.popleft()
        self._queue.append((key, event))
        self._wake.set()

    def _allowed(self, source: tuple[str, str], now_s: float) -> bool:
        bucket = self._buckets.setdefault(source, _Bucket(_BURST, now_s))
        self._buckets.move_to_end(source)
        if len(self._buckets) > _CACHE_BOUND:
            self._buckets.popitem(last=False)
        bucket.tokens = min(_BURST, bucket.tokens + (now_s - bucket.at_s) * _REFILL_PER_S)
        bucket.at_s = now_s
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    async def run(self) -> None:
        """Sends; ends by cancellation only."""
        while True:
            while self._queue:
                entry = self._queue[0]
                await self._send(*entry)
                # Only now, so that `flush` finds what a cancelled send has left; a full queue may
                # have dropped it meanwhile.
                if self._queue and self._queue[0] is entry:
                    self._queue.popleft()
            self._wake.clear()
            if not self._queue:
                await self._wake.wait()

    async def flush(self, timeout_s: float) -> None:
        """Sends what is left before a process ends."""
        try:
            async with clock.real_timeout(timeout_s):
                while self._queue:
                    key, event = self._queue.popleft()
                    await self._send(key, event, tries=1)
        except TimeoutError:
            pass

    async def _send(self, key: tuple[Any, ...], event: Event, tries: int = _TRIES) -> None:
        for attempt in range(tries):
            try:
                await self._write(key, event)
                return
            except ApiError as error:
                if not error.retryable:
                    _LOGGER.debug("event refused", reason=event.reason, error=error.message)
                    return
            await clock.real_sleep(_BACKOFF.delay_s(attempt, ids.jitter()))
        _LOGGER.warning("event dropped", reason=event.reason, name=event.involvedObject.name)

    async def _write(self, key: tuple[Any, ...], event: Event) -> None:
        known = self._known.get(key)
        if known is not None:
            body = {"count": known.count + 1, "lastTimestamp": times.text(event.lastTimestamp.seconds)}
            try:
                await self._client.patch(
                    Event, known.name, known.namespace, body=body, patch_type=STRATEGIC_PATCH
                )
                known.count += 1
                self._known.move_to_end(key)
                return
            except errors.NotFound:
                del self._known[key]  # its time to live is over: begin a new one
        try:
            await self._client.create(event)
        except errors.AlreadyExists:
            pass  # an earlier try did arrive
        metadata = event.metadata
        self._known[key] = _Known(metadata.name, metadata.namespace, 1, event.firstTimestamp.seconds)
        if len(self._known) > _CACHE_BOUND:
            self._known.popitem(last=False)


def _name(about: str, now_s: float) -> str:
    """A name for an event: of its object and the time, so that names sort as the events happened."""
    suffix = f".{int(now_s * 1e9):x}{ids.hex_id(4)}"
    # Names of some kinds (roles) are no names of events.
    plain = re.sub(r"[^a-z0-9.-]+", "-", about.lower())[: _NAME_CHARACTERS - len(suffix)]
    return plain.strip("-.") + suffix
