"""Following etcd's changes over broken connections, dead members and frozen ones, without a gap.

A watch resumes at its last delivered event's revision + 1, or a progress mark's: the rule of the
official Go client. A response's *header* revision is not a resume point for events: during
catch-up the header is ahead of what has been sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from apiserver.store import etcd_wire as wire
from apiserver.store.base import Expired, Stored, StoreEvent, StoreUnavailable, WatchBatch
from podyard.base import clock, ids, log
from podyard.base.backoff import Backoff
from podyard.base.run import Background

_logger = log.get_logger("etcd")

# A stream that has been silent this long is doubted: a frozen member's connection looks idle.
_SILENCE_S = 1.0
# A stream whose member answers but that stays behind the store's revision this long is given up.
_BEHIND_S = 5.0
_RECONNECT = Backoff(base_s=0.1, cap_s=1.0)
_PUT = 0


@dataclass(eq=False, slots=True)
class WatchStream:
    """One open Watch call on one member."""

    member: wire.Member
    call: Any = None
    abandoned: bool = False
    heard_s: float = 0.0
    behind_since_s: float | None = None
    # gRPC takes one write at a time.
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def abandon(self) -> None:
        """Ends the call: its reader goes on elsewhere."""
        self.abandoned = True
        if self.call is not None:
            self.call.cancel()

    async def read(self) -> Any:
        """The next response.

        Raises:
            StreamBroken: the stream ended, or was abandoned.
        """
        try:
            response = await self.call.read()
        except wire.CallFailed as error:
            raise StreamBroken(error.details() or str(error.code())) from error
        except asyncio.CancelledError:
            raise self._ended() from None
        if response is wire.EOF:
            raise StreamBroken("the member ended the stream")
        self.heard_s = clock.real_monotonic_s()
        return response

    async def write(self, request: Any) -> None:
        try:
            async with self.writing:
                await self.call.write(request)
        except (wire.CallFailed, asyncio.InvalidStateError) as error:
            raise StreamBroken(str(error)) from error
        except asyncio.CancelledError:
            raise self._ended() from None

    def _ended(self) -> BaseException:
        # gRPC reports an abandoned call as a cancellation, which must not end the task that reads it.
        task = asyncio.current_task()
        if task is not None and not task.cancelling():
            return StreamBroken("the stream was given up")
        return asyncio.CancelledError()


class StreamBroken(Exception):
    """The stream is gone; the watch goes on over another."""


class EtcdWatch:
    """One logical watch: a position in the order of revisions and the stream that moves it.

    Args:
        attempt_s: real seconds for a member to answer.
        start_revision: the first revision to deliver, above 0.
    """

    def __init__(
        self,
        members: wire.Members,
        prefix: str,
        *,
        start_revision: int,
        with_previous: bool,
        attempt_s: float,
        probe: Any,
    ) -> None:
        self._members = members
        self._prefix = prefix.encode()
        self._with_previous = with_previous
        self._attempt_s = attempt_s
        self._probe = probe
        # Everything at or below has been delivered.
        self._position = start_revision - 1
        self._stream: WatchStream | None = None
        self.closed = False

    async def batches(self) -> AsyncGenerator[WatchBatch, None]:
        """The events, for ever; see `Store.watch`."""
        failures = 0
        expired: Expired | None = None
        # The guard never fails, so no exception of a task can strike while this generator is suspended.
        # And nothing is raised through the group, which would wrap it.
        async with Background() as background:
            background.start(self._guard(), name="etcd watch guard")
            while not self.closed and expired is None:
                member = self._members.current
                stream = self._stream = WatchStream(member, heard_s=clock.real_monotonic_s())
                member.streams.add(stream)
                try:
                    await self._open(stream)
                    while True:
                        batch = await self._next(stream)
                        failures = 0
                        if batch is None:
                            continue
                        try:
                            yield batch
                        except GeneratorExit:
                            return
                except Expired as error:
                    expired = error
                    continue
                except StreamBroken as error:
                    _logger.debug("watch stream broke", member=member.endpoint, error=str(error))
                finally:
                    self._stream = None
                    member.streams.discard(stream)
                    stream.abandon()
                self._members.give_up(member)
                if failures:
                    await clock.real_sleep(_RECONNECT.delay_s(failures - 1, ids.jitter()))
                failures += 1
        raise expired or StoreUnavailable("the store is closed")

    async def request_progress(self) -> None:
        if self._stream is not None and self._stream.call is not None:
            try:
                await self._stream.write(wire.WatchRequest(progress_request=wire.WatchProgressRequest()))
            except StreamBroken:
                pass  # The reader finds out too; the next request goes to its new stream.

    def close(self) -> None:
        self.closed = True
        if self._stream is not None:
            self._stream.abandon()

    async def _open(self, stream: WatchStream) -> None:
        stream.call = stream.member.watch(metadata=wire.REQUIRE_LEADER)
        create = wire.WatchCreateRequest(
            key=self._prefix,
            range_end=wire.prefix_end(self._prefix),
            # One revision early, for two reasons: etcd answers a progress request only once it has
            # reached a watch's start, and some releases lose a deletion at exactly the compacted revision.
            start_revision=max(1, self._position),
            progress_notify=True,
            prev_kv=self._with_previous,
            fragment=True,
        )
        try:
            async with clock.real_timeout(2 * self._attempt_s):
                await stream.write(wire.WatchRequest(create_request=create))
                response = await stream.read()
        except TimeoutError:
            raise StreamBroken("the member did not open the watch in time") from None
        _check_alive(response)

    async def _next(self, stream: WatchStream) -> WatchBatch | None:
        """One response, its fragments merged; None when it brought nothing new."""
        response = await stream.read()
        _check_alive(response)
        events = list(response.events)
        while response.fragment:
            response = await stream.read()
            _check_alive(response)
            events.extend(response.events)
        if not events:
            if response.created or response.header.revision <= self._position:
                return None
            self._position = response.header.revision
            return WatchBatch((), self._position)
        fresh = tuple(_event(event) for event in events if event.kv.mod_revision > self._position)
        if not fresh:
            return None
        self._position = fresh[-1].revision
        return WatchBatch(fresh, self._position)

    async def _guard(self) -> None:
        """Finds streams that are dead without having said so, and those cut off from the cluster."""
        while True:
            await clock.real_sleep(_SILENCE_S)
            stream = self._stream
            if self.closed or stream is None or clock.real_monotonic_s() - stream.heard_s < _SILENCE_S:
                continue
            try:
                response = await stream.member.range(
                    self._probe, timeout=self._attempt_s, metadata=wire.REQUIRE_LEADER
                )
            except wire.CallFailed as error:
                _logger.info("etcd member is silent", member=stream.member.endpoint, error=error.details())
                self._members.give_up(stream.member)
                continue
            now_s = clock.real_monotonic_s()
            if response.header.revision <= self._position:
                stream.behind_since_s = None
                continue
            if stream.behind_since_s is None:
                stream.behind_since_s = now_s
            elif now_s - stream.behind_since_s > _BEHIND_S:
                _logger.warning("etcd watch stream is stuck", member=stream.member.endpoint)
                stream.abandon()
                continue
            await self.request_progress()


def _check_alive(response: Any) -> None:
    if response.canceled:
        if response.compact_revision:
            raise Expired(response.compact_revision)
        raise StreamBroken(response.cancel_reason or "the member cancelled the watch")


def _event(event: Any) -> StoreEvent:
    kv = event.kv
    key = kv.key.decode(errors="surrogateescape")
    previous = None
    if event.HasField("prev_kv"):
        previous = stored_of(event.prev_kv)
    if event.type == _PUT:
        return StoreEvent(key, kv.mod_revision, kv.value, previous, kv.create_revision)
    return StoreEvent(key, kv.mod_revision, None, previous)


def stored_of(kv: Any) -> Stored:
    """A `Stored` of etcd's KeyValue."""
    return Stored(kv.key.decode(errors="surrogateescape"), kv.value, kv.create_revision, kv.mod_revision)
